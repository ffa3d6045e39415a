//! The simulated node as plain data: what containerd, the kernel and the disk hold, and what they do by themselves.
//!
//! It knows nothing of the planner or the loop. [`act`](World::act) does what a driver does for one step (identity first,
//! then the one effect); [`see`] makes the pictures that a driver's look makes; [`daemon`] and [`kernel`] are what happens
//! without the agent. Everything that is done to the node is recorded in [`Audit`].

mod act;
mod act_net;
mod daemon;
mod kernel;
mod names;
mod see;

pub use act::Extent;
pub use names::*;
pub use see::blind;

use super::audit::Audit;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::rc::Rc;
use stead::model::{
    Attachment, Exit, FilesSeen, ImageUse, InstanceKey, Limits, LinkSeen, NetnsIdentity, Record, Run, ServiceName,
    SpecDigest, Stopping, TableSeen, Timestamp,
};

/// Where wall time begins.
pub const EPOCH: u64 = 1_800_000_000_000;

/// Which containerd it is: they differ in what a restart keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Keeps stopped tasks; a create cut off by a crash leaves a wedge.
    V1_6,
    /// Forgets stopped tasks.
    V1_7,
    /// Forgets stopped tasks.
    V2,
}

/// How containerd is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    /// Answers.
    Up,
    /// Refuses connections.
    Down,
    /// Takes calls and answers none.
    Mute,
}

/// How a service's processes behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// Ends by itself after this many milliseconds, with this code.
    pub ends: Option<(u64, u32)>,
    /// Milliseconds from the stop signal to the end; `None` when it ignores the signal.
    pub stops_in: Option<u64>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { ends: None, stops_in: Some(5) }
    }
}

/// Something that happens at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A call of the agent takes its next stage.
    Call(u64),
    /// A process ends by itself or by a signal.
    ProcessEnds { pid: u32, boot: u32, code: u32 },
    /// The host side of a veth whose netns is gone goes too.
    LinkGone { index: u32 },
    /// A wake-up reaches the agent.
    Wake(u64),
    /// Something that the storm planned.
    Planned(u64),
}

/// A container record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its labels; `None` for somebody else's.
    pub instance: Option<InstanceKey>,
    pub created_at: Timestamp,
    pub digest: SpecDigest,
    pub attempt: u32,
    pub record: Option<Record>,
    pub snapshot: String,
    pub netns: Option<NetnsIdentity>,
    pub run: Option<Run>,
    pub exit: Option<Exit>,
    pub stopping: Option<Stopping>,
    /// A create of its task was cut off and left half of itself.
    pub wedge: bool,
    /// The agent's driver has met the wedge.
    pub wedge_known: bool,
    pub task: Option<Task>,
    /// Nobody but the agent has changed the record.
    pub pristine: bool,
}

/// How a shim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shim {
    Up,
    Hung,
    /// Killed while containerd was down.
    Dead,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub pid: u32,
    pub start_ticks: u64,
    pub started: bool,
    /// The true exit, once its process has ended.
    pub exit: Option<Exit>,
    pub shim: Shim,
    /// The netns that its process is in.
    pub space: u64,
    pub limits: Limits,
}

impl Task {
    /// Whether its process runs.
    pub fn runs(&self) -> bool {
        self.started && self.exit.is_none()
    }
}

/// Whose a snapshot is, by its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Instance(InstanceKey),
    /// Our labels, but not readable.
    Unreadable,
    Foreign,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub owner: Owner,
    pub parent: String,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub digest: String,
    pub usable: ImageUse,
}

/// containerd.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub daemon: Daemon,
    pub version: Version,
    pub containers: BTreeMap<String, Container>,
    pub snapshots: BTreeMap<String, Snapshot>,
    pub images: BTreeMap<String, Image>,
    pub leases: BTreeSet<String>,
}

/// A link on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub seen: LinkSeen,
    /// In our link group.
    pub ours: bool,
    /// Its other end: netns inode and interface.
    pub peer: Option<(u64, String)>,
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Space {
    pub loopback_up: bool,
    pub interfaces: BTreeMap<String, stead::model::InterfaceSeen>,
    pub default_gateway: Option<Ipv4Addr>,
    pub default_gateway6: Option<std::net::Ipv6Addr>,
}

/// The kernel's network.
#[derive(Debug, Clone, Default)]
pub struct Net {
    /// Host links by index.
    pub links: BTreeMap<u32, Link>,
    /// Files under `/run/netns` and the inode mounted there; 0 for a plain file.
    pub files: BTreeMap<String, u64>,
    /// Namespaces by inode.
    pub spaces: BTreeMap<u64, Space>,
    pub host_routes: Vec<(ipnet::Ipv4Net, String)>,
    pub ip_forward: bool,
    pub ip6_forward: bool,
    pub table: Option<TableSeen>,
}

