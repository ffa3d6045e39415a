//! Holds: when a refused step may be tried again. The one place that uses the `backoff` crate.
//!
//! Per object: exponential from 200 ms to 60 s with full jitter, saturating; forgotten after a step that worked, and at
//! once when the desired object changes. Losing all of it changes when something is done, never what.

use crate::model::{Cause, Decision, Hold, Key, Timestamp, slot_hash};
use crate::plan::Holds;
use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;
use std::collections::BTreeMap;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(60);

/// An exponential series without an end and without randomness of its own: jitter is added by [`jittered`], so that a
/// seed replays.
pub fn series(first: Duration, cap: Duration) -> ExponentialBackoff {
    ExponentialBackoff {
        current_interval: first,
        initial_interval: first,
        randomization_factor: 0.0,
        multiplier: 2.0,
        max_interval: cap,
        max_elapsed_time: None,
        ..ExponentialBackoff::default()
    }
}

/// The next delay of a series, spread over the half below it: a crowd that failed together does not come back together.
pub fn jittered(series: &mut ExponentialBackoff, spread: u64) -> Duration {
    let full = series.next_backoff().unwrap_or(series.max_interval);
    full.mul_f64(0.5 + 0.5 * (spread % 1024) as f64 / 1024.0)
}

/// The holds with what is needed to lengthen them.
#[derive(Default)]
pub(super) struct HoldBook {
    holds: Holds,
    series: BTreeMap<Key, ExponentialBackoff>,
}

impl HoldBook {
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// A step was refused, or had no effect.
    pub fn refuse(&mut self, key: &Key, step: &str, cause: &Cause, now: Timestamp) {
        let same = self.holds.get(key).filter(|hold| hold.step == step);
        let (failures, since) = same.map_or((1, now), |hold| (hold.failures.saturating_add(1), hold.since));
        if failures == 1 {
            self.series.remove(key);
        }
        let series = self.series.entry(key.clone()).or_insert_with(|| series(FIRST, CAP));
        let delay = jittered(series, slot_hash(&format!("{key}\0{failures}\0{}", now.0)));
        let hold = Hold {
            step: step.to_owned(),
            failures,
            error: cause.message.clone(),
            hint: cause.hint.clone(),
            since,
            until: now.after(delay),
        };
        self.holds.insert(key.clone(), hold);
    }

    /// A hold whose time has come is over when something else is decided than to try again. (That the step was done is
    /// not enough: it may have had no effect.)
    pub fn over(&mut self, key: &Key, decision: &Decision, now: Timestamp) {
        let over = self.holds.get(key).is_some_and(|hold| match decision {
            Decision::Do(step, _) => hold.step != step.name(),
            Decision::Wait(_) | Decision::Settled => hold.until <= now,
        });
        if over {
            self.forget(key);
        }
    }

    /// The trouble is over, or the object is wanted otherwise.
    pub fn forget(&mut self, key: &Key) {
        self.holds.remove(key);
        self.series.remove(key);
    }

    /// A clock that went back would stretch the holds: none is longer than the cap from now.
    pub fn clamp(&mut self, now: Timestamp) {
        for hold in self.holds.values_mut() {
            hold.until = hold.until.min(now.after(CAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CauseKind, Step, Why};

    #[test]
    fn delays_grow_stay_under_the_cap_and_start_again_after_success() {
        let cause = Cause { kind: CauseKind::Failed, message: "no".to_owned(), hint: None };
        let (key, now) = (Key::Publication, Timestamp(1_000_000));
        let mut book = HoldBook::default();
        for failures in 1..2000u32 {
            book.refuse(&key, "apply-ruleset", &cause, now);
            let hold = &book.holds()[&key];
            let delay = hold.until.since(now);
            assert_eq!(hold.failures, failures);
            assert!(delay >= Duration::from_millis(100) && delay <= CAP, "{failures}: {delay:?}");
            assert!(failures < 12 || delay >= CAP / 2, "{failures}: {delay:?}");
        }
        let again = Decision::Do(Box::new(Step::ApplyRuleset { ruleset: None }), Why::because("test"));
        book.over(&key, &again, now.after(CAP));
        book.over(&key, &Decision::Settled, now);
        assert!(book.holds().contains_key(&key));
        book.over(&key, &Decision::Settled, now.after(CAP));
        assert!(book.holds().is_empty());
        book.refuse(&key, "apply-ruleset", &cause, now);
        assert!(book.holds()[&key].until.since(now) <= FIRST);
    }
}
