//! How the running agent shows itself: documents for other commands, and each step on stdout where that is asked for.

use super::Paths;
use super::say::Out;
use crate::drive::containerd::start_ticks;
use crate::drive::{Counters, write_atomic};
use crate::model::{Key, Status, Timestamp};
use crate::reconcile::status::{Teller, timelines};
use crate::reconcile::{Clock, Report, StepLine, View};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Timelines are larger than status and asked for less often: this is their least distance, but for settling.
const TIMELINES_EVERY: Duration = Duration::from_secs(1);

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
pub struct FileReport<'a> {
    paths: Paths,
    desired_state: String,
    counters: Arc<Counters>,
    teller: Teller,
    pid: u32,
    start_ticks: u64,
    started_at: String,
    timelines_at: Timestamp,
    steps: Option<&'a mut Out>,
}

impl<'a> FileReport<'a> {
    /// A report of this process, which keeps `dir` true; steps are printed to `steps`.
    pub fn new(paths: &Paths, dir: &Path, counters: Arc<Counters>, steps: Option<&'a mut Out>) -> Self {
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
            steps,
        }
    }

    fn complete(&self, status: &mut Status, view: &View<'_>) {
        let agent = &mut status.agent;
        env!("CARGO_PKG_VERSION").clone_into(&mut agent.version);
        agent.name = self.paths.marks.agent().to_string();
        (agent.pid, agent.start_ticks, agent.running) = (self.pid, self.start_ticks, true);
        agent.started_at.clone_from(&self.started_at);
        agent.written_at = view.now.rfc3339();
        agent.desired_state.clone_from(&self.desired_state);
        agent.pool = self.paths.own_pool().map(|pool| pool.to_string());
        agent.env_file = self.paths.own_env_file().map(|file| file.display().to_string());
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

impl Report for FileReport<'_> {
    fn report(&mut self, view: &View<'_>) {
        let mut status = self.teller.tell(view);
        self.complete(&mut status, view);
        write(&self.paths.status_file(), &status);
        if view.settled || view.now.since(self.timelines_at) >= TIMELINES_EVERY {
            self.timelines_at = view.now;
            write(&self.paths.timelines_file(), &timelines(view));
        }
    }

    fn stepped(&mut self, key: &Key, line: &StepLine) {
        let Some(out) = &mut self.steps else { return };
        let outcome = if line.outcome == "done" { String::new() } else { format!("  {}", line.outcome) };
        let error = line.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        let text = format!("{key}  {}  {}{outcome}{error}", line.step, line.why);
        // whoever read the steps may have gone: what was asked for is done all the same
        if out.line(text).and_then(|()| out.flush()).is_err() {
            self.steps = None;
        }
    }
}

fn write(file: &Path, document: &impl Serialize) {
    let written = serde_json::to_vec(document).map_err(std::io::Error::from);
    if let Err(error) = written.and_then(|bytes| write_atomic(file, &bytes)) {
        tracing::warn!(%error, file = %file.display(), "cannot write a document");
    }
}
