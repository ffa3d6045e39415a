//! Waiting for something that no event tells to another process: asked again at a fixed distance, with a deadline.

use super::once;
use super::say::Failure;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often is asked: below what a person notices, and each question reads one small file.
const TICK: Duration = Duration::from_millis(50);

/// Asks until there is an answer, or the time is over. The last question comes after the time.
pub fn until<T>(within: Option<Duration>, mut answer: impl FnMut() -> Option<T>) -> Result<Option<T>, Failure> {
    once(async move {
        let deadline = within.map(|within| Instant::now() + within);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if let Some(answer) = answer() {
                return Some(answer);
            }
            if late {
                return None;
            }
        }
    })
}
