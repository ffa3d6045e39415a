//! # drive: effects
//!
//! Looks at and changes containerd, links, netns, the nft table and files. Every choice has been made in `plan`; a
//! driver translates one [`Step`] into one outside effect, after comparing the identity it carries.
//!
//! Guarantees: a look is whole or [`Sight::Unseen`](crate::model::Sight); errors are classified here, once, by gRPC code
//! or errno; every call has a deadline. Never: a decision, a retry, a memory of what it did.
//!
//! Tests: `tests/node_*.rs` on real containerd and real netns; `tests/conformance.rs` against the simulated node.

use crate::model::{Domain, Key, Outcome, Scope, Sight, Sighting, Step};
use futures::Stream;
use std::future::Future;
use std::sync::atomic::AtomicU64;

pub mod containerd;
mod fault;
pub mod files;
pub mod image;
pub mod net;
pub mod node;
mod source;
mod thread;

pub use fault::Fault;

/// The node, as the loop sees it: three verbs.
pub trait Drive {
    /// Looks. Always answers what was asked for: a failed look is a blind sighting, not an error.
    fn look(&self, scope: Scope) -> impl Future<Output = Sighting>;

    /// Does one step, once.
    fn perform(&self, step: Step) -> impl Future<Output = Outcome>;

    /// What happens on the node, from now on and for ever. Losing any of it costs delay only.
    fn wakes(&self) -> impl Stream<Item = Wake> + use<Self>;
}

/// A reason to look again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// Where to look.
    pub scope: Scope,
    /// What rang, for the log.
    pub because: &'static str,
    /// The domain that went blind, with the reason: until a look succeeds, nothing in it is decided.
    pub lost: Option<(Domain, String)>,
}

impl Wake {
    /// Something happened to one object.
    pub fn object(key: Key, because: &'static str) -> Self {
        Self { scope: Scope::Object(key), because, lost: None }
    }

    /// Something happened in a domain.
    pub fn domain(domain: Domain, because: &'static str) -> Self {
        Self { scope: Scope::Domain(domain), because, lost: None }
    }

    /// A domain's stream broke: what was seen there no longer counts.
    pub fn lost(domain: Domain, why: impl Into<String>) -> Self {
        Self { scope: Scope::Domain(domain), because: "stream lost", lost: Some((domain, why.into())) }
    }
}

/// How often the outside was touched since the agent started: proof that a settled node sees no writes.
#[derive(Debug, Default)]
pub struct Counters {
    /// Calls to containerd that only read.
    pub containerd_reads: AtomicU64,
    /// Calls to containerd that change something.
    pub containerd_writes: AtomicU64,
    /// Netlink requests that change something, netns files, sysctls.
    pub net_writes: AtomicU64,
    /// nft transactions.
    pub nft_writes: AtomicU64,
    /// Files written or removed for instances and volumes.
    pub file_writes: AtomicU64,
}

/// An error and its sources as one sentence: `what: why: why`.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut sentence = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        sentence.push_str(": ");
        sentence.push_str(&cause.to_string());
        source = cause.source();
    }
    sentence
}

/// What a look brought back: all of it, or the sentence that says why nothing.
fn sight<T>(looked: Result<T, Fault>) -> Sight<T> {
    match looked {
        Ok(seen) => Sight::Seen(seen),
        Err(fault) => Sight::unseen(chain(&fault)),
    }
}

/// Writes a file by rename, so that a reader sees the old content or the new one. Without fsync: for what lives as long
/// as this boot.
pub fn write_atomic(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    std::fs::write(&temporary, bytes)?;
    std::fs::rename(&temporary, path)
}
