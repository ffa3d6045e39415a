//! Values with a short form of their own: files, builds, devices, what comes from elsewhere.

use super::Normal;
use crate::desired::node::{Entry, Node, Value};
use crate::desired::table::{BUILD, DEVICE, DEVICE_REQUEST, ENV_FILE, EXTENDS, EXTERNAL, INCLUDE, Shape};

impl Normal<'_> {
    /// Files with variables: a path, or a list of paths and mappings.
    pub(super) fn env_files(&mut self, node: Node) -> Option<Node> {
        let at = node.at;
        let items = match node.value {
            Value::Text(_) => vec![node],
            Value::Seq(items) => items,
            _ => {
                self.mismatch("env_file", "text or a list", &node);
                return None;
            }
        };
        let mut out = Vec::new();
        for item in items {
            match item.value {
                Value::Text(_) => {
                    let place = item.at;
                    let path = self.one_path("env_file", item);
                    out.extend(path.map(|path| Node::map(place, [("path", path)])));
                }
                Value::Map(_) => {
                    let node = self.table("env_file", &ENV_FILE, item)?;
                    if node.get("path").is_none() {
                        self.findings.error(node.at, "an env file needs a `path`");
                        continue;
                    }
                    if let Some(format) = node.get("format").filter(|format| format.as_text() != Some("raw")) {
                        let message = format!("there is no format `{}`", format.as_text().unwrap_or_default());
                        self.findings.error(format.at, message).hint("the only other format is `raw`");
                    }
                    out.push(node);
                }
                _ => self.mismatch("an item of env_file", "text or a mapping", &item),
            }
        }
        Some(Node::new(at, Value::Seq(out)))
    }

    /// The service that this one is made from: a name, or a name with a file.
    pub(super) fn extends(&mut self, node: Node) -> Option<Node> {
        let at = node.at;
        if node.as_text().is_some() {
            return Some(Node::map(at, [("service", node)]));
        }
        let node = self.table("extends", &EXTENDS, node)?;
        if node.get("service").is_none() {
            self.findings.error(at, "`extends` needs the name of a `service`");
            return None;
        }
        Some(node)
    }

    /// Files that this one includes, each as a mapping.
    pub(super) fn includes(&mut self, node: Node) -> Option<Node> {
        let (at, items) = self.items("include", "a list", node)?;
        let mut out = Vec::new();
        for item in items {
            match item.value {
                Value::Text(_) => {
                    let place = item.at;
                    out.extend(self.paths("path", item).map(|paths| Node::map(place, [("path", paths)])));
                }
                Value::Map(_) => {
                    let node = self.table("include", &INCLUDE, item)?;
                    if node.get("path").is_none() {
                        self.findings.error(node.at, "an include needs a `path`");
                    } else {
                        out.push(node);
                    }
                }
                _ => self.mismatch("an item of include", "text or a mapping", &item),
            }
        }
        Some(Node::new(at, Value::Seq(out)))
    }

    /// Whether something is made by others; the old form with a name stays a mapping until its neighbours are known.
    pub(super) fn external(&mut self, name: &str, node: Node) -> Option<Node> {
        if node.as_map().is_some() { self.table(name, &EXTERNAL, node) } else { self.boolean(name, node) }
    }

    /// How an image is built: its context alone, or everything.
    pub(super) fn build(&mut self, node: Node) -> Option<Node> {
        let at = node.at;
        if node.as_text().is_some() {
            return Some(Node::map(at, [("context", self.context("build", node)?)]));
        }
        self.table("build", &BUILD, node)
    }

    /// Device files: `SOURCE[:TARGET[:PERMISSIONS]]`, or a mapping.
    pub(super) fn devices(&mut self, node: Node) -> Option<Node> {
        let (at, items) = self.items("devices", "a list", node)?;
        let mut out = Vec::new();
        for item in items {
            match &item.value {
                Value::Map(_) => {
                    let node = self.table("device", &DEVICE, item)?;
                    if node.get("source").is_none() {
                        self.findings.error(node.at, "a device needs a `source`");
                        continue;
                    }
                    out.push(node);
                }
                Value::Text(text) => {
                    let mut parts = text.splitn(3, ':');
                    let source = parts.next().unwrap_or_default();
                    let target = parts.next().filter(|target| !target.is_empty()).unwrap_or(source);
                    let permissions = parts.next().unwrap_or("rwm");
                    let fields = [("source", source), ("target", target), ("permissions", permissions)];
                    out.push(Node::map(item.at, fields.map(|(key, text)| (key, Node::text(item.at, text)))));
                }
                _ => self.mismatch("an item of devices", "text or a mapping", &item),
            }
        }
        Some(Node::new(at, Value::Seq(out)))
    }

    /// GPUs: all of them, or a list of requests.
    pub(super) fn gpus(&mut self, node: Node) -> Option<Node> {
        let at = node.at;
        if let Some(word) = node.as_text() {
            if word == "all" {
                let count = Node::new(at, Value::Int(-1));
                return Some(Node::new(at, Value::Seq(vec![Node::map(at, [("count", count)])])));
            }
            self.findings.error(at, format!("`gpus` cannot be `{word}`: it is `all` or a list"));
            return None;
        }
        let mut node = self.normal("gpus", Shape::Tables(&DEVICE_REQUEST), node)?;
        if let Value::Seq(items) = &mut node.value {
            for item in items {
                let at = item.at;
                let Some(map) = item.as_map_mut() else { continue };
                if !map.contains_key("count") && !map.contains_key("device_ids") {
                    map.insert("count".to_owned(), Entry { at, node: Node::new(at, Value::Int(-1)) });
                }
            }
        }
        Some(node)
    }
}
