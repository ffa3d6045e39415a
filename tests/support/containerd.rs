//! The node's containerd.

use super::node::{Daemon, Node};
use super::wait::await_until;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Which containerd. They differ where it matters: what a restart does to ended tasks, and to half-made ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The machine's own: 1.6 on Debian 12.
    V1_6,
    /// The one that `setup.sh` unpacks.
    V1_7,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V1_6, Self::V1_7];

    /// Where its programs are, before everything else in PATH: containerd finds its shim there.
    pub fn path(self) -> &'static str {
        match self {
            Self::V1_6 => "/usr/sbin:/usr/bin:/sbin:/bin",
            Self::V1_7 => "/opt/stead-lab/containerd-1.7/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }
    }

    /// Its daemon.
    pub fn program(self) -> &'static str {
        match self {
            Self::V1_6 => "/usr/bin/containerd",
            Self::V1_7 => "/opt/stead-lab/containerd-1.7/usr/bin/containerd",
        }
    }
}

/// Where containerd listens, in every node.
pub const SOCKET: &str = "/run/containerd/containerd.sock";

/// Its configuration, in every node.
pub const CONFIG: &str = r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd/containerd.sock"
"#;

impl Node {
    /// Starts containerd, and waits until its socket answers.
    #[track_caller]
    pub fn start_containerd(&mut self) {
        self.launch_containerd();
        self.await_containerd();
    }

    /// Starts containerd without waiting for it.
    #[track_caller]
    pub fn launch_containerd(&mut self) {
        assert!(self.containerd.is_none(), "containerd runs already");
        fs::write(self.path("/etc/containerd/config.toml"), CONFIG).expect("containerd's configuration");
        let program = self.version.program();
        assert!(fs::exists(program).unwrap_or(false), "{program} is missing: run tests/support/setup.sh");
        let path = format!("PATH={}", self.version.path());
        self.containerd = Some(self.daemon("containerd.log", "env", &[&path, program, "--log-level", "debug"]));
    }

    /// Waits until containerd's socket answers.
    #[track_caller]
    pub fn await_containerd(&mut self) {
        let socket = self.path(SOCKET);
        let daemon = self.containerd.as_mut().expect("containerd was started");
        await_until("containerd to listen", Duration::from_secs(60), || {
            assert!(daemon.ended().is_none(), "containerd ended:\n{}", super::node::tail(&daemon.log));
            UnixStream::connect(&socket).map(drop).map_err(|error| error.to_string())
        });
    }

    /// Ends containerd by a signal, and waits until it is gone. Tasks and shims stay.
    #[track_caller]
    pub fn end_containerd(&mut self, signal: Signal) {
        let mut daemon = self.containerd.take().expect("containerd runs");
        daemon.end(signal, Duration::from_secs(20));
    }

    /// Stops containerd in its tracks (SIGSTOP): it accepts connections and answers nothing.
    pub fn freeze_containerd(&self) {
        self.containerd.as_ref().expect("containerd runs").signal(Signal::SIGSTOP);
    }

    /// Lets a frozen containerd go on.
    pub fn thaw_containerd(&self) {
        self.containerd.as_ref().expect("containerd runs").signal(Signal::SIGCONT);
    }

    /// The version of this node's containerd.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The pid of containerd in the node.
    pub fn containerd_pid(&self) -> u32 {
        self.containerd.as_ref().expect("containerd runs").pid
    }

    /// Runs `ctr` in a containerd namespace, which must succeed.
    #[track_caller]
    pub fn ctr(&self, namespace: &str, arguments: &str) -> String {
        self.sh(&format!("ctr -n {namespace} {arguments}"))
    }
}
