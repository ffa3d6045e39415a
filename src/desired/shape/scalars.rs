//! Values that are one word or number.

use super::Normal;
use crate::desired::finding::nearest;
use crate::desired::node::{Node, Value};
use crate::desired::units;

impl Normal<'_> {
    pub(super) fn text(&mut self, name: &str, node: Node) -> Option<Node> {
        if node.as_text().is_some() {
            return Some(node);
        }
        self.mismatch(name, "text", &node);
        None
    }

    /// A text in a list.
    pub(super) fn item(&mut self, list: &str, node: Node) -> Option<Node> {
        if node.as_text().is_some() {
            return Some(node);
        }
        self.mismatch(&format!("an item of {list}"), "text", &node);
        None
    }

    pub(super) fn word(&mut self, name: &str, words: &'static [&'static str], node: Node) -> Option<Node> {
        let node = self.text(name, node)?;
        let word = node.as_text().unwrap_or_default();
        if words.contains(&word) {
            return Some(node);
        }
        let message = format!("`{name}` cannot be `{word}`: it is one of {}", words.join(", "));
        let near = nearest(word, words.iter().copied());
        let complaint = self.findings.error(node.at, message);
        if let Some(near) = near {
            complaint.hint(format!("did you mean `{near}`?"));
        }
        None
    }

    pub(super) fn boolean(&mut self, name: &str, mut node: Node) -> Option<Node> {
        let value = match &node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "y" | "yes" | "on" => Some(true),
                "false" | "n" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        };
        let Some(value) = value else {
            match node.as_text() {
                Some(word) => {
                    let message = format!("`{name}` cannot be the word `{word}`: it must be true or false");
                    self.findings.error(node.at, message);
                }
                None => self.mismatch(name, "true or false", &node),
            }
            return None;
        };
        node.value = Value::Bool(value);
        Some(node)
    }

    pub(super) fn int(&mut self, name: &str, mut node: Node) -> Option<Node> {
        let value = match &node.value {
            Value::Int(value) => Some(*value),
            Value::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i64),
            Value::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        let Some(value) = value else {
            self.not_a(name, "a whole number", &node);
            return None;
        };
        node.value = Value::Int(value);
        Some(node)
    }

    pub(super) fn not_a(&mut self, name: &str, want: &str, node: &Node) {
        match node.as_text() {
            Some(text) => {
                self.findings.error(node.at, format!("`{name}` must be {want}, and \"{text}\" is not one"));
            }
            None => self.mismatch(name, want, node),
        }
    }

    pub(super) fn number(&mut self, name: &str, mut node: Node) -> Option<Node> {
        if let Value::Text(text) = &node.value {
            match text.trim().parse::<f64>().ok().filter(|value| value.is_finite()) {
                Some(value) => node.value = Value::Float(value),
                None => {
                    self.not_a(name, "a number", &node);
                    return None;
                }
            }
        }
        match node.value {
            Value::Int(value) => node.value = Value::Float(value as f64),
            Value::Float(_) => {}
            _ => {
                self.mismatch(name, "a number", &node);
                return None;
            }
        }
        Some(node)
    }

    pub(super) fn bytes(&mut self, name: &str, mut node: Node) -> Option<Node> {
        let value = match &node.value {
            Value::Int(value) => Some(*value),
            Value::Float(value) if *value >= 0.0 && *value < 9e15 => Some(*value as i64),
            Value::Text(text) => units::bytes(text),
            _ => None,
        };
        let Some(value) = value else {
            match node.as_text() {
                Some(text) => {
                    let message = format!("\"{text}\" is not a size");
                    self.findings.error(node.at, message).hint("a number and a unit: 512k, 64m, 1.5g");
                }
                None => self.mismatch(name, "a size", &node),
            }
            return None;
        };
        node.value = Value::Int(value);
        Some(node)
    }

    pub(super) fn duration(&mut self, name: &str, mut node: Node) -> Option<Node> {
        let Some(text) = node.as_text() else {
            let message = format!("`{name}` must be a duration, not {}", node.kind());
            let complaint = self.findings.error(node.at, message);
            if let Some(text) = node.scalar_text().filter(|_| node.as_bool().is_none()) {
                complaint.hint(format!("a duration needs a unit: `{text}s`"));
            }
            return None;
        };
        let Some(nanos) = units::duration(text) else {
            let message = format!("\"{text}\" is not a duration");
            self.findings.error(node.at, message).hint("numbers with units and no spaces: 500ms, 5s, 1m30s, 2h");
            return None;
        };
        node.value = Value::Int(nanos);
        Some(node)
    }

    /// A number, or the word for all of them.
    pub(super) fn count(&mut self, name: &str, node: Node) -> Option<Node> {
        if node.as_text() == Some("all") {
            return Some(Node { value: Value::Int(-1), ..node });
        }
        self.int(name, node)
    }

    /// `always`, `never`, `missing`, and the others that the schema names.
    pub(super) fn pull_policy(&mut self, name: &str, node: Node) -> Option<Node> {
        let node = self.text(name, node)?;
        let text = node.as_text().unwrap_or_default();
        let words = ["always", "never", "build", "if_not_present", "missing", "refresh", "daily", "weekly"];
        let every = text.strip_prefix("every_").and_then(units::duration);
        match text {
            "if_not_present" => Some(Node { value: Value::Text("missing".to_owned()), ..node }),
            word if words.contains(&word) || every.is_some() => Some(node),
            word => {
                let near = nearest(word, words).map(|near| format!("did you mean `{near}`?"));
                let hint = near.unwrap_or_else(|| format!("it is one of {}, every_12h", words.join(", ")));
                self.findings.error(node.at, format!("\"{word}\" is not a pull policy")).hint(hint);
                None
            }
        }
    }

    /// Permission bits. A text is octal; a number is what YAML made of it (`0440` is octal there).
    pub(super) fn file_mode(&mut self, name: &str, mut node: Node) -> Option<Node> {
        let value = match &node.value {
            Value::Int(value) => Some(*value),
            Value::Text(text) => {
                let digits = text.strip_prefix("0o").unwrap_or(text);
                i64::from_str_radix(digits, 8).ok()
            }
            _ => None,
        };
        let Some(value) = value.filter(|value| (0..=0o7777).contains(value)) else {
            self.not_a(name, "permission bits in octal", &node);
            return None;
        };
        node.value = Value::Int(value);
        Some(node)
    }

    /// A path of the file's.
    pub(super) fn one_path(&mut self, name: &str, node: Node) -> Option<Node> {
        let node = self.text(name, node)?;
        let path = self.path(node.as_text().unwrap_or_default());
        Some(Node { value: Value::Text(path), ..node })
    }

    /// A build context: a place elsewhere stays as it is.
    pub(super) fn context(&mut self, name: &str, node: Node) -> Option<Node> {
        let node = self.text(name, node)?;
        if is_remote(node.as_text().unwrap_or_default()) { Some(node) } else { self.one_path(name, node) }
    }
}

/// Whether a build context is a place elsewhere.
pub(super) fn is_remote(context: &str) -> bool {
    let begins = ["https://", "http://", "git://", "ssh://", "github.com/", "git@", "service:"];
    begins.iter().any(|begin| context.starts_with(begin)) || context.contains("://")
}
