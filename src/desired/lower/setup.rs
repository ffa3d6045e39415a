//! How a container is set up beyond its image, command and limits.

use super::Lower;
use crate::desired::finding::nearest;
use crate::desired::node::{Entry, Node, Value};
use crate::model::{BlockDevices, Device, DeviceRule, Ipc, Namespaces, Setup, Ulimit};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The kernel's limits of a process, by the names that Compose gives them.
const ULIMITS: [&str; 16] = [
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];

/// Kernel parameters of an IPC namespace; those below `net.` and `fs.mqueue.` belong to a namespace as well.
const IPC_SYSCTLS: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// The runtimes that a node may have, with the names that mean the first one.
const RUNTIMES: [(&str, Option<&str>); 3] = [("runc", None), ("io.containerd.runc.v2", None), ("crun", Some("crun"))];

impl Lower<'_> {
    pub(super) fn setup(&mut self, service: &Node) -> Setup {
        self.platform(service.get("platform"));
        let truth = |key: &str| service.get(key).and_then(Node::as_bool) == Some(true);
        let namespaces = self.namespaces(service);
        Setup {
            group_add: texts(service.get("group_add")).map(|(_, text)| text.to_owned()).collect(),
            ulimits: self.ulimits(service.get("ulimits")),
            sysctls: self.sysctls(service, &namespaces),
            shm_size: self.shm_size(service, &namespaces),
            oom_score_adj: service.get("oom_score_adj").and_then(|node| self.within(node, -1000, 1000)),
            oom_kill_disable: truth("oom_kill_disable"),
            mem_swappiness: service.get("mem_swappiness").and_then(|node| self.within(node, 0, 100)),
            block_devices: self.block_devices(service.get("blkio_config")),
            devices: self.devices(service.get("devices")),
            device_rules: texts(service.get("device_cgroup_rules"))
                .filter_map(|(node, text)| self.device_rule(node, text))
                .collect(),
            security: self.security(service),
            init: truth("init"),
            tty: truth("tty"),
            stdin_open: truth("stdin_open"),
            domainname: service.get("domainname").and_then(|node| self.host_name(node)),
            annotations: labels(service.get("annotations")),
            cgroup_parent: service.get("cgroup_parent").and_then(|node| self.cgroup_parent(node)),
            runtime: service.get("runtime").and_then(|node| self.runtime(node)),
            namespaces,
        }
    }

    /// A whole number between two others.
    pub(super) fn within<T: TryFrom<i128>>(&mut self, node: &Node, least: i128, most: i128) -> Option<T> {
        let value = node.as_int()?;
        if !(least..=most).contains(&value) {
            self.findings.refuse(node.at, format!("{value} is out of range: it is {least} to {most}"));
            return None;
        }
        T::try_from(value).ok()
    }

    /// A node runs what is for its own platform; anything else is refused before something is made.
    fn platform(&mut self, node: Option<&Node>) {
        let Some((node, text)) = node.and_then(|node| Some((node, node.as_text()?))) else { return };
        let mut parts = text.split('/');
        let (first, second, variant) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let (os, arch) = match second {
            Some(arch) => (first, arch),
            None if first == "linux" => (first, crate::model::architecture()),
            None => ("linux", first),
        };
        let arch = match arch {
            "x86_64" | "x86-64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let base = matches!((arch, variant), (_, None | Some("")) | ("amd64", Some("v1")) | ("arm64", Some("v8")));
        if os != "linux" || arch != crate::model::architecture() || !base || parts.next().is_some() {
            let here = crate::model::architecture();
            let message = format!("the platform `{text}` is not this node's, which is linux/{here}");
            self.findings.refuse(node.at, message).hint("a node runs its own platform only; leave the key out");
        }
    }

    fn ulimits(&mut self, node: Option<&Node>) -> BTreeMap<String, Ulimit> {
        let mut out = BTreeMap::new();
        for (name, entry) in node.and_then(Node::as_map).into_iter().flatten() {
            if !ULIMITS.contains(&name.as_str()) {
                let near = nearest(name, ULIMITS).map(|near| format!("did you mean `{near}`?"));
                let complaint = self.findings.refuse(entry.at, format!("there is no limit `{name}`"));
                complaint.hint(near.unwrap_or_else(|| format!("it is one of {}", ULIMITS.join(", "))));
                continue;
            }
            let number = |key: &str| entry.node.get(key).unwrap_or(&entry.node);
            let most = i128::from(i64::MAX);
            let (soft, hard) = (self.within(number("soft"), -1, most), self.within(number("hard"), -1, most));
            let (Some(soft), Some(hard)): (Option<i64>, Option<i64>) = (soft, hard) else { continue };
            if hard != -1 && (soft == -1 || soft > hard) {
                self.findings.refuse(entry.node.at, format!("the soft limit `{name}` is above the hard one"));
                continue;
            }
            out.insert(name.clone(), Ulimit { soft, hard });
        }
        out
    }

    /// Only what belongs to a namespace of the container can be set for it alone.
    fn sysctls(&mut self, service: &Node, namespaces: &Namespaces) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let host_ipc = namespaces.ipc == Some(Ipc::Host);
        let host_net = service.get_text("network_mode") == Some("host");
        for (name, entry) in service.get("sysctls").and_then(Node::as_map).into_iter().flatten() {
            let dotted = name.replace('/', ".");
            let ipc = IPC_SYSCTLS.contains(&dotted.as_str()) || dotted.starts_with("fs.mqueue.");
            let net = dotted.starts_with("net.");
            let shared = match (ipc, net) {
                (true, _) => host_ipc.then_some("`ipc: host`"),
                (_, true) => host_net.then_some("`network_mode: host`"),
                _ => {
                    let message = format!("`{name}` is a setting of the whole node, not of a container");
                    let hint = format!("set it on the node: sysctl -w {dotted}=...");
                    self.findings.refuse(entry.at, message).hint(hint);
                    continue;
                }
            };
            if let Some(with) = shared {
                let message = format!("with {with}, `{name}` is a setting of the whole node");
                self.findings.refuse(entry.at, message).hint(format!("set it on the node: sysctl -w {dotted}=..."));
                continue;
            }
            out.insert(dotted, entry.node.as_text().unwrap_or_default().to_owned());
        }
        out
    }

    fn shm_size(&mut self, service: &Node, namespaces: &Namespaces) -> Option<u64> {
        let node = service.get("shm_size")?;
        if namespaces.ipc.is_some() {
            self.findings.refuse(node.at, "with this `ipc` there is no /dev/shm of its own to size");
            return None;
        }
        self.within(node, 0, i128::from(i64::MAX)).filter(|size| *size > 0)
    }

    fn namespaces(&mut self, service: &Node) -> Namespaces {
        let host_uts = self.host_or_own(service.get("uts"), "uts", &[]);
        if let (true, Some(name)) = (host_uts, service.get("hostname").or(service.get("domainname"))) {
            self.findings.refuse(name.at, "with `uts: host` the host name is the node's").hint("leave one of them out");
        }
        self.host_or_own(service.get("userns_mode"), "userns_mode", &["host"]);
        let ipc = match service.get_text("ipc") {
            Some("none") => Some(Ipc::NoShm),
            _ => self.host_or_own(service.get("ipc"), "ipc", &["private", "shareable"]).then_some(Ipc::Host),
        };
        Namespaces {
            host_pid: self.host_or_own(service.get("pid"), "pid", &["private"]),
            host_uts,
            ipc,
            private_cgroup: service.get_text("cgroup").map(|word| word == "private"),
        }
    }

    /// Whether a namespace is the host's; a third one is refused.
    fn host_or_own(&mut self, node: Option<&Node>, key: &str, own: &[&str]) -> bool {
        let Some((node, text)) = node.and_then(|node| Some((node, node.as_text()?))) else { return false };
        match text {
            "host" => true,
            "" => false,
            word if own.contains(&word) => false,
            word if word.starts_with("service:") || word.starts_with("container:") => {
                let message = format!("`{key}: {word}` is not honoured here: instances do not share it");
                let hint = "put both programs into one image, or share files by a volume";
                self.findings.refuse(node.at, message).hint(hint);
                false
            }
            word => {
                let message = format!("`{key}` cannot be `{word}` here");
                self.findings.refuse(node.at, message).hint("leave the key out, or write `host`");
                false
            }
        }
    }

    fn block_devices(&mut self, node: Option<&Node>) -> BlockDevices {
        let mut limits = |key: &str, value: &str| {
            let mut out = BTreeMap::new();
            for item in node.and_then(|node| node.get(key)).and_then(Node::as_seq).into_iter().flatten() {
                let (Some(path), Some(number)) = (item.get("path"), item.get(value)) else {
                    self.findings.refuse(item.at, format!("`{key}` needs a `path` and a `{value}`"));
                    continue;
                };
                let (least, most) = if value == "weight" { (10, 1000) } else { (1, i128::from(i64::MAX)) };
                let Some(number): Option<u64> = self.within(number, least, most) else { continue };
                if let Some(path) = self.absolute(path) {
                    out.insert(path, number);
                }
            }
            out
        };
        let weights = limits("weight_device", "weight");
        BlockDevices {
            read_bps: limits("device_read_bps", "rate"),
            read_iops: limits("device_read_iops", "rate"),
            write_bps: limits("device_write_bps", "rate"),
            write_iops: limits("device_write_iops", "rate"),
            weights: weights.into_iter().filter_map(|(path, weight)| Some((path, weight.try_into().ok()?))).collect(),
        }
    }

    fn absolute(&mut self, node: &Node) -> Option<PathBuf> {
        let text = node.as_text()?;
        if !text.starts_with('/') {
            self.findings.refuse(node.at, format!("\"{text}\" is not an absolute path"));
            return None;
        }
        Some(PathBuf::from(text))
    }

    fn devices(&mut self, node: Option<&Node>) -> Vec<Device> {
        let mut out = Vec::new();
        for item in node.and_then(Node::as_seq).into_iter().flatten() {
            let source = item.get("source").and_then(Node::as_text).unwrap_or_default();
            if !source.starts_with('/') {
                let message = format!("\"{source}\" is not a device file of this node");
                let hint =
                    "write the path of a device file (/dev/...): names of other device managers have no meaning here";
                self.findings.refuse(item.at, message).hint(hint);
                continue;
            }
            let target = item.get_text("target").filter(|target| !target.is_empty()).unwrap_or(source);
            let permissions = item.get_text("permissions").filter(|text| !text.is_empty()).unwrap_or("rwm");
            if !target.starts_with('/') {
                self.findings.refuse(item.at, format!("the target \"{target}\" is not an absolute path"));
            } else if self.permissions(item, permissions) {
                let (source, target) = (PathBuf::from(source), PathBuf::from(target));
                out.push(Device { source, target, permissions: permissions.to_owned() });
            }
        }
        out
    }

    fn permissions(&mut self, node: &Node, text: &str) -> bool {
        let good = !text.is_empty() && text.chars().all(|c| "rwm".contains(c));
        if !good {
            self.findings.refuse(node.at, format!("\"{text}\" is not what may be done: it is letters of rwm"));
        }
        good
    }

    /// `c 1:3 rwm`, with `*` for any number.
    fn device_rule(&mut self, node: &Node, text: &str) -> Option<DeviceRule> {
        let number = |text: &str| match text {
            "*" => Some(None),
            text => text.parse::<u32>().ok().map(Some),
        };
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let rule = match words.as_slice() {
            [kind @ ("a" | "b" | "c"), numbers, permissions] => numbers.split_once(':').and_then(|(major, minor)| {
                let kind = kind.chars().next()?;
                let permissions = (*permissions).to_owned();
                Some(DeviceRule { kind, major: number(major)?, minor: number(minor)?, permissions })
            }),
            _ => None,
        };
        let Some(rule) = rule else {
            self.findings.refuse(node.at, format!("\"{text}\" is not a rule for devices")).hint("like `c 189:* rmw`");
            return None;
        };
        self.permissions(node, &rule.permissions).then_some(rule)
    }

    fn cgroup_parent(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text().filter(|text| !text.is_empty())?;
        let path = crate::desired::shape::clean(&Path::new("/").join(text));
        if text.split('/').any(|part| part == "..") || path == Path::new("/") {
            self.findings.refuse(node.at, format!("\"{text}\" is not a cgroup")).hint("a path like `/batch`");
            return None;
        }
        Some(path.to_string_lossy().into_owned())
    }

    fn runtime(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text().filter(|text| !text.is_empty())?;
        let Some((_, binary)) = RUNTIMES.iter().find(|(name, _)| *name == text) else {
            let message = format!("the runtime `{text}` is not honoured here");
            self.findings.refuse(node.at, message).hint("it is runc or crun; leave the key out for runc");
            return None;
        };
        binary.map(str::to_owned)
    }
}

/// The texts of a list, with their nodes.
pub(super) fn texts(node: Option<&Node>) -> impl Iterator<Item = (&Node, &str)> {
    node.and_then(Node::as_seq).unwrap_or_default().iter().filter_map(|node| Some((node, node.as_text()?)))
}

fn labels(node: Option<&Node>) -> BTreeMap<String, String> {
    let text = |entry: &Entry| match &entry.node.value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    };
    node.and_then(Node::as_map).into_iter().flatten().map(|(name, entry)| (name.clone(), text(entry))).collect()
}
