//! Running commands in a node's namespaces, and seeing its processes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The way into a node: the pid, on the host, of the process that holds its namespaces.
#[derive(Debug, Clone, Copy)]
pub struct Enter {
    pub(super) holder: i32,
}

impl Enter {
    /// A command that will run inside the node.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.to_string(), "-m", "-n", "-u", "-i", "-p", "-C", "--"]).arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a shell script inside, for at most 60 s, and gives back whatever comes.
    pub fn try_sh(self, script: &str) -> Output {
        self.command("timeout").args(["-k", "1", "60", "bash", "-euc", script]).output().expect("nsenter runs")
    }

    /// Runs a shell script inside, which must succeed, and gives back its output.
    #[track_caller]
    pub fn sh(self, script: &str) -> String {
        let output = self.try_sh(script);
        assert!(
            output.status.success(),
            "`{script}` failed with {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("output is UTF-8")
    }

    /// Runs a shell script on the other host of the node's network, and gives back its output if it succeeds.
    pub fn client(self, script: &str) -> Result<String, String> {
        let output = self
            .command("ip")
            .args(["netns", "exec", "client", "timeout", "10", "bash", "-euc", script])
            .output()
            .expect("nsenter runs");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(format!("`{script}`: {} {}", output.status, String::from_utf8_lossy(&output.stderr)))
        }
    }

    /// Where a file of the node is seen from the host.
    pub fn path(self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        PathBuf::from(format!("/proc/{}/root", self.holder)).join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Every process of the node, those of its containers too: its pid inside, its command line.
    pub fn processes(self) -> Vec<Process> {
        let proc = self.path("/proc");
        let mut found = Vec::new();
        for entry in fs::read_dir(&proc).expect("the node's /proc is there").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = command.split(|&byte| byte == 0).map(String::from_utf8_lossy);
            found.push(Process { pid, command: words.collect::<Vec<_>>().join(" ").trim().to_owned() });
        }
        found.sort_by_key(|process| process.pid);
        found
    }

    /// The start time of a process of the node, in clock ticks since boot.
    pub fn start_ticks(self, pid: u32) -> Option<u64> {
        let stat = fs::read_to_string(self.path(format!("/proc/{pid}/stat"))).ok()?;
        // The command may hold spaces and parentheses; field 22 is counted from the last one.
        stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
    }

    /// Sends a signal to a process of the node, by its pid inside.
    #[track_caller]
    pub fn kill(self, pid: u32, signal: nix::sys::signal::Signal) {
        self.sh(&format!("kill -s {} {pid}", signal.as_str().trim_start_matches("SIG")));
    }
}

/// A process of a node.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its pid inside.
    pub pid: u32,
    /// Its command line.
    pub command: String,
}

/// The pid that a process of the host has in its innermost namespace.
pub(super) fn inner_pid(host: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{host}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

/// The first child of a process of the host.
pub(super) fn child_of(host: u32) -> Option<i32> {
    fs::read_to_string(format!("/proc/{host}/task/{host}/children")).ok()?.split_whitespace().next()?.parse().ok()
}

/// Sends a signal to one process that a lab started.
pub(super) fn signal_host(host: i32, signal: nix::sys::signal::Signal) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(host), signal);
}
