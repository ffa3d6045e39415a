//! Where one agent's things are: derived from its name unless a flag says otherwise.

use super::NodeFlags;
use super::say::{Failure, fail};
use crate::desired::{Request, request_for};
use crate::drive::node::Places;
use crate::model::{AgentName, Marks, Status, Timelines};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The places of one agent.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Its marks.
    pub marks: Marks,
    desired_state: Option<PathBuf>,
    env_file: Option<PathBuf>,
    pool: Option<Ipv4Net>,
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
            env_file: flags.env_file.as_ref().map(absolute),
            pool: flags.pool.map(pool).transpose()?,
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
        match &self.desired_state {
            Some(dir) => dir.clone(),
            None => told().map_or_else(|| self.own_desired_state(), PathBuf::from),
        }
    }

    /// The directory for an agent that is about to start: the last agent's has no say.
    pub fn own_desired_state(&self) -> PathBuf {
        let default = || Path::new("/etc").join(self.marks.agent().as_str()).join("desired");
        self.desired_state.clone().unwrap_or_else(default)
    }

    /// The file with values for substitution, for an agent that is about to start.
    pub fn own_env_file(&self) -> Option<&Path> {
        self.env_file.as_deref()
    }

    /// Where subnets come from, for an agent that is about to start.
    pub fn own_pool(&self) -> Option<Ipv4Net> {
        self.pool
    }

    /// The same for every other command: the flag's, else the running agent's.
    pub fn pool(&self) -> Option<Ipv4Net> {
        let told = || self.status().and_then(|status| status.agent.pool)?.parse().ok();
        self.pool.or_else(told)
    }

    /// The values for substitution: from the flag's file, else from the running agent's, so that files mean to every
    /// command what they mean to the agent.
    pub fn env(&self) -> Result<BTreeMap<String, String>, Failure> {
        let told = || self.status().and_then(|status| status.agent.env_file).map(PathBuf::from);
        self.env_file.clone().or_else(told).map(|file| read_env(&file)).transpose().map(Option::unwrap_or_default)
    }

    /// A Compose file by itself, as every command that checks one reads it.
    pub fn request(&self, file: &Path) -> Result<Request, Failure> {
        Ok(Request { env: self.env()?, ..request_for(file) })
    }

    /// Where the drivers find things.
    pub fn places(&self) -> Places {
        Places {
            containerd: self.containerd.clone(),
            run: self.run.clone(),
            logs: self.logs.clone(),
            volumes: self.volumes(),
        }
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
        self.read_status().ok()
    }

    /// The last status document, or why there is none.
    pub fn read_status(&self) -> Result<Status, Failure> {
        let file = self.status_file();
        let bytes = std::fs::read(&file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let name = self.marks.agent();
                Failure::new(format!("no agent named {name} has run since this machine started: no {}", file.display()))
                    .hint("start one: stead agent")
            }
            ErrorKind::PermissionDenied => fail(format!("cannot read {}", file.display()), &error)
                .hint("run it as the agent's user: sudo stead ..."),
            _ => fail(format!("cannot read {}", file.display()), &error),
        })?;
        let mut status: Status = serde_json::from_slice(&bytes)
            .map_err(|error| fail(format!("{} is no status document", file.display()), &error))?;
        status.agent.running = alive(&status);
        Ok(status)
    }

    /// The last timelines.
    pub fn timelines(&self) -> Timelines {
        let bytes = std::fs::read(self.timelines_file()).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

/// A pool that subnets of 254 addresses can be taken from.
fn pool(pool: Ipv4Net) -> Result<Ipv4Net, Failure> {
    const SUBNET: u8 = 24;
    if pool.prefix_len() > SUBNET || pool.prefix_len() < 8 {
        let hint = "a pool is between /8 and /24: each network takes a /24 of it";
        return Err(Failure::new(format!("--pool: {pool} is no use as a pool")).hint(hint).code(super::USAGE));
    }
    Ok(pool.trunc())
}

/// Reads a file of values for substitution.
pub fn read_env(file: &Path) -> Result<BTreeMap<String, String>, Failure> {
    crate::desired::env_file(file).map_err(|finding| {
        let line = if finding.place.line == 0 { String::new() } else { format!(":{}", finding.place.line) };
        Failure::new(format!("{}{line}: {}", file.display(), finding.message))
    })
}

/// Whether the process that wrote a status document still runs.
fn alive(status: &Status) -> bool {
    let ticks = crate::drive::containerd::start_ticks(status.agent.pid);
    ticks.is_some_and(|ticks| ticks == status.agent.start_ticks)
}
