//! Names and keys: what a thing is called by people, and the marks that let us know it again on the node.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:expr, $first:expr, $rest:expr, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text against the rule of this kind of name.
            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                let text = text.into();
                let first: fn(char) -> bool = $first;
                let rest: fn(char) -> bool = $rest;
                let good = text.len() <= $max
                    && text.chars().next().is_some_and(first)
                    && text.chars().all(rest);
                if good { Ok(Self(text)) } else { Err(BadName { text, rule: $rule }) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }
    };
}

/// A name that does not follow the rule of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid name: {rule}")]
pub struct BadName {
    text: String,
    rule: &'static str,
}

name!(
    /// The name of an agent (`--name`): separates agents on one node.
    AgentName, 24, |c| c.is_ascii_lowercase(), |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-',
    "1 to 24 characters of a-z, 0-9 and -, the first one a letter"
);
name!(
    /// An app: one Compose project.
    AppName, 63, |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
    |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_',
    "1 to 63 characters of a-z, 0-9, - and _, the first one a letter or a digit"
);
name!(
    /// A service of an app.
    ServiceName, 63, |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    "1 to 63 characters of A-Z, a-z, 0-9, ., - and _"
);
name!(
    /// A network as its app names it.
    NetworkName, 63, |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    "1 to 63 characters of A-Z, a-z, 0-9, ., - and _"
);
name!(
    /// A named volume as its app names it.
    VolumeName, 63, |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    "1 to 63 characters of A-Z, a-z, 0-9, ., - and _"
);

/// One replica of one service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey {
    /// The app.
    pub app: AppName,
    /// The service.
    pub service: ServiceName,
    /// The replica, counted from 1.
    pub replica: u32,
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.app, self.service, self.replica)
    }
}

impl std::str::FromStr for InstanceKey {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = || BadName { text: text.to_owned(), rule: "APP/SERVICE/REPLICA" };
        let mut parts = text.split('/');
        let (Some(app), Some(service), Some(replica), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        Ok(Self {
            app: AppName::new(app)?,
            service: ServiceName::new(service)?,
            replica: replica.parse().map_err(|_| bad())?,
        })
    }
}

/// A network of an app.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NetworkKey {
    /// The app that declares it.
    pub app: AppName,
    /// Its name there.
    pub network: NetworkName,
}

impl fmt::Display for NetworkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.network)
    }
}

/// A named volume of an app.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeKey {
    /// The app that declares it.
    pub app: AppName,
    /// Its name there.
    pub volume: VolumeName,
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.volume)
    }
}

/// Something of ours that no desired object and no label leads to any more: left by a crash or a lost file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StrayKey {
    /// A link of our group without a known owner, by its name.
    Link(String),
    /// A netns of our prefix without a known owner, by its name.
    Netns(String),
    /// A snapshot with our labels that cannot be read as an instance, by its key.
    Snapshot(String),
    /// An import lease of ours, by its id.
    Lease(String),
    /// A shim of our namespace that containerd lost when its client died in the middle of a call: no record and no task
    /// has its id any more. The process is its identity.
    Shim {
        /// The container that it was for.
        id: String,
        /// The shim.
        pid: u32,
        /// Its start time in clock ticks.
        start_ticks: u64,
    },
}

impl fmt::Display for StrayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(name) => write!(f, "link {name}"),
            Self::Netns(name) => write!(f, "netns {name}"),
            Self::Snapshot(key) => write!(f, "snapshot {key}"),
            Self::Lease(id) => write!(f, "lease {id}"),
            Self::Shim { id, pid, .. } => write!(f, "shim of {id} (pid {pid})"),
        }
    }
}

/// An object: anything that is decided on, stepped and held by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Key {
    /// An image, by its reference.
    Image(String),
    /// A bridge network.
    Network(NetworkKey),
    /// A named volume.
    Volume(VolumeKey),
    /// A replica of a service with its netns, links, snapshot, container and task.
    Instance(InstanceKey),
    /// The node's port table and what it needs of the host.
    Publication,
    /// Something of ours without an owner.
    Stray(StrayKey),
}

impl Key {
    /// The kind of object in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Image(_) => "image",
            Self::Network(_) => "network",
            Self::Volume(_) => "volume",
            Self::Instance(_) => "instance",
            Self::Publication => "publication",
            Self::Stray(_) => "stray",
        }
    }

    /// The app that the object belongs to, if it belongs to one.
    pub fn app(&self) -> Option<&AppName> {
        match self {
            Self::Network(key) => Some(&key.app),
            Self::Volume(key) => Some(&key.app),
            Self::Instance(key) => Some(&key.app),
            Self::Image(_) | Self::Publication | Self::Stray(_) => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(reference) => write!(f, "image {reference}"),
            Self::Network(key) => write!(f, "network {key}"),
            Self::Volume(key) => write!(f, "volume {key}"),
            Self::Instance(key) => write!(f, "{key}"),
            Self::Publication => write!(f, "ports"),
            Self::Stray(key) => write!(f, "stray {key}"),
        }
    }
}

