//! What was seen: one picture of the node, made of whole lists by domain.
//!
//! A domain is what one look covers and what goes blind as one: containerd, links and netns, the nft table, files.
//! Inside a domain things are grouped by the object they belong to, as their marks say. Foreign things appear only
//! where they can be in our way (a link with a name that we need, a route that overlaps a subnet).

use super::lifecycle::HealthSeen;
use super::name::{InstanceKey, NetworkKey, SpecDigest, StrayKey, VolumeKey};
use super::ruleset::Ruleset;
use super::sight::Sight;
use super::spec::InstanceSpec;
use super::time::Timestamp;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What one look covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// Containers, tasks, snapshots, images, leases.
    Runtime,
    /// Links, addresses, routes, netns, sysctls.
    Net,
    /// The nft table.
    Ports,
    /// Instance files, volumes, what the host's files say.
    Files,
}

impl Domain {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Runtime, Self::Net, Self::Ports, Self::Files];
}

/// One picture of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// What containerd has.
    pub runtime: Sight<RuntimeSeen>,
    /// What the kernel's network has.
    pub net: Sight<NetSeen>,
    /// Our nft table; `None` when there is none.
    pub ports: Sight<Option<TableSeen>>,
    /// Our files.
    pub files: Sight<FilesSeen>,
}

impl Observed {
    /// The picture before the first look.
    pub fn nothing_yet() -> Self {
        let why = "not looked at yet";
        Self {
            runtime: Sight::unseen(why),
            net: Sight::unseen(why),
            ports: Sight::unseen(why),
            files: Sight::unseen(why),
        }
    }
}

/// What containerd has in our namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeSeen {
    /// Ours, by instance. An instance of which nothing is there has no entry.
    pub instances: BTreeMap<InstanceKey, RuntimeSide>,
    /// Images by reference.
    pub images: BTreeMap<String, ImageSeen>,
    /// Ours without an owner.
    pub strays: BTreeSet<StrayKey>,
    /// This boot of the machine, to tell a task that vanished from one that a reboot took.
    pub boot: String,
}

/// What containerd has of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeSide {
    /// Container records, of any generation, in order of their ids.
    pub containers: Vec<ContainerSeen>,
    /// Snapshots that are labelled as this instance's.
    pub snapshots: Vec<SnapshotSeen>,
}

/// An image in containerd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSeen {
    /// The digest of its target (manifest or index).
    pub digest: String,
    /// What the node's platform takes from it, or why it cannot.
    pub usable: ImageUse,
    /// The lease of an import that is not cleaned up.
    pub lease: bool,
}

/// Whether an image can be run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUse {
    /// Content whole and unpacked.
    Ready {
        /// The snapshot that a container's snapshot starts from.
        chain_id: String,
        /// The signal that its config asks for.
        stop_signal: Option<String>,
    },
    /// Content whole; layers not unpacked.
    Packed,
    /// Content missing.
    Incomplete,
    /// For other platforms only.
    WrongPlatform {
        /// Those platforms.
        has: Vec<String>,
    },
}

/// A container record that carries our labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSeen {
    /// Its id.
    pub id: String,
    /// The identity for a destructive step: the same id made again has another time.
    pub created_at: Timestamp,
    /// The digest in its label.
    pub digest: SpecDigest,
    /// Which attempt at this digest.
    pub attempt: u32,
    /// What it was made from; `None` when the record cannot be read by this version.
    pub record: Option<Record>,
    /// Its snapshot's key.
    pub snapshot: String,
    /// The run that its label tells of.
    pub run: Option<Run>,
    /// The last exit written down in its label.
    pub exit: Option<Exit>,
    /// The exit that the witness saw, not written down yet or again.
    pub witnessed: Option<Exit>,
    /// The stop mark on its label; cleared by the next run.
    pub stopping: Option<Stopping>,
    /// The runtime cannot make a task from this record (containerd kept half of an earlier try).
    pub wedged: bool,
    /// What of its spec was lowered to what this node lets the agent give (rlimits, the OOM score), one sentence each.
    pub clamped: Vec<String>,
    /// Its task.
    pub task: TaskSeen,
    /// What the probes of its running task found out; `None` without a check, and before the first word of one.
    pub health: Option<HealthSeen>,
}

