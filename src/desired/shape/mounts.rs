//! Mounts of a service: `SOURCE:TARGET[:OPTIONS]`, and the long form.

use super::{Normal, clean, has_drive};
use crate::desired::node::{At, Entry, Node, Value};
use crate::desired::table::MOUNT;
use std::path::Path;

impl Normal<'_> {
    /// The mounts of a service in their long form.
    pub(super) fn mounts(&mut self, node: Node) -> Option<Node> {
        let (at, items) = self.items("volumes", "a list", node)?;
        let mut out = Vec::new();
        for item in items {
            match &item.value {
                Value::Map(_) => out.extend(self.long_mount(item)),
                Value::Text(text) => {
                    let text = text.clone();
                    out.extend(self.short_mount(&text, item.at));
                }
                _ => self.mismatch("an item of volumes", "a text or a mapping", &item),
            }
        }
        Some(Node::new(at, Value::Seq(out)))
    }

    fn long_mount(&mut self, item: Node) -> Option<Node> {
        let at = item.at;
        let mut node = self.table("volume", &MOUNT, item)?;
        let Some(kind) = node.get_text("type").map(str::to_owned) else {
            self.findings.error(at, "a mount needs a `type`").hint("type is bind, volume or tmpfs");
            return None;
        };
        let map = node.as_map_mut()?;
        if let Some(Entry { node: target, .. }) = map.get_mut("target")
            && let Value::Text(text) = &mut target.value
        {
            *text = clean_target(text);
        }
        if kind == "bind" {
            match map.get_mut("source") {
                Some(Entry { node: source, .. }) => {
                    if let Value::Text(text) = &mut source.value {
                        *text = self.path(text);
                    }
                }
                None => {
                    self.findings.error(at, "a bind mount needs a `source`");
                    return None;
                }
            }
            if let Some(Entry { node: bind, .. }) = map.get_mut("bind")
                && let Some(bind) = bind.as_map_mut()
                && !bind.contains_key("create_host_path")
            {
                bind.insert("create_host_path".to_owned(), Entry { at, node: Node::new(at, Value::Bool(true)) });
            }
        }
        Some(node)
    }

    fn short_mount(&mut self, text: &str, at: At) -> Option<Node> {
        let parts = parts(text);
        if parts.iter().take(2).any(|part| part.is_empty()) {
            let which = if parts[0].is_empty() { "source before" } else { "target after" };
            let message = format!("the {which} the colon is empty in \"{text}\"");
            self.findings.error(at, message).hint("a mount is SOURCE:TARGET or SOURCE:TARGET:ro");
            return None;
        }
        let (source, target, options) = match parts.as_slice() {
            [target] => (None, *target, ""),
            [source, target] => (Some(*source), *target, ""),
            [source, target, options] => (Some(*source), *target, *options),
            _ => {
                let message = format!("\"{text}\" has too many colons: a short mount has at most three parts");
                self.findings.error(at, message).hint("use the long form for paths with colons");
                return None;
            }
        };
        let bind = source.is_some_and(|source| source.starts_with(['/', '.', '~']) || has_drive(source));
        let kind = if bind { "bind" } else { "volume" };
        let mut fields = vec![("type", Node::text(at, kind))];
        if let Some(source) = source {
            let source = if bind { self.path(source) } else { source.to_owned() };
            fields.push(("source", Node::text(at, source)));
        }
        fields.push(("target", Node::text(at, clean_target(target))));
        let truth = || Node::new(at, Value::Bool(true));
        let mut settings = Vec::new();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option {
                "ro" => fields.push(("read_only", truth())),
                "rw" => {}
                "nocopy" if !bind => settings.push(("nocopy", truth())),
                "z" | "Z" if bind => settings.push(("selinux", Node::text(at, option))),
                "shared" | "rshared" | "slave" | "rslave" | "private" | "rprivate" if bind => {
                    settings.push(("propagation", Node::text(at, option)));
                }
                _ => {
                    let message = format!("`{option}` is not a mount option that has an effect");
                    self.findings
                        .warning(at, message)
                        .hint("the options are ro, rw, nocopy, z, Z and the propagation modes");
                }
            }
        }
        if bind {
            settings.push(("create_host_path", truth()));
        }
        fields.push((kind, Node::map(at, settings)));
        Some(Node::map(at, fields))
    }
}

/// A short mount at its colons, those after a drive letter left alone.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for (at, _) in text.match_indices(':') {
        if !(at == begin + 1 && has_drive(&text[begin..])) {
            parts.push(&text[begin..at]);
            begin = at + 1;
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// A target without `.`, `..` and a separator at its end.
fn clean_target(target: &str) -> String {
    clean(Path::new(target)).to_string_lossy().into_owned()
}
