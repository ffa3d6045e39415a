//! Blocking work on a thread of its own: it may change its network namespace, and is never used again.

use super::fault::{Fault, Said as _};
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest that one look or step may take. Single answers have a shorter limit; this one is for their sum.
const WITHIN: Duration = Duration::from_secs(20);

/// Runs `work` on a fresh thread, which starts in the network and mount namespace of the caller's.
///
/// A dropped future does not stop the work: it runs to its end, as a step does.
pub(crate) async fn run<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let (tell, told) = oneshot::channel();
    let body = move || {
        // Nobody is left to tell when the future was dropped.
        let _ = tell.send(work());
    };
    std::thread::Builder::new().name("drive".into()).spawn(body).said(|| format!("{what}: start a thread"))?;
    match tokio::time::timeout(WITHIN, told).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Fault::Garbled { what: what.to_owned(), why: "its thread ended without a word".into() }),
        Err(_) => Err(Fault::Silent { what: what.to_owned() }),
    }
}
