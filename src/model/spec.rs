//! What is asked for, in our own words: the only form of desired state that the planner and the drivers see.
//!
//! An [`InstanceSpec`] holds what was *written* plus what was resolved from files. Defaults of ours are never in it: they
//! are put in when the OCI runtime spec is made, so that a default added later does not change an unchanged file's digest.
//! For the same reason every field added from now on is skipped in serialisation when it is not set.

use super::lifecycle::{HealthCheck, Need, RestartPolicy};
use super::mount::Mount;
use super::name::{AppName, InstanceKey, NetworkKey, NetworkName, ServiceName, VolumeKey, VolumeName};
use super::report::Finding;
use super::setup::{Grant, Setup};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// The whole desired state of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// Counts up with each different picture that the source delivers.
    pub generation: u64,
    /// Whether the source knows of every app. While false (the directory could not be read and no last known good
    /// says what was in it), nothing is removed.
    pub whole: bool,
    /// The apps.
    pub apps: BTreeMap<AppName, App>,
    /// Findings that belong to no app: an unreadable directory, a file whose name cannot be an app.
    pub findings: Vec<Finding>,
    /// Where subnets come from when a file names none; the usual pool where not set. A setting of the node.
    pub pool: Option<Ipv4Net>,
}

/// One app: one Compose project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// The file that asked for it.
    pub file: PathBuf,
    /// The generation in which this content was first seen.
    pub generation: u64,
    /// False when the file is invalid and no last known good is at hand: what runs is left as it is.
    pub known: bool,
    /// The services.
    pub services: BTreeMap<ServiceName, Service>,
    /// The networks that at least one service uses.
    pub networks: BTreeMap<NetworkName, NetworkSpec>,
    /// The named volumes.
    pub volumes: BTreeSet<VolumeName>,
    /// What is wrong with the file as it is now; the services above are then the last known good.
    pub findings: Vec<Finding>,
}

/// One service of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Where it is written.
    pub place: Place,
    /// How many instances.
    pub replicas: u32,
    /// What each of them is.
    pub spec: InstanceSpec,
}

/// A place in a file, lines and columns counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// What one instance of a service is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceSpec {
    /// The image.
    pub image: ImageWant,
    /// Replaces the image's entrypoint; with it the image's command is dropped, as Compose says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Replaces the image's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Added to the image's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// `user[:group]`, names or numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The host name; the instance's name where it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The user's labels, put on the container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// An additional name that peers can use, and the container's name in status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// What happens after an exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// The signal that asks it to stop, by name or number as written; the image's or SIGTERM where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Milliseconds between the stop signal and SIGKILL; 10 s where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace_ms: Option<u64>,
    /// Published ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// The networks it is in, the one with the default route first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkUse>,
    /// Whose network it has; one of its own where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<NetworkMode>,
    /// What it is told of names beyond those of its networks.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub names: Names,
    /// Bind mounts, named volumes and tmpfs mounts, in the order they are mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// A read-only root filesystem.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// All capabilities and devices, no confinement.
    #[serde(default, skip_serializing_if = "is_false")]
    pub privileged: bool,
    /// Capabilities added to the default set, upper case without `CAP_`; `ALL` for all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cap_add: BTreeSet<String>,
    /// Capabilities taken from the default set.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cap_drop: BTreeSet<String>,
    /// What it may use of the machine.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// What other services have to be before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// How its health is found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    /// What happens after an exit, in place of `restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,
    /// The last restart that was asked for: a run that was started for another one is ended and started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted: Option<String>,
    /// It is not to run, and kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
    /// How it is set up beyond that.
    #[serde(default, skip_serializing_if = "Setup::is_empty")]
    pub setup: Setup,
    /// Configs and secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
}

impl InstanceSpec {
    /// The same without the contents of configs and secrets: what may be written down.
    pub fn sealed(&self) -> Self {
        let mut spec = self.clone();
        for grant in &mut spec.grants {
            grant.content = None;
        }
        spec
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Which image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageWant {
    /// The reference as containerd names it (normalised: `docker.io/library/x:latest` for `x`).
    pub reference: String,
    /// An OCI archive that holds it (`x-stead: {archive: ...}`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
}

/// An OCI archive on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// Where it is, absolute.
    pub path: PathBuf,
    /// The digest of the manifest that its index names (`sha256:...`): another content is another image.
    pub digest: String,
}

/// What happens after an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Nothing: it was a job.
    No,
    /// Start again, always.
    Always,
    /// As `Always` here: stopping is an edit of the file, not a memory of the agent.
    UnlessStopped,
    /// Start again after a failure, at most this often in a row.
    OnFailure {
        /// The limit; none where not set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<u32>,
    },
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// As nft and Compose write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// One published port; a range is written out port by port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The host address it is published on; every address where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
    /// The port on the host; one chosen by hash where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u16>,
    /// The port in the container.
    pub container: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Who may connect, beside the host itself; everybody where empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub from: BTreeSet<IpNet>,
}

