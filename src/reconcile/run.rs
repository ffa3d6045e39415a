//! The loop itself: it starts looks and steps, waits for what happens, and reads the stop flag.

use super::state::{Event, Looked, Start, State, Stepped};
use super::{Clock, Report, Settings, Stopped};
use crate::drive::Drive;
use crate::model::{
    Cause, CauseKind, Decision, Desired, Domain, Key, Marks, Outcome, Scope, Sight, Sighting, Step, Timestamp,
};
use crate::plan::{self, Holds, Picture};
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use std::future::Future;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until, timeout};

/// Runs the loop until `stop` resolves (or, with [`Settings::once`], until everything is settled).
///
/// `desired` yields whole pictures, the first one at once. Everything is decided by [`plan`] and done by
/// `drive`; this function only says when.
pub async fn run<D: Drive, C: Clock, R: Report>(
    drive: D,
    desired: impl Stream<Item = Arc<Desired>>,
    clock: C,
    report: R,
    marks: Marks,
    settings: Settings,
    stop: impl Future<Output = ()>,
) -> Stopped {
    run_with(plan::decide, drive, desired, clock, report, marks, settings, stop).await
}

/// [`run`] with another planner: for those who test their own, or plant a bug in ours.
#[expect(
    clippy::too_many_arguments,
    reason = "the seams of the loop, each a different thing; a struct would hide them"
)]
pub async fn run_with<D: Drive, C: Clock, R: Report>(
    planner: impl Fn(&Picture<'_>, &Key, &Holds, Timestamp) -> Decision,
    drive: D,
    desired: impl Stream<Item = Arc<Desired>>,
    clock: C,
    mut report: R,
    marks: Marks,
    settings: Settings,
    stop: impl Future<Output = ()>,
) -> Stopped {
    let mut desired = std::pin::pin!(desired.fuse());
    let mut wakes = std::pin::pin!(drive.wakes().fuse());
    let mut stop = std::pin::pin!(stop.fuse());
    let limits = settings.clone();
    let mut running: FuturesUnordered<LocalBoxFuture<'_, Event>> = FuturesUnordered::new();
    let mut state = State::new(marks, settings, Instant::now());
    let mut reporter = Reporter { last: None, was_settled: false };
    let mut resync = Instant::now() + state.settings.resync;
    let mut stopping = false;
    loop {
        if stopping {
            return drain(&mut running, &mut state, &mut report, &clock).await;
        }
        let (now, wall) = (Instant::now(), clock.now());
        state.ring(now, wall);
        for (scope, began) in state.due_looks(now) {
            running.push(look(&drive, scope, began, &limits).boxed_local());
        }
        for start in state.plan(&planner, now, wall) {
            state.started(&start, now, wall);
            running.push(step(&drive, &clock, start, state.round, &limits).boxed_local());
        }
        reporter.report(&mut report, &mut state, now, wall);
        if state.settings.once && state.settled() {
            return Stopped::Settled;
        }
        let alarm = [Some(resync), state.next_alarm(now), reporter.due(&state)].into_iter().flatten().min();
        // no arm awaits inside, and every future here is cancel-safe: a step lives in `running`, which only hands out
        // what has ended
        tokio::select! {
            biased;
            () = &mut stop => stopping = true,
            Some(event) = running.next(), if !running.is_empty() => take(&mut state, event, &clock, &mut report),
            Some(picture) = desired.next() => state.take_desired(picture),
            Some(wake) = wakes.next() => state.wake(wake, Instant::now()),
            () = sleep_until(alarm.unwrap_or(resync)) => {}
        }
        // what is ready already is taken before anything is planned: one plan for a burst
        while let Some(Some(event)) = running.next().now_or_never() {
            take(&mut state, event, &clock, &mut report);
        }
        while let Some(Some(wake)) = wakes.next().now_or_never() {
            state.wake(wake, Instant::now());
        }
        if Instant::now() >= resync {
            resync = next_resync(&mut state, clock.now());
        }
    }
}

fn take(state: &mut State, event: Event, clock: &impl Clock, report: &mut impl Report) {
    match event {
        Event::Stepped(stepped) => {
            let key = stepped.key.clone();
            let line = state.stepped(*stepped, clock.now());
            report.stepped(&key, &line);
        }
        Event::Looked(looked) => state.looked(*looked),
    }
}

/// Everything is looked at again, whatever was heard: up to a tenth is added so that many nodes do not look at once.
fn next_resync(state: &mut State, wall: Timestamp) -> Instant {
    let now = Instant::now();
    for domain in Domain::ALL {
        state.looks.set(Scope::Domain(domain), now, "resync");
    }
    let spread = (wall.0 % 1000) as f64 / 10_000.0;
    now + state.settings.resync.mul_f64(1.0 + spread)
}

/// No new step is started; running ones may end.
async fn drain(
    running: &mut FuturesUnordered<LocalBoxFuture<'_, Event>>,
    state: &mut State,
    report: &mut impl Report,
    clock: &impl Clock,
) -> Stopped {
    let deadline = Instant::now() + state.settings.stop_within;
    // looks change nothing outside: only steps are waited for
    while !state.doing().is_empty() {
        tokio::select! {
            biased;
            Some(event) = running.next() => take(state, event, clock, report),
            () = sleep_until(deadline) => break,
        }
    }
    let doing = state.doing();
    if let Some(view) = state.view(&doing, clock.now()) {
        report.report(&view);
    }
    if doing.is_empty() { Stopped::AtStepBoundary } else { Stopped::Overdue(doing.into_keys().collect()) }
}

async fn look<D: Drive>(drive: &D, scope: Scope, began: u64, settings: &Settings) -> Event {
    let deadline = settings.look_deadline;
    let sighting = match timeout(deadline, drive.look(scope.clone())).await {
        Ok(sighting) => sighting,
        Err(_) => blind_sighting(&scope, &format!("no answer within {} s", deadline.as_secs())),
    };
    Event::Looked(Box::new(Looked { scope, began, sighting }))
}

/// One step, its look, and its line in the log.
async fn step<D: Drive, C: Clock>(drive: &D, clock: &C, start: Start, round: u64, settings: &Settings) -> Event {
    let Start { key, step, why, because } = start;
    let (at, began) = (clock.now(), Instant::now());
    let deadline = match step {
        Step::ImportImage { .. } | Step::UnpackImage { .. } => settings.import_deadline,
        _ => settings.step_deadline,
    };
    let outcome = match timeout(deadline, drive.perform(step.clone())).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Unsure(Cause {
            kind: CauseKind::Deadline,
            message: format!("{} has not ended within {} s", step.name(), deadline.as_secs()),
            hint: None,
        }),
    };
    let took = began.elapsed();
    let span = tracing::info_span!("step", round, because, key = %key, step = step.name(), why = %why);
    span.in_scope(|| {
        let (outcome_word, took_ms) = (outcome.word(), took.as_millis() as u64);
        match &outcome {
            Outcome::Refused(cause) | Outcome::Unsure(cause) => {
                tracing::warn!(outcome = outcome_word, took_ms, error = %cause.message);
            }
            Outcome::Done | Outcome::Already | Outcome::Moved => tracing::info!(outcome = outcome_word, took_ms),
        }
    });
    let scope = Scope::Part(key.clone(), step.domain());
    let sighting = match timeout(settings.look_deadline, drive.look(scope.clone())).await {
        Ok(sighting) => sighting,
        Err(_) => blind_sighting(&scope, "no answer to the look after a step"),
    };
    Event::Stepped(Box::new(Stepped { key, step, why, round, because, outcome, at, took, sighting }))
}