/// The whole node.
pub struct World {
    /// Milliseconds since the run began.
    pub now: u64,
    /// What the wall clock is off by.
    pub clock_off: i64,
    pub boot: u32,
    pub registry: Rc<Registry>,
    pub runtime: Runtime,
    pub net: Net,
    pub files: FilesSeen,
    /// OCI archives on disk and the digest of what is in them.
    pub archives: BTreeMap<PathBuf, String>,
    pub behaviours: BTreeMap<ServiceName, Behaviour>,
    /// The kernel tells a pidfd's holder how its process ended.
    pub exit_info: bool,
    /// The processes whose end the living agent would see.
    pub witnesses: BTreeSet<(String, u32)>,
    /// The ends that the living agent saw.
    pub witnessed: BTreeMap<(String, u32), Exit>,
    pub audit: Audit,
    agenda: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    sequence: u64,
    next_pid: u32,
    next_index: u32,
    next_inode: u64,
    last_created: u64,
    pub rings: Vec<super::wake::Ring>,
}

impl World {
    /// An empty node.
    pub fn new(registry: Rc<Registry>) -> Self {
        Self {
            now: 0,
            clock_off: 0,
            boot: 1,
            registry,
            runtime: Runtime {
                daemon: Daemon::Up,
                version: Version::V1_7,
                containers: BTreeMap::new(),
                snapshots: BTreeMap::new(),
                images: BTreeMap::new(),
                leases: BTreeSet::new(),
            },
            net: Net::default(),
            files: FilesSeen::default(),
            archives: BTreeMap::new(),
            behaviours: BTreeMap::new(),
            exit_info: true,
            witnesses: BTreeSet::new(),
            witnessed: BTreeMap::new(),
            audit: Audit::default(),
            agenda: BinaryHeap::new(),
            sequence: 0,
            next_pid: 1000,
            next_index: 2,
            next_inode: 4_026_532_000,
            last_created: 0,
            rings: Vec::new(),
        }
    }

    /// The wall clock.
    pub fn wall(&self) -> Timestamp {
        Timestamp((EPOCH + self.now).saturating_add_signed(self.clock_off))
    }

    /// The name of this boot.
    pub fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    /// Puts something on the agenda.
    pub fn plan(&mut self, at: u64, what: Happening) {
        self.sequence += 1;
        self.agenda.push(Reverse((at.max(self.now), self.sequence, what)));
    }

    /// The time of the next thing on the agenda.
    pub fn next_time(&self) -> Option<u64> {
        self.agenda.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next thing that is due.
    pub fn next_due(&mut self) -> Option<Happening> {
        let due = self.agenda.peek().is_some_and(|Reverse((at, _, _))| *at <= self.now);
        if due { self.agenda.pop().map(|Reverse((_, _, what))| what) } else { None }
    }

    /// A time for a new record that no earlier record has.
    fn creation_time(&mut self) -> Timestamp {
        let at = self.wall().0.max(self.last_created + 1);
        self.last_created = at;
        Timestamp(at)
    }

    fn fresh_index(&mut self) -> u32 {
        self.next_index += 1;
        self.next_index
    }

    fn fresh_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.next_inode
    }

    fn fresh_pid(&mut self) -> u32 {
        self.next_pid += 1;
        self.next_pid
    }

    fn ticks(&self) -> u64 {
        self.now / 10 + 100
    }

    /// How a service behaves.
    pub fn behaviour(&self, instance: &InstanceKey) -> Behaviour {
        self.behaviours.get(&instance.service).copied().unwrap_or_default()
    }

    /// The containers of an instance.
    pub fn containers_of<'w>(&'w self, key: &'w InstanceKey) -> impl Iterator<Item = (&'w String, &'w Container)> {
        self.runtime.containers.iter().filter(move |(_, container)| container.instance.as_ref() == Some(key))
    }

    /// A host link by name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.net.links.values().find(|link| link.seen.name == name)
    }

    /// Whether an attachment of an instance is in place from the bridge to the address inside.
    pub fn attachment_stands(&self, instance: &InstanceKey, space: u64, at: &Attachment) -> Result<(), String> {
        let name = self.registry.link_name(instance, &at.network);
        let link = self.link_named(&name).ok_or_else(|| format!("no link {name} into {}", at.network))?;
        if link.peer != Some((space, at.interface.clone())) {
            return Err(format!("the other end of {name} is {:?}, not {} in {space}", link.peer, at.interface));
        }
        let inside = self.net.spaces.get(&space).and_then(|space| space.interfaces.get(&at.interface));
        let inside = inside.ok_or_else(|| format!("no {} in netns {space}", at.interface))?;
        let address = ipnet::Ipv4Net::new(at.address, at.subnet.prefix_len()).expect("a recorded prefix is valid");
        if !inside.up || inside.addresses != [address] {
            return Err(format!("{} is {:?}, up: {}; not {address}", at.interface, inside.addresses, inside.up));
        }
        let bridge = self.link_named(&self.registry.bridge_name(&at.network));
        let bridge = bridge.ok_or_else(|| format!("no bridge for {}", at.network))?;
        let port = link.seen.up && link.seen.hairpin && link.seen.controller == Some(bridge.seen.index);
        if port { Ok(()) } else { Err(format!("{name} is no whole port of its bridge: {:?}", link.seen)) }
    }
}
