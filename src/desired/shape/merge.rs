//! Merging: a later file over an earlier one, an extending service over its base.

use crate::desired::node::{Entry, Map, Node, Tag, Value};
use crate::desired::table::{ATTACHMENT, DEPENDENCY, SERVICE, Shape, TOP, Table};
use std::collections::HashMap;

/// The later file over the earlier one; both in normal form.
pub(in crate::desired) fn merge(base: Node, over: Node) -> Node {
    merged("", Shape::Table(&TOP), base, over)
}

/// A service over the one that it is made from.
pub(in crate::desired) fn merge_service(base: Node, over: Node) -> Node {
    merged("", Shape::Table(&SERVICE), base, over)
}

fn merged(name: &str, shape: Shape, base: Node, over: Node) -> Node {
    if over.tag == Tag::Override {
        return Node { tag: Tag::None, ..over };
    }
    let at = over.at;
    match (shape, base.value, over.value) {
        (Shape::Command | Shape::Test | Shape::Ulimits, base, over) => Node::new(at, replaced(base, over)),
        // Options of one driver mean nothing to another.
        (Shape::Table(table), Value::Map(base), Value::Map(over))
            if table.what == "logging" && differ(&base, &over) =>
        {
            Node::new(at, Value::Map(over))
        }
        (_, Value::Map(base), Value::Map(over)) => Node::new(at, Value::Map(maps(shape, base, over))),
        (_, Value::Seq(mut base), Value::Seq(over)) => {
            base.extend(over);
            let mut node = Node::new(at, Value::Seq(base));
            unify(shape, &mut node);
            if name == "config" {
                unify_by(&mut node, |node| node.get_text("subnet").map(str::to_owned));
            }
            node
        }
        // A name alone adds nothing to what is there.
        (Shape::Table(_) | Shape::TableOrNull(_), base @ Value::Map(_), Value::Null) => Node::new(at, base),
        (_, _, over) => Node::new(at, over),
    }
}

/// What is not merged any deeper: the later value, but of limits each by its name.
fn replaced(base: Value, over: Value) -> Value {
    match (base, over) {
        (Value::Map(mut base), Value::Map(over)) => {
            over.into_iter().for_each(|(key, entry)| put(&mut base, key, entry));
            Value::Map(base)
        }
        (_, over) => over,
    }
}

fn put(map: &mut Map, key: String, entry: Entry) {
    if entry.node.tag == Tag::Reset {
        map.remove(&key);
    } else {
        map.insert(key, entry);
    }
}

fn differ(base: &Map, over: &Map) -> bool {
    let driver = |map: &Map| map.get("driver").and_then(|entry| entry.node.as_text().map(str::to_owned));
    matches!((driver(base), driver(over)), (Some(a), Some(b)) if a != b)
}

fn maps(shape: Shape, mut base: Map, over: Map) -> Map {
    for (key, entry) in over {
        let inner = inner(shape, &key);
        match base.get_mut(&key) {
            Some(slot) if entry.node.tag != Tag::Reset => {
                let before = std::mem::replace(&mut slot.node, Node::new(entry.at, Value::Null));
                *slot = Entry { at: entry.at, node: merged(&key, inner, before, entry.node) };
            }
            _ => put(&mut base, key, entry),
        }
    }
    base
}

/// The shape of a value inside a mapping of this shape.
fn inner(shape: Shape, key: &str) -> Shape {
    let of = |table: &'static Table| table.key(key).map_or(Shape::Any, |key| key.shape);
    match shape {
        Shape::Table(table) | Shape::TableOrNull(table) => of(table),
        Shape::Build => of(&crate::desired::table::BUILD),
        Shape::Names(table, _) => Shape::Table(table),
        Shape::Attachments => Shape::Table(&ATTACHMENT),
        Shape::DependsOn => Shape::Table(&DEPENDENCY),
        Shape::ExtraHosts => Shape::Texts,
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
    unify_by(node, |node| key_of(shape, node));
}

/// What makes an item of a list the same as another; nothing where every item counts.
pub(super) fn key_of(shape: Shape, node: &Node) -> Option<String> {
    let text = |key: &str| node.get_text(key).map(str::to_owned);
    match shape {
        Shape::Ports => port_key(node),
        Shape::Mounts | Shape::Devices => text("target"),
        Shape::EnvFiles => text("path"),
        Shape::Grants(_) => text("target").or_else(|| Some(format!("/{}", node.get_text("source")?))),
        Shape::TextOrTexts => Some(node.as_text()?.split('=').next().unwrap_or_default().to_owned()),
        Shape::Texts | Shape::Strings => node.as_text().map(str::to_owned),
        _ => None,
    }
}

fn unify_by(node: &mut Node, key: impl Fn(&Node) -> Option<String>) {
    let Value::Seq(items) = &mut node.value else { return };
    if items.len() < 2 {
        return;
    }
    let mut places: HashMap<String, usize> = HashMap::with_capacity(items.len());
    let mut out: Vec<Node> = Vec::with_capacity(items.len());
    for node in std::mem::take(items) {
        let place = key(&node).map(|key| *places.entry(key).or_insert(out.len())).filter(|place| *place < out.len());
        match place {
            Some(place) => out[place] = node,
            None => out.push(node),
        }
    }
    *items = out;
}

fn port_key(node: &Node) -> Option<String> {
    let text = |key: &str, default: &str| node.get_text(key).unwrap_or(default).to_owned();
    let target = node.get("target")?.scalar_text()?;
    Some(format!("{}:{}:{target}/{}", text("host_ip", "0.0.0.0"), text("published", ""), text("protocol", "tcp")))
}
