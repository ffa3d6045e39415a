//! Parts of a service that name other things: networks, dependencies, configs, secrets, limits.

use super::Normal;
use crate::desired::node::{Entry, Map, Node, Value};
use crate::desired::table::{ATTACHMENT, DEPENDENCY, GRANT, MODEL_USE, Shape, Table, ULIMIT};

impl Normal<'_> {
    /// Networks of a service: a list of names, or names with settings.
    pub(super) fn attachments(&mut self, node: Node) -> Option<Node> {
        self.uses("networks", &ATTACHMENT, node)
    }

    /// Models of a service, in the same two forms.
    pub(super) fn models(&mut self, node: Node) -> Option<Node> {
        self.uses("models", &MODEL_USE, node)
    }

    fn uses(&mut self, what: &str, table: &'static Table, node: Node) -> Option<Node> {
        let at = node.at;
        let mut out = Map::new();
        match node.value {
            Value::Seq(items) => {
                for item in items {
                    let Some(item) = self.item(what, item) else { continue };
                    let name = item.as_text().unwrap_or_default().to_owned();
                    out.insert(name, Entry { at: item.at, node: Node::new(item.at, Value::Null) });
                }
            }
            Value::Map(map) => {
                for (name, entry) in map {
                    let node = match entry.node.value {
                        Value::Null => Some(entry.node),
                        _ => self.normal(&name, Shape::Table(table), entry.node),
                    };
                    if let Some(node) = node {
                        out.insert(name, Entry { at: entry.at, node });
                    }
                }
            }
            _ => {
                self.mismatch(what, "a list of names or a mapping", &node);
                return None;
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }

    /// Services that this one waits for: names, which only have to be started, or names with conditions.
    pub(super) fn depends_on(&mut self, node: Node) -> Option<Node> {
        let at = node.at;
        let mut out = Map::new();
        match node.value {
            Value::Seq(items) => {
                for item in items {
                    let Some(item) = self.item("depends_on", item) else { continue };
                    let fields = [
                        ("condition", Node::text(item.at, "service_started")),
                        ("required", Node::new(item.at, Value::Bool(true))),
                    ];
                    let name = item.as_text().unwrap_or_default().to_owned();
                    out.insert(name, Entry { at: item.at, node: Node::map(item.at, fields) });
                }
            }
            Value::Map(map) => {
                for (name, entry) in map {
                    if let Some(node) = self.normal(&name, Shape::Table(&DEPENDENCY), entry.node) {
                        out.insert(name, Entry { at: entry.at, node });
                    }
                }
            }
            _ => {
                self.mismatch("depends_on", "a list of names or a mapping", &node);
                return None;
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }

    /// Configs or secrets of a service: names, or names with the file that they become.
    pub(super) fn grants(&mut self, name: &str, secret: bool, node: Node) -> Option<Node> {
        let (at, items) = self.items(name, "a list", node)?;
        let mut out = Vec::new();
        for item in items {
            let mut node = match &item.value {
                Value::Text(_) => Some(Node::map(item.at, [("source", item)])),
                Value::Map(_) => self.table(name, &GRANT, item),
                _ => {
                    self.mismatch(&format!("an item of {name}"), "a name or a mapping", &item);
                    None
                }
            };
            if let (true, Some(node)) = (secret, &mut node) {
                let (at, source) = (node.at, node.get_text("source").unwrap_or_default().to_owned());
                if let Some(map) = node.as_map_mut() {
                    let target = Node::text(at, format!("/run/secrets/{source}"));
                    map.or_insert_with("target", || Entry { at, node: target });
                }
            }
            out.extend(node);
        }
        Some(Node::new(at, Value::Seq(out)))
    }

    /// Limits: one number for both, or a soft and a hard one.
    pub(super) fn ulimits(&mut self, node: Node) -> Option<Node> {
        let at = node.at;
        let Value::Map(map) = node.value else {
            self.mismatch("ulimits", "a mapping", &node);
            return None;
        };
        let mut out = Map::new();
        for (name, entry) in map {
            if !name.chars().all(|c| c.is_ascii_lowercase()) || name.is_empty() {
                self.findings.error(entry.at, format!("`{name}` is not the name of a limit")).hint("like `nofile`");
                continue;
            }
            let shape = if entry.node.as_map().is_some() { Shape::Table(&ULIMIT) } else { Shape::Int };
            if let Some(node) = self.normal(&name, shape, entry.node) {
                for (key, other) in [("soft", "hard"), ("hard", "soft")] {
                    if node.as_map().is_some_and(|map| map.contains_key(key) && !map.contains_key(other)) {
                        self.findings.error(node.at, format!("the limit `{name}` has `{key}` but not `{other}`"));
                    }
                }
                out.insert(name, Entry { at: entry.at, node });
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }
}
