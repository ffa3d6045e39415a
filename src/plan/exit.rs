//! No task: what an exit leads to. Written down first, then judged by the restart policy.

use super::instance::{Rung, Scene, act, identity, in_place};
use super::needs;
use super::target::Target;
use crate::model::{
    Blocker, ContainerSeen, Decision, Exit, ExitStatus, GOOD_RUN, InstanceSpec, Restart, RestartCondition, Run, Step,
    restart_delay, slot_hash,
};
use std::time::Duration;

/// What follows an exit, from both places where Compose can say it; `deploy.restart_policy` wins, as there.
struct Policy {
    after: RestartCondition,
    max: Option<u32>,
    delay: Duration,
    /// A run of at least this long ends a series of failures.
    good_run: Duration,
}

impl Policy {
    fn of(spec: &InstanceSpec) -> Self {
        if let Some(policy) = &spec.restart_policy {
            return Self {
                after: policy.condition,
                max: policy.max_attempts,
                delay: Duration::from_millis(policy.delay_ms.unwrap_or(0)),
                good_run: policy.window_ms.map_or(GOOD_RUN, Duration::from_millis),
            };
        }
        let (after, max) = match spec.restart.unwrap_or(Restart::No) {
            Restart::No => (RestartCondition::None, None),
            Restart::Always | Restart::UnlessStopped => (RestartCondition::Any, None),
            Restart::OnFailure { max } => (RestartCondition::OnFailure, max),
        };
        Self { after, max, delay: Duration::ZERO, good_run: GOOD_RUN }
    }

    /// Whether it is started again. An exit that nobody saw is a failure, never a success; one that a reboot caused is
    /// nobody's failure.
    fn restarts(&self, exit: &Exit, failures: u32) -> bool {
        let after = match self.after {
            RestartCondition::None => exit.status == ExitStatus::Reboot,
            RestartCondition::OnFailure => !exit.status.is_success(),
            RestartCondition::Any => true,
        };
        after && self.max.is_none_or(|max| failures <= max)
    }
}

/// An ended task: its exit is written down, then it is deleted.
pub(super) fn stopped(current: &ContainerSeen, exit: &Exit) -> Decision {
    let written = current.exit.as_ref().is_some_and(|written| {
        written.pid == exit.pid && current.run.as_ref().is_none_or(|run| written.at >= run.at || run.pid != exit.pid)
    });
    if !written {
        let mut true_exit =
            current.witnessed.clone().filter(|seen| seen.pid == exit.pid).unwrap_or_else(|| exit.clone());
        if let Some(run) = current.run.as_ref().filter(|run| run.pid == exit.pid) {
            true_exit.at = true_exit.at.max(run.at);
        }
        return record_exit(current, true_exit);
    }
    act(Step::DeleteTask { container: identity(current), pid: exit.pid }, "the task has ended")
}

fn record_exit(current: &ContainerSeen, exit: Exit) -> Decision {
    let why = match exit.status {
        ExitStatus::Code(code) => format!("it exited with code {code}"),
        ExitStatus::Unknown => "it is gone, and nobody saw how it ended".to_owned(),
        ExitStatus::Reboot => "the machine went down under it".to_owned(),
    };
    act(Step::RecordExit { container: identity(current), exit }, why)
}

/// No task: never started, or ended, or vanished.
pub(super) fn after_exit(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target) -> Rung {
    let spec = &target.record.spec;
    let Some(run) = &current.run else {
        let first = || create(scene, current, target, "it has not been started yet".to_owned());
        return in_place(scene, current, target, None).or_else(|| if spec.stopped { None } else { first() });
    };
    let Some(exit) = written(current, run) else {
        let witnessed = current.witnessed.clone().filter(|exit| exit.pid == run.pid);
        let vanished = || {
            let rebooted = run.boot != scene.picture.runtime_boot();
            let status = if rebooted { ExitStatus::Reboot } else { ExitStatus::Unknown };
            Exit { pid: run.pid, status, at: scene.now }
        };
        let mut exit = witnessed.unwrap_or_else(vanished);
        exit.at = exit.at.max(run.at);
        return Some(record_exit(current, exit));
    };
    if let Some(change) = in_place(scene, current, target, None) {
        return Some(change);
    }
    let again = again(current, run, exit, spec)?;
    if let Some(wait) = not_yet(scene, run, exit, &again) {
        return Some(wait);
    }
    create(scene, current, target, again.why)
}

