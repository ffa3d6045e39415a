//! `stead agent`: the rooms put together, and the loop run.

use super::Paths;
use super::paths::alive;
use super::say::{Failure, fail};
use super::seams::Interrupted;
use crate::desired::{Directory, Options};
use crate::drive::containerd::{IMPORT_LOCKS, start_ticks};
use crate::drive::node::{Node, Places};
use crate::drive::{Counters, write_atomic};
use crate::model::{Status, Timestamp};
use crate::reconcile::status::{Teller, timelines};
use crate::reconcile::{self, Clock, Report, Settings, Stopped, View};
use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// The flags of `agent`.
#[derive(Debug, Args)]
pub struct Flags {
    /// End as soon as everything is settled; exit 1 when that takes longer than --timeout.
    #[arg(long)]
    once: bool,
    /// How long --once may take.
    #[arg(long, value_parser = super::wait::duration, default_value = "60s")]
    timeout: Duration,
    /// How much is logged: error, warn, info, debug, or a tracing filter.
    #[arg(long, default_value = "info")]
    log_level: String,
    /// How the log is written.
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Values for `${...}` in files, as in an .env file; they win over the apps' own.
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    die_after_step: Option<u64>,
    #[arg(long, hide = true)]
    stop_after_step: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Runs the agent.
pub fn run(paths: &Paths, flags: Flags) -> Result<ExitCode, Failure> {
    log(&flags)?;
    // the places for exits and import locks are there from the beginning, so that nothing later finds them missing
    for dir in [&paths.run.join("exits"), &paths.root, &paths.logs] {
        std::fs::create_dir_all(dir).map_err(|error| fail(format!("cannot make {}", dir.display()), &error))?;
    }
    let locks = paths.run.join(IMPORT_LOCKS);
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&locks)
        .map_err(|error| fail(format!("cannot make {}", locks.display()), &error))?;
    let _lock = lock(paths)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| fail("cannot start the runtime", &error))?;
    let stopped = runtime.block_on(keep(paths, &flags))?;
    // looks that still run on helper threads change nothing and are not waited for
    runtime.shutdown_background();
    match stopped {
        Stopped::Settled => Ok(ExitCode::SUCCESS),
        Stopped::AtStepBoundary if flags.once && flags.stop_after_step.is_none() => {
            Err(Failure::new(format!("not settled within {} s", flags.timeout.as_secs()))
                .hint("stead status says what is waited for"))
        }
        Stopped::AtStepBoundary => Ok(ExitCode::SUCCESS),
        Stopped::Overdue(keys) => {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            tracing::warn!(keys = keys.join(", "), "stopped with steps that had not ended; the next start looks again");
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn keep(paths: &Paths, flags: &Flags) -> Result<Stopped, Failure> {
    // first of all: from here on SIGTERM asks to stop, and does not end the agent by itself
    let seam = Arc::new(Notify::new());
    let mut stop = Box::pin(stopping(flags, Arc::clone(&seam))?);
    let counters = Arc::new(Counters::default());
    let places = Places {
        containerd: paths.containerd.clone(),
        run: paths.run.clone(),
        logs: paths.logs.clone(),
        volumes: paths.volumes(),
    };
    let node = Arc::new(Node::new(paths.marks.clone(), &places, &counters));
    let dir = paths.own_desired_state();
    let env = flags.env_file.as_deref().map(super::config::env_file).transpose()?.unwrap_or_default();
    let directory = Directory::open(Options { dir: dir.clone(), state: paths.root.clone(), env, ..Options::default() });
    let expecting = Arc::clone(&node);
    let desired = directory.stream().inspect(move |desired| expecting.expect(desired));
    let mut desired = Box::pin(desired);
    let first = tokio::select! {
        () = &mut stop => return Ok(Stopped::AtStepBoundary),
        first = desired.next() => first.ok_or_else(|| Failure::new("the desired state cannot be read"))?,
    };
    let desired = futures::stream::once(async { first }).chain(desired);
    let drive = Interrupted::new(node, flags.die_after_step, flags.stop_after_step, seam);
    let report = FileReport::new(paths, &dir, counters);
    let settings = Settings { once: flags.once, ..Settings::default() };
    tracing::info!(dir = %dir.display(), name = %paths.marks.agent(), version = env!("CARGO_PKG_VERSION"), "agent starts");
    let stopped = reconcile::run(drive, desired, WallClock, report, paths.marks.clone(), settings, stop).await;
    tracing::info!(?stopped, "agent ends");
    Ok(stopped)
}

/// Resolves when the agent has to stop.
fn stopping(flags: &Flags, seam: Arc<Notify>) -> Result<impl Future<Output = ()> + use<>, Failure> {
    let catch = |kind| signal(kind).map_err(|error| fail("cannot listen for signals", &error));
    let (mut term, mut int) = (catch(SignalKind::terminate())?, catch(SignalKind::interrupt())?);
    let limit = flags.once.then_some(flags.timeout);
    Ok(async move {
        let timeout = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            () = seam.notified() => {}
            () = timeout => {}
        }
    })
}

/// Two agents of one name would undo each other's work.
fn lock(paths: &Paths) -> Result<Flock<File>, Failure> {
    let path = paths.lock_file();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| fail(format!("cannot open {}", path.display()), &error))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        let by = paths.status().filter(alive).map(|status| format!(" (pid {})", status.agent.pid)).unwrap_or_default();
        match errno {
            nix::errno::Errno::EWOULDBLOCK => {
                Failure::new(format!("an agent named {} runs already{by}", paths.marks.agent()))
                    .hint("stop it first, or give this one another --name")
            }
            errno => fail(format!("cannot lock {}", path.display()), &errno),
        }
    })
}

