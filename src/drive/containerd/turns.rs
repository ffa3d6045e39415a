//! Whether shims answer. A hung one tells nobody, so the tasks that the witness watches are asked for in turns: each
//! within a minute, however many they are, and no crowd of them at once.
//!
//! Like an event, an answer that is not the expected one carries no fact: it rings, and the look finds out.

use super::Containerd;
use super::error::CallError;
use super::look::TASKS_AT_ONCE;
use crate::drive::Wake;
use crate::model::Key;
use containerd_client::types::v1::Status;
use futures::stream::{self, StreamExt};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two turns.
pub(super) const TURN_EVERY: Duration = Duration::from_secs(10);
/// Everybody is asked within so many turns.
const TURNS: usize = 6;
/// So many are asked in each turn, if there are that many: on a small node that is all of them.
const AT_LEAST: usize = 4;

type Task = (String, u32);

impl Containerd {
    /// Asks for the next tasks behind `last`, and says whom to look at.
    pub(super) async fn ask_shims(&self, last: &mut Option<Task>) -> Vec<Wake> {
        let tasks = turn(&self.witness().alive(), last.as_ref());
        *last = tasks.last().cloned();
        let asked = tasks.into_iter().map(|(id, pid)| async move {
            match self.get_task(&id).await {
                Ok(Some(process)) if process.pid == pid => {
                    let expected = matches!(process.status(), Status::Created | Status::Running);
                    (!expected).then_some(id)
                }
                // The end of the connection is heard of where the events come from.
                Err(CallError::Transport { .. }) => None,
                Ok(_) | Err(_) => Some(id),
            }
        });
        let odd: Vec<Option<String>> = stream::iter(asked).buffered(TASKS_AT_ONCE).collect().await;
        let owners = odd.into_iter().flatten().filter_map(|id| self.known().owner(&id));
        owners.map(|key| Wake::object(Key::Instance(key), "its task does not answer as it should")).collect()
    }
}

/// The tasks of one turn: those that follow the last one of the turn before, round and round.
fn turn(alive: &BTreeSet<Task>, last: Option<&Task>) -> Vec<Task> {
    let count = alive.len().div_ceil(TURNS).max(AT_LEAST).min(alive.len());
    let behind = alive.iter().filter(|task| last.is_none_or(|last| *task > last));
    let before = alive.iter().filter(|task| last.is_some_and(|last| *task <= last));
    behind.chain(before).take(count).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_within_the_round_whoever_comes_and_goes() {
        for count in 0..100_u32 {
            let mut alive: BTreeSet<Task> = (0..count).map(|pid| (format!("c{pid:03}"), pid)).collect();
            let (mut asked, mut last) = (BTreeSet::new(), None);
            for round in 0..TURNS {
                let tasks = turn(&alive, last.as_ref());
                assert!(tasks.len() <= AT_LEAST.max(17), "{count}: {} at once", tasks.len());
                last = tasks.last().cloned();
                asked.extend(tasks);
                alive.remove(&(format!("c{:03}", 50 + round), 50 + round as u32));
            }
            assert!(asked.is_superset(&alive), "{count}: {:?} left out", alive.difference(&asked));
        }
    }
}
