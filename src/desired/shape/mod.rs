//! # A tree brought into one form
//!
//! Compose has two or three ways to write most things. [`Normal`] checks each value against its shape and turns short
//! forms into long ones, so that merging, printing and lowering see one form only. Places stay with the values.
//!
//! Guarantees: all faults are told, each at its own value; a value with a fault is left out and the rest is looked at.
//! Never: a decision on what a node honours (that is lowering's).
//!
//! Tests: `tests/compose_cases.rs`, and beside each form.

mod dicts;
mod forms;
mod lists;
mod merge;
mod mounts;
mod parts;
mod ports;
mod scalars;

pub(super) use merge::{merge, merge_service, settle};

use super::finding::{Findings, nearest};
use super::node::{At, Entry, Map, Node, Tag, Value};
use super::table::{Key, Shape, Table};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// The work on one file.
pub(super) struct Normal<'a> {
    /// Where faults go.
    pub findings: &'a mut Findings,
    /// What relative paths are relative to.
    pub base: &'a Path,
    /// What `~` stands for, if it stands for anything.
    pub home: Option<&'a str>,
    /// Whether paths are made absolute at all.
    pub resolve: bool,
    /// The key whose value is being looked at.
    pub key: At,
}

impl Normal<'_> {
    /// A value of this shape in its one form; nothing when it is not of the shape.
    pub fn normal(&mut self, name: &str, shape: Shape, node: Node) -> Option<Node> {
        if node.tag == Tag::Reset {
            return Some(node);
        }
        let tag = node.tag;
        let mut node = self.shaped(name, shape, node)?;
        node.tag = tag;
        self.repeated(shape, &node);
        merge::unify(shape, &mut node);
        Some(node)
    }

    /// An item that another of the same list takes the place of is a slip of the pen.
    fn repeated(&mut self, shape: Shape, node: &Node) {
        let Some(items @ [_, _, ..]) = node.as_seq() else { return };
        let mut seen: HashMap<String, At> = HashMap::with_capacity(items.len());
        for item in items {
            let Some(key) = merge::key_of(shape, item) else { continue };
            let Some(first) = seen.insert(key, item.at).filter(|first| *first != item.at) else { continue };
            let complaint = match shape {
                Shape::Mounts => {
                    let target = item.get_text("target").unwrap_or_default();
                    self.findings.refuse(item.at, format!("two mounts share the target {target}"))
                }
                _ => self.findings.warning(item.at, "this is listed twice"),
            };
            complaint.note(first, "the other one is here");
        }
    }

    fn shaped(&mut self, name: &str, shape: Shape, node: Node) -> Option<Node> {
        match shape {
            Shape::Any => Some(node),
            Shape::Text => self.text(name, node),
            Shape::TextOrNull if node.value == Value::Null => Some(node),
            Shape::TextOrNull => self.text(name, node),
            Shape::BoolOrText if node.as_bool().is_some() => Some(node),
            Shape::BoolOrText => self.text(name, node),
            Shape::Word(words) => self.word(name, words, node),
            Shape::PullPolicy => self.pull_policy(name, node),
            Shape::Bool => self.boolean(name, node),
            Shape::Int => self.int(name, node),
            Shape::Number => self.number(name, node),
            Shape::Count => self.count(name, node),
            Shape::Bytes => self.bytes(name, node),
            Shape::Duration => self.duration(name, node),
            Shape::FileMode => self.file_mode(name, node),
            Shape::Path => self.one_path(name, node),
            Shape::Paths => self.paths(name, node),
            Shape::Context => self.context(name, node),
            Shape::Texts => self.texts(name, node),
            Shape::Strings => self.strings(name, node),
            Shape::TextOrTexts => self.text_or_texts(name, node),
            Shape::Dict | Shape::Args => self.dict(name, node),
            Shape::Labels => self.labels(name, node),
            Shape::Contexts => self.contexts(name, node),
            Shape::Ssh => self.ssh(name, node),
            Shape::Options => self.options(name, node),
            Shape::ExtraHosts => self.extra_hosts(name, node),
            Shape::Command => self.command(name, node),
            Shape::Test => self.test(name, node),
            Shape::Ports => self.ports(node),
            Shape::Mounts => self.mounts(node),
            Shape::Attachments => self.attachments(node),
            Shape::DependsOn => self.depends_on(node),
            Shape::EnvFiles => self.env_files(node),
            Shape::Extends => self.extends(node),
            Shape::Includes => self.includes(node),
            Shape::External => self.external(name, node),
            Shape::Grants(secret) => self.grants(name, secret, node),
            Shape::Devices => self.devices(node),
            Shape::Gpus => self.gpus(node),
            Shape::Build => self.build(node),
            Shape::Ulimits => self.ulimits(node),
            Shape::Models => self.models(node),
            Shape::Table(table) => self.table(name, table, node),
            Shape::TableOrNull(table) => match node.value {
                Value::Null => Some(Node::new(node.at, Value::Map(Map::new()))),
                _ => self.table(name, table, node),
            },
            Shape::Tables(table) => self.tables(name, table, node),
            Shape::Names(table, alone) => self.names(name, table, alone, node),
        }
    }

    fn mismatch(&mut self, name: &str, want: &str, node: &Node) {
        let message = format!("`{name}` must be {want}, not {}", node.kind());
        let hint = match &node.value {
            Value::Null => Some("give it a value, or leave the key out".to_owned()),
            Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Odd(_) if want.contains("text") => {
                Some(format!("put it in quotes: \"{}\"", node.scalar_text().unwrap_or_default()))
            }
            _ => None,
        };
        // A block collection begins on the line after its key, and the key is what is wrong.
        let block = matches!(node.value, Value::Seq(_) | Value::Map(_)) && self.key.line + 1 == node.at.line;
        let complaint = self.findings.error(if block { self.key } else { node.at }, message);
        if let Some(hint) = hint {
            complaint.hint(hint);
        }
    }

    /// A path as the file means it: absolute ones stay as they are, others are relative to its directory.
    fn path(&self, path: &str) -> String {
        if !self.resolve || path.starts_with('/') || has_drive(path) {
            return path.to_owned();
        }
        match (path.strip_prefix('~'), self.home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
            (Some(rest), None) if rest.is_empty() || rest.starts_with('/') => path.to_owned(),
            _ => clean(&self.base.join(path)).to_string_lossy().into_owned(),
        }
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

    /// A mapping with known keys.
    pub fn table(&mut self, name: &str, table: &'static Table, node: Node) -> Option<Node> {
        let at = node.at;
        let Value::Map(map) = node.value else {
            self.mismatch(name, "a mapping", &node);
            return None;
        };
        let mut out = Map::with_capacity(map.len());
        for (key, entry) in map {
            self.key = entry.at;
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
                _ => {
                    self.key = entry.at;
                    self.normal(&key, Shape::Table(table), entry.node)
                }
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

/// Whether a path begins with a Windows drive.
fn has_drive(path: &str) -> bool {
    let mut chars = path.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic()) && chars.next() == Some(':')
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
