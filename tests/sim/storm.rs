//! The storm: what goes wrong, how often, and when. Each seed draws its own weights, half of them zero, so that each run
//! is a storm of a few kinds (swarm testing).

use super::agent::Run;
use super::damage::{self, Kind};
use super::rng::{Choices, Rng};
use super::walk::provide;
use super::want::{Size, edit, unknown};
use super::world::{Daemon, Happening, Shim, World};
use std::sync::Arc;
use stead::model::{CauseKind, Desired, Domain, Finding, Place, Severity};

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    CrashAgent,
    StopAgent,
    CrashDaemon,
    MuteDaemon,
    KillShim,
    HangShim,
    EndTask,
    Reboot,
    Damage(u8),
    Edit,
    EditAndUndo,
    BreakFile,
    LoseFile,
    LoseDirectory,
    FixFiles,
    LoseWakes,
    StaleLooks,
    MixedLooks,
    LoseAnswers,
    Slow,
    Poison,
    Blind,
    JumpClock,
    FalseAlarm,
}

const ACTIONS: [Action; 29] = [
    Action::CrashAgent,
    Action::StopAgent,
    Action::CrashDaemon,
    Action::MuteDaemon,
    Action::KillShim,
    Action::HangShim,
    Action::EndTask,
    Action::Reboot,
    Action::Damage(0),
    Action::Damage(1),
    Action::Damage(2),
    Action::Damage(3),
    Action::Damage(4),
    Action::Damage(5),
    Action::Edit,
    Action::EditAndUndo,
    Action::BreakFile,
    Action::LoseFile,
    Action::LoseDirectory,
    Action::FixFiles,
    Action::LoseWakes,
    Action::StaleLooks,
    Action::MixedLooks,
    Action::LoseAnswers,
    Action::Slow,
    Action::Poison,
    Action::Blind,
    Action::JumpClock,
    Action::FalseAlarm,
];

/// What the run has put on its own agenda.
pub mod planned {
    pub const ACTION: u64 = 0;
    pub const START_AGENT: u64 = 1;
    pub const START_DAEMON: u64 = 2;
    pub const UNMUTE: u64 = 3;
    pub const UNHANG: u64 = 4;
    pub const CLEAR_FAULTS: u64 = 5;
    /// The agent of this number has to have ended.
    pub const STOP_DUE: u64 = 1000;
}

/// The steps that a run refuses for a while.
const POISONED: [&str; 9] = [
    "create-task",
    "start-task",
    "make-link",
    "make-netns",
    "set-address",
    "apply-ruleset",
    "write-file",
    "prepare-snapshot",
    "make-bridge",
];

/// One run's storm.
pub struct Storm {
    pub rng: Rng,
    pub size: Size,
    /// What is wanted, as the files say it when they can be read.
    pub wanted: Desired,
    /// What the source delivers now.
    pub told: Arc<Desired>,
    weights: Vec<(Action, u64)>,
    mean_gap: u64,
    left: u64,
}

impl Storm {
    /// Draws a storm.
    pub fn draw(mut rng: Rng, size: Size, wanted: Desired) -> Self {
        let mut weights = Vec::new();
        for action in ACTIONS {
            let weight = rng.between(1, 10) * u64::from(!matches!(action, Action::Reboot) || rng.chance(300));
            if rng.chance(500) {
                weights.push((action, weight));
            }
        }
        if weights.is_empty() {
            weights.push((Action::CrashAgent, 1));
        }
        let mean_gap = *rng.pick(&[3, 20, 60, 300, 2000]);
        let left = rng.between(4, 24);
        let told = Arc::new(wanted.clone());
        Self { rng, size, wanted, told, weights, mean_gap, left }
    }

    /// Puts the first action on the agenda.
    pub fn begin(&mut self, run: &mut Run) {
        self.next(run);
    }

    /// Whether all actions are done.
    pub fn over(&self) -> bool {
        self.left == 0
    }

    fn next(&mut self, run: &mut Run) {
        if self.left > 0 {
            self.left -= 1;
            let at = run.now() + self.rng.wait(self.mean_gap) + 1;
            run.stage.borrow_mut().world.plan(at, Happening::Planned(planned::ACTION));
        }
    }

    fn later(&mut self, run: &Run, low: u64, high: u64, what: u64) {
        let at = run.now() + self.rng.between(low, high);
        run.stage.borrow_mut().world.plan(at, Happening::Planned(what));
    }

