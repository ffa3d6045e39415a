//! One service.

use super::{Lower, archive, image};
use crate::desired::finding::nearest;
use crate::desired::node::{At, Entry, Node};
use crate::model::{Archive, ImageWant, InstanceSpec, Port, Protocol, Restart, Service};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The most instances that one service may ask for: what one node's subnet and process table can hold.
const REPLICAS_MAX: i128 = 1000;

/// The kernel's capabilities, by their names without `CAP_`.
const CAPABILITIES: &[&str] = &[
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
    "ALL",
];

/// The signals that a process can be asked to stop with.
const SIGNALS: &[&str] = &[
    "ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "KILL", "PIPE", "POLL", "PROF", "PWR",
    "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM",
    "WINCH", "XCPU", "XFSZ",
];

impl Lower<'_> {
    /// One service, as far as it is right; nothing when it has no image.
    pub(super) fn service(&mut self, name: &str, entry: &Entry) -> Option<Service> {
        let node = &entry.node;
        let image = self.image(name, entry);
        let replicas = self.replicas(node);
        let text = |key: &str| node.get_text(key).map(str::to_owned);
        let words = |key: &str| {
            let items = node.get(key)?.as_seq()?;
            Some(items.iter().filter_map(Node::as_text).map(str::to_owned).collect::<Vec<String>>())
        };
        let own = |key: &str| node.get("x-stead").and_then(|own| own.get(key));
        let grants = self.grants(node);
        let mounts = self.mounts(node, &grants);
        let grants = grants.into_iter().map(|(_, grant)| grant).collect();
        let spec = InstanceSpec {
            entrypoint: words("entrypoint"),
            command: words("command"),
            environment: self.environment(node),
            user: text("user"),
            working_dir: self.working_dir(node),
            hostname: node.get("hostname").and_then(|node| self.host_name(node)),
            labels: self.labels(node),
            container_name: node.get("container_name").and_then(|node| self.container_name(node)),
            restart: node.get("restart").and_then(|node| self.restart(node)),
            stop_signal: node.get("stop_signal").and_then(|node| self.stop_signal(node)),
            stop_grace_ms: node.get("stop_grace_period").and_then(|node| self.grace(node)),
            ports: self.published(node),
            networks: self.attachments(name, node, replicas),
            network_mode: self.network_mode(node),
            names: self.names(node),
            mounts,
            grants,
            read_only: node.get("read_only").and_then(Node::as_bool) == Some(true),
            privileged: node.get("privileged").and_then(Node::as_bool) == Some(true),
            cap_add: self.capabilities(node.get("cap_add")),
            cap_drop: self.capabilities(node.get("cap_drop")),
            limits: self.limits(node),
            needs: self.needs(name, node),
            health: self.health(node),
            restart_policy: self.restart_policy(node),
            restarted: own("restarted").and_then(Node::as_text).map(str::to_owned),
            stopped: own("stopped").and_then(Node::as_bool) == Some(true),
            setup: self.setup(node),
            // Last, so that everything else has been looked at.
            image: image?,
        };
        Some(Service { place: self.findings.files.place(entry.at), replicas, spec })
    }

    fn image(&mut self, name: &str, entry: &Entry) -> Option<ImageWant> {
        let node = &entry.node;
        let Some(image) = node.get("image") else {
            // What it extends could not be had, which has been told: its image may be there.
            if node.get("extends").is_some() {
                return None;
            }
            let (at, message, hint) = match entry.node.as_map().and_then(|map| map.get("build")) {
                Some(build) => (
                    build.at,
                    format!("the service `{name}` has a build but no image, and a node builds nothing"),
                    "build the image elsewhere and name it under `image`",
                ),
                None => (entry.at, format!("the service `{name}` has no image"), "add `image: NAME:TAG`"),
            };
            match node.get("build") {
                Some(_) => self.findings.refuse(at, message).hint(hint),
                None => self.findings.error(at, message).hint(hint),
            };
            return None;
        };
        let reference = match image::normalise(image.as_text()?) {
            Ok(reference) => reference,
            Err(message) => {
                self.findings.error(image.at, message).hint("an image is [REGISTRY/]NAME[:TAG][@DIGEST]");
                return None;
            }
        };
        let archive = match node.get("x-stead").and_then(|node| node.get("archive")) {
            Some(archive) => Some(self.archive(archive, &reference)?),
            None => None,
        };
        Some(ImageWant { reference, archive })
    }

    fn archive(&mut self, node: &Node, reference: &str) -> Option<Archive> {
        let path = crate::desired::shape::clean(&self.dir.join(node.as_text()?));
        self.inputs.insert(path.clone());
        match archive::look(&path, reference) {
            Ok(archive) => Some(archive),
            Err((message, hint)) => {
                let complaint = self.findings.error(node.at, format!("the archive {}: {message}", path.display()));
                if let Some(hint) = hint {
                    complaint.hint(hint);
                }
                None
            }
        }
    }

    /// A name without a value takes none: nothing passes through from the agent.
    fn environment(&mut self, service: &Node) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for (name, entry) in service.get("environment").and_then(Node::as_map).into_iter().flatten() {
            match entry.node.as_text() {
                Some(value) => {
                    out.insert(name.clone(), value.to_owned());
                }
                None => {
                    let message = format!("`{name}` has no value, so the container does not get it");
                    self.findings.remark(entry.at, message).hint("nothing passes through from the agent's environment");
                }
            }
        }
        out
    }

    fn labels(&mut self, service: &Node) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for (name, entry) in service.get("labels").and_then(Node::as_map).into_iter().flatten() {
            if name.starts_with("stead/") || name.starts_with("containerd.io/") {
                let message = format!("the label `{name}` belongs to the system");
                self.findings
                    .refuse(entry.at, message)
                    .hint("choose a name that does not begin with stead/ or containerd.io/");
                continue;
            }
            let value = entry.node.as_text().unwrap_or_default();
            // containerd's limit for a label.
            if name.len() + value.len() > 4096 {
                let message = format!("the label `{name}` is longer than 4096 bytes with its value");
                self.findings.refuse(entry.at, message);
                continue;
            }
            out.insert(name.clone(), value.to_owned());
        }
        out
    }

    fn working_dir(&mut self, service: &Node) -> Option<String> {
        let node = service.get("working_dir")?;
        let text = node.as_text()?;
        if !text.starts_with('/') {
            self.findings.error(node.at, format!("the working directory \"{text}\" is not an absolute path"));
            return None;
        }
        Some(text.to_owned())
    }

    fn container_name(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text()?;
        let good = text.len() >= 2
            && text.len() <= 253
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
        if !good {
            let message = format!("\"{text}\" is not a container name");
            self.findings.error(node.at, message).hint("two or more letters, digits, dots, dashes and underscores");
            return None;
        }
        Some(text.to_owned())
    }

    fn restart(&mut self, node: &Node) -> Option<Restart> {
        let text = node.as_text()?;
        let (word, count) = match text.split_once(':') {
            Some((word, count)) => (word, Some(count)),
            None => (text, None),
        };
        let policy = match (word, count) {
            ("no" | "", None) => Some(Restart::No),
            ("always", None) => Some(Restart::Always),
            ("unless-stopped", None) => Some(Restart::UnlessStopped),
            ("on-failure", None) => Some(Restart::OnFailure { max: None }),
            ("on-failure", Some(count)) => {
                count.parse().ok().map(|max: u32| Restart::OnFailure { max: (max > 0).then_some(max) })
            }
            _ => None,
        };
        if policy.is_none() {
            let words = ["no", "always", "unless-stopped", "on-failure"];
            let hint = match nearest(word, words).filter(|near| *near != word) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "it is one of no, always, unless-stopped, on-failure, on-failure:COUNT".to_owned(),
            };
            self.findings.error(node.at, format!("\"{text}\" is not a restart policy")).hint(hint);
        }
        policy
    }

    fn stop_signal(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text()?;
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let realtime = |prefix: &str| {
            let rest = name.strip_prefix(prefix);
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix(['+', '-']).is_some_and(|n| n.parse::<u8>().is_ok())
            })
        };
        let number = name.parse::<u8>().is_ok_and(|number| (1..=64).contains(&number));
        if number || SIGNALS.contains(&name) || realtime("RTMIN") || realtime("RTMAX") {
            return Some(text.to_owned());
        }
        let near = nearest(name, SIGNALS.iter().copied());
        let complaint = self.findings.error(node.at, format!("\"{text}\" is not a signal"));
        if let Some(near) = near {
            complaint.hint(format!("did you mean `SIG{near}`?"));
        }
        None
    }

    fn grace(&mut self, node: &Node) -> Option<u64> {
        let nanos = node.as_int()?;
        match u64::try_from(nanos / 1_000_000) {
            Ok(millis) => Some(millis),
            Err(_) => {
                self.findings.error(node.at, "a grace period cannot be negative");
                None
            }
        }
    }

    fn capabilities(&mut self, list: Option<&Node>) -> BTreeSet<String> {
        let mut out = BTreeSet::new();
        for node in list.and_then(Node::as_seq).into_iter().flatten() {
            let upper = node.as_text().unwrap_or_default().to_ascii_uppercase();
            let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
            if CAPABILITIES.contains(&name) {
                out.insert(name.to_owned());
                continue;
            }
            let near = nearest(name, CAPABILITIES.iter().copied());
            let complaint = self.findings.error(node.at, format!("there is no capability `{name}`"));
            if let Some(near) = near {
                complaint.hint(format!("did you mean `{near}`?"));
            }
        }
        out
    }

    /// How many instances: Compose can say it in two places.
    fn replicas(&mut self, service: &Node) -> u32 {
        let deploy = service.get("deploy");
        if let Some(mode) = deploy.and_then(|deploy| deploy.get("mode"))
            && mode.as_text() != Some("replicated")
        {
            let message = format!("the mode `{}` is not honoured here", mode.as_text().unwrap_or_default());
            self.findings.refuse(mode.at, message).hint("leave it out: a service has `scale` replicas");
        }
        let (scale, replicas) = (service.get("scale"), deploy.and_then(|deploy| deploy.get("replicas")));
        if let (Some(scale), Some(replicas)) = (scale, replicas)
            && scale.value != replicas.value
        {
            let complaint = self.findings.error(scale.at, "`scale` and `deploy.replicas` disagree");
            complaint.note(replicas.at, "the other value is here").hint("give one of them");
        }
        let Some(node) = scale.or(replicas) else { return 1 };
        let count = node.as_int().unwrap_or(1);
        if !(0..=REPLICAS_MAX).contains(&count) {
            let message = format!("{count} is not a number of replicas");
            self.findings.error(node.at, message).hint(format!("it is 0 to {REPLICAS_MAX}"));
        }
        u32::try_from(count.clamp(0, REPLICAS_MAX)).unwrap_or(1)
    }

    fn published(&mut self, service: &Node) -> Vec<Port> {
        let mut ports: Vec<Port> = Vec::new();
        for node in service.get("ports").and_then(Node::as_seq).into_iter().flatten() {
            if let Some(port) = self.port(node)
                && !ports.contains(&port)
            {
                self.ports.push((node.at, port.clone()));
                ports.push(port);
            }
        }
        ports
    }

    fn port(&mut self, node: &Node) -> Option<Port> {
        let Some(target) = node.get("target") else {
            self.findings.error(node.at, "a port needs a `target`").hint("`target` is the port in the container");
            return None;
        };
        let container = u16::try_from(target.as_int()?).ok().filter(|port| *port > 0)?;
        let protocol = match node.get_text("protocol").unwrap_or("tcp") {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            other => {
                let at = node.get("protocol").map_or(node.at, |node| node.at);
                self.findings.refuse(at, format!("ports cannot be published for {other} here")).hint("use tcp or udp");
                return None;
            }
        };
        if let Some(mode) = node.get("mode").filter(|node| !matches!(node.as_text(), Some("host" | "ingress"))) {
            self.findings.error(mode.at, "the mode of a port is `host` or `ingress`");
        }
        let host_ip = match node.get("host_ip") {
            None => None,
            Some(ip) => self.host_ip(ip)?,
        };
        let host = match node.get("published").filter(|node| node.as_text() != Some("")) {
            None => None,
            Some(published) => Some(self.host_port(published)?),
        };
        let from = self.sources(node);
        Some(Port { host_ip, host, container, protocol, from })
    }

    /// Who may connect to a port; everybody where nothing is said.
    fn sources(&mut self, port: &Node) -> BTreeSet<IpNet> {
        let mut sources = BTreeSet::new();
        let from = port.get("x-stead").and_then(|node| node.get("from"));
        for node in from.and_then(Node::as_seq).into_iter().flatten() {
            let text = node.as_text().unwrap_or_default();
            match text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
                Ok(net) => drop(sources.insert(net.trunc())),
                Err(_) => {
                    self.findings
                        .error(node.at, format!("\"{text}\" is not a network"))
                        .hint("write it like 192.0.2.0/24");
                }
            }
        }
        if let Some(empty) = from.filter(|_| sources.is_empty()) {
            self.findings
                .error(empty.at, "a port that nobody may connect to is not published")
                .hint("leave the port out");
        }
        sources
    }

    /// The host address of a port: every address when it is the one that means so.
    fn host_ip(&mut self, node: &Node) -> Option<Option<IpAddr>> {
        match node.as_text()?.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) if ip.is_loopback() => {
                let message = "Linux carries no connections from ::1 to a container";
                self.findings.refuse(node.at, message).hint("publish on 127.0.0.1");
                None
            }
            Ok(ip) => Some((!ip.is_unspecified()).then_some(ip)),
            Err(_) => {
                self.findings.error(node.at, format!("\"{}\" is not an IP address", node.as_text()?));
                None
            }
        }
    }

    fn host_port(&mut self, node: &Node) -> Option<u16> {
        let text = node.as_text()?;
        if let Some(port) = text.parse::<u16>().ok().filter(|port| *port > 0) {
            return Some(port);
        }
        if text.contains('-') {
            let message = format!("the host ports {text} for one container port would be a choice at random");
            self.findings.refuse(node.at, message).hint("name one port, or leave the host port out");
        } else {
            self.findings.error(node.at, format!("\"{text}\" is not a port number"));
        }
        None
    }
}

/// A published port with its place.
pub(super) type PlacedPort = (At, Port);
