//! How a container is set up beyond its image, command and limits: everything here is decided when it is made.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of a container; a change of any of them is another container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Further groups of the process, by name or number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
    /// Limits of the process by name (`nofile`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, Ulimit>,
    /// Kernel parameters of its namespaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Bytes of `/dev/shm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<u64>,
    /// How readily the kernel takes it when memory runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// At its memory limit it waits for memory instead of being killed.
    #[serde(skip_serializing_if = "is_false")]
    pub oom_kill_disable: bool,
    /// How readily its memory is swapped out, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_swappiness: Option<u64>,
    /// Limits and weights of single block devices.
    #[serde(skip_serializing_if = "BlockDevices::is_empty")]
    pub block_devices: BlockDevices,
    /// Device files of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Further rules of its device cgroup.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_rules: Vec<DeviceRule>,
    /// How it is confined.
    #[serde(skip_serializing_if = "Security::is_empty")]
    pub security: Security,
    /// A small init is its first process: it hands on signals and reaps.
    #[serde(skip_serializing_if = "is_false")]
    pub init: bool,
    /// A terminal is its input and output.
    #[serde(skip_serializing_if = "is_false")]
    pub tty: bool,
    /// Its input stays open.
    #[serde(skip_serializing_if = "is_false")]
    pub stdin_open: bool,
    /// The NIS domain name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domainname: Option<String>,
    /// OCI annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Namespaces that it does not have as usual.
    #[serde(skip_serializing_if = "Namespaces::is_empty")]
    pub namespaces: Namespaces,
    /// The cgroup below which its own is made, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_parent: Option<String>,
    /// The OCI runtime that runs it, where it is not runc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Setup {
    /// Whether nothing is out of the ordinary.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A limit of a process; -1 stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ulimit {
    /// What counts.
    pub soft: i64,
    /// How far the process may raise it.
    pub hard: i64,
}

/// Limits and weights of single block devices, by the device's path on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlockDevices {
    /// Bytes read per second.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub read_bps: BTreeMap<PathBuf, u64>,
    /// Reads per second.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub read_iops: BTreeMap<PathBuf, u64>,
    /// Bytes written per second.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub write_bps: BTreeMap<PathBuf, u64>,
    /// Writes per second.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub write_iops: BTreeMap<PathBuf, u64>,
    /// Weights, 10 to 1000.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<PathBuf, u16>,
}

impl BlockDevices {
    /// Whether no device is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A device file of the host, or a directory of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its path on the host.
    pub source: PathBuf,
    /// Its path in the container.
    pub target: PathBuf,
    /// What may be done with it: letters of `rwm`.
    pub permissions: String,
}

/// A rule of the device cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRule {
    /// `a`, `b` or `c`.
    pub kind: char,
    /// The major number; any where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<u32>,
    /// The minor number; any where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// What is allowed: letters of `rwm`.
    pub permissions: String,
}

/// How a process is confined, where that was written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Security {
    /// Whether it can never gain what it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_new_privileges: Option<bool>,
    /// The filter of its system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<Seccomp>,
    /// The AppArmor profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apparmor: Option<String>,
    /// Nothing of `/proc` and `/sys` is hidden or read-only.
    #[serde(skip_serializing_if = "is_false")]
    pub system_paths: bool,
}

impl Security {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A filter of system calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seccomp {
    /// None.
    Unconfined,
    /// The content of a profile file.
    Profile(Box<SeccompProfile>),
}

/// A seccomp profile in the form that container engines read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompProfile {
    /// What happens to a call that no rule names.
    pub default_action: String,
    /// The errno of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// Architectures, in libseccomp's names.
    #[serde(deserialize_with = "or_default")]
    pub architectures: Vec<String>,
    /// Architectures with those whose programs they also run.
    #[serde(deserialize_with = "or_default")]
    pub arch_map: Vec<SeccompArch>,
    /// Flags of the filter.
    #[serde(deserialize_with = "or_default")]
    pub flags: Vec<String>,
    /// The rules.
    #[serde(deserialize_with = "or_default")]
    pub syscalls: Vec<SeccompRule>,
}

/// An architecture with those whose programs it also runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompArch {
    /// It.
    pub architecture: String,
    /// They.
    #[serde(deserialize_with = "or_default")]
    pub sub_architectures: Vec<String>,
}

/// One rule of a seccomp profile.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompRule {
    /// The calls.
    #[serde(deserialize_with = "or_default")]
    pub names: Vec<String>,
    /// One call, in an older form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What happens to them.
    pub action: String,
    /// The errno of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    /// Conditions on their arguments.
    #[serde(deserialize_with = "or_default")]
    pub args: Vec<SeccompArg>,
    /// Where the rule counts.
    #[serde(deserialize_with = "or_default")]
    pub includes: SeccompWhere,
    /// Where it does not.
    #[serde(deserialize_with = "or_default")]
    pub excludes: SeccompWhere,
}

/// A condition on an argument of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompArg {
    /// Which argument.
    pub index: u32,
    /// What it is compared with.
    pub value: u64,
    /// The second operand of a masked comparison.
    pub value_two: u64,
    /// The comparison.
    pub op: String,
}

/// Where a rule of a seccomp profile counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompWhere {
    /// For processes with these capabilities.
    #[serde(deserialize_with = "or_default")]
    pub caps: BTreeSet<String>,
    /// On these architectures, in Go's names.
    #[serde(deserialize_with = "or_default")]
    pub arches: BTreeSet<String>,
    /// From this kernel on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_kernel: Option<String>,
}

/// A field that may be written as nothing.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Namespaces that are not as usual.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Namespaces {
    /// It sees the host's processes.
    #[serde(skip_serializing_if = "is_false")]
    pub host_pid: bool,
    /// It has the host's host name.
    #[serde(skip_serializing_if = "is_false")]
    pub host_uts: bool,
    /// Where its shared memory is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipc: Option<Ipc>,
    /// Whether it sees only its own cgroup; as the node has it where not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_cgroup: Option<bool>,
}

impl Namespaces {
    /// Whether all are as usual.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where shared memory is, when it is not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ipc {
    /// The host's.
    Host,
    /// Its own, without `/dev/shm`.
    NoShm,
}

/// A config or a secret that becomes a file of a container. Only a digest of its content is ever written to a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// What it is called in the file, for messages: "secret token".
    pub what: String,
    /// Its path in the container, absolute.
    pub target: String,
    /// The digest of its content.
    pub digest: String,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Its content, where that is at hand; never serialised.
    #[serde(skip)]
    pub content: Option<Sealed>,
}

impl Grant {
    /// The name of its file: another content or another owner is another file.
    pub fn file(&self) -> String {
        Self::file_name(&self.digest, self.uid, self.gid, self.mode)
    }

    /// The name of a file with this content and owner.
    pub fn file_name(digest: &str, uid: u32, gid: u32, mode: u32) -> String {
        format!("{}-{uid}-{gid}-{mode:o}", digest.get(..32).unwrap_or(digest))
    }
}

/// Bytes that are shown to nobody: not in logs, not in plans.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(Arc<[u8]>);

impl Sealed {
    /// Seals them.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for the one who writes them into their file.
    pub fn open(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

impl Serialize for Sealed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("({} bytes)", self.0.len()))
    }
}