/// What a look that did not answer is: blind.
fn blind_sighting(scope: &Scope, why: &str) -> Sighting {
    let (key, domain) = match scope {
        Scope::Domain(Domain::Runtime) => return Sighting::Runtime(Sight::unseen(why)),
        Scope::Domain(Domain::Net) => return Sighting::Net(Sight::unseen(why)),
        Scope::Domain(Domain::Ports) => return Sighting::Ports(Sight::unseen(why)),
        Scope::Domain(Domain::Files) => return Sighting::Files(Sight::unseen(why)),
        Scope::Object(key) => (key, None),
        Scope::Part(key, domain) => (key, Some(*domain)),
    };
    let asked = |part: Domain| domain.is_none_or(|domain| domain == part);
    match key {
        Key::Instance(key) => Sighting::Instance {
            key: key.clone(),
            runtime: asked(Domain::Runtime).then(|| Sight::unseen(why)),
            net: asked(Domain::Net).then(|| Sight::unseen(why)),
            files: asked(Domain::Files).then(|| Sight::unseen(why)),
        },
        Key::Image(reference) => Sighting::Image { reference: reference.clone(), image: Sight::unseen(why) },
        Key::Network(key) => Sighting::Network { key: key.clone(), bridge: Sight::unseen(why) },
        Key::Volume(key) => Sighting::Volume { key: key.clone(), exists: Sight::unseen(why) },
        Key::Publication => Sighting::Publication { table: Sight::unseen(why), ip_forward: Sight::unseen(why) },
        Key::Stray(key) => Sighting::Stray { key: key.clone(), found: Sight::unseen(why) },
    }
}

/// Shows the loop's state, not more often than asked for, and at once when it settles or unsettles.
struct Reporter {
    last: Option<Instant>,
    was_settled: bool,
}

impl Reporter {
    fn report(&mut self, report: &mut impl Report, state: &mut State, now: Instant, wall: Timestamp) {
        let settled = state.settled();
        let early = self.last.is_some_and(|last| now < last + state.settings.report_every);
        if !state.news || (early && settled == self.was_settled) {
            return;
        }
        let doing = state.doing();
        if let Some(view) = state.view(&doing, wall) {
            report.report(&view);
            (self.last, self.was_settled) = (Some(now), settled);
            state.news = false;
        }
    }

    /// When news that came too early is shown.
    fn due(&self, state: &State) -> Option<Instant> {
        let last = self.last.filter(|_| state.news)?;
        Some(last + state.settings.report_every)
    }
}
