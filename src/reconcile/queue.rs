//! What waits to be planned, to be looked at, and for its time: three small sets with one entry for each object.

use crate::model::{Key, Scope};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::time::Instant;

/// Objects to be planned, first come first served. Bounded by the number of objects: each is in it at most once.
#[derive(Default)]
pub(super) struct Dirty {
    order: VecDeque<Key>,
    because: BTreeMap<Key, &'static str>,
}

impl Dirty {
    pub fn mark(&mut self, key: Key, because: &'static str) {
        if !self.because.contains_key(&key) {
            self.because.insert(key.clone(), because);
            self.order.push_back(key);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Takes all of them out, in order.
    pub fn drain(&mut self) -> Vec<(Key, &'static str)> {
        let because = std::mem::take(&mut self.because);
        let reason = |key: Key| {
            let because = because.get(&key).copied().unwrap_or_default();
            (key, because)
        };
        self.order.drain(..).map(reason).collect()
    }
}

/// Times at which something is due; an earlier time for the same thing stays.
pub(super) struct Alarms<T> {
    due: BTreeMap<T, (Instant, &'static str)>,
}

impl<T> Default for Alarms<T> {
    fn default() -> Self {
        Self { due: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Alarms<T> {
    pub fn set(&mut self, what: T, at: Instant, because: &'static str) {
        let entry = self.due.entry(what).or_insert((at, because));
        if at < entry.0 {
            *entry = (at, because);
        }
    }

    pub fn clear(&mut self, what: &T) {
        self.due.remove(what);
    }

    pub fn next(&self) -> Option<Instant> {
        self.due.values().map(|(at, _)| *at).min()
    }

    /// Takes out what is due.
    pub fn ring(&mut self, now: Instant) -> Vec<(T, &'static str)> {
        let due: Vec<T> = self.due.iter().filter(|(_, (at, _))| *at <= now).map(|(what, _)| what.clone()).collect();
        due.into_iter().filter_map(|what| self.due.remove(&what).map(|(_, because)| (what, because))).collect()
    }
}

/// Whether a look at `narrow` is part of a look at `wide`.
pub(super) fn covers(wide: &Scope, narrow: &Scope) -> bool {
    match (wide, narrow) {
        (Scope::Object(wide), Scope::Object(key) | Scope::Part(key, _)) => wide == key,
        _ => wide == narrow,
    }
}

/// The object of a scope.
pub(super) fn object(scope: &Scope) -> Option<&Key> {
    match scope {
        Scope::Object(key) | Scope::Part(key, _) => Some(key),
        Scope::Domain(_) => None,
    }
}

/// Objects, for a set that is looked at often.
pub(super) type Keys = BTreeSet<Key>;
