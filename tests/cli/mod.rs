//! The built `stead` binary with every place of its own in a temporary directory: no agent, no containerd, no root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests run programs and read their own clocks")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use stead::model::{AgentStatus, Status, Timelines};
use tempfile::TempDir;

/// Directories, and the binary that is told of them.
pub struct Desk {
    dir: TempDir,
}

impl Desk {
    /// Fresh and empty directories.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["desired", "root", "run", "logs"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    /// A path below the desk.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file below the desk.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The binary with its places set, and `arguments` behind.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
        for (flag, name) in [("--desired-state", "desired"), ("--root", "root"), ("--state", "run"), ("--logs", "logs")]
        {
            command.arg(flag).arg(self.path(name));
        }
        command.args(["--containerd", "/nonexistent/containerd.sock"]);
        command.args(arguments).current_dir(self.dir.path()).env_clear().stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap(), &self.path(""))
    }

    /// Runs it to its end with a text on stdin.
    pub fn run_with(&self, arguments: &[&str], stdin: &str) -> Ran {
        let mut child = self.spawn(arguments);
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap(), &self.path(""))
    }

    /// Starts it with all of its streams piped.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Puts a status document where an agent would, told by this test's own process: an agent that runs.
    pub fn status(&self, mut status: Status) {
        status.agent = AgentStatus {
            name: "stead".to_owned(),
            pid: std::process::id(),
            start_ticks: stead::drive::containerd::start_ticks(std::process::id()).unwrap(),
            desired_state: self.path("desired").display().to_string(),
            ..status.agent
        };
        self.raw_status(&status);
    }

    /// Puts a status document there as it is.
    pub fn raw_status(&self, status: &Status) {
        self.replace("run/status.json", &serde_json::to_vec(status).unwrap());
    }

    /// Puts timelines there.
    pub fn timelines(&self, timelines: &Timelines) {
        self.replace("run/timelines.json", &serde_json::to_vec(timelines).unwrap());
    }

    /// By rename, as the agent does it.
    fn replace(&self, name: &str, content: &[u8]) {
        let new = self.write(&format!("{name}.new"), content);
        std::fs::rename(new, self.path(name)).unwrap();
    }
}

/// What came of a command. Paths of the desk are written as `DESK`.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output, desk: &Path) -> Self {
        let desk = desk.display().to_string();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(desk.trim_end_matches('/'), "DESK");
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// It went well, and said nothing beside.
    #[track_caller]
    pub fn good(self) -> String {
        assert!(self.code == Some(0) && self.err.is_empty(), "{self:#?}");
        self.out
    }

    /// It failed with this code, and answers what it said on stderr.
    #[track_caller]
    pub fn bad(self, code: i32) -> String {
        assert!(self.code == Some(code) && !self.err.is_empty(), "{self:#?}");
        self.err
    }
}

/// Asks every 10 ms until there is an answer; panics with the last reason after `within`.
#[track_caller]
pub fn await_until<T>(within: Duration, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + within;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(why) if Instant::now() > deadline => panic!("not within {within:?}: {why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
