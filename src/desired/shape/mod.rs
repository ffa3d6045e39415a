//! # A tree brought into one form
//!
//! Compose has two or three ways to write most things. [`Normal`] checks each value against its shape and turns short
//! forms into long ones, so that merging, printing and lowering see one form only. Places stay with the values.
//!
//! Guarantees: all faults are told, each at its own value; a value with a fault is left out and the rest is looked at.
//! Never: a decision on what a node honours (that is lowering's).
//!
//! Tests: `tests/compose_cases.rs`, and beside each form.

mod merge;
mod mounts;
mod ports;

pub(super) use merge::{merge, settle};

use super::finding::{Findings, nearest};
use super::node::{At, Entry, Map, Node, Tag, Value};
use super::table::{ATTACHMENT, Key, Shape, Table};
use super::units;
use std::path::{Component, Path, PathBuf};

/// The work on one file.
pub(super) struct Normal<'a> {
    /// Where faults go.
    pub findings: &'a mut Findings,
    /// What relative paths are relative to.
    pub base: &'a Path,
}

impl Normal<'_> {
    /// A value of this shape in its one form; nothing when it is not of the shape.
    pub fn normal(&mut self, name: &str, shape: Shape, node: Node) -> Option<Node> {
        if node.tag == Tag::Reset {
            return Some(node);
        }
        let tag = node.tag;
        let mut node = match shape {
            Shape::Any => Some(node),
            Shape::Text => self.text(name, node),
            Shape::Word(words) => self.word(name, words, node),
            Shape::Bool => self.boolean(name, node),
            Shape::Int => self.int(name, node),
            Shape::Number => self.number(name, node),
            Shape::Bytes => self.bytes(name, node),
            Shape::Duration => self.duration(name, node),
            Shape::Texts => self.texts(name, node),
            Shape::TextOrTexts => self.text_or_texts(name, node),
            Shape::Dict => self.dict(name, node),
            Shape::Command => self.command(name, node),
            Shape::Ports => self.ports(node),
            Shape::Mounts => self.mounts(node),
            Shape::Attachments => self.attachments(node),
            Shape::Table(table) => self.table(name, table, node),
            Shape::TableOrNull(table) => match node.value {
                Value::Null => Some(Node::new(node.at, Value::Map(Map::new()))),
                _ => self.table(name, table, node),
            },
            Shape::Tables(table) => self.tables(name, table, node),
            Shape::Names(table, alone) => self.names(name, table, alone, node),
        }?;
        node.tag = tag;
        merge::unify(shape, &mut node);
        Some(node)
    }

    fn mismatch(&mut self, name: &str, want: &str, node: &Node) {
        let message = format!("`{name}` must be {want}, not {}", node.kind());
        let hint = match &node.value {
            Value::Null => Some("give it a value, or leave the key out".to_owned()),
            Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Time(_) if want.contains("text") => {
                Some(format!("put it in quotes: \"{}\"", node.scalar_text().unwrap_or_default()))
            }
            _ => None,
        };
        let complaint = self.findings.error(node.at, message);
        if let Some(hint) = hint {
            complaint.hint(hint);
        }
    }

    fn text(&mut self, name: &str, node: Node) -> Option<Node> {
        if node.as_text().is_some() {
            return Some(node);
        }
        self.mismatch(name, "text", &node);
        None
    }

    fn word(&mut self, name: &str, words: &'static [&'static str], node: Node) -> Option<Node> {
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

    fn boolean(&mut self, name: &str, mut node: Node) -> Option<Node> {
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

    fn int(&mut self, name: &str, mut node: Node) -> Option<Node> {
        let value = match &node.value {
            Value::Int(value) => Some(*value),
            Value::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i128),
            Value::Text(text) => text.trim().parse::<i64>().ok().map(i128::from),
            _ => None,
        };
        let Some(value) = value else {
            self.not_a(name, "a whole number", &node);
            return None;
        };
        node.value = Value::Int(value);
        Some(node)
    }

    fn not_a(&mut self, name: &str, want: &str, node: &Node) {
        match node.as_text() {
            Some(text) => {
                self.findings.error(node.at, format!("`{name}` must be {want}, and \"{text}\" is not one"));
            }
            None => self.mismatch(name, want, node),
        }
    }

    fn number(&mut self, name: &str, mut node: Node) -> Option<Node> {
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

    fn bytes(&mut self, name: &str, mut node: Node) -> Option<Node> {
        let value = match &node.value {
            Value::Int(value) => Some(*value),
            Value::Float(value) if *value >= 0.0 && *value < 9e15 => Some(*value as i128),
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

    fn duration(&mut self, name: &str, mut node: Node) -> Option<Node> {
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

    fn items(&mut self, name: &str, want: &str, node: Node) -> Option<(At, Vec<Node>)> {
        match node.value {
            Value::Seq(items) => Some((node.at, items)),
            _ => {
                self.mismatch(name, want, &node);
                None
            }
        }
    }

    fn texts(&mut self, name: &str, node: Node) -> Option<Node> {
        let (at, items) = self.items(name, "a list of texts", node)?;
        let item = format!("an item of {name}");
        let items = items.into_iter().filter_map(|node| self.text(&item, node)).collect();
        Some(Node::new(at, Value::Seq(items)))
    }

    fn text_or_texts(&mut self, name: &str, node: Node) -> Option<Node> {
        if node.as_text().is_some() {
            return Some(Node::new(node.at, Value::Seq(vec![node])));
        }
        self.texts(name, node)
    }

    /// Names with values. A name without a value in a list has none; nothing in a mapping is none as well.
    fn dict(&mut self, name: &str, node: Node) -> Option<Node> {
        let at = node.at;
        let mut out = Map::new();
        match node.value {
            Value::Map(map) => {
                for (key, entry) in map {
                    let value = match entry.node.scalar_text() {
                        Some(text) => Value::Text(text),
                        None if entry.node.value == Value::Null => Value::Null,
                        None => {
                            let message = format!(
                                "the value of `{key}` under `{name}` must be a scalar, not {}",
                                entry.node.kind()
                            );
                            self.findings.error(entry.node.at, message);
                            continue;
                        }
                    };
                    self.dict_name(name, &key, entry.at);
                    let node = Node { value, ..entry.node };
                    out.insert(key, Entry { at: entry.at, node });
                }
            }
            Value::Seq(items) => {
                for item in items {
                    let Some(item) = self.text(&format!("an item of {name}"), item) else { continue };
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

    fn command(&mut self, name: &str, node: Node) -> Option<Node> {
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
            Value::Seq(items) => {
                let item = format!("an item of {name}");
                items.into_iter().filter_map(|node| self.text(&item, node)).collect()
            }
            _ => {
                self.mismatch(name, "text or a list of texts", &node);
                return None;
            }
        };
        Some(Node::new(at, Value::Seq(items)))
    }

    /// Networks of a service: a list of names, or names with settings.
    fn attachments(&mut self, node: Node) -> Option<Node> {
        let at = node.at;
        let mut out = Map::new();
        match node.value {
            Value::Seq(items) => {
                for item in items {
                    let Some(item) = self.text("an item of networks", item) else { continue };
                    let name = item.as_text().unwrap_or_default().to_owned();
                    out.insert(name, Entry { at: item.at, node: Node::new(item.at, Value::Null) });
                }
            }
            Value::Map(map) => {
                for (name, entry) in map {
                    let node = match entry.node.value {
                        Value::Null => Some(entry.node),
                        _ => self.normal(&name, Shape::Table(&ATTACHMENT), entry.node),
                    };
                    if let Some(node) = node {
                        out.insert(name, Entry { at: entry.at, node });
                    }
                }
            }
            _ => {
                self.mismatch("networks", "a list of names or a mapping", &node);
                return None;
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }

    /// A mapping with known keys.
    pub fn table(&mut self, name: &str, table: &'static Table, node: Node) -> Option<Node> {
        let at = node.at;
        let Value::Map(map) = node.value else {
            self.mismatch(name, "a mapping", &node);
            return None;
        };
        let mut out = Map::with_capacity(map.len());
        for (key, entry) in map {
            let node = match table.key(&key) {
                Some(known) => self.normal(known.name, known.shape, entry.node),
                None if table.extensions && key.starts_with("x-") => Some(entry.node),
                None => {
                    self.unknown_key(table, &key, entry.at);
                    None
                }
            };
            if let Some(node) = node {
                out.insert(key, Entry { at: entry.at, node });
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }

    fn unknown_key(&mut self, table: &'static Table, key: &str, at: At) {
        let message = format!("`{key}` is not a {} key", table.what);
        let near = nearest(key, table.keys.iter().map(|known| known.name));
        let service_key = super::table::SERVICE.key(key).is_some_and(|_| table.what == "top-level");
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None if service_key => format!("`{key}` belongs inside a service: services: {{NAME: {{{key}: ...}}}}"),
            None if table.extensions => "keys of your own begin with `x-`".to_owned(),
            None if table.keys.is_empty() => "there is no key here yet".to_owned(),
            None => {
                let known: Vec<&str> = table.keys.iter().map(|known: &Key| known.name).collect();
                format!("the keys here are: {}", known.join(", "))
            }
        };
        self.findings.error(at, message).hint(hint);
    }

    fn tables(&mut self, name: &str, table: &'static Table, node: Node) -> Option<Node> {
        let (at, items) = self.items(name, "a list of mappings", node)?;
        let items = items.into_iter().filter_map(|node| self.table(table.what, table, node)).collect();
        Some(Node::new(at, Value::Seq(items)))
    }

    /// A mapping of free names.
    fn names(&mut self, name: &str, table: &'static Table, alone: bool, node: Node) -> Option<Node> {
        let at = node.at;
        let Value::Map(map) = node.value else {
            self.mismatch(name, "a mapping of names", &node);
            return None;
        };
        let mut out = Map::with_capacity(map.len());
        for (key, entry) in map {
            if !good_name(&key) {
                let message = format!("`{key}` is not a valid {} name", table.what);
                self.findings.error(entry.at, message).hint("a name is letters, digits, dots, dashes and underscores");
                continue;
            }
            let node = match (&entry.node.value, alone) {
                (Value::Null, true) => Some(Node::new(entry.node.at, Value::Map(Map::new()))),
                (Value::Null, false) if entry.node.tag == Tag::None => {
                    let message = format!("the {} `{key}` has nothing in it", table.what);
                    self.findings.error(entry.at, message).hint("give it at least an `image`");
                    None
                }
                _ => self.normal(&key, Shape::Table(table), entry.node),
            };
            if let Some(node) = node {
                out.insert(key, Entry { at: entry.at, node });
            }
        }
        Some(Node::new(at, Value::Map(out)))
    }
}

/// Whether a text may name a service, a network or a volume.
pub(super) fn good_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// A path relative to a base, cleaned by its text; an absolute one stays as it is.
pub(super) fn resolve(base: &Path, path: &str) -> PathBuf {
    if path.starts_with('/') {
        return PathBuf::from(path);
    }
    clean(&base.join(path))
}

/// A path without `.`, `..` and doubled separators, by its text alone.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            Component::ParentDir if out.has_root() => {}
            part => out.push(part),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}