fn log(flags: &Flags) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(&flags.log_level)
        .map_err(|error| fail("--log-level", &error).code(super::USAGE))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let result = match flags.log_format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    result.map_err(|error| fail("cannot start the log", &*error))
}

/// The wall.
#[derive(Debug, Clone, Copy)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the one place where wall time comes in")]
        let now = SystemTime::now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Writes the documents by rename, so that a reader never sees half of one.
struct FileReport {
    paths: Paths,
    desired_state: String,
    counters: Arc<Counters>,
    teller: Teller,
    pid: u32,
    start_ticks: u64,
    started_at: String,
    /// Timelines are larger and asked for less often: once a second at most, and when everything settles.
    timelines_at: Timestamp,
}

impl FileReport {
    fn new(paths: &Paths, dir: &std::path::Path, counters: Arc<Counters>) -> Self {
        let pid = std::process::id();
        Self {
            teller: Teller::new(paths.volumes(), paths.status().as_ref()),
            paths: paths.clone(),
            desired_state: dir.display().to_string(),
            counters,
            pid,
            start_ticks: start_ticks(pid).unwrap_or_default(),
            started_at: WallClock.now().rfc3339(),
            timelines_at: Timestamp(0),
        }
    }

    fn complete(&self, status: &mut Status, view: &View<'_>) {
        let agent = &mut status.agent;
        env!("CARGO_PKG_VERSION").clone_into(&mut agent.version);
        agent.name = self.paths.marks.agent().to_string();
        (agent.pid, agent.start_ticks) = (self.pid, self.start_ticks);
        agent.started_at.clone_from(&self.started_at);
        agent.written_at = view.now.rfc3339();
        agent.desired_state.clone_from(&self.desired_state);
        let counters = [
            ("containerd_reads", &self.counters.containerd_reads),
            ("containerd_writes", &self.counters.containerd_writes),
            ("net_writes", &self.counters.net_writes),
            ("nft_writes", &self.counters.nft_writes),
            ("file_writes", &self.counters.file_writes),
        ];
        agent.counters =
            counters.into_iter().map(|(name, count)| (name.to_owned(), count.load(Ordering::Relaxed))).collect();
    }
}

impl Report for FileReport {
    fn report(&mut self, view: &View<'_>) {
        let mut status = self.teller.tell(view);
        self.complete(&mut status, view);
        let written = serde_json::to_vec(&status).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|bytes| write_atomic(&self.paths.status_file(), &bytes)) {
            tracing::warn!(%error, "cannot write the status document");
        }
        if view.settled || view.now.since(self.timelines_at) >= Duration::from_secs(1) {
            self.timelines_at = view.now;
            let written = serde_json::to_vec(&timelines(view)).map_err(std::io::Error::from);
            if let Err(error) = written.and_then(|bytes| write_atomic(&self.paths.timelines_file(), &bytes)) {
                tracing::warn!(%error, "cannot write the timelines");
            }
        }
    }
}