/// A container's task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSeen {
    /// containerd says NotFound.
    None,
    /// Made, not started.
    Created {
        /// The process.
        pid: u32,
    },
    /// Running.
    Running {
        /// The process.
        pid: u32,
        /// Its start time in clock ticks since boot: with the pid, its identity.
        start_ticks: u64,
    },
    /// Ended, not deleted.
    Stopped(Exit),
    /// There, but in no state that can be judged: paused, a hung shim, a call without an answer.
    Unknown {
        /// One sentence.
        why: String,
    },
}

impl TaskSeen {
    /// Whether a process may be alive.
    pub fn may_live(&self) -> bool {
        match self {
            Self::None | Self::Stopped(_) => false,
            Self::Created { .. } | Self::Running { .. } | Self::Unknown { .. } => true,
        }
    }

    /// The pid, where it is known.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Created { pid } | Self::Running { pid, .. } => Some(*pid),
            Self::Stopped(exit) => Some(exit.pid),
            Self::None | Self::Unknown { .. } => None,
        }
    }
}

/// A run as its label tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The boot it belongs to.
    pub boot: String,
    /// The process.
    pub pid: u32,
    /// When it was started.
    pub at: Timestamp,
    /// How many runs this container had, with this one.
    pub count: u32,
    /// How many of the runs before it ended too soon in a row.
    pub failures: u32,
    /// The restart that it was started for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted: Option<String>,
    /// The generation of the record that it was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Which containers of those needed services ran then whose renewal restarts it, by `app/service`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, String>,
}

/// That a run was asked to stop, as its label tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stopping {
    /// When the stop signal was sent.
    pub at: Timestamp,
    /// It was wanted again before it ended. An exit after the signal is still ours, not its own.
    pub revoked: bool,
    /// It was stopped for being unhealthy: what follows waits like a restart after a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unhealthy: bool,
}

/// An exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The process that ended.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// When.
    pub at: Timestamp,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitStatus {
    /// With this code; 128 + n for signal n, as shells count.
    Code(u32),
    /// Nobody could see.
    Unknown,
    /// The machine went down under it.
    Reboot,
}

impl ExitStatus {
    /// Whether it ended well.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// A snapshot with our labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSeen {
    /// Its key.
    pub key: String,
    /// Its parent: a chain id.
    pub parent: String,
}

/// What an instance was made from, kept on its container record as an extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What was asked for.
    pub spec: InstanceSpec,
    /// The image's digest at that time.
    pub image_digest: String,
    /// Where it is attached.
    pub attachments: Vec<Attachment>,
    /// The generation that asked.
    pub generation: u64,
    /// The file that asked.
    pub file: String,
}

/// One interface of an instance as it was decided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// The network.
    pub network: NetworkKey,
    /// The interface's name inside.
    pub interface: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The network's prefix.
    pub subnet: Ipv4Net,
    /// The default route's gateway, on the one interface that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// The MAC inside.
    pub mac: [u8; 6],
    /// IPv6 beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub six: Option<Six>,
}

/// The IPv6 side of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Six {
    /// Its address.
    pub address: Ipv6Addr,
    /// The network's prefix.
    pub subnet: Ipv6Net,
    /// The default route's gateway, on the one interface that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv6Addr>,
}

impl Six {
    /// The address with the prefix's length.
    pub fn interface(&self) -> Option<Ipv6Net> {
        Ipv6Net::new(self.address, self.subnet.prefix_len()).ok()
    }
}

