//! Between the agent and the world: calls with their delays, what gets lost on the way, and who is told of what.
//!
//! A call is on the world's agenda, not in the agent: an agent that dies leaves its requests behind, and they land later,
//! in part, or never.

use super::rng::{Choices, Rng};
use super::world::{Daemon, Extent, Happening, World};
use futures::channel::{mpsc, oneshot};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use stead::drive::Wake;
use stead::model::{Cause, CauseKind, Desired, Domain, Outcome, Scope, Sighting, Step};

/// The driver's own deadline for a call to containerd.
const CALL_DEADLINE: u64 = 10_000;
/// How often a call that containerd does not take is offered again.
const OFFER: u64 = 250;

/// The stage, shared by the agent's drive and the run.
pub type Shared = Rc<RefCell<Stage>>;

/// What goes wrong between the agent and the node, in thousandths.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Wake-ups that are lost.
    pub lost_wakes: u64,
    /// Looks that show an earlier time.
    pub stale: u64,
    /// Looks whose parts are of different times.
    pub mixed: u64,
    /// Steps that are done and reported as unanswered.
    pub lost_answers: u64,
    /// Calls that take up to seconds.
    pub slow: u64,
    /// Refused steps, by name.
    pub poison: Option<(&'static str, CauseKind)>,
    /// Domains that cannot be looked at.
    pub blind: BTreeSet<Domain>,
}

/// Where a mutant bends what an honest driver, source or planner does; the honest one bends nothing.
pub trait Bend {
    /// Bends what a look brings back.
    fn look(&self, _world: &World, _scope: &Scope, sighting: Sighting) -> Sighting {
        sighting
    }

    /// Bends what is done for a step.
    fn step(&self, _world: &World, step: &Step) -> Step {
        step.clone()
    }

    /// Hears of every wake-up.
    fn wake(&self, _wake: &Wake) {}

    /// Hears how a step went.
    fn done(&self, _step: &Step, _outcome: &Outcome) {}
}

/// Bends nothing.
pub struct Honest;

impl Bend for Honest {}

enum Call {
    Look { scope: Scope, answer: oneshot::Sender<Sighting>, seen: Option<Box<Sighting>>, agent: u64 },
    Step { decided: Box<Step>, done: Box<Step>, answer: Option<oneshot::Sender<Outcome>>, state: State, agent: u64 },
}

enum State {
    Sent { since: u64, extent: Extent },
    Landed(Outcome),
}

/// The stage.
pub struct Stage {
    pub world: World,
    pub faults: Faults,
    /// What the living agent has been told to want.
    pub known: Option<Arc<Desired>>,
    /// Which agent lives, counted up.
    pub agent: u64,
    /// The agent has been asked to stop: from now on it may ask for nothing.
    pub stopping: bool,
    pub bend: Rc<dyn Bend>,
    /// Called before a step is taken: the place of a crash point.
    pub asked_of_agent: u64,
    calls: BTreeMap<u64, Call>,
    wakes: BTreeMap<u64, Wake>,
    next: u64,
    rng: Rng,
    ears: Option<mpsc::UnboundedSender<Wake>>,
    earlier: BTreeMap<Scope, Sighting>,
    /// Delays are the same for every call: for runs that are compared.
    pub steady: bool,
}

impl Stage {
    /// A stage for a world.
    pub fn new(world: World, rng: Rng) -> Self {
        Self {
            world,
            faults: Faults::default(),
            known: None,
            agent: 0,
            stopping: false,
            bend: Rc::new(Honest),
            asked_of_agent: 0,
            calls: BTreeMap::new(),
            wakes: BTreeMap::new(),
            next: 0,
            rng,
            ears: None,
            earlier: BTreeMap::new(),
            steady: false,
        }
    }

    /// An agent starts: it hears wake-ups from now on.
    pub fn agent_starts(&mut self) -> mpsc::UnboundedReceiver<Wake> {
        self.agent += 1;
        self.stopping = false;
        self.known = None;
        let (ears, wakes) = mpsc::unbounded();
        self.ears = Some(ears);
        wakes
    }

    /// The agent is gone: what its memory and its witness knew is lost, and its requests are on their own.
    pub fn agent_ends(&mut self, killed: bool) {
        self.ears = None;
        self.world.witnesses.clear();
        self.world.witnessed.clear();
        self.world.runtime.containers.values_mut().for_each(|container| container.wedge_known = false);
        self.earlier.clear();
        let ids: Vec<u64> = self.calls.keys().copied().collect();
        for id in ids {
            self.orphan(id, killed);
        }
    }

