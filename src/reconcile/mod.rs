//! # reconcile: the loop
//!
//! One task owns `Desired`, `Observed` and the holds. A wake-up carries a key or "everything" and nothing else; each
//! decision is made on the latest look; at most one step per object is in flight; the stop flag is read in one place.
//!
//! Tests: `tests/simulate.rs` runs this loop on a simulated node; `tests/node_*.rs` on a real one.

mod hold;
mod progress;
mod queue;
mod run;
mod state;
pub mod status;

pub use hold::{jittered, series};
pub use run::{run, run_with};

use crate::model::{Decision, Desired, Key, Observed, Timestamp};
use crate::plan::Holds;
use std::collections::{BTreeMap, VecDeque};
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

    /// Takes a step that has ended, each one at once and in order.
    fn stepped(&mut self, _key: &Key, _line: &StepLine) {}
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
    /// Steps in flight at once, those that take long included: a bound, not a target.
    pub in_flight_max: usize,
    /// How long a step may take before its answer is no longer waited for; imports and unpacks have
    /// [`Settings::import_deadline`].
    pub step_deadline: Duration,
    /// The same for steps that move an image's bytes.
    pub import_deadline: Duration,
    /// How long a look may take before it counts as blind.
    pub look_deadline: Duration,
    /// The time between two full looks, to which up to a tenth is added.
    pub resync: Duration,
    /// The least time between two reports.
    pub report_every: Duration,
    /// How long running steps may take to end once stop is asked for.
    pub stop_within: Duration,
    /// End as soon as everything is settled.
    pub once: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            slots: 2 * cores,
            in_flight_max: 64,
            step_deadline: Duration::from_secs(30),
            import_deadline: Duration::from_secs(30 * 60),
            look_deadline: Duration::from_secs(30),
            resync: Duration::from_secs(300),
            report_every: Duration::from_millis(100),
            stop_within: Duration::from_secs(10),
            once: false,
        }
    }
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
