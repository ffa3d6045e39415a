//! What the loop knows, and what each event does to it. No I/O: futures are started by `run`.

use super::hold::{HoldBook, jittered, series};
use super::queue::{Alarms, Dirty, Keys, covers, object};
use super::{RuntimeLink, Settings, StepLine, View};
use crate::drive::Wake;
use crate::model::{
    Decision, Desired, Domain, Key, Marks, Observed, Outcome, Scope, Sight, Sighting, Step, Timestamp, Why,
};
use crate::plan::Picture;
use backoff::ExponentialBackoff;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Events of links and files come in swarms, many of them our own echo: one look after this long covers a swarm.
pub(super) const SWARM: Duration = Duration::from_millis(10);
/// A step that takes longer than this no longer counts as contention, so that a few stuck ones cannot hold up the rest.
pub(super) const SLOT_TIME: Duration = Duration::from_secs(1);
/// Looks at a domain that is blind begin at this distance and end at [`BLIND_CAP`].
const BLIND_FIRST: Duration = Duration::from_millis(100);
const BLIND_CAP: Duration = Duration::from_secs(5);
/// How often in a row a step may find its object changed before it has to wait.
pub(super) const MOVED_MAX: u32 = 3;

/// A step in flight.
pub(super) struct Doing {
    pub name: &'static str,
    pub since: Timestamp,
    pub began: Instant,
}

/// A step that ended, with the look after it.
pub(super) struct Stepped {
    pub key: Key,
    pub step: Step,
    pub why: Why,
    pub(super) round: u64,
    pub because: &'static str,
    pub outcome: Outcome,
    pub at: Timestamp,
    pub took: Duration,
    pub sighting: Sighting,
}

/// A look that ended.
pub(super) struct Looked {
    pub scope: Scope,
    pub began: u64,
    pub sighting: Sighting,
}

pub(super) enum Event {
    Stepped(Box<Stepped>),
    Looked(Box<Looked>),
}

/// A step to be started.
pub(super) struct Start {
    pub key: Key,
    pub step: Step,
    pub why: Why,
    pub because: &'static str,
}

pub(super) struct State {
    pub(super) marks: Marks,
    pub(super) settings: Settings,
    pub(super) desired: Option<Arc<Desired>>,
    pub(super) observed: Observed,
    pub(super) book: HoldBook,
    pub(super) decisions: BTreeMap<Key, Decision>,
    pub(super) dirty: Dirty,
    /// Objects whose time comes.
    pub(super) alarms: Alarms<Key>,
    /// Looks whose time comes.
    pub(super) looks: Alarms<Scope>,
    /// Looks in flight, with when they began in looks and steps.
    pub(super) looking: Vec<(Scope, u64)>,
    /// Looks that were asked for while the same one was in flight.
    pub(super) again: BTreeMap<Scope, &'static str>,
    /// Objects that something was heard of while a step of theirs was in flight: the look after it covers all of them.
    pub(super) missed: Keys,
    /// Steps in flight.
    pub(super) doing: BTreeMap<Key, Doing>,
    /// When each object was last touched by a step, in looks and steps begun: what a look that began before says of it
    /// is older than what is known.
    pub(super) touched: BTreeMap<Key, u64>,
    pub(super) clock: u64,
    /// The last step of each object that worked, until it settles: the same again means that it had no effect.
    pub(super) last: BTreeMap<Key, (Step, u32)>,
    pub(super) blind: BTreeMap<Domain, ExponentialBackoff>,
    pub(super) history: BTreeMap<Key, VecDeque<StepLine>>,
    pub(super) steps: BTreeMap<(&'static str, &'static str), u64>,
    pub(super) round: u64,
    pub(super) runtime: RuntimeLink,
    /// Something changed that a report would show.
    pub(super) news: bool,
}

impl State {
    pub fn new(marks: Marks, settings: Settings, now: Instant) -> Self {
        let mut looks = Alarms::default();
        for domain in Domain::ALL {
            looks.set(Scope::Domain(domain), now, "start");
        }
        Self {
            marks,
            settings,
            desired: None,
            observed: Observed::nothing_yet(),
            book: HoldBook::default(),
            decisions: BTreeMap::new(),
            dirty: Dirty::default(),
            alarms: Alarms::default(),
            looks,
            looking: Vec::new(),
            again: BTreeMap::new(),
            missed: Keys::new(),
            doing: BTreeMap::new(),
            touched: BTreeMap::new(),
            clock: 0,
            last: BTreeMap::new(),
            blind: BTreeMap::new(),
            history: BTreeMap::new(),
            steps: BTreeMap::new(),
            round: 0,
            runtime: RuntimeLink::Unavailable,
            news: true,
        }
    }

    /// Whether what is seen is what is wanted, all of it, and nothing is on its way that could say otherwise.
    pub fn settled(&self) -> bool {
        let seen = self.observed.runtime.is_seen()
            && self.observed.net.is_seen()
            && self.observed.ports.is_seen()
            && self.observed.files.is_seen();
        self.desired.is_some()
            && seen
            && self.doing.is_empty()
            && self.dirty.is_empty()
            && self.decisions.values().all(|decision| *decision == Decision::Settled)
    }

