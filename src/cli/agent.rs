//! `stead agent`: the rooms put together, and the loop run.

use super::Paths;
use super::report::{FileReport, WallClock};
use super::say::{Failure, Out, fail};
use super::seams::Interrupted;
use crate::desired::{Directory, Options};
use crate::drive::Counters;
use crate::drive::containerd::IMPORT_LOCKS;
use crate::drive::node::Node;
use crate::model::{Desired, Severity};
use crate::reconcile::{self, Settings, Stopped};
use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use nix::fcntl::{Flock, FlockArg};
use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The flags of `agent`.
#[derive(Debug, Args)]
pub struct Flags {
    /// End as soon as everything is settled, printing each step; exit 1 when that takes longer than --timeout.
    #[arg(long)]
    once: bool,
    /// How long --once may take.
    #[arg(long, value_parser = super::wait::duration, default_value = "60s", requires = "once")]
    timeout: Duration,
    /// How much is logged to stderr: error, warn, info, debug, or a tracing filter [default: info; with --once on a
    /// terminal, where the steps are shown already, warn].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How the log is written.
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
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

/// How the agent ended.
struct Ended {
    stopped: Stopped,
    /// Whether `--once` ran out of time.
    late: bool,
    /// What was wanted last.
    desired: Option<Arc<Desired>>,
}

/// Runs the agent.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    log(flags)?;
    make_places(paths)?;
    let _lock = lock(paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail("cannot start the runtime", &error))?;
    let ended = runtime.block_on(keep(paths, flags, out))?;
    // looks that still run on helper threads change nothing and are not waited for
    runtime.shutdown_background();
    if let Stopped::Overdue(keys) = &ended.stopped {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        tracing::warn!(keys = keys.join(", "), "stopped with steps that had not ended; the next start looks again");
    }
    if ended.late {
        return Err(Failure::new(format!("not settled within {} s", flags.timeout.as_secs_f64()))
            .hint("stead status says what is waited for"));
    }
    match ended.desired.filter(|_| ended.stopped == Stopped::Settled) {
        Some(desired) => faults(&desired, out),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The places for exits and import locks are there from the beginning, so that nothing later finds them missing.
fn make_places(paths: &Paths) -> Result<(), Failure> {
    let cannot = |path: &Path, error: &std::io::Error| fail(format!("cannot make {}", path.display()), error);
    for dir in [&paths.run.join("exits"), &paths.root, &paths.logs] {
        std::fs::create_dir_all(dir).map_err(|error| cannot(dir, &error))?;
    }
    let locks = paths.run.join(IMPORT_LOCKS);
    let made = OpenOptions::new().create(true).append(true).open(&locks);
    made.map(drop).map_err(|error| cannot(&locks, &error))
}

/// What `--once` says of files that it could not take: the rest is settled, they are not.
fn faults(desired: &Desired, out: &mut Out) -> Result<ExitCode, Failure> {
    let all = || desired.findings.iter().chain(desired.apps.values().flat_map(|app| &app.findings));
    let errors = all().filter(|finding| finding.severity == Severity::Error).count();
    if errors == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    out.findings(all())?;
    Err(Failure::new(format!("settled, but for {errors} fault{} in files", if errors == 1 { "" } else { "s" })))
}

async fn keep(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<Ended, Failure> {
    // first of all: from here on SIGTERM asks to stop, and does not end the agent by itself
    let (seam, late) = (Arc::new(Notify::new()), Cell::new(false));
    let mut stop = Box::pin(stopping(flags, Arc::clone(&seam), &late)?);
    let counters = Arc::new(Counters::default());
    let node = Arc::new(Node::new(paths.marks.clone(), &paths.places(), &counters));
    let dir = paths.own_desired_state();
    let env = paths.own_env_file().map(super::paths::read_env).transpose()?.unwrap_or_default();
    let directory = Directory::open(Options {
        dir: dir.clone(),
        state: paths.root.clone(),
        env,
        pool: paths.own_pool(),
        ..Options::default()
    });
    let (expecting, latest) = (Arc::clone(&node), RefCell::new(None));
    let desired = directory.stream().inspect(|desired| {
        expecting.expect(desired);
        latest.replace(Some(Arc::clone(desired)));
    });
    let mut desired = Box::pin(desired);
    let first = tokio::select! {
        () = &mut stop => return Ok(Ended { stopped: Stopped::AtStepBoundary, late: late.get(), desired: None }),
        first = desired.next() => first.ok_or_else(|| Failure::new("the desired state cannot be read"))?,
    };
    let desired = futures::stream::once(async { first }).chain(desired);
    let drive = Interrupted::new(node, flags.die_after_step, flags.stop_after_step, seam);
    let report = FileReport::new(paths, &dir, counters, flags.once.then_some(out));
    let settings = Settings { once: flags.once, ..Settings::default() };
    tracing::info!(dir = %dir.display(), name = %paths.marks.agent(), version = env!("CARGO_PKG_VERSION"), "agent starts");
    let stopped = reconcile::run(drive, desired, WallClock, report, paths.marks.clone(), settings, stop).await;
    tracing::info!(?stopped, "agent ends");
    Ok(Ended { stopped, late: late.get(), desired: latest.take() })
}

/// Resolves when the agent has to stop; `late` tells whether that is for the time being over.
fn stopping<'a>(
    flags: &Flags,
    seam: Arc<Notify>,
    late: &'a Cell<bool>,
) -> Result<impl Future<Output = ()> + use<'a>, Failure> {
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
            () = timeout => late.set(true),
        }
    })
}

/// Two agents of one name would undo each other's work.
fn lock(paths: &Paths) -> Result<Flock<File>, Failure> {
    let path = paths.lock_file();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| fail(format!("cannot open {}", path.display()), &error))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        let by = paths.status().filter(|status| status.agent.running);
        let by = by.map(|status| format!(" (pid {})", status.agent.pid)).unwrap_or_default();
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
    let shown_already = flags.once && std::io::stderr().is_terminal();
    let level = flags.log_level.as_deref().unwrap_or(if shown_already { "warn" } else { "info" });
    let filter: Targets = level.parse().map_err(|error| fail("--log-level", &error).code(super::USAGE))?;
    // a log reader that has gone is no reason to end: a line that cannot be written is dropped in silence
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).log_internal_errors(false);
    let lines = match flags.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let result = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    result.map_err(|error| fail("cannot start the log", &error))
}