    /// A request whose agent is gone lands as it would, lands late, lands in part, or never does.
    fn orphan(&mut self, id: u64, killed: bool) {
        let fate = self.rng.below(6);
        let late = self.rng.between(1, 3000);
        let Some(Call::Step { done, answer, state: State::Sent { extent, .. }, .. }) = self.calls.get_mut(&id) else {
            self.calls.remove(&id);
            return;
        };
        *answer = None;
        if !killed {
            return;
        }
        let remote = done.domain() == Domain::Runtime;
        match fate {
            0 | 1 => drop(self.calls.remove(&id)),
            2 => *extent = Extent::First,
            // only a request to another process can be on its way for long
            3 | 4 if remote => {
                let at = self.world.now + late;
                self.next += 1;
                let moved = self.calls.remove(&id);
                self.calls.extend(moved.map(|call| (self.next, call)));
                self.world.plan(at, Happening::Call(self.next));
            }
            _ => {}
        }
    }

    /// How many requests of the living agent have not landed.
    pub fn in_flight_of_agent(&self) -> usize {
        let its =
            |call: &&Call| matches!(call, Call::Step { state: State::Sent { .. }, agent, .. } if *agent == self.agent);
        self.calls.values().filter(its).count()
    }

    /// How many requests of anybody have not landed.
    pub fn in_flight(&self) -> usize {
        let sent = |call: &&Call| matches!(call, Call::Step { state: State::Sent { .. }, .. });
        self.calls.values().filter(sent).count()
    }

    fn delay(&mut self, low: u64, high: u64) -> u64 {
        if self.steady {
            return low;
        }
        if self.rng.chance(self.faults.slow) {
            return self.rng.between(high, 4000);
        }
        self.rng.between(low, high)
    }

    /// The agent asks for a look.
    pub fn ask_look(&mut self, scope: Scope) -> oneshot::Receiver<Sighting> {
        let (answer, answered) = oneshot::channel();
        self.next += 1;
        let after = self.delay(1, 6);
        self.world.plan(self.world.now + after, Happening::Call(self.next));
        self.calls.insert(self.next, Call::Look { scope, answer, seen: None, agent: self.agent });
        answered
    }

