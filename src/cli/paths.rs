//! Where one agent's things are: derived from its name unless a flag says otherwise.

use super::NodeFlags;
use super::say::Failure;
use crate::model::{AgentName, Marks, Status, Timelines};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The places of one agent.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Its marks.
    pub marks: Marks,
    desired_state: Option<PathBuf>,
    /// containerd's socket.
    pub containerd: PathBuf,
    /// Survives a reboot.
    pub root: PathBuf,
    /// Lives as long as this boot.
    pub run: PathBuf,
    /// Logs of instances.
    pub logs: PathBuf,
}

impl Paths {
    pub(super) fn new(flags: &NodeFlags) -> Result<Self, Failure> {
        let agent = AgentName::new(&flags.agent)
            .map_err(|error| Failure::new(format!("--name: {error}")).code(super::USAGE))?;
        let place = |flag: &Option<PathBuf>, base: &str| match flag {
            Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            None => Path::new(base).join(agent.as_str()),
        };
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Ok(Self {
            desired_state: flags.desired_state.as_ref().map(absolute),
            containerd: absolute(&flags.containerd),
            root: place(&flags.root, "/var/lib"),
            run: place(&flags.state, "/run"),
            logs: place(&flags.logs, "/var/log"),
            marks: Marks::new(agent),
        })
    }

    /// The directory of desired state: the flag's, else the running agent's, else the default.
    pub fn desired_state(&self) -> PathBuf {
        let told = || self.status().map(|status| status.agent.desired_state).filter(|dir| !dir.is_empty());
        let default = || Path::new("/etc").join(self.marks.agent().as_str()).join("desired");
        self.desired_state.clone().or_else(|| told().map(PathBuf::from)).unwrap_or_else(default)
    }

    /// The directory for an agent that is about to start: the last agent's has no say.
    pub fn own_desired_state(&self) -> PathBuf {
        let default = || Path::new("/etc").join(self.marks.agent().as_str()).join("desired");
        self.desired_state.clone().unwrap_or_else(default)
    }

    /// Named volumes.
    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// The status document.
    pub fn status_file(&self) -> PathBuf {
        self.run.join("status.json")
    }

    /// The timelines.
    pub fn timelines_file(&self) -> PathBuf {
        self.run.join("timelines.json")
    }

    /// The lock of the one agent of this name.
    pub fn lock_file(&self) -> PathBuf {
        self.run.join("agent.lock")
    }

    /// The last status document, if there is one that can be read.
    pub fn status(&self) -> Option<Status> {
        read(&self.status_file())
    }

    /// The last timelines.
    pub fn timelines(&self) -> Timelines {
        read(&self.timelines_file()).unwrap_or_default()
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Whether the process that wrote a status document still runs.
pub fn alive(status: &Status) -> bool {
    let ticks = crate::drive::containerd::start_ticks(status.agent.pid);
    ticks.is_some_and(|ticks| ticks == status.agent.start_ticks)
}
