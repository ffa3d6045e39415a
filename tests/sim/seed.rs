//! One seed: a storm in which nothing may be broken, then calm in which everything has to become as desired and stay so.

use super::agent::{Make, Run, on_paused_clock};
use super::audit::Violation;
use super::matching::differences;
use super::rng::{Choices, Rng};
use super::stage::Bend;
use super::storm::{Storm, unhang};
use super::walk::{provide, stocked};
use super::want::{Size, desired};
use super::world::{Behaviour, Daemon, Version, World, service};
use std::rc::Rc;
use std::time::Duration;
use stead::reconcile::Settings;

/// How long a storm may last at most, in virtual milliseconds.
const STORM_MAX: u64 = 120_000;
/// The calm in which everything has to become as desired: two full looks, the longest hold and the longest grace.
const CALM_MAX: u64 = 900_000;

/// What a run came to.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What was broken; empty when all is well.
    pub violations: Vec<Violation>,
    /// The last things that happened, when they were kept.
    pub lines: Vec<String>,
    /// Steps that were asked for.
    pub asked: u64,
    /// Virtual milliseconds.
    pub lasted: u64,
}

/// How a seed is run.
#[derive(Clone)]
pub struct Mode {
    /// Makes the planner of each agent.
    pub planner: Rc<dyn Fn() -> super::agent::Planner>,
    /// Makes what bends the drive, once a run.
    pub bend: Rc<dyn Fn() -> Rc<dyn Bend>>,
    /// Keep the lines for a print.
    pub keep_lines: bool,
}

impl Mode {
    /// The real thing.
    pub fn honest() -> Self {
        let planner = Rc::new(super::agent::honest);
        Self { planner, bend: Rc::new(|| Rc::new(super::stage::Honest)), keep_lines: false }
    }
}

/// Runs a seed.
pub fn play(seed: u64, mode: &Mode) -> Verdict {
    on_paused_clock(async { Box::pin(storm_then_calm(seed, mode)).await })
}

fn settings(rng: &mut Rng) -> Settings {
    Settings {
        slots: rng.between(1, 4) as usize,
        resync: Duration::from_secs(*rng.pick(&[30, 120, 300])),
        ..Settings::default()
    }
}

/// What kind of node it is.
fn nature(world: &mut World, rng: &mut Rng) {
    world.runtime.version = *rng.pick(&[Version::V1_6, Version::V1_7, Version::V2]);
    world.exit_info = rng.chance(700);
    for name in super::world::SERVICES {
        let stops_in = *rng.pick(&[Some(5), Some(400), None]);
        let code = *rng.pick(&[0, 1]);
        let ends = (name == "job" && rng.chance(400)).then(|| (rng.between(1, 20_000), code));
        world.behaviours.insert(service(name), Behaviour { ends, stops_in });
    }
}

async fn storm_then_calm(seed: u64, mode: &Mode) -> Verdict {
    let mut rng = Rng::new(seed);
    let mut world = stocked();
    world.audit.keep_lines = mode.keep_lines;
    nature(&mut world, &mut rng);
    let services = rng.between(1, 3) as usize;
    let size = Size { services, poison: rng.chance(250), ..Size::SMALL };
    let wanted = desired(&mut rng, size);
    provide(&mut world, &wanted);
    let make = Make { planner: mode.planner.clone(), settings: settings(&mut rng) };
    let mut run = Run::new(world, rng.fork(), make);
    run.stage.borrow_mut().bend = (mode.bend)();
    let mut storm = Storm::draw(rng.fork(), size, wanted);
    run.start(storm.told.clone());
    storm.begin(&mut run);
    let over = Rc::new(std::cell::Cell::new(false));
    let seen = over.clone();
    run.until(
        STORM_MAX,
        |run, what| {
            storm.planned(run, what);
            over.set(storm.over());
        },
        |run| seen.get() || broken(run),
    )
    .await;
    if !broken(&run) {
        calm(&mut run, &mut storm).await;
    }
    verdict(&run)
}

fn broken(run: &Run) -> bool {
    !run.stage.borrow().world.audit.violations.is_empty()
}

/// What a run came to.
pub fn verdict(run: &Run) -> Verdict {
    let mut stage = run.stage.borrow_mut();
    let audit = &mut stage.world.audit;
    Verdict {
        violations: std::mem::take(&mut audit.violations),
        lines: audit.lines.drain(..).collect(),
        asked: audit.asked,
        lasted: run.now(),
    }
}

