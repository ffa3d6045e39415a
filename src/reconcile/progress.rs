//! Planning, and what the end of a step or a look changes.

use super::hold::HoldBook;
use super::queue::{Alarms, Keys, covers};
use super::state::{Doing, Looked, MOVED_MAX, SLOT_TIME, SWARM, Start, State, Stepped};
use super::{HISTORY, RuntimeLink, StepLine};
use crate::model::{
    Blocker, Cause, CauseKind, Decision, Domain, Key, Outcome, Scope, Service, Sighting, Step, Timestamp,
};
use crate::plan::{Holds, Picture};
use std::collections::BTreeMap;
use tokio::time::Instant;

impl State {
    /// Plans what is dirty and answers with the steps to start now.
    pub fn plan(
        &mut self,
        planner: &impl Fn(&Picture<'_>, &Key, &Holds, Timestamp) -> Decision,
        now: Instant,
        wall: Timestamp,
    ) -> Vec<Start> {
        let Some(desired) = self.desired.clone() else {
            return Vec::new();
        };
        let mut free = self.free_slots(now);
        if self.dirty.is_empty() || free == 0 {
            return Vec::new();
        }
        let picture = Picture::new(&desired, &self.observed, &self.marks);
        let mut starts = Vec::new();
        let mut later = Vec::new();
        for (key, because) in self.dirty.drain() {
            if self.doing.contains_key(&key) {
                continue; // planned again after the look that follows its step
            }
            if free == 0 {
                later.push((key, because));
                continue;
            }
            let decision = planner(&picture, &key, self.book.holds(), wall);
            self.book.over(&key, &decision, wall);
            let decision = refuse_without_effect(&mut self.book, &mut self.last, &key, decision, wall);
            note(&mut self.alarms, &mut self.last, &key, &decision, now, wall);
            self.news |= self.decisions.get(&key) != Some(&decision);
            match &decision {
                Decision::Do(step, why) => {
                    free -= 1;
                    starts.push(Start { key: key.clone(), step: (**step).clone(), why: why.clone(), because });
                }
                Decision::Settled | Decision::Wait(_) => {}
            }
            self.decisions.insert(key, decision);
        }
        for (key, because) in later {
            self.dirty.mark(key, because);
        }
        self.round += u64::from(!starts.is_empty());
        starts
    }

    fn free_slots(&self, now: Instant) -> usize {
        let fresh = self.doing.values().filter(|doing| now < doing.began + SLOT_TIME).count();
        self.settings.slots.saturating_sub(fresh).min(self.settings.in_flight_max.saturating_sub(self.doing.len()))
    }

    /// A step is about to be started.
    pub fn started(&mut self, start: &Start, now: Instant, wall: Timestamp) {
        self.clock += 1;
        self.touched.insert(start.key.clone(), self.clock);
        let doing = Doing { name: start.step.name(), since: wall, began: now };
        self.doing.insert(start.key.clone(), doing);
        self.alarms.clear(&start.key);
        self.news = true;
    }

    /// A step ended, and its object was looked at. Answers what is told of it.
    pub fn stepped(&mut self, stepped: Stepped, now: Timestamp) -> StepLine {
        let Stepped { key, step, why, round, because, outcome, at, took, sighting } = stepped;
        self.doing.remove(&key);
        self.clock += 1;
        self.touched.insert(key.clone(), self.clock);
        let (name, word) = (step.name(), outcome.word());
        *self.steps.entry((name, word)).or_default() += 1;
        let mut error = None;
        match outcome {
            Outcome::Done | Outcome::Already => {
                self.last.insert(key.clone(), (step, 0));
            }
            Outcome::Moved => {
                let again = self.last.get(&key).filter(|(last, _)| last.name() == name).map_or(0, |(_, n)| *n);
                if again >= MOVED_MAX {
                    let message = "its object keeps changing under it".to_owned();
                    self.book.refuse(&key, name, &Cause { kind: CauseKind::Failed, message, hint: None }, now);
                }
                self.last.insert(key.clone(), (step, again + 1));
            }
            Outcome::Refused(cause) | Outcome::Unsure(cause) => {
                error = Some(cause.message.clone());
                // an unreachable runtime is no fault of the object: its domain goes blind instead
                if cause.kind != CauseKind::Unavailable {
                    self.book.refuse(&key, name, &cause, now);
                }
            }
        }
        let line = StepLine { round, because, step: name, why: why.text, outcome: word, error, at, took };
        let history = self.history.entry(key.clone()).or_default();
        if history.len() == HISTORY {
            history.pop_front();
        }
        history.push_back(line.clone());
        if self.missed.remove(&key) {
            self.looks.set(Scope::Object(key.clone()), Instant::now(), "heard during a step");
        }
        self.take_object(key, sighting);
        line
    }

    /// A look ended.
    pub fn looked(&mut self, looked: Looked) {
        let Looked { scope, began, sighting } = looked;
        self.looking.retain(|(_, at)| *at != began);
        let now = Instant::now();
        let again: Vec<Scope> = self.again.keys().filter(|narrow| covers(&scope, narrow)).cloned().collect();
        for scope in again {
            let because = self.again.remove(&scope).unwrap_or_default();
            self.looks.set(scope, now, because);
        }
        match scope {
            Scope::Domain(domain) => self.take_domain(domain, began, sighting),
            Scope::Object(key) | Scope::Part(key, _) => {
                let older = self.touched.get(&key).is_some_and(|touched| *touched > began);
                if older {
                    self.looks.set(Scope::Object(key), now, "look was too old");
                } else {
                    self.take_object(key, sighting);
                }
            }
        }
        let oldest = self.looking.iter().map(|(_, at)| *at).min();
        self.touched.retain(|_, at| oldest.is_some_and(|oldest| *at > oldest));
    }

    fn take_object(&mut self, key: Key, sighting: Sighting) {
        let seen = Domain::ALL.map(|domain| self.sees(domain));
        self.observed.take(sighting);
        for (domain, before) in Domain::ALL.into_iter().zip(seen) {
            if before && !self.sees(domain) {
                let why = self.why_blind(domain);
                self.go_blind(domain, why);
            }
        }
        let waiting = |decision: &Decision| match decision {
            Decision::Wait(on) => on.iter().any(|blocker| !matches!(blocker, Blocker::Until { .. })),
            Decision::Do(..) | Decision::Settled => false,
        };
        let woken: Keys =
            self.decisions.iter().filter(|(_, decision)| waiting(decision)).map(|(key, _)| key.clone()).collect();
        if matches!(key, Key::Instance(_) | Key::Network(_)) {
            self.dirty.mark(Key::Publication, "attached");
        }
        for dependent in self.dependents(&key) {
            self.dirty.mark(dependent, "renewed");
        }
        self.dirty.mark(key, "seen");
        for key in woken {
            self.dirty.mark(key, "unblocked");
        }
        self.news = true;
    }

    /// The instances that are restarted when this one is renewed.
    fn dependents(&self, key: &Key) -> Vec<Key> {
        let (Key::Instance(key), Some(desired)) = (key, &self.desired) else {
            return Vec::new();
        };
        let needs = |service: &Service| {
            let mut needs = service.spec.needs.iter().filter(|need| need.restart);
            needs.any(|need| need.app == key.app && need.service == key.service)
        };
        desired.instances().filter(|(_, service)| needs(service)).map(|(key, _)| Key::Instance(key)).collect()
    }

    /// A whole domain. What steps touched since the look began stays as it is known, and is looked at by itself.
    fn take_domain(&mut self, domain: Domain, began: u64, sighting: Sighting) {
        let newer: Vec<Key> = self.touched.iter().filter(|(_, at)| **at > began).map(|(key, _)| key.clone()).collect();
        let busy = self.doing.keys().cloned();
        let kept: Keys = newer.into_iter().chain(busy).collect();
        let before = if kept.is_empty() { None } else { Some(self.observed.clone()) };
        self.observed.take(sighting);
        if !self.sees(domain) {
            let why = self.why_blind(domain);
            self.go_blind(domain, why);
            return;
        }
        self.blind.remove(&domain);
        if domain == Domain::Runtime {
            self.runtime = RuntimeLink::Connected;
        }
        if let Some(before) = before {
            for key in &kept {
                self.observed.keep(domain, key, &before);
            }
            for key in kept.into_iter().filter(|key| !self.doing.contains_key(key)).collect::<Vec<_>>() {
                self.looks.set(Scope::Part(key, domain), Instant::now() + SWARM, "newer than the list");
            }
        }
        self.everything_dirty("list");
        self.news = true;
    }
}

/// A step that worked and is decided again at once had no effect: it waits like a refused one.
fn refuse_without_effect(
    book: &mut HoldBook,
    last: &mut BTreeMap<Key, (Step, u32)>,
    key: &Key,
    decision: Decision,
    wall: Timestamp,
) -> Decision {
    let Decision::Do(step, why) = decision else {
        return decision;
    };
    let repeated = last.get(key).is_some_and(|(done, moved)| *moved == 0 && done.without_time() == step.without_time());
    if !repeated {
        return Decision::Do(step, why);
    }
    last.remove(key);
    let message = format!("{} had no effect: {}", step.name(), why.text);
    let cause = Cause { kind: CauseKind::Failed, message: message.clone(), hint: None };
    book.refuse(key, step.name(), &cause, wall);
    let until = book.holds().get(key).map_or(wall, |hold| hold.until);
    Decision::Wait(vec![Blocker::Until { at: until, what: format!("{} again, after: {message}", step.name()) }])
}

/// Sets the alarm that a decision asks for.
fn note(
    alarms: &mut Alarms<Key>,
    last: &mut BTreeMap<Key, (Step, u32)>,
    key: &Key,
    decision: &Decision,
    now: Instant,
    wall: Timestamp,
) {
    match decision {
        Decision::Wait(blockers) => {
            let times = blockers.iter().filter_map(|blocker| match blocker {
                Blocker::Until { at, .. } => Some(*at),
                _ => None,
            });
            if let Some(at) = times.min() {
                alarms.set(key.clone(), now + at.since(wall), "its time has come");
                last.remove(key);
            }
        }
        Decision::Settled => {
            alarms.clear(key);
            last.remove(key);
        }
        Decision::Do(..) => {}
    }
}
