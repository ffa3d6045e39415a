//! Sources of events: opened, listened to, and opened again when they break.

use super::Wake;
use crate::model::{Domain, Scope};
use futures::{Stream, stream};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a source that could not be opened, or broke, is left alone.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Where events say to look, each with what rang.
pub(crate) type Places = Vec<(Scope, &'static str)>;

/// A source of events.
pub(crate) trait Source: Sized + Send {
    /// What it is opened for, and reads by.
    type Of: Send + Sync;

    /// What a loss of events concerns.
    const DOMAIN: Domain;

    /// Begins to listen. Needs a tokio runtime.
    fn open(of: &Arc<Self::Of>) -> io::Result<Self>;

    /// The next events. An error ends this source.
    fn next(&mut self) -> impl Future<Output = io::Result<Places>> + Send;
}

/// Listens to a source, and opens it again when it breaks. It is open when this returns, so that a look that comes
/// after it misses nothing; where that fails, the whole domain rings once it is open.
pub(crate) fn listen<S: Source>(of: &Arc<S::Of>) -> impl Stream<Item = Wake> + use<S> {
    let state = (S::open(of).ok(), VecDeque::<Wake>::new(), Arc::clone(of));
    stream::unfold(state, |(mut source, mut waiting, of)| async move {
        loop {
            if let Some(wake) = waiting.pop_front() {
                return Some((wake, (source, waiting, of)));
            }
            let Some(open) = &mut source else {
                tokio::time::sleep(AGAIN_AFTER).await;
                source = S::open(&of).ok();
                waiting.extend(source.is_some().then(|| Wake::domain(S::DOMAIN, "listening again")));
                continue;
            };
            match open.next().await {
                Ok(places) => waiting.extend(once_each(places)),
                Err(error) => {
                    tracing::warn!(%error, domain = ?S::DOMAIN, "events are not heard for a moment");
                    source = None;
                }
            }
        }
    })
}

/// One wake for each place: a burst of events is one reason to look.
fn once_each(places: Places) -> impl Iterator<Item = Wake> {
    let unique: BTreeMap<Scope, &'static str> = places.into_iter().collect();
    unique.into_iter().map(|(scope, because)| Wake { scope, because, lost: None })
}