    /// Does what is due.
    pub fn planned(&mut self, run: &mut Run, what: u64) {
        match what {
            planned::ACTION => {
                self.act(run);
                self.next(run);
            }
            planned::START_AGENT if !run.lives() => run.start(self.told.clone()),
            planned::START_AGENT => {}
            planned::START_DAEMON => {
                let mut stage = run.stage.borrow_mut();
                if stage.world.runtime.daemon == Daemon::Down {
                    stage.world.daemon_starts();
                    stage.spread();
                }
            }
            planned::UNMUTE => {
                let mut stage = run.stage.borrow_mut();
                if stage.world.runtime.daemon == Daemon::Mute {
                    stage.world.runtime.daemon = Daemon::Up;
                }
            }
            planned::UNHANG => unhang(&mut run.stage.borrow_mut().world),
            planned::CLEAR_FAULTS => run.stage.borrow_mut().faults = Default::default(),
            agent => {
                let mut stage = run.stage.borrow_mut();
                if stage.agent == agent - planned::STOP_DUE && stage.stopping {
                    stage.world.violate("stop-overdue", "asked to stop 11 s ago, and not ended".to_owned());
                }
            }
        }
        if !run.lives() && what < planned::STOP_DUE {
            self.restart_later(run);
        }
    }

    fn restart_later(&mut self, run: &Run) {
        let delay = if self.rng.chance(500) { self.rng.between(0, 5) } else { self.rng.between(5, 1500) };
        self.later(run, delay, delay, planned::START_AGENT);
    }

    fn act(&mut self, run: &mut Run) {
        let total: u64 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.below(total);
        let chosen = self.weights.iter().find(|(_, weight)| {
            let hit = at < *weight;
            at = at.saturating_sub(*weight);
            hit
        });
        let Some(action) = chosen.map(|(action, _)| *action) else {
            return;
        };
        let now = run.now();
        run.stage.borrow_mut().world.audit.line(|| format!("{now:>8} ** {action:?}"));
        match action {
            Action::CrashAgent => run.kill(),
            Action::StopAgent => self.stop(run),
            Action::Edit | Action::EditAndUndo => self.edit(run, action == Action::EditAndUndo),
            Action::BreakFile | Action::LoseFile | Action::LoseDirectory | Action::FixFiles => self.spoil(run, action),
            Action::Reboot => {
                run.kill();
                let mut stage = run.stage.borrow_mut();
                stage.daemon_dies();
                stage.world.reboot();
            }
            Action::Damage(kind) => {
                let kind = Kind::ALL[usize::from(kind)];
                let mut stage = run.stage.borrow_mut();
                if let Some(what) = damage::strike(&mut stage.world, &mut self.rng, kind) {
                    stage.world.audit.line(|| format!("{now:>8} ** {what}"));
                }
                stage.spread();
            }
            Action::CrashDaemon | Action::MuteDaemon | Action::KillShim | Action::HangShim | Action::EndTask => {
                self.shake_runtime(run, action);
            }
            _ => self.cloud(run, action),
        }
    }

    fn stop(&mut self, run: &mut Run) {
        if run.lives() && !run.stage.borrow().stopping {
            run.ask_to_stop();
            let agent = run.stage.borrow().agent;
            self.later(run, 11_000, 11_000, planned::STOP_DUE + agent);
        }
    }

    fn deliver(&mut self, run: &mut Run, desired: Desired) {
        self.told = Arc::new(desired);
        run.tell(self.told.clone());
    }

    fn edit(&mut self, run: &mut Run, undo: bool) {
        let before = self.wanted.clone();
        let mut next = edit(&mut self.rng, &before, self.size);
        provide(&mut run.stage.borrow_mut().world, &next);
        next.generation = self.told.generation + 1;
        self.deliver(run, next.clone());
        if undo {
            let generation = next.generation + 1;
            next = Desired { generation, ..before };
            provide(&mut run.stage.borrow_mut().world, &next);
            self.deliver(run, next.clone());
        }
        self.wanted = next;
    }

