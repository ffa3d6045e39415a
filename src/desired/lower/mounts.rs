//! Mounts: what is shown where, parents before children.

use super::Lower;
use crate::desired::finding::nearest;
use crate::desired::node::{At, Node};
use crate::model::{Mount, MountSource, VolumeName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Lower<'_> {
    pub(super) fn mounts(&mut self, service: &Node) -> Vec<Mount> {
        let mut mounts: Vec<(At, Mount)> = Vec::new();
        for node in service.get("volumes").and_then(Node::as_seq).into_iter().flatten() {
            mounts.extend(self.mount(node).map(|mount| (node.at, mount)));
        }
        for node in service.get("tmpfs").and_then(Node::as_seq).into_iter().flatten() {
            mounts.extend(self.tmpfs(node).map(|mount| (node.at, mount)));
        }
        let mut taken: BTreeMap<String, At> = BTreeMap::new();
        for (at, mount) in &mounts {
            if let Some(other) = taken.insert(mount.target.clone(), *at) {
                let message = format!("two mounts share the target {}", mount.target);
                let (first, second) = (other.min(*at), other.max(*at));
                self.findings.error(second, message).note(first, "the other one is here");
            }
        }
        // The sort is stable: what is at one depth stays in the order written.
        mounts.sort_by_key(|(_, mount)| Path::new(&mount.target).components().count());
        mounts.into_iter().map(|(_, mount)| mount).collect()
    }

    fn mount(&mut self, node: &Node) -> Option<Mount> {
        let read_only = node.get("read_only").and_then(Node::as_bool) == Some(true);
        let Some(target) = node.get("target") else {
            self.findings.error(node.at, "a mount needs a `target`");
            return None;
        };
        let target = self.target(target.as_text()?, target.at)?;
        let source = match node.get_text("type")? {
            "bind" => self.bind(node)?,
            "volume" => self.volume(node)?,
            "tmpfs" => MountSource::Tmpfs { options: self.tmpfs_settings(node.get("tmpfs")) },
            other => {
                let at = node.get("type").map_or(node.at, |node| node.at);
                let message = format!("mounts of type `{other}` are not honoured here");
                self.findings.refuse(at, message).hint("use bind, volume or tmpfs");
                return None;
            }
        };
        Some(Mount { target, source, read_only })
    }

    fn target(&mut self, target: &str, at: At) -> Option<String> {
        if !target.starts_with('/') {
            let complaint = self.findings.refuse(at, format!("the target \"{target}\" is not an absolute path"));
            if target.get(1..2) == Some(":") {
                complaint.hint("a name of one letter is taken for a drive; give the volume a longer one");
            }
            return None;
        }
        if target == "/" {
            self.findings.error(at, "nothing can be mounted over the whole of the container");
            return None;
        }
        Some(target.to_owned())
    }

    fn bind(&mut self, node: &Node) -> Option<MountSource> {
        let source = node.get_text("source")?;
        if source.starts_with('~') {
            let message = "`~` has no meaning on a node: there is no user at home";
            self.findings.refuse(node.at, message).hint("write the path in full");
            return None;
        }
        let bind = node.get("bind");
        if let Some(propagation) = bind.and_then(|bind| bind.get("propagation"))
            && !["", "private", "rprivate"].contains(&propagation.as_text().unwrap_or_default())
        {
            let message = "mount propagation is not honoured here: this version does not honour it yet";
            self.findings.refuse(propagation.at, message).hint("leave it out: mounts are private");
        }
        let create = bind.and_then(|bind| bind.get("create_host_path")).and_then(Node::as_bool) == Some(true);
        Some(MountSource::Bind { path: PathBuf::from(source), create })
    }

    fn volume(&mut self, node: &Node) -> Option<MountSource> {
        let Some(source) = node.get("source") else {
            let message = "a volume without a name would be lost with its container";
            self.findings.refuse(node.at, message).hint("give it a name and declare it under the top-level `volumes`");
            return None;
        };
        let name = source.as_text()?;
        if !self.volumes.contains(name) {
            let near =
                nearest(name, self.volumes.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
            let hint = near.unwrap_or_else(|| {
                format!("declare it at the top level: volumes: {{{name}: {{}}}}; a path begins with `./` or `/`")
            });
            self.findings.error(source.at, format!("the volume `{name}` is used but never declared")).hint(hint);
            return None;
        }
        VolumeName::new(name).ok().map(MountSource::Volume)
    }

    fn tmpfs_settings(&mut self, settings: Option<&Node>) -> Vec<String> {
        let mut options = Vec::new();
        let number = |key: &str| settings.and_then(|node| node.get(key)).and_then(Node::as_int).filter(|n| *n > 0);
        if let Some(size) = number("size") {
            options.push(format!("size={size}"));
        }
        if let Some((node, mode)) = settings.and_then(|node| node.get("mode")).zip(number("mode")) {
            self.octal(node, mode);
            options.push(format!("mode={mode:o}"));
        }
        options
    }

    /// `mode: 1777` is decimal, and hardly what was meant: permission bits begin with a zero.
    fn octal(&mut self, node: &Node, mode: i128) {
        let line = self.findings.files.line(node.at).unwrap_or_default();
        let written = line.chars().nth((node.at.column as usize).saturating_sub(1));
        if written.is_some_and(|c| ('1'..='9').contains(&c)) {
            let message = format!("`mode: {mode}` is a decimal number, {mode:o} in octal");
            self.findings.refuse(node.at, message).hint(format!("permission bits begin with a zero: 0{mode}"));
        }
    }

    /// `TARGET[:OPTION,...]`.
    fn tmpfs(&mut self, node: &Node) -> Option<Mount> {
        let text = node.as_text()?;
        let (target, options) = text.split_once(':').unwrap_or((text, ""));
        let clean = super::super::shape::clean(Path::new(target));
        let target = self.target(&clean.to_string_lossy(), node.at)?;
        let mut read_only = false;
        let mut kept = Vec::new();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let name = option.split('=').next().unwrap_or(option);
            match name {
                "ro" => read_only = true,
                "rw" => {}
                "size" | "mode" | "uid" | "gid" | "nr_inodes" | "nr_blocks" | "exec" | "noexec" | "suid" | "nosuid"
                | "dev" | "nodev" | "atime" | "noatime" | "diratime" | "nodiratime" => kept.push(option.to_owned()),
                _ => {
                    self.findings.error(node.at, format!("`{name}` is not an option of a tmpfs"));
                }
            }
        }
        Some(Mount { target, source: MountSource::Tmpfs { options: kept }, read_only })
    }
}