/// What the kernel's network has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetSeen {
    /// Ours, by instance.
    pub instances: BTreeMap<InstanceKey, NetSide>,
    /// Our bridges, by network.
    pub networks: BTreeMap<NetworkKey, LinkSeen>,
    /// Ours without an owner.
    pub strays: BTreeSet<StrayKey>,
    /// Identities of the strays, for their removal.
    pub stray_links: BTreeMap<String, LinkSeen>,
    /// Netns files of the strays and their inodes (0 for a plain file).
    pub stray_netns: BTreeMap<String, u64>,
    /// Names of links that are not ours.
    pub foreign_links: BTreeSet<String>,
    /// Prefixes that the host routes elsewhere than to our bridges, without default and half-default routes, with the
    /// interface that they go to.
    pub host_routes: Vec<(Ipv4Net, String)>,
    /// `net.ipv4.ip_forward`.
    pub ip_forward: bool,
    /// `net.ipv6.conf.all.forwarding`.
    pub ip6_forward: bool,
    /// Whether somebody else has a bridge, and so may need forwarding.
    pub foreign_bridges: bool,
}

/// What the kernel's network has of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetSide {
    /// Its netns.
    pub netns: Option<NetnsSeen>,
    /// Its host-side links, by network.
    pub links: BTreeMap<NetworkKey, LinkSeen>,
}

/// A netns file of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetnsSeen {
    /// The namespace's inode; 0 when the file is there but is no netns (the mount was lost).
    pub inode: u64,
    /// Whether `lo` is up.
    pub loopback_up: bool,
    /// The other interfaces, by name.
    pub interfaces: BTreeMap<String, InterfaceSeen>,
    /// The IPv4 default gateway.
    pub default_gateway: Option<Ipv4Addr>,
    /// The IPv6 default gateway.
    pub default_gateway6: Option<Ipv6Addr>,
}

/// An interface inside a netns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceSeen {
    /// Its index inside.
    pub index: u32,
    /// The index of its other end on the host.
    pub peer_index: u32,
    /// Whether it is up.
    pub up: bool,
    /// Its MAC.
    pub mac: [u8; 6],
    /// Its largest packet.
    pub mtu: u32,
    /// Its IPv4 addresses.
    pub addresses: Vec<Ipv4Net>,
    /// Its lasting IPv6 addresses, without those of the link alone.
    pub addresses6: Vec<Ipv6Net>,
}

/// A link of ours on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSeen {
    /// Its index: with the alias, its identity.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its ifalias.
    pub alias: Option<String>,
    /// Whether it is a bridge.
    pub bridge: bool,
    /// Whether it is set up (IFF_UP).
    pub up: bool,
    /// The bridge that it is a port of.
    pub controller: Option<u32>,
    /// Whether a port sends frames back to where they came from.
    pub hairpin: bool,
    /// Its MAC.
    pub mac: [u8; 6],
    /// Its largest packet.
    pub mtu: u32,
    /// Its IPv4 addresses.
    pub addresses: Vec<Ipv4Net>,
    /// Its lasting IPv6 addresses, without those of the link alone.
    pub addresses6: Vec<Ipv6Net>,
    /// `net.ipv4.conf.<link>.route_localnet`; false for links that are no bridges.
    pub route_localnet: bool,
}

/// Our nft table as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSeen {
    /// What it says, read back.
    pub ruleset: Ruleset,
    /// Whether every chain, rule and element is as that ruleset renders, with nothing foreign in it.
    pub intact: bool,
}

/// Our files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesSeen {
    /// By instance.
    pub instances: BTreeMap<InstanceKey, InstanceFiles>,
    /// Named volumes that have a directory.
    pub volumes: BTreeSet<VolumeKey>,
    /// What the host says about names.
    pub resolver: Resolver,
}

/// The files of one instance under the agent's run directory, by content; `None` when a file is not there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceFiles {
    /// `/etc/hosts`.
    pub hosts: Option<String>,
    /// `/etc/resolv.conf`.
    pub resolv_conf: Option<String>,
    /// `/etc/hostname`.
    pub hostname: Option<String>,
    /// Files of configs and secrets that are there with the content and the owner that their names tell.
    pub grants: BTreeSet<String>,
}

/// What the host's `resolv.conf` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolver {
    /// Name servers.
    pub servers: Vec<IpAddr>,
    /// Search domains.
    pub search: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}
