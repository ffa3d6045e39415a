//! What can go wrong between us and the kernel, and its one classification.

use super::chain;
use crate::model::{Cause, CauseKind, Outcome};
use std::io;

/// Why a look or a step failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The kernel refused.
    #[error("{what}")]
    Os {
        /// What was tried.
        what: String,
        /// Its answer.
        source: io::Error,
    },
    /// No answer within the deadline.
    #[error("{what}: no answer in time")]
    Silent {
        /// What was tried.
        what: String,
    },
    /// An answer that cannot be read.
    #[error("{what}: {why}")]
    Garbled {
        /// What was read.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A program that is needed is not installed.
    #[error("{program} is not installed")]
    NoProgram {
        /// Its name.
        program: &'static str,
    },
    /// A program ended badly.
    #[error("{program}: {why}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said.
        why: String,
    },
    /// Refused by ourselves, for a reason that the step's decision could not know.
    #[error("{why}")]
    Refused {
        /// The reason.
        why: String,
        /// The way out.
        hint: &'static str,
    },
}

impl Fault {
    /// The cause as the planner and people get it.
    pub fn cause(&self) -> Cause {
        Cause { kind: self.kind(), message: chain(self), hint: self.hint().map(str::to_owned) }
    }

    /// How a step ended that failed with this.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Silent { .. } => Outcome::Unsure(self.cause()),
            _ => Outcome::Refused(self.cause()),
        }
    }

    /// The kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    fn kind(&self) -> CauseKind {
        match self {
            Self::Silent { .. } => CauseKind::Deadline,
            Self::NoProgram { .. } => CauseKind::Missing,
            Self::Garbled { .. } | Self::Program { .. } | Self::Refused { .. } => CauseKind::Failed,
            Self::Os { .. } => match self.errno() {
                Some(libc::ENOMEM | libc::ENOBUFS | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::EDQUOT) => {
                    CauseKind::Exhausted
                }
                Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => CauseKind::Missing,
                _ => CauseKind::Failed,
            },
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoProgram { program: "nft" } => Some("install the nftables package"),
            Self::Refused { hint, .. } => Some(hint),
            Self::Os { .. } => match self.errno() {
                Some(libc::EPERM | libc::EACCES) => Some("run the agent as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN"),
                Some(libc::EOPNOTSUPP) => Some("load the kernel modules bridge, veth and nf_tables"),
                Some(libc::EROFS) => Some("the agent needs this path to be writable"),
                Some(libc::ENOSPC | libc::EDQUOT) => Some("make room on that file system"),
                Some(libc::EMFILE | libc::ENFILE) => Some("raise the agent's limit of open files"),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Says what was tried when something from the system fails.
pub(crate) trait Said<T> {
    /// Turns the system's error into a [`Fault`].
    fn said(self, what: impl FnOnce() -> String) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> Said<T> for Result<T, E> {
    fn said(self, what: impl FnOnce() -> String) -> Result<T, Fault> {
        self.map_err(|error| Fault::Os { what: what(), source: error.into() })
    }
}