/// Makes the task, when everything that it needs is as it has to be.
fn create(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target, why: String) -> Rung {
    let side = scene.runtime.seen();
    if !side.is_some_and(|side| side.snapshots.iter().any(|snapshot| snapshot.key == current.snapshot)) {
        return Some(Decision::Wait(vec![Blocker::Stuck {
            what: "its snapshot is gone".to_owned(),
            hint: "it is made anew as soon as its file and its image say from what".to_owned(),
        }]));
    }
    let unmet = needs::unmet(scene.picture, &target.record.spec);
    if !unmet.is_empty() {
        return Some(Decision::Wait(unmet));
    }
    Some(act(Step::CreateTask { container: identity(current) }, why))
}

/// The exit of a run, once it is written down.
fn written<'c>(current: &'c ContainerSeen, run: &Run) -> Option<&'c Exit> {
    current.exit.as_ref().filter(|exit| exit.pid == run.pid && exit.at >= run.at)
}

/// That it is to run once more.
struct Again {
    why: String,
    /// How long after the exit, with the reason; at once where not set.
    after: Option<(Duration, String)>,
}

/// Whether, and why, an ended run is followed by another.
fn again(current: &ContainerSeen, run: &Run, exit: &Exit, spec: &InstanceSpec) -> Option<Again> {
    if spec.stopped {
        return None;
    }
    if restart_asked(run, spec) {
        return Some(Again { why: "a restart was asked for".to_owned(), after: None });
    }
    let policy = Policy::of(spec);
    let failures = failures(current, run, exit, &policy);
    let wait = |reason: String| {
        let spread = slot_hash(&format!("{}\0{}", current.id, run.count));
        let delay = restart_delay(failures, spread).max(policy.delay);
        (!edited(current, run) && exit.status != ExitStatus::Reboot).then_some((delay, reason))
    };
    let runs = format!("restart after {failures} short run{}", if failures == 1 { "" } else { "s" });
    match current.stopping.filter(|stopping| stopping.at >= run.at) {
        Some(stopping) if stopping.unhealthy => {
            let why = "it was stopped for being unhealthy".to_owned();
            Some(Again { why, after: wait("restart after it was unhealthy".to_owned()) })
        }
        // it ended because we asked it to, and it is wanted again: its policy has no say
        Some(_) => Some(Again { why: "it was stopped, and is wanted again".to_owned(), after: None }),
        None if policy.restarts(exit, failures) => {
            let why = format!("it ended ({}), and its restart policy says to run it", describe(exit));
            Some(Again { why, after: wait(runs) })
        }
        None => None,
    }
}

/// The wait before the next run. A clock that went back behind the exit would make it endless: then it is due.
fn not_yet(scene: &Scene<'_, '_>, run: &Run, exit: &Exit, again: &Again) -> Rung {
    let (delay, what) = again.after.as_ref()?;
    let due = exit.at.after(*delay);
    let waits = exit.at <= scene.now && scene.now < due && exit.pid == run.pid;
    waits.then(|| Decision::Wait(vec![Blocker::Until { at: due, what: what.clone() }]))
}

/// Whether a restart was asked for since a run was started.
pub(super) fn restart_asked(run: &Run, spec: &InstanceSpec) -> bool {
    spec.restarted.is_some() && run.restarted != spec.restarted
}

/// Whether the definition changed in place since a run was started: a fresh start for its policy.
fn edited(current: &ContainerSeen, run: &Run) -> bool {
    match (run.generation, &current.record) {
        (Some(generation), Some(record)) => record.generation != generation,
        _ => false,
    }
}

/// The exit after which an instance is not started again: it is over.
pub(super) fn over<'c>(current: &'c ContainerSeen, spec: &InstanceSpec) -> Option<&'c Exit> {
    let run = current.run.as_ref().filter(|_| !current.task.may_live())?;
    let exit = written(current, run)?;
    again(current, run, exit, spec).is_none().then_some(exit)
}

/// How an exit is told in a sentence.
pub(super) fn describe(exit: &Exit) -> String {
    match exit.status {
        ExitStatus::Code(code) => format!("code {code}"),
        ExitStatus::Unknown => "unknown exit".to_owned(),
        ExitStatus::Reboot => "reboot".to_owned(),
    }
}

/// How many runs in a row have ended too soon, with the last one, for the run that comes next.
pub(super) fn failures_so_far(current: &ContainerSeen, spec: &InstanceSpec) -> u32 {
    match (&current.run, &current.exit) {
        (Some(run), Some(exit)) => failures(current, run, exit, &Policy::of(spec)),
        _ => 0,
    }
}

fn failures(current: &ContainerSeen, run: &Run, exit: &Exit, policy: &Policy) -> u32 {
    let unhealthy = current.stopping.is_some_and(|stopping| stopping.unhealthy && stopping.at >= run.at);
    let good = !unhealthy && exit.at.since(run.at) >= policy.good_run;
    if good || exit.status == ExitStatus::Reboot || edited(current, run) { 0 } else { run.failures.saturating_add(1) }
}
