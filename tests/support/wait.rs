//! Waiting for a predicate with a deadline.

use std::time::{Duration, Instant};

/// Polls until `poll` gives a value, and panics with its last reason when that takes longer than `within`.
#[track_caller]
pub fn await_until<T>(what: &str, within: Duration, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + within;
    loop {
        let reason = match poll() {
            Ok(value) => return value,
            Err(reason) => reason,
        };
        assert!(Instant::now() < deadline, "waited {within:?} in vain for: {what}\nlast seen: {reason}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Polls for as long as `during`, and panics as soon as `check` gives a reason.
#[track_caller]
pub fn holds_for(what: &str, during: Duration, mut check: impl FnMut() -> Result<(), String>) {
    let end = Instant::now() + during;
    while Instant::now() < end {
        if let Err(reason) = check() {
            panic!("did not hold: {what}\nseen: {reason}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
