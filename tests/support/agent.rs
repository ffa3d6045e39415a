//! The built `stead` binary on a node.

use super::enter::Enter;
use super::node::{Daemon, Node, tail};
use super::wait::await_until;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{ExitStatus, Output};
use std::time::Duration;

const STEAD: &str = env!("CARGO_BIN_EXE_stead");

/// A running agent. It dies with its node, or when it is dropped.
pub struct Agent {
    daemon: Daemon,
    enter: Enter,
}

impl Node {
    /// Where the agents of this node find their desired state.
    pub fn desired(&self) -> PathBuf {
        let dir = self.dir.join("desired-state");
        std::fs::create_dir_all(&dir).expect("the desired state's directory");
        dir
    }

    /// Writes an app's file as an editor would: a temporary file, then a rename.
    pub fn edit(&self, name: &str, content: &str) {
        let path = self.desired().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        let temporary = path.with_file_name(format!(".{}.tmp", path.file_name().unwrap().display()));
        std::fs::write(&temporary, content).expect("a file is written");
        std::fs::rename(&temporary, &path).expect("a file is renamed");
    }

    /// Removes an app's file.
    pub fn unfile(&self, name: &str) {
        std::fs::remove_file(self.desired().join(name)).expect("the app's file is removed");
    }

    /// Starts an agent on [`Node::desired`], with further arguments.
    #[track_caller]
    pub fn agent(&self, arguments: &[&str]) -> Agent {
        let desired = self.desired();
        let mut all = vec!["agent", "--desired-state", desired.to_str().expect("UTF-8")];
        all.extend(arguments);
        Agent { daemon: self.daemon("agent.log", STEAD, &all), enter: self.enter() }
    }

    /// Runs an agent that must end by itself (`--once`, or dying after a step).
    #[track_caller]
    pub fn agent_until_end(&self, arguments: &[&str]) -> ExitStatus {
        self.agent(arguments).wait(Duration::from_secs(60))
    }

    /// Runs a `stead` command on the node and gives back whatever comes.
    pub fn try_stead(&self, arguments: &[&str]) -> Output {
        self.command("timeout").args(["-k", "1", "60", STEAD]).args(arguments).output().expect("nsenter runs")
    }

    /// Runs a `stead` command that must succeed.
    #[track_caller]
    pub fn stead(&self, arguments: &[&str]) -> String {
        let output = self.try_stead(arguments);
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "`stead {}`: {}\n{out}{error}", arguments.join(" "), output.status);
        out.into_owned()
    }

    /// The agent's status document.
    pub fn status(&self) -> Result<Value, String> {
        let output = self.try_stead(&["status", "-o", "json"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).map_err(|cause| format!("no status ({cause}): {error}"))
    }

    /// Waits until the agent says that everything is settled and `check` agrees with its status document.
    #[track_caller]
    pub fn await_settled<T>(&self, within: Duration, check: impl Fn(&Value) -> Result<T, String>) -> T {
        let log = self.dir.join("agent.log");
        await_until("a settled agent", within, || {
            let status = self.status()?;
            let settled = status["agent"]["settled"].as_bool() == Some(true);
            let lines = || format!("{status:#}\nthe end of the agent's log:\n{}", tail(&log));
            if !settled {
                return Err(format!("not settled: {}", lines()));
            }
            check(&status).map_err(|why| format!("{why}: {}", lines()))
        })
    }
}

impl Agent {
    /// Its pid in the node.
    pub fn pid(&self) -> u32 {
        self.daemon.pid
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.daemon.signal(signal);
    }

    /// Ends it by SIGTERM: it has to exit 0 within the promised 10 s. Before its first lines of code, while it is not
    /// more than a program that is being loaded, it cannot promise anything.
    #[track_caller]
    pub fn stop(mut self) {
        let status = self.enter.path(format!("/proc/{}/status", self.pid()));
        await_until("the agent to listen for SIGTERM", Duration::from_secs(10), || {
            let text = std::fs::read_to_string(&status).map_err(|error| format!("no process: {error}"))?;
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default().trim();
            let caught = u64::from_str_radix(caught, 16).map_err(|error| error.to_string())?;
            if caught >> (Signal::SIGTERM as i32 - 1) & 1 == 1 { Ok(()) } else { Err("it does not yet".to_owned()) }
        });
        let status = self.daemon.end(Signal::SIGTERM, Duration::from_secs(11));
        assert!(status.success(), "SIGTERM must lead to exit 0, not {status}\n{}", tail(&self.daemon.log));
    }

    /// Ends it by SIGKILL.
    #[track_caller]
    pub fn kill(mut self) {
        self.daemon.end(Signal::SIGKILL, Duration::from_secs(5));
    }

    /// Waits for it to end by itself.
    #[track_caller]
    pub fn wait(mut self, within: Duration) -> ExitStatus {
        self.daemon.wait(within)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.daemon.ended()
    }

    /// The whole log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.daemon.log).unwrap_or_default()).into_owned()
    }

    /// CPU time used so far, in clock ticks.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(self.enter.path(format!("/proc/{}/stat", self.pid()))).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        ticks.sum()
    }
}
