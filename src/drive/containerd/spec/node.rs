//! What this node lets the agent give to a process.

use super::capabilities;
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's limits of a process, by the names that Compose gives them.
const RLIMITS: [(&str, Resource); 16] = [
    ("as", Resource::As),
    ("core", Resource::Core),
    ("cpu", Resource::Cpu),
    ("data", Resource::Data),
    ("fsize", Resource::Fsize),
    ("locks", Resource::Locks),
    ("memlock", Resource::Memlock),
    ("msgqueue", Resource::Msgqueue),
    ("nice", Resource::Nice),
    ("nofile", Resource::Nofile),
    ("nproc", Resource::Nproc),
    ("rss", Resource::Rss),
    ("rtprio", Resource::Rtprio),
    ("rttime", Resource::Rttime),
    ("sigpending", Resource::Sigpending),
    ("stack", Resource::Stack),
];

/// Limits of the agent itself, and the shape of the node's cgroups and kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// The agent's capabilities.
    pub capabilities: BTreeSet<String>,
    /// The agent's hard limits, by name; none stands for the largest number.
    pub rlimits: BTreeMap<String, u64>,
    /// The agent's own OOM score adjustment: without SYS_RESOURCE nothing lower can be given.
    pub oom_score_adj: i32,
    /// Whether all controllers are in the unified hierarchy (cgroup v2).
    pub unified: bool,
    /// Whether the kernel counts swap for a cgroup.
    pub swap: bool,
    /// Whether a cgroup has a swappiness.
    pub swappiness: bool,
    /// Whether a cgroup can wait at its memory limit.
    pub oom_control: bool,
    /// Whether the kernel has weights for block I/O.
    pub block_weight: bool,
    /// All CPUs, as a set.
    pub cpus: String,
    /// Whether the kernel confines by AppArmor.
    pub apparmor: bool,
    /// The node's host name.
    pub hostname: String,
    /// The kernel's version.
    pub kernel: String,
    /// The architecture, in Go's name.
    pub arch: String,
}

impl Node {
    /// Reads them. What cannot be read counts as the least.
    pub fn read() -> Self {
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        // Most of these files are in every group but the root, which may have no other yet; others tell of them there.
        let in_groups =
            |root: &str, names: &[&str]| groups(root).any(|group| names.iter().any(|name| group.join(name).exists()));
        let memory = |name: &str| !unified && Path::new("/sys/fs/cgroup/memory").join(name).exists();
        let system = rustix::system::uname();
        let line = |path: &str| text(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        Self {
            capabilities: capabilities::of_mask(effective_capabilities().unwrap_or(0)),
            rlimits: RLIMITS
                .iter()
                .map(|(name, resource)| ((*name).to_owned(), getrlimit(*resource).maximum.unwrap_or(u64::MAX)))
                .collect(),
            oom_score_adj: text("/proc/self/oom_score_adj").and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            unified,
            swap: match unified {
                true => in_groups("/sys/fs/cgroup", &["memory.swap.max"]),
                false => memory("memory.memsw.limit_in_bytes"),
            },
            swappiness: memory("memory.swappiness"),
            oom_control: memory("memory.oom_control"),
            block_weight: match unified {
                true => in_groups("/sys/fs/cgroup", &["io.weight", "io.bfq.weight", "io.cost.qos"]),
                false => {
                    in_groups("/sys/fs/cgroup/blkio", &["blkio.weight", "blkio.bfq.weight", "blkio.bfq.io_serviced"])
                }
            },
            cpus: line("/sys/devices/system/cpu/online"),
            apparmor: line("/sys/module/apparmor/parameters/enabled") == "Y",
            hostname: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            arch: crate::model::architecture().to_owned(),
        }
    }

    /// Whether the agent may give more than it has itself.
    pub fn may_raise(&self) -> bool {
        self.capabilities.contains("SYS_RESOURCE")
    }
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn effective_capabilities() -> Option<u64> {
    let status = text("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// A group with those below it.
fn groups(root: &str) -> impl Iterator<Item = PathBuf> {
    let below = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(PathBuf::from(root)).chain(below)
}