/// A network that an instance is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkUse {
    /// The network.
    pub network: NetworkName,
    /// Further names there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub aliases: BTreeSet<String>,
    /// A fixed address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// A fixed IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address6: Option<Ipv6Addr>,
    /// A fixed MAC; one from the instance's name where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<[u8; 6]>,
    /// The interface's name inside; `eth` and a number where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

impl NetworkUse {
    /// A network with nothing said about it.
    pub fn plain(network: NetworkName) -> Self {
        Self { network, aliases: BTreeSet::new(), address: None, address6: None, mac: None, interface: None }
    }
}

/// Whose network an instance has, where it is not one of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// One of its own with nothing in it but the loopback.
    None,
    /// The host's.
    Host,
    /// That of the instance of this service with the same number.
    Service(ServiceName),
}

/// What an instance is told of names beyond those of its networks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// Name servers in the place of the host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<IpAddr>,
    /// Search domains in the place of the host's; `.` alone for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options in the place of the host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Further lines of its hosts file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, Vec<HostAddress>>,
}

impl Names {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The address of a further line of the hosts file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostAddress {
    /// Where the instance reaches the host.
    HostGateway,
    /// An address.
    At(IpAddr),
}

/// Limits of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Thousandths of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milli_cpus: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<i64>,
    /// Bytes of memory that it keeps when memory runs short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_reservation: Option<u64>,
    /// Bytes of memory and swap together; -1 for as much swap as there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<i64>,
    /// Its weight among those that want CPU time; 1024 where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU time in each period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<i64>,
    /// Microseconds of such a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_period: Option<u64>,
    /// The CPUs that it may run on (`0-2,5`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Its weight among those that want block I/O, 10 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_weight: Option<u16>,
}

impl Limits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A network as its app describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// A subnet chosen by the user; one from the pool where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<Ipv4Net>,
    /// The bridge's address; the subnet's first where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// The part of the subnet that addresses are given from; all of it where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Ipv4Net>,
    /// Addresses that are not given to instances, since somebody else has them, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reserved: BTreeMap<String, Ipv4Addr>,
    /// IPv6 beside IPv4.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ipv6: bool,
    /// An IPv6 subnet chosen by the user; a unique local one from the network's name where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet6: Option<Ipv6Net>,
    /// The bridge's IPv6 address; the subnet's first where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway6: Option<Ipv6Addr>,
    /// No way out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub internal: bool,
    /// The bridge's name on the host; one from the network's name where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The largest packet on its links; 1500 where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// The largest packet on a link where nothing is said.
pub const MTU: u32 = 1500;

impl NetworkSpec {
    /// The largest packet on its links.
    pub fn link_mtu(&self) -> u32 {
        self.mtu.unwrap_or(MTU)
    }
}

impl Desired {
    /// The service of an instance, when this replica of it is wanted.
    pub fn service(&self, key: &InstanceKey) -> Option<&Service> {
        let service = self.apps.get(&key.app)?.services.get(&key.service)?;
        (1..=service.replicas).contains(&key.replica).then_some(service)
    }

    /// A network, when it is wanted.
    pub fn network(&self, key: &NetworkKey) -> Option<&NetworkSpec> {
        self.apps.get(&key.app)?.networks.get(&key.network)
    }

    /// The instance whose network another one has, where it shares one.
    pub fn shares(key: &InstanceKey, spec: &InstanceSpec) -> Option<InstanceKey> {
        match &spec.network_mode {
            Some(NetworkMode::Service(service)) => Some(InstanceKey { service: service.clone(), ..key.clone() }),
            Some(NetworkMode::None | NetworkMode::Host) | None => None,
        }
    }

    /// Whether something of this app may be removed for not being wanted: the source has to know the app's content, or
    /// know that there is no such app.
    pub fn may_remove(&self, app: &AppName) -> bool {
        self.whole && self.apps.get(app).is_none_or(|app| app.known)
    }

    /// Every wanted instance with its service, in order.
    pub fn instances(&self) -> impl Iterator<Item = (InstanceKey, &Service)> {
        self.apps.iter().flat_map(|(app, content)| {
            content.services.iter().flat_map(move |(name, service)| {
                (1..=service.replicas)
                    .map(move |replica| (InstanceKey { app: app.clone(), service: name.clone(), replica }, service))
            })
        })
    }

    /// Every wanted network.
    pub fn networks(&self) -> impl Iterator<Item = (NetworkKey, &NetworkSpec)> {
        self.apps.iter().flat_map(|(app, content)| {
            content
                .networks
                .iter()
                .map(move |(name, spec)| (NetworkKey { app: app.clone(), network: name.clone() }, spec))
        })
    }

    /// Every wanted named volume.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeKey> {
        self.apps.iter().flat_map(|(app, content)| {
            content.volumes.iter().map(move |name| VolumeKey { app: app.clone(), volume: name.clone() })
        })
    }
}
