//! What this node lets the agent give to a process.

use super::capabilities;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Limits of the agent itself, and the shape of the node's cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The agent's capabilities.
    pub capabilities: BTreeSet<String>,
    /// The agent's hard limit on open files.
    pub open_files: u64,
    /// The agent's own OOM score adjustment: without SYS_RESOURCE nothing lower can be given.
    pub oom_score_adj: i32,
    /// Whether all controllers are in the unified hierarchy (cgroup v2).
    pub unified: bool,
    /// Whether the kernel counts swap for a cgroup.
    pub swap: bool,
    /// The architecture, in Go's name.
    pub arch: String,
}

impl Node {
    /// Reads them. What cannot be read counts as the least.
    pub fn read() -> Self {
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let swap = if unified {
            // The file is in every group but the root.
            groups_below_root().any(|group| group.join("memory.swap.max").exists())
        } else {
            Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists()
        };
        let open_files = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        Self {
            capabilities: capabilities::of_mask(effective_capabilities().unwrap_or(0)),
            open_files: open_files.map_or(1024, |(_, hard)| hard),
            oom_score_adj: text("/proc/self/oom_score_adj").and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            unified,
            swap,
            arch: crate::drive::containerd::documents::Platform::here().architecture,
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

fn groups_below_root() -> impl Iterator<Item = PathBuf> {
    fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path())
}
