//! Values that are names with something each.

use super::Normal;
use super::scalars::is_remote;
use crate::desired::node::{At, Entry, Map, Node, Value};

impl Normal<'_> {
    /// Names with values. A name without a value in a list has none; nothing in a mapping is none as well.
    pub(super) fn dict(&mut self, name: &str, node: Node) -> Option<Node> {
        let at = node.at;
        let mut out = Map::new();
        match node.value {
            Value::Map(map) => {
                for (key, entry) in map {
                    let value = match entry.node.scalar_text() {
                        _ if entry.node.value == Value::Float(f64::INFINITY) => None,
                        Some(text) => Some(Value::Text(text)),
                        None => (entry.node.value == Value::Null).then_some(Value::Null),
                    };
                    let Some(value) = value else {
                        let kind = entry.node.kind();
                        let message = format!("the value of `{key}` under `{name}` must be a scalar, not {kind}");
                        self.findings.error(entry.node.at, message);
                        continue;
                    };
                    self.dict_name(name, &key, entry.at);
                    out.insert(key, Entry { at: entry.at, node: Node { value, ..entry.node } });
                }
            }
            Value::Seq(items) => {
                for item in items {
                    let Some(item) = self.item(name, item) else { continue };
                    let text = item.as_text().unwrap_or_default();
                    let (key, value) = match text.split_once('=') {
                        Some((key, value)) => (key, Value::Text(value.to_owned())),
                        None => (text, Value::Null),
                    };
                    self.dict_name(name, key, item.at);
                    out.insert(key.to_owned(), Entry { at: item.at, node: Node::new(item.at, value) });
                }
            }
            _ => {
                self.mismatch(name, "a mapping or a list", &node);
                return None;
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }

    fn dict_name(&mut self, name: &str, key: &str, at: At) {
        if name == "environment" && (key.is_empty() || key.trim() != key || key.contains('\0')) {
            let message = format!("\"{key}\" is not a variable name");
            self.findings.error(at, message).hint("names have no spaces round them");
        }
    }

    /// The same, where nothing stands for an empty value.
    pub(super) fn labels(&mut self, name: &str, node: Node) -> Option<Node> {
        let mut node = self.dict(name, node)?;
        for entry in node.as_map_mut()?.values_mut() {
            if entry.node.value == Value::Null && entry.node.tag == crate::desired::node::Tag::None {
                entry.node.value = Value::Text(String::new());
            }
        }
        Some(node)
    }

    /// Names with texts or numbers, for a driver.
    pub(super) fn options(&mut self, name: &str, node: Node) -> Option<Node> {
        let at = node.at;
        let Value::Map(map) = node.value else {
            self.mismatch(name, "a mapping", &node);
            return None;
        };
        let mut out = Map::new();
        for (key, entry) in map {
            let value = match &entry.node.value {
                Value::Null => String::new(),
                Value::Text(_) | Value::Int(_) | Value::Float(_) => entry.node.scalar_text().unwrap_or_default(),
                _ => {
                    self.mismatch(&key, "text or a number", &entry.node);
                    continue;
                }
            };
            let node = Node { value: Value::Text(value), ..entry.node };
            out.insert(key, Entry { at: entry.at, node });
        }
        Some(Node::new(at, Value::Map(out)))
    }

    /// Build contexts by name; those that are paths are the file's.
    pub(super) fn contexts(&mut self, name: &str, node: Node) -> Option<Node> {
        let mut node = self.labels(name, node)?;
        for entry in node.as_map_mut()?.values_mut() {
            if let Value::Text(text) = &mut entry.node.value
                && !is_remote(text)
            {
                *text = self.path(text);
            }
        }
        Some(node)
    }

    /// Keys of an agent: `default`, or `name=path`.
    pub(super) fn ssh(&mut self, name: &str, node: Node) -> Option<Node> {
        let node = self.labels(name, node)?;
        let at = node.at;
        let keys = node.as_map()?.iter().map(|(key, entry)| match entry.node.as_text() {
            Some("") | None => Node::text(entry.at, key.as_str()),
            Some(path) => Node::text(entry.at, format!("{key}={path}")),
        });
        let keys = keys.collect();
        Some(Node::new(at, Value::Seq(keys)))
    }

    /// Host names with their addresses: `name:address`, `name=address`, several by commas, IPv6 in brackets or not.
    pub(super) fn extra_hosts(&mut self, name: &str, node: Node) -> Option<Node> {
        let at = node.at;
        let mut out = Map::new();
        match node.value {
            Value::Seq(items) => {
                for item in items {
                    let Some(item) = self.item(name, item) else { continue };
                    let text = item.as_text().unwrap_or_default();
                    match text.split_once('=').or_else(|| text.split_once(':')) {
                        Some((host, addresses)) if !host.is_empty() && !addresses.is_empty() => {
                            add_host(&mut out, item.at, host, addresses.split(',').map(|ip| (item.at, ip)));
                        }
                        _ => {
                            let message = format!("\"{text}\" is not a host with an address");
                            self.findings.error(item.at, message).hint("write it as `name=10.0.0.1`");
                        }
                    }
                }
            }
            Value::Map(map) => {
                for (host, entry) in map {
                    let addresses = self.text_or_texts(&host, entry.node)?;
                    let items = addresses.as_seq().unwrap_or_default();
                    let pairs = items.iter().map(|item| (item.at, item.as_text().unwrap_or_default()));
                    add_host(&mut out, entry.at, &host, pairs);
                }
            }
            _ => {
                self.mismatch(name, "a mapping or a list", &node);
                return None;
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }
}

fn add_host<'t>(out: &mut Map, at: At, host: &str, addresses: impl Iterator<Item = (At, &'t str)>) {
    let entry = out.or_insert_with(host, || Entry { at, node: Node::new(at, Value::Seq(Vec::new())) });
    let Value::Seq(list) = &mut entry.node.value else { return };
    for (at, address) in addresses {
        let address = address.trim();
        let bare = address.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(address);
        if !list.iter().any(|known| known.as_text() == Some(bare)) {
            list.push(Node::text(at, bare));
        }
    }
}