    pub fn view<'a>(&'a self, doing: &'a BTreeMap<Key, (&'static str, Timestamp)>, now: Timestamp) -> Option<View<'a>> {
        Some(View {
            desired: self.desired.as_ref()?,
            observed: &self.observed,
            decisions: &self.decisions,
            holds: self.book.holds(),
            doing,
            history: &self.history,
            runtime: self.runtime,
            settled: self.settled(),
            steps: &self.steps,
            now,
        })
    }

    pub fn doing(&self) -> BTreeMap<Key, (&'static str, Timestamp)> {
        self.doing.iter().map(|(key, doing)| (key.clone(), (doing.name, doing.since))).collect()
    }

    /// Another whole picture of what is wanted.
    pub fn take_desired(&mut self, desired: Arc<Desired>) {
        let before = self.desired.replace(desired.clone());
        let changed = |key: &Key| match (&before, key.app()) {
            (Some(before), Some(app)) => before.apps.get(app) != desired.apps.get(app),
            _ => true,
        };
        let held: Vec<Key> = self.book.holds().keys().filter(|key| changed(key)).cloned().collect();
        for key in held {
            self.book.forget(&key);
            self.alarms.clear(&key);
        }
        self.everything_dirty("desired");
        self.news = true;
    }

    pub(super) fn everything_dirty(&mut self, because: &'static str) {
        let Some(desired) = &self.desired else {
            return;
        };
        let keys = Picture::new(desired, &self.observed, &self.marks).keys();
        self.decisions.retain(|key, _| keys.contains(key));
        self.history.retain(|key, _| keys.contains(key));
        for key in keys {
            self.dirty.mark(key, because);
        }
    }

    /// Something rang.
    pub fn wake(&mut self, wake: Wake, now: Instant) {
        if let Some((domain, why)) = wake.lost {
            tracing::warn!(?domain, why, "lost sight");
            self.go_blind(domain, why);
            return;
        }
        if wake.scope == Scope::Domain(Domain::Runtime) {
            self.blind.remove(&Domain::Runtime);
            if self.runtime == RuntimeLink::Unavailable {
                self.runtime = RuntimeLink::Resyncing;
                self.news = true;
            }
        }
        let at = match &wake.scope {
            Scope::Domain(Domain::Runtime) | Scope::Part(_, Domain::Runtime) | Scope::Object(_) => now,
            Scope::Domain(_) | Scope::Part(..) => now + SWARM,
        };
        self.looks.set(wake.scope, at, wake.because);
    }

    /// What was seen in this domain no longer counts; it is looked at again at a growing distance.
    pub(super) fn go_blind(&mut self, domain: Domain, why: String) {
        match domain {
            Domain::Runtime => {
                self.observed.runtime = Sight::unseen(why);
                self.runtime = RuntimeLink::Unavailable;
            }
            Domain::Net => self.observed.net = Sight::unseen(why),
            Domain::Ports => self.observed.ports = Sight::unseen(why),
            Domain::Files => self.observed.files = Sight::unseen(why),
        }
        self.look_again_later(domain);
        self.everything_dirty("lost sight");
        self.news = true;
    }

    fn look_again_later(&mut self, domain: Domain) {
        let series = self.blind.entry(domain).or_insert_with(|| series(BLIND_FIRST, BLIND_CAP));
        let delay = jittered(series, self.clock.wrapping_mul(0x9e37_79b9));
        self.looks.set(Scope::Domain(domain), Instant::now() + delay, "blind");
    }

    /// Alarms that are due become looks: a time that has come is judged on a fresh look.
    pub fn ring(&mut self, now: Instant, wall: Timestamp) {
        self.book.clamp(wall);
        for (key, because) in self.alarms.ring(now) {
            self.looks.set(Scope::Object(key), now, because);
        }
    }

    /// The looks to start now. An object with a step in flight is looked at after it anyway; a look that is in flight
    /// already may be too old, so the new one waits for it.
    pub fn due_looks(&mut self, now: Instant) -> Vec<(Scope, u64)> {
        let mut due = Vec::new();
        for (scope, because) in self.looks.ring(now) {
            if let Some(key) = object(&scope).filter(|key| self.doing.contains_key(key)) {
                self.missed.insert(key.clone());
            } else if self.looking.iter().any(|(wide, _)| covers(wide, &scope)) {
                self.again.insert(scope, because);
            } else {
                self.clock += 1;
                self.looking.push((scope.clone(), self.clock));
                due.push((scope, self.clock));
            }
        }
        due
    }

    pub(super) fn sees(&self, domain: Domain) -> bool {
        match domain {
            Domain::Runtime => self.observed.runtime.is_seen(),
            Domain::Net => self.observed.net.is_seen(),
            Domain::Ports => self.observed.ports.is_seen(),
            Domain::Files => self.observed.files.is_seen(),
        }
    }

    pub(super) fn why_blind(&self, domain: Domain) -> String {
        fn why<T>(sight: &Sight<T>) -> String {
            match sight {
                Sight::Seen(_) => String::new(),
                Sight::Unseen(blind) => blind.why.clone(),
            }
        }
        match domain {
            Domain::Runtime => why(&self.observed.runtime),
            Domain::Net => why(&self.observed.net),
            Domain::Ports => why(&self.observed.ports),
            Domain::Files => why(&self.observed.files),
        }
    }

    /// When the loop has to act by itself next.
    pub fn next_alarm(&self, now: Instant) -> Option<Instant> {
        let slot = if self.dirty.is_empty() {
            None
        } else {
            self.doing.values().map(|doing| doing.began + SLOT_TIME).filter(|at| *at > now).min()
        };
        [self.alarms.next(), self.looks.next(), slot].into_iter().flatten().min()
    }
}