    /// A file that cannot be read keeps its last known good; one whose last known good is lost too is not known.
    fn spoil(&mut self, run: &mut Run, action: Action) {
        let mut next = self.wanted.clone();
        let names: Vec<_> = next.apps.keys().cloned().collect();
        let name = (!names.is_empty()).then(|| self.rng.pick(&names).clone());
        match (action, name) {
            (Action::BreakFile, Some(name)) => {
                let place = Place { file: "broken.yaml".into(), line: 3, column: 1 };
                let message = "tabs are not allowed here".to_owned();
                let finding =
                    Finding { severity: Severity::Error, place, message, hint: None, notes: vec![], source_line: None };
                next.apps.entry(name).and_modify(|app| app.findings.push(finding));
            }
            (Action::LoseFile, Some(name)) => next = unknown(&next, &name),
            (Action::LoseDirectory, _) => {
                next.whole = false;
                next.apps.clear();
            }
            _ => {}
        }
        next.generation = self.told.generation + 1;
        self.deliver(run, next);
    }

    fn shake_runtime(&mut self, run: &mut Run, action: Action) {
        let short = self.rng.wait(2000) + 1;
        let mut stage = run.stage.borrow_mut();
        match action {
            Action::CrashDaemon => stage.daemon_dies(),
            Action::MuteDaemon if stage.world.runtime.daemon == Daemon::Up => {
                stage.world.runtime.daemon = Daemon::Mute;
            }
            _ => self.strike_task(&mut stage.world, action),
        }
        stage.spread();
        drop(stage);
        match action {
            Action::CrashDaemon => self.later(run, short, short, planned::START_DAEMON),
            Action::MuteDaemon => self.later(run, short, short * 8, planned::UNMUTE),
            Action::HangShim => self.later(run, short, short * 8, planned::UNHANG),
            _ => {}
        }
    }

    fn strike_task(&mut self, world: &mut World, action: Action) {
        let live = world.runtime.containers.iter().filter(|(_, found)| found.task.is_some());
        let live: Vec<String> = live.map(|(id, _)| id.clone()).collect();
        if live.is_empty() {
            return;
        }
        let id = self.rng.pick(&live).clone();
        let found = &world.runtime.containers[&id];
        let (pid, instance) = (found.task.as_ref().map_or(0, |task| task.pid), found.instance.clone());
        instance.iter().for_each(|instance| world.audit.shake(instance));
        match action {
            Action::KillShim => world.shim_dies(&id),
            Action::HangShim => world.shim_hangs(&id, true),
            _ => {
                let code = *self.rng.pick(&[0, 1, 139]);
                world.process_ends(pid, world.boot, code);
            }
        }
    }

    fn cloud(&mut self, run: &mut Run, action: Action) {
        let long = self.rng.wait(3000) + 1;
        let mut stage = run.stage.borrow_mut();
        match action {
            Action::LoseWakes => stage.faults.lost_wakes = *self.rng.pick(&[300, 1000]),
            Action::StaleLooks => stage.faults.stale = *self.rng.pick(&[50, 300]),
            Action::MixedLooks => stage.faults.mixed = 500,
            Action::LoseAnswers => stage.faults.lost_answers = *self.rng.pick(&[100, 500]),
            Action::Slow => stage.faults.slow = *self.rng.pick(&[50, 300]),
            Action::Poison => {
                let kinds = [CauseKind::Failed, CauseKind::Exhausted, CauseKind::Invalid, CauseKind::Deadline];
                stage.faults.poison = Some((*self.rng.pick::<&str>(&POISONED), *self.rng.pick(&kinds)));
            }
            Action::Blind => {
                stage.faults.blind.insert(*self.rng.pick(&Domain::ALL));
            }
            Action::JumpClock => {
                let by = self.rng.between(1, 200_000) as i64;
                stage.world.clock_off += if self.rng.chance(500) { by } else { -by };
            }
            Action::FalseAlarm => {
                let domain = *self.rng.pick(&Domain::ALL);
                if self.rng.chance(500) {
                    stage.world.ring_runtime_lost("false alarm");
                } else {
                    stage.world.ring_domain(domain, "false alarm");
                }
                stage.spread();
            }
            _ => {}
        }
        drop(stage);
        self.later(run, long, long, planned::CLEAR_FAULTS);
    }
}

/// Hung shims go on.
pub fn unhang(world: &mut World) {
    let hung: Vec<String> =
        world.runtime.containers.iter().filter(|(_, found)| is_hung(found)).map(|(id, _)| id.clone()).collect();
    for id in hung {
        world.shim_hangs(&id, false);
        if let Some(instance) = world.runtime.containers[&id].instance.clone() {
            world.ring_instance(&instance, "task event");
        }
    }
}

fn is_hung(container: &super::world::Container) -> bool {
    container.task.as_ref().is_some_and(|task| task.shim == Shim::Hung)
}
