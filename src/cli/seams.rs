//! Seams for tests of the built binary: die, or stop, right after the n-th step.

use crate::drive::{Drive, Wake};
use crate::model::{Outcome, Scope, Sighting, Step};
use futures::Stream;
use std::cell::Cell;
use std::sync::Arc;
use tokio::sync::Notify;

/// A drive that ends the agent after a number of steps.
pub struct Interrupted<D> {
    inner: D,
    die_after: Option<u64>,
    stop_after: Option<u64>,
    stop: Arc<Notify>,
    done: Cell<u64>,
}

impl<D> Interrupted<D> {
    /// Wraps a drive; `stop` is notified after `stop_after` steps.
    pub fn new(inner: D, die_after: Option<u64>, stop_after: Option<u64>, stop: Arc<Notify>) -> Self {
        Self { inner, die_after, stop_after, stop, done: Cell::new(0) }
    }
}

impl<D: Drive> Drive for Interrupted<D> {
    fn look(&self, scope: Scope) -> impl Future<Output = Sighting> {
        self.inner.look(scope)
    }

    async fn perform(&self, step: Step) -> Outcome {
        let outcome = self.inner.perform(step).await;
        self.done.set(self.done.get() + 1);
        if self.die_after == Some(self.done.get()) {
            // as the kernel would do it: nothing of ours runs any more
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
        if self.stop_after == Some(self.done.get()) {
            self.stop.notify_one();
        }
        outcome
    }

    fn wakes(&self) -> impl Stream<Item = Wake> + use<D> {
        self.inner.wakes()
    }
}
