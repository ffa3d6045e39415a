//! Merging: a later file over an earlier one, an extending service over its base.

use crate::desired::node::{Entry, Map, Node, Tag, Value};
use crate::desired::table::{Shape, TOP, Table};

/// The later tree over the earlier one; both in normal form, of the file's own shape.
pub(in crate::desired) fn merge(base: Node, over: Node) -> Node {
    merged(Shape::Table(&TOP), base, over)
}

fn merged(shape: Shape, base: Node, over: Node) -> Node {
    if over.tag == Tag::Override {
        return Node { tag: Tag::None, ..over };
    }
    let at = over.at;
    match (shape, base.value, over.value) {
        (Shape::Command, _, value) => Node::new(at, value),
        (_, Value::Map(base), Value::Map(over)) => Node::new(at, Value::Map(maps(shape, base, over))),
        (_, Value::Seq(mut base), Value::Seq(over)) => {
            base.extend(over);
            let mut node = Node::new(at, Value::Seq(base));
            unify(shape, &mut node);
            node
        }
        // In a mapping of names, a name alone adds nothing to what is there.
        (Shape::Table(_) | Shape::TableOrNull(_), base @ Value::Map(_), Value::Null) => Node::new(at, base),
        (_, _, over) => Node::new(at, over),
    }
}

fn maps(shape: Shape, mut base: Map, over: Map) -> Map {
    for (key, entry) in over {
        if entry.node.tag == Tag::Reset {
            base.shift_remove(&key);
            continue;
        }
        let inner = inner(shape, &key);
        match base.get_mut(&key) {
            Some(slot) => {
                let before = std::mem::replace(&mut slot.node, Node::new(entry.at, Value::Null));
                *slot = Entry { at: entry.at, node: merged(inner, before, entry.node) };
            }
            None => {
                base.insert(key, entry);
            }
        }
    }
    base
}

/// The shape of a value inside a mapping of this shape.
fn inner(shape: Shape, key: &str) -> Shape {
    let of = |table: &'static Table| table.key(key).map_or(Shape::Any, |key| key.shape);
    match shape {
        Shape::Table(table) | Shape::TableOrNull(table) => of(table),
        Shape::Names(table, _) => Shape::Table(table),
        Shape::Attachments => Shape::Table(&crate::desired::table::ATTACHMENT),
        _ => Shape::Any,
    }
}

/// Takes the tags out of a tree and drops what `!reset` names.
pub(in crate::desired) fn settle(node: &mut Node) {
    node.tag = Tag::None;
    match &mut node.value {
        Value::Map(map) => {
            map.retain(|_, entry| entry.node.tag != Tag::Reset);
            map.values_mut().for_each(|entry| settle(&mut entry.node));
        }
        Value::Seq(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}

/// In lists whose items have a key, the last item of a key counts, in the place of the first.
pub(super) fn unify(shape: Shape, node: &mut Node) {
    let Value::Seq(items) = &mut node.value else { return };
    let key: fn(&Node) -> Option<String> = match shape {
        Shape::Ports => port_key,
        Shape::Mounts => |node| node.get_text("target").map(str::to_owned),
        Shape::Texts | Shape::TextOrTexts => |node| node.as_text().map(str::to_owned),
        _ => return,
    };
    let mut out: indexmap::IndexMap<String, Node> = indexmap::IndexMap::with_capacity(items.len());
    for (number, node) in std::mem::take(items).into_iter().enumerate() {
        let key = key(&node).unwrap_or_else(|| format!("\0{number}"));
        out.insert(key, node);
    }
    items.extend(out.into_values());
}

fn port_key(node: &Node) -> Option<String> {
    let text = |key: &str, default: &str| node.get_text(key).unwrap_or(default).to_owned();
    let target = node.get("target")?.scalar_text()?;
    Some(format!("{}:{}:{target}/{}", text("host_ip", "0.0.0.0"), text("published", ""), text("protocol", "tcp")))
}
