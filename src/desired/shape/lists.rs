//! Values that are lists of words, and command lines.

use super::Normal;
use crate::desired::node::{Node, Value};
use crate::desired::units;

impl Normal<'_> {
    pub(super) fn texts(&mut self, name: &str, node: Node) -> Option<Node> {
        let (at, items) = self.items(name, "a list of texts", node)?;
        let items = items.into_iter().filter_map(|node| self.item(name, node)).collect();
        Some(Node::new(at, Value::Seq(items)))
    }

    pub(super) fn text_or_texts(&mut self, name: &str, node: Node) -> Option<Node> {
        if node.as_text().is_some() {
            return Some(Node::new(node.at, Value::Seq(vec![node])));
        }
        self.texts(name, node)
    }

    /// Texts and numbers, as texts.
    pub(super) fn strings(&mut self, name: &str, node: Node) -> Option<Node> {
        let (at, items) = self.items(name, "a list", node)?;
        let mut out = Vec::new();
        for item in items {
            match item.value {
                Value::Int(_) | Value::Float(_) => {
                    out.push(Node::text(item.at, item.scalar_text().unwrap_or_default()))
                }
                _ => out.extend(self.item(name, item)),
            }
        }
        Some(Node::new(at, Value::Seq(out)))
    }

    /// A path, or a list of them.
    pub(super) fn paths(&mut self, name: &str, node: Node) -> Option<Node> {
        let Node { at, value, tag } = self.text_or_texts(name, node)?;
        let items = match value {
            Value::Seq(items) => items,
            _ => Vec::new(),
        };
        let paths = items.into_iter().map(|item| Node::text(item.at, self.path(item.as_text().unwrap_or_default())));
        Some(Node { at, tag, value: Value::Seq(paths.collect()) })
    }

    /// What a healthcheck runs: a line for the shell, or a list that says what it is.
    pub(super) fn test(&mut self, name: &str, node: Node) -> Option<Node> {
        let at = node.at;
        if node.as_text().is_some() {
            return Some(Node::new(at, Value::Seq(vec![Node::text(at, "CMD-SHELL"), node])));
        }
        let node = self.texts(name, node)?;
        let first = node.as_seq().and_then(|items| items.first());
        if first.is_some_and(|first| !["CMD", "CMD-SHELL", "NONE"].contains(&first.as_text().unwrap_or_default())) {
            let message = "a healthcheck list begins with CMD, CMD-SHELL or NONE";
            self.findings
                .error(at, message)
                .hint("a program with arguments: [\"CMD\", ...]; a line for the shell: text");
        }
        Some(node)
    }

    pub(super) fn command(&mut self, name: &str, node: Node) -> Option<Node> {
        let at = node.at;
        let items = match node.value {
            Value::Null => return Some(node),
            Value::Text(ref line) => {
                let Some(split) = units::words(line) else {
                    self.findings.error(at, format!("a quotation mark in `{name}` is never closed"));
                    return None;
                };
                if let Some(cut) = split.cut {
                    let message =
                        format!("everything from the unquoted `{cut}` on is lost: `{name}` is not run by a shell");
                    self.findings.refuse(at, message).hint("write it as a list: [\"sh\", \"-c\", \"...\"]");
                }
                split.words.into_iter().map(|word| Node::text(at, word)).collect()
            }
            Value::Seq(items) => items.into_iter().filter_map(|node| self.item(name, node)).collect(),
            _ => {
                self.mismatch(name, "text or a list of texts", &node);
                return None;
            }
        };
        Some(Node::new(at, Value::Seq(items)))
    }
}