/// Every mark that one agent leaves on the node, derived from its name alone.
///
/// Two agents with different names never see each other's objects as their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    agent: AgentName,
}

impl Marks {
    /// The marks of the agent of this name.
    pub fn new(agent: AgentName) -> Self {
        Self { agent }
    }

    /// The agent's name: also the containerd namespace and the nft table.
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// The `link_group` of every link that is ours. Never 0, which is the kernel's default group.
    pub fn link_group(&self) -> u32 {
        let bytes = Sha256::digest(format!("group\0{}", self.agent));
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) & 0x7fff_ffff | 1
    }

    /// The name of an instance's netns under `/run/netns`.
    pub fn netns(&self, key: &InstanceKey) -> String {
        format!("{}{}", self.netns_prefix(), self.hash("netns", &key.to_string(), 16))
    }

    /// What the names of all our netns begin with.
    pub fn netns_prefix(&self) -> String {
        format!("{}-", self.agent)
    }

    /// The host-side name of an instance's link into a network.
    pub fn link(&self, key: &InstanceKey, network: &NetworkKey) -> String {
        format!("st{}", self.hash("link", &format!("{key}\0{network}"), 12))
    }

    /// The name of a network's bridge.
    pub fn bridge(&self, key: &NetworkKey) -> String {
        format!("st{}", self.hash("bridge", &key.to_string(), 12))
    }

    /// The ifalias of an instance's link: readable, and the way back from a link to its instance.
    pub fn link_alias(&self, key: &InstanceKey, network: &NetworkKey) -> String {
        format!("{}:{key}/{}", self.agent, network.network)
    }

    /// The ifalias of a bridge.
    pub fn bridge_alias(&self, key: &NetworkKey) -> String {
        format!("{}:{key}", self.agent)
    }

    /// Which object an ifalias of ours names: an instance (4 parts) or a network (2 parts).
    pub fn read_alias(&self, alias: &str) -> Option<Key> {
        let rest = alias.strip_prefix(self.agent.as_str())?.strip_prefix(':')?;
        let parts: Vec<&str> = rest.split('/').collect();
        match parts.as_slice() {
            [app, network] => Some(Key::Network(NetworkKey {
                app: AppName::new(*app).ok()?,
                network: NetworkName::new(*network).ok()?,
            })),
            [app, service, replica, _network] => Some(Key::Instance(InstanceKey {
                app: AppName::new(*app).ok()?,
                service: ServiceName::new(*service).ok()?,
                replica: replica.parse().ok()?,
            })),
            _ => None,
        }
    }

    /// A locally administered MAC, constant for what it is made from.
    pub fn mac(&self, of: &str) -> [u8; 6] {
        let bytes = Sha256::digest(format!("mac\0{}\0{of}", self.agent));
        [0x02, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]
    }

    /// A container's id: readable, unique by its digest, and valid for containerd (76 characters at most, single separators).
    pub fn container_id(&self, key: &InstanceKey, digest: &SpecDigest, attempt: u32) -> String {
        let suffix = match attempt {
            0 => format!("-{}", digest.short()),
            n => format!("-{}-{n}", digest.short()),
        };
        let mut id = String::new();
        for c in format!("{}-{}-{}", key.app, key.service, key.replica).chars() {
            let separator = !c.is_ascii_alphanumeric();
            if separator && id.chars().next_back().is_none_or(|last| !last.is_ascii_alphanumeric()) {
                continue;
            }
            id.push(c);
        }
        id.truncate(76 - suffix.len());
        while id.chars().next_back().is_some_and(|last| !last.is_ascii_alphanumeric()) {
            id.pop();
        }
        id + &suffix
    }

    /// The lease that an import of this reference holds while it works.
    pub fn lease(&self, reference: &str) -> String {
        format!("{}-{}", self.agent, self.hash("lease", reference, 16))
    }

    /// What the ids of all our leases begin with.
    pub fn lease_prefix(&self) -> String {
        format!("{}-", self.agent)
    }

    fn hash(&self, kind: &str, of: &str, length: usize) -> String {
        let mut hex = hex(&Sha256::digest(format!("{kind}\0{}\0{of}", self.agent)));
        hex.truncate(length);
        hex
    }
}

/// A number that is constant for its text: where probing for a free slot begins.
pub fn slot_hash(of: &str) -> u64 {
    let bytes = Sha256::digest(of);
    u64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// Lower-case hexadecimal text of bytes.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The digest of what makes an instance another instance: the fields whose change means recreation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpecDigest(String);

impl SpecDigest {
    /// The digest of a canonical document.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)))
    }

    /// A digest as it stands in a label.
    pub fn from_label(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// All of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first eight characters.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}
