//! The agent under test: the real loop and the real planner on the stage, and the poll that lets both go on in one task.

use super::rng::Rng;
use super::stage::{Shared, Stage};
use super::world::World;
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, Stream, StreamExt};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use stead::drive::{Drive, Wake};
use stead::model::{Decision, Desired, Key, Outcome, Scope, Sighting, Step, Timestamp};
use stead::plan::{Holds, Picture, decide};
use stead::reconcile::{Clock, Report, RuntimeLink, Settings, Stopped, View, run_with};
use tokio::time::{Instant, Sleep, sleep_until};

/// Who decides.
pub type Planner = Rc<dyn Fn(&Picture<'_>, &Key, &Holds, Timestamp) -> Decision>;

/// The real planner.
pub fn honest() -> Planner {
    Rc::new(decide)
}

/// The simulated drive.
#[derive(Clone)]
pub struct SimDrive {
    stage: Shared,
    wakes: Rc<RefCell<Option<mpsc::UnboundedReceiver<Wake>>>>,
}

impl Drive for SimDrive {
    fn look(&self, scope: Scope) -> impl Future<Output = Sighting> {
        let answer = self.stage.borrow_mut().ask_look(scope);
        answer.map(|answer| answer.expect("a look is answered while its agent lives"))
    }

    fn perform(&self, step: Step) -> impl Future<Output = Outcome> {
        let answer = self.stage.borrow_mut().ask_step(step);
        answer.map(|answer| answer.expect("a step is answered while its agent lives"))
    }

    fn wakes(&self) -> impl Stream<Item = Wake> + use<> {
        self.wakes.borrow_mut().take().expect("one loop listens")
    }
}

struct SimClock(Shared);

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.0.borrow().world.wall()
    }
}

/// What the agent has said of itself last.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// That everything is settled.
    pub settled: bool,
    /// That containerd answers.
    pub connected: bool,
    /// What is not settled.
    pub open: Vec<(Key, Decision)>,
    /// How often it said something.
    pub reports: u64,
}

struct SimReport(Rc<RefCell<Said>>);

impl Report for SimReport {
    fn report(&mut self, view: &View<'_>) {
        let open = |(key, decision): (&Key, &Decision)| (key.clone(), decision.clone());
        let mut said = self.0.borrow_mut();
        said.settled = view.settled;
        said.connected = view.runtime == RuntimeLink::Connected;
        said.open.clear();
        if !view.settled {
            said.open.extend(view.decisions.iter().filter(|(_, of)| **of != Decision::Settled).map(open));
        }
        said.reports += 1;
    }
}

struct Living {
    future: Pin<Box<dyn Future<Output = Stopped>>>,
    stop: Option<oneshot::Sender<()>>,
    desired: mpsc::UnboundedSender<Arc<Desired>>,
}

/// How an agent is started.
#[derive(Clone)]
pub struct Make {
    /// Who decides; called for each new agent, so that a planner's memory dies with it.
    pub planner: Rc<dyn Fn() -> Planner>,
    pub settings: Settings,
}

impl Make {
    /// The honest agent with settings.
    pub fn honest(settings: Settings) -> Self {
        Self { planner: Rc::new(honest), settings }
    }
}