/// All faults end: what hung goes on, what was down is up, files can be read, what was in flight has landed, and the agent
/// is started once more.
async fn clear_sky(run: &mut Run, storm: &mut Storm) {
    run.kill();
    let end = run.now() + 20_000;
    lift_faults(run, storm);
    run.until(end, quiet, |run| run.stage.borrow().in_flight() == 0).await;
    let generation = storm.told.generation + 1;
    storm.wanted.generation = generation;
    storm.told = std::sync::Arc::new(storm.wanted.clone());
    run.start(storm.told.clone());
}

fn lift_faults(run: &Run, storm: &Storm) {
    let mut stage = run.stage.borrow_mut();
    stage.faults = Default::default();
    match stage.world.runtime.daemon {
        Daemon::Down => stage.world.daemon_starts(),
        Daemon::Mute => stage.world.runtime.daemon = Daemon::Up,
        Daemon::Up => {}
    }
    unhang(&mut stage.world);
    provide(&mut stage.world, &storm.wanted);
    let now = stage.world.now;
    stage.world.audit.line(|| format!("{now:>8} == calm"));
}

/// The second phase: eventually as desired, and then for good.
async fn calm(run: &mut Run, storm: &mut Storm) {
    clear_sky(run, storm).await;
    let wanted = storm.wanted.clone();
    let end = run.now() + CALM_MAX;
    let mut lies = 0;
    loop {
        let next = run.now() + 1000;
        run.until(next, quiet, broken_run).await;
        if broken(run) {
            return;
        }
        let wrong = differences(&run.stage.borrow().world, &wanted);
        let idle = run.stage.borrow().in_flight() == 0;
        let settled = run.said.borrow().settled;
        if wrong.is_empty() && idle && (settled || waits_for_the_impossible(run)) {
            break;
        }
        lies = if settled && idle && !wrong.is_empty() { lies + 1 } else { 0 };
        if lies > 2 {
            return violate(run, "status-lie", format!("settled, it says; but {wrong:#?}"));
        }
        if run.now() >= end {
            let open = run.said.borrow().open.clone();
            return violate(run, "not-converged", format!("{wrong:#?}\nopen: {open:#?}"));
        }
    }
    stays(run, &wanted).await;
}

/// Whether nothing that is open can be helped: no step is decided, and none waits for its time.
fn waits_for_the_impossible(run: &Run) -> bool {
    use stead::model::{Blocker, Decision};
    run.said.borrow().open.iter().all(|(_, decision)| match decision {
        Decision::Wait(blockers) => {
            blockers.iter().any(|on| matches!(on, Blocker::Stuck { .. } | Blocker::On { .. } | Blocker::Until { .. }))
        }
        Decision::Do(..) | Decision::Settled => false,
    })
}

/// What the storm had planned is void in calm.
fn quiet(_: &mut Run, _: u64) {}

fn broken_run(run: &mut Run) -> bool {
    broken(run)
}

/// Notes a broken promise of the run as a whole.
pub fn violate(run: &Run, oracle: &'static str, what: String) {
    run.stage.borrow_mut().world.violate(oracle, what);
}

/// What is done to a node that is as desired, and how long it is watched then.
type Disturbance = (&'static str, fn(&mut Run), u64);

/// As desired for a while, over an agent's restart and over containerd's: nothing is asked of the node any more.
async fn stays(run: &mut Run, wanted: &stead::model::Desired) {
    let restless = run.stage.borrow().world.behaviours.values().any(|behaviour| behaviour.ends.is_some());
    let pause = u64::try_from(run.make.settings.resync.as_millis()).unwrap_or(u64::MAX) * 5 / 4;
    let rounds: [Disturbance; 3] = [
        ("over a full look", |_| {}, pause),
        ("over a restart of the agent", |run| run.kill(), 20_000),
        ("over a restart of containerd", restart_daemon, 20_000),
    ];
    for (what, disturb, pause) in rounds {
        let asked = run.stage.borrow().world.audit.asked;
        disturb(run);
        if !run.lives() {
            run.start(std::sync::Arc::new(wanted.clone()));
        }
        let end = run.now() + pause;
        run.until(end, quiet, broken_run).await;
        if broken(run) {
            return;
        }
        let more = run.stage.borrow().world.audit.asked - asked;
        if more > 0 && !restless {
            return violate(run, "needless-touch", format!("{more} steps {what}"));
        }
        let wrong = differences(&run.stage.borrow().world, wanted);
        if !wrong.is_empty() && !restless {
            return violate(run, "not-stable", format!("{what}: {wrong:#?}"));
        }
    }
}

fn restart_daemon(run: &mut Run) {
    let mut stage = run.stage.borrow_mut();
    stage.daemon_dies();
    stage.world.daemon_starts();
    stage.spread();
}
