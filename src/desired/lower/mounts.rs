//! Mounts: what is shown where, parents before children.

use super::Lower;
use crate::desired::finding::nearest;
use crate::desired::node::{At, Node};
use crate::model::{Grant, Mount, MountSettings, MountSource, Propagation, Recursive, VolumeName};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

impl Lower<'_> {
    /// The mounts of a service. The files of its configs and secrets have their targets, too.
    pub(super) fn mounts(&mut self, service: &Node, grants: &[(At, Grant)]) -> Vec<Mount> {
        let mut mounts: Vec<(At, Mount)> = Vec::new();
        for node in service.get("volumes").and_then(Node::as_seq).into_iter().flatten() {
            mounts.extend(self.mount(node).map(|mount| (node.at, mount)));
        }
        for node in service.get("tmpfs").and_then(Node::as_seq).into_iter().flatten() {
            mounts.extend(self.tmpfs(node).map(|mount| (node.at, mount)));
        }
        let mut taken: BTreeMap<String, At> = BTreeMap::new();
        let targets = mounts.iter().map(|(at, mount)| (at, &mount.target));
        for (at, target) in targets.chain(grants.iter().map(|(at, grant)| (at, &grant.target))) {
            if let Some(other) = taken.insert(target.clone(), *at) {
                let message = format!("two mounts share the target {target}");
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
        let settings = self.settings(node, read_only);
        Some(Mount { target, source, read_only, settings })
    }

    /// How it is mounted, where that is written.
    fn settings(&mut self, node: &Node, read_only: bool) -> MountSettings {
        let inner = |part: &str, key: &str| node.get(part).and_then(|part| part.get(key));
        let propagation = inner("bind", "propagation").and_then(|node| self.propagation(node));
        let recursive = inner("bind", "recursive").and_then(|node| match node.as_text()? {
            "disabled" => Some(Recursive::Disabled),
            "writable" if read_only => Some(Recursive::Writable),
            "readonly" if read_only => Some(Recursive::Readonly),
            "writable" | "readonly" => {
                self.findings.error(node.at, "this is for a mount that is `read_only`");
                None
            }
            _ => None,
        });
        MountSettings {
            propagation,
            recursive,
            no_copy: inner("volume", "nocopy").and_then(Node::as_bool) == Some(true),
            subpath: inner("volume", "subpath").and_then(|node| self.subpath(node)),
        }
    }

    fn propagation(&mut self, node: &Node) -> Option<Propagation> {
        match node.as_text()? {
            "" | "rprivate" => None,
            "private" => Some(Propagation::Private),
            "shared" => Some(Propagation::Shared),
            "rshared" => Some(Propagation::Rshared),
            "slave" => Some(Propagation::Slave),
            "rslave" => Some(Propagation::Rslave),
            word => {
                let message = format!("there is no propagation `{word}`");
                let hint = "it is one of private, rprivate, shared, rshared, slave, rslave";
                self.findings.error(node.at, message).hint(hint);
                None
            }
        }
    }

    /// A path inside a volume, and nothing above it.
    fn subpath(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text().filter(|text| !text.is_empty())?;
        let inside = Path::new(text).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside {
            self.findings.error(node.at, format!("\"{text}\" is not a path inside the volume"));
            return None;
        }
        Some(super::super::shape::clean(Path::new(text)).to_string_lossy().into_owned())
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
        let settings = MountSettings::default();
        Some(Mount { target, source: MountSource::Tmpfs { options: kept }, read_only, settings })
    }
}