    /// The agent asks for a step.
    pub fn ask_step(&mut self, step: Step) -> oneshot::Receiver<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.asked_of_agent += 1;
        let now = self.world.now;
        let agent = self.agent;
        self.world.audit.line(|| format!("{now:>8} agent {agent} asks {}", brief(&step)));
        if self.stopping {
            self.world.violate("acts-after-stop", step.name().to_owned());
        }
        let known = self.known.clone();
        self.world.judge_request(known.as_deref(), &step);
        let done = self.bend.clone().step(&self.world, &step);
        let (low, high) = cost(&step);
        let after = self.delay(low, high);
        self.next += 1;
        self.world.plan(now + after, Happening::Call(self.next));
        let state = State::Sent { since: now, extent: Extent::Whole };
        let (decided, done) = (Box::new(step), Box::new(done));
        self.calls.insert(self.next, Call::Step { decided, done, answer: Some(answer), state, agent });
        answered
    }

    /// Lets time pass; gives back what the run itself has planned.
    pub fn advance(&mut self, now: u64) -> Option<u64> {
        loop {
            let happening = self.world.advance(now);
            self.spread();
            match happening {
                Some(Happening::Call(id)) => self.call(id),
                Some(Happening::Wake(id)) => self.wake(id),
                Some(Happening::Planned(what)) => return Some(what),
                Some(Happening::ProcessEnds { .. } | Happening::LinkGone { .. }) | None => return None,
            }
            self.spread();
        }
    }

    /// Sends what the node announces on its way to the agent, or loses it.
    pub fn spread(&mut self) {
        let rings = std::mem::take(&mut self.world.rings);
        for ring in rings {
            if self.ears.is_none() || self.rng.chance(self.faults.lost_wakes) {
                continue;
            }
            let after = if self.steady { 2 } else { self.rng.between(1, 5) };
            self.next += 1;
            self.wakes.insert(self.next, ring.0);
            self.world.plan(self.world.now + after, Happening::Wake(self.next));
        }
    }

    fn wake(&mut self, id: u64) {
        let Some(wake) = self.wakes.remove(&id) else {
            return;
        };
        self.bend.wake(&wake);
        if let Some(ears) = &self.ears {
            // an agent that has just ended does not listen any more
            let _ = ears.unbounded_send(wake);
        }
    }

    fn call(&mut self, id: u64) {
        match self.calls.remove(&id) {
            Some(Call::Look { scope, answer, seen, agent }) => self.look(id, scope, answer, seen, agent),
            Some(Call::Step { decided, done, answer, state: State::Sent { since, extent }, agent }) => {
                self.land(id, (decided, done), answer, (since, extent), agent);
            }
            Some(Call::Step { answer: Some(answer), state: State::Landed(outcome), decided, .. }) => {
                self.bend.done(&decided, &outcome);
                // the agent may have given up waiting
                let _ = answer.send(outcome);
            }
            Some(Call::Step { .. }) | None => {}
        }
    }

    fn look(
        &mut self,
        id: u64,
        scope: Scope,
        answer: oneshot::Sender<Sighting>,
        seen: Option<Box<Sighting>>,
        agent: u64,
    ) {
        if agent != self.agent {
            return;
        }
        if let Some(mut seen) = seen {
            if self.rng.chance(self.faults.mixed) {
                self.world.retouch(&mut seen);
            }
            let _ = answer.send(*seen);
            return;
        }
        let fresh = self.see(&scope);
        let before = self.earlier.insert(scope.clone(), fresh.clone());
        let stale = self.rng.chance(self.faults.stale);
        let shown = match before.filter(|_| stale) {
            Some(before) => {
                self.world.audit.misled = true;
                before
            }
            None => fresh,
        };
        let after = self.delay(0, 4);
        self.world.plan(self.world.now + after, Happening::Call(id));
        self.calls.insert(id, Call::Look { scope, answer, seen: Some(Box::new(shown)), agent });
    }

    fn see(&mut self, scope: &Scope) -> Sighting {
        self.world.watch_tasks(scope);
        let mut seen = self.world.look(scope);
        for domain in &self.faults.blind {
            super::world::blind(&mut seen, *domain, "permission denied");
        }
        self.bend.clone().look(&self.world, scope, seen)
    }

    fn land(
        &mut self,
        id: u64,
        (decided, done): (Box<Step>, Box<Step>),
        mut answer: Option<oneshot::Sender<Outcome>>,
        (since, extent): (u64, Extent),
        agent: u64,
    ) {
        let now = self.world.now;
        if decided.domain() == Domain::Runtime && self.world.runtime.daemon == Daemon::Mute {
            if let Some(answer) = answer.take_if(|_| now >= since + CALL_DEADLINE) {
                let _ = answer.send(unsure(CauseKind::Deadline, "no answer"));
            }
            self.world.plan(now + OFFER, Happening::Call(id));
            let state = State::Sent { since, extent };
            self.calls.insert(id, Call::Step { decided, done, answer, state, agent });
            return;
        }
        let poisoned = self.faults.poison.filter(|(name, _)| *name == decided.name());
        let outcome = match poisoned {
            Some((_, kind)) => Outcome::Refused(cause(kind, "it does not want to")),
            None => {
                self.world.judge_target(&decided, &done);
                self.world.act(&done, extent)
            }
        };
        self.world.audit.line(|| format!("{now:>8} of agent {agent}: {} -> {}", brief(&decided), outcome.word()));
        let Some(answer) = answer else {
            return;
        };
        let lost = self.rng.chance(self.faults.lost_answers) && !matches!(outcome, Outcome::Refused(_));
        let outcome = if lost { unsure(CauseKind::Deadline, "the answer was lost") } else { outcome };
        let hung = matches!(&outcome, Outcome::Unsure(cause) if cause.kind == CauseKind::Deadline);
        let after = if hung { CALL_DEADLINE } else { self.delay(0, 2) };
        self.world.plan(now + after, Happening::Call(id));
        let (answer, state) = (Some(answer), State::Landed(outcome));
        self.calls.insert(id, Call::Step { decided, done, answer, state, agent });
    }

    /// containerd dies: what is in flight is cut off wherever it is.
    pub fn daemon_dies(&mut self) {
        if self.world.runtime.daemon == Daemon::Down {
            return;
        }
        self.world.runtime.daemon = Daemon::Up;
        let ids: Vec<u64> = self.calls.keys().copied().collect();
        for id in ids {
            let cut = matches!(&self.calls[&id], Call::Step { state: State::Sent { .. }, done, .. } if done.domain() == Domain::Runtime);
            if !cut {
                continue;
            }
            let Some(Call::Step { decided, done, answer, .. }) = self.calls.remove(&id) else {
                continue;
            };
            match self.rng.below(4) {
                0 => drop(self.world.act(&done, Extent::Whole)),
                1 => drop(self.world.act(&done, Extent::First)),
                2 => self.world.cut_create(&done),
                _ => {}
            }
            if let Some(answer) = answer {
                let outcome = unsure(CauseKind::Unavailable, "stream closed because of a broken pipe");
                self.bend.done(&decided, &outcome);
                let _ = answer.send(outcome);
            }
        }
        self.world.daemon_dies();
        self.spread();
    }
}

fn cause(kind: CauseKind, message: &str) -> Cause {
    Cause { kind, message: message.to_owned(), hint: None }
}

fn unsure(kind: CauseKind, message: &str) -> Outcome {
    Outcome::Unsure(cause(kind, message))
}

/// How many milliseconds a step takes before its effect, at least and usually at most.
fn cost(step: &Step) -> (u64, u64) {
    match step {
        Step::CreateTask { .. } => (20, 90),
        Step::ImportImage { .. } | Step::UnpackImage { .. } => (40, 300),
        Step::DeleteTask { .. } => (10, 50),
        Step::ApplyRuleset { .. } => (2, 15),
        Step::DropLink { .. } => (2, 25),
        step if step.domain() == Domain::Runtime => (1, 10),
        _ => (0, 2),
    }
}

/// A step in a line: its name and what it is about.
pub fn brief(step: &Step) -> String {
    let text = serde_json::to_string(step).unwrap_or_default();
    let about: String = text.chars().take(150).collect();
    format!("{} {about}", step.name())
}
