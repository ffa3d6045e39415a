//! Echoes: events of our own calls. The loop looks after each step anyway, so these wake nobody.
//!
//! Each call announces the one event that it causes; the first such event that comes is taken for it. If somebody else
//! did the same to the same thing at that moment, ours comes second and wakes. Nothing is lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// An event comes within ms of its call; after this it was lost with its stream.
const KEPT: Duration = Duration::from_secs(5);
/// Steps in flight are far fewer; beyond it, expired ones are swept out.
const SWEEP_ABOVE: usize = 256;

/// Until when an event is taken for ours, by its topic and subject, once for each announcement.
type Expected = HashMap<(&'static str, String), Vec<Instant>>;

/// The events that are expected.
#[derive(Debug, Default, Clone)]
pub struct Echoes {
    expected: Arc<Mutex<Expected>>,
}

/// An announced event.
#[derive(Debug)]
pub struct Echo {
    echoes: Echoes,
    topic: &'static str,
    id: String,
}

impl Echoes {
    /// Announces an event on a thing.
    pub fn expect(&self, topic: &'static str, id: &str) -> Echo {
        let now = Instant::now();
        let mut expected = self.lock();
        if expected.len() > SWEEP_ABOVE {
            expected.retain(|_, until| until.iter().any(|until| *until > now));
        }
        expected.entry((topic, id.to_owned())).or_default().push(now + KEPT);
        Echo { echoes: self.clone(), topic, id: id.to_owned() }
    }

    /// Whether an event is one that was announced; it is used up.
    pub fn is_ours(&self, topic: &str, id: &str) -> bool {
        let now = Instant::now();
        let mut expected = self.lock();
        let Some(key) = expected.keys().find(|(known, of)| *known == topic && of == id).cloned() else { return false };
        let Some(until) = expected.get_mut(&key) else { return false };
        until.retain(|until| *until > now);
        let found = !until.is_empty();
        if found {
            until.remove(0);
        }
        if until.is_empty() {
            expected.remove(&key);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(&'static str, String), Vec<Instant>>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Echo {
    /// The call was refused: there will be no event.
    pub fn cancel(self) {
        let mut expected = self.echoes.lock();
        let key = (self.topic, self.id);
        if let Some(until) = expected.get_mut(&key) {
            until.pop();
            if until.is_empty() {
                expected.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_event_is_taken_for_one_call_and_not_for_ever() {
        let echoes = Echoes::default();
        let _first = echoes.expect("/tasks/start", "a");
        assert!(!echoes.is_ours("/tasks/start", "b"));
        assert!(echoes.is_ours("/tasks/start", "a"));
        assert!(!echoes.is_ours("/tasks/start", "a"), "used up: somebody else's");
        echoes.expect("/tasks/start", "a").cancel();
        assert!(!echoes.is_ours("/tasks/start", "a"), "cancelled");
        let _late = echoes.expect("/tasks/start", "a");
        tokio::time::advance(KEPT).await;
        assert!(!echoes.is_ours("/tasks/start", "a"), "too late");
    }
}
