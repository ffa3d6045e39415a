//! A node, and the processes that a test starts on it.

use super::containerd::Version;
use super::enter::{Enter, child_of, inner_pid, signal_host};
use super::wait::await_until;
use nix::sys::signal::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/node.sh");

/// A machine of its own. Commands run on it through [`Enter`], to which it dereferences.
pub struct Node {
    enter: Enter,
    /// A directory with the same path on the host and in the node, for files and logs of the test.
    pub dir: PathBuf,
    pub(super) version: Version,
    pub(super) containerd: Option<Daemon>,
    unshare: Child,
    hold: Option<ChildStdin>,
}

impl Node {
    /// A node on which a containerd of this version runs.
    pub fn new(version: Version) -> Self {
        let mut node = Self::bare(version);
        node.start_containerd();
        node
    }

    /// A node on which no containerd runs yet.
    pub fn bare(version: Version) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(nix::unistd::geteuid().is_root(), "the lab needs root; run `make test` as root");
        let id = format!("stead-lab-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = Path::new("/var/tmp").join(&id);
        fs::create_dir(&dir).expect("a directory for the node");
        let log = fs::File::create(dir.join("node.log")).expect("a log file");
        let mut unshare = Command::new("bash")
            .args([SCRIPT, "outer", &id])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("bash runs");
        let hold = unshare.stdin.take();
        let mut line = String::new();
        BufReader::new(unshare.stdout.take().expect("piped")).read_line(&mut line).expect("a line from the node");
        let holder = child_of(unshare.id());
        let node = Self { enter: Enter { holder: holder.unwrap_or(0) }, dir, version, containerd: None, unshare, hold };
        assert!(
            line == "ready\n" && holder.is_some(),
            "the node does not come up:\n{}",
            tail(&node.dir.join("node.log"))
        );
        node
    }

    /// The way in, for code that outlives a borrow of the node.
    pub fn enter(&self) -> Enter {
        self.enter
    }

    /// Writes a file under [`Node::dir`] and returns its path.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::create_dir_all(path.parent().expect("under the node's directory")).expect("directories");
        fs::write(&path, content).expect("a file is written");
        path
    }

    /// Starts a program in the node's cgroups. Its output goes to a log file, from its beginning if it is new.
    pub fn daemon(&self, log: &str, program: &str, arguments: &[&str]) -> Daemon {
        Daemon::start(self.enter, &self.dir.join(log), program, arguments)
    }
}

impl Deref for Node {
    type Target = Enter;
    fn deref(&self) -> &Enter {
        &self.enter
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell();
        }
        // Its stdin closes: pid 1 of the node ends, and everything in it with it.
        drop(self.hold.take());
        if let Some(daemon) = &mut self.containerd {
            daemon.signal(Signal::SIGKILL);
        }
        self.containerd = None;
        let deadline = Instant::now() + Duration::from_secs(20);
        while matches!(self.unshare.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.unshare.kill();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for cgroup in fs::read_to_string(self.dir.join("cgroups")).unwrap_or_default().lines() {
            remove_cgroup(Path::new(cgroup));
        }
        if std::env::var_os("STEAD_LAB_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl Node {
    /// Prints what helps to understand a failure.
    fn tell(&self) {
        let processes = self.processes();
        eprintln!("---- processes of the node");
        for process in processes {
            eprintln!("{:>6} {}", process.pid, process.command);
        }
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                eprintln!("---- the end of {}\n{}", entry.path().display(), tail(&entry.path()));
            }
        }
    }
}

/// The last 40 lines of a file.
pub(super) fn tail(path: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Removes a cgroup with those below it. The kernel may take a moment to see that the last process has gone.
fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while fs::remove_dir(path).is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound)
        && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What labs (of this process) have left on the host: nothing, when the last node of it is gone.
pub fn host_leftovers() -> Vec<String> {
    let mark = format!("stead-lab-{}-", std::process::id());
    let mut found = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    found.extend(mounts.lines().filter(|line| line.contains(&mark)).map(|line| format!("mount {line}")));
    let cgroup_roots = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let mut directories: Vec<PathBuf> =
        cgroup_roots.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect();
    directories.push(PathBuf::from("/var/tmp"));
    for directory in directories {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&mark) {
                found.push(format!("directory {}", entry.path().display()));
            }
        }
    }
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let command =
            String::from_utf8_lossy(&fs::read(process.path().join("cmdline")).unwrap_or_default()).into_owned();
        if command.contains(&mark) {
            found.push(format!("process {}", command.replace('\0', " ")));
        }
    }
    found
}

/// A process that a test started on a node.
pub struct Daemon {
    nsenter: Child,
    host: i32,
    /// Its pid in the node.
    pub pid: u32,
    /// Where its output goes.
    pub log: PathBuf,
}

impl Daemon {
    pub(super) fn start(enter: Enter, log: &Path, program: &str, arguments: &[&str]) -> Self {
        let file = fs::File::options().create(true).append(true).open(log).expect("a log file");
        let mut command = enter.command("bash");
        command.args([SCRIPT, "daemon", program]).args(arguments);
        command.stdout(file.try_clone().expect("a second handle")).stderr(file);
        let nsenter = command.spawn().expect("nsenter runs");
        let host = await_until("the daemon's process", Duration::from_secs(5), || {
            child_of(nsenter.id()).ok_or_else(|| "no child of nsenter yet".to_owned())
        });
        let pid = inner_pid(host).unwrap_or(0);
        Self { nsenter, host, pid, log: log.to_owned() }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        signal_host(self.host, signal);
        // nsenter stops itself when its child is stopped; wake it, so that it can go on waiting.
        if signal != Signal::SIGSTOP {
            signal_host(self.nsenter.id().cast_signed(), Signal::SIGCONT);
        }
    }

    /// How it ended, if it has: its exit code, or the signal.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.nsenter.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let log = self.log.clone();
        await_until("the end of a daemon", within, || {
            self.ended().ok_or_else(|| format!("still running; the end of its log:\n{}", tail(&log)))
        })
    }

    /// Sends a signal and waits for the end.
    #[track_caller]
    pub fn end(&mut self, signal: Signal, within: Duration) -> ExitStatus {
        self.signal(signal);
        self.wait(within)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::SIGKILL);
            let _ = self.nsenter.wait();
        }
    }
}