/// A run: a stage, and an agent that lives or not.
pub struct Run {
    pub stage: Shared,
    pub make: Make,
    pub said: Rc<RefCell<Said>>,
    /// How the last agent ended that was asked to stop.
    pub stopped: Option<Stopped>,
    living: Option<Living>,
    origin: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Run {
    /// A run on a world; it has to be made inside the runtime whose clock it uses.
    pub fn new(world: World, rng: Rng, make: Make) -> Self {
        let stage = Rc::new(RefCell::new(Stage::new(world, rng)));
        let origin = Instant::now();
        let sleep = Box::pin(sleep_until(origin));
        Self { stage, make, said: Rc::default(), stopped: None, living: None, origin, sleep }
    }

    /// Starts an agent that is told to want this.
    pub fn start(&mut self, desired: Arc<Desired>) {
        self.kill();
        let wakes = self.stage.borrow_mut().agent_starts();
        let drive = SimDrive { stage: self.stage.clone(), wakes: Rc::new(RefCell::new(Some(wakes))) };
        let (sender, pictures) = mpsc::unbounded::<Arc<Desired>>();
        sender.unbounded_send(desired).expect("the receiver is here");
        let stage = self.stage.clone();
        let pictures = pictures.inspect(move |desired| {
            let mut stage = stage.borrow_mut();
            let now = stage.world.now;
            let generation = desired.generation;
            stage.world.audit.line(|| format!("{now:>8} the agent is told generation {generation}"));
            stage.known = Some(desired.clone());
        });
        let (stop, stopped) = oneshot::channel::<()>();
        self.said = Rc::default();
        let planner = (self.make.planner)();
        let (clock, report) = (SimClock(self.stage.clone()), SimReport(self.said.clone()));
        let marks = self.stage.borrow().world.registry.marks.clone();
        let settings = self.make.settings.clone();
        let decide = move |picture: &Picture<'_>, key: &Key, holds: &Holds, now| planner(picture, key, holds, now);
        let future = run_with(decide, drive, pictures, clock, report, marks, settings, stopped.map(|_| ()));
        self.living = Some(Living { future: Box::pin(future), stop: Some(stop), desired: sender });
    }

    /// Tells the agent what is wanted now.
    pub fn tell(&mut self, desired: Arc<Desired>) {
        if let Some(living) = &self.living {
            // an agent that is about to end does not listen any more
            let _ = living.desired.unbounded_send(desired);
        }
    }

    /// Whether an agent lives.
    pub fn lives(&self) -> bool {
        self.living.is_some()
    }

    /// Kills the agent where it stands.
    pub fn kill(&mut self) {
        if let Some(living) = self.living.take() {
            drop(living);
            self.stage.borrow_mut().agent_ends(true);
        }
    }

    /// Asks the agent to stop.
    pub fn ask_to_stop(&mut self) {
        let Some(stop) = self.living.as_mut().and_then(|living| living.stop.take()) else {
            return;
        };
        self.stage.borrow_mut().stopping = true;
        // the agent holds the other end until it has ended
        let _ = stop.send(());
    }

    /// Milliseconds since the run began.
    pub fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs until a time, or until `enough` says so; `planned` does what the run itself has put on the agenda.
    pub async fn until(
        &mut self,
        end: u64,
        mut planned: impl FnMut(&mut Self, u64),
        mut enough: impl FnMut(&mut Self) -> bool,
    ) {
        poll_fn(|cx| {
            loop {
                let now = self.now();
                loop {
                    let what = self.stage.borrow_mut().advance(now);
                    match what {
                        Some(what) => planned(self, what),
                        None => break,
                    }
                }
                self.poll_agent(cx);
                let now = self.now();
                if now >= end || enough(self) {
                    return Poll::Ready(());
                }
                let next = self.stage.borrow().world.next_time().unwrap_or(end).min(end);
                if next <= now {
                    continue;
                }
                self.sleep.as_mut().reset(self.origin + Duration::from_millis(next));
                if self.sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    fn poll_agent(&mut self, cx: &mut Context<'_>) {
        let Some(living) = self.living.as_mut() else {
            return;
        };
        let Poll::Ready(stopped) = living.future.as_mut().poll(cx) else {
            return;
        };
        self.living = None;
        let mut stage = self.stage.borrow_mut();
        let in_flight = stage.in_flight_of_agent();
        if stopped == Stopped::AtStepBoundary && in_flight > 0 {
            stage.world.violate("stop-not-at-boundary", format!("{in_flight} requests have not landed"));
        }
        stage.agent_ends(false);
        drop(stage);
        self.stopped = Some(stopped);
    }
}

/// Runs a future on a runtime of its own whose clock stands still but for timers.
pub fn on_paused_clock<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime without I/O");
    runtime.block_on(future)
}
