//! What can go wrong between us and containerd, classified once: by gRPC code, by whether the status came from the
//! transport, and by errno. Never by text.

use crate::model::{Cause, CauseKind, Outcome};
use std::error::Error;
use std::io;
use std::time::Duration;
use tonic::{Code, Status};

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection, or it broke.
    #[error("containerd cannot be reached for {what}")]
    Transport {
        /// The call.
        what: &'static str,
        /// Whether the request may have been received before it broke.
        sent: bool,
        /// What the transport says.
        source: Box<dyn Error + Send + Sync>,
    },
    /// No answer in time.
    #[error("containerd did not answer {what} within {} s", within.as_secs())]
    Deadline {
        /// The call.
        what: &'static str,
        /// How long we waited.
        within: Duration,
    },
    /// containerd answered with an error.
    #[error("{what}: {message}")]
    Answer {
        /// The call.
        what: &'static str,
        /// The class of it.
        code: Code,
        /// containerd's own words.
        message: String,
    },
    /// A file or a process of this node could not be read or made.
    #[error("{what}")]
    Local {
        /// What we were at.
        what: String,
        /// The errno.
        source: io::Error,
    },
    /// Something that is needed is not there.
    #[error("{what}")]
    Missing {
        /// What, in one sentence.
        what: String,
        /// What a person can do.
        hint: Option<String>,
    },
    /// The definition cannot work here.
    #[error("{what}")]
    Invalid {
        /// Why, in one sentence.
        what: String,
        /// What a person can do.
        hint: Option<String>,
    },
    /// Somebody else is at the same work.
    #[error("{what}")]
    Busy {
        /// At what, in one sentence.
        what: String,
    },
    /// The object is another one than it was.
    #[error("it is another one by now")]
    Moved,
}

impl CallError {
    /// Tells a status that the transport made up from one that containerd sent: only the first has a source.
    pub fn from_status(what: &'static str, status: Status) -> Self {
        if status.source().is_none() {
            return Self::Answer { what, code: status.code(), message: status.message().to_owned() };
        }
        let sent = !never_connected(&status);
        Self::Transport { what, sent, source: Box::new(status) }
    }

    /// A failure on this node's own files.
    pub fn local(what: impl Into<String>, source: io::Error) -> Self {
        Self::Local { what: what.into(), source }
    }

    /// Something needed is not there.
    pub fn missing(what: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), hint: None }
    }

    /// A definition that cannot work.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), hint: None }
    }

    /// Somebody else is at it.
    pub fn busy(what: impl Into<String>) -> Self {
        Self::Busy { what: what.into() }
    }

    /// The code that containerd answered with.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Answer { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// containerd says that it is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// containerd says that it is there already.
    pub fn already_exists(&self) -> bool {
        self.code() == Some(Code::AlreadyExists)
    }

    /// Whether the effect may have taken place though no answer came.
    pub fn is_unsure(&self) -> bool {
        matches!(self, Self::Transport { sent: true, .. } | Self::Deadline { .. })
    }

    /// The sentence with its chain of sources. Of the transport's chain only the end says something: each link of it
    /// repeats the ones below.
    pub fn chain(&self) -> String {
        match self {
            Self::Transport { source, .. } => {
                let mut end: &(dyn Error + 'static) = &**source;
                while let Some(below) = end.source() {
                    end = below;
                }
                format!("{self}: {end}")
            }
            _ => crate::drive::chain(self),
        }
    }

    /// The class that matters for retrying.
    pub fn kind(&self) -> CauseKind {
        match self {
            Self::Transport { .. } => CauseKind::Unavailable,
            Self::Deadline { .. } => CauseKind::Deadline,
            Self::Answer { code, .. } => match code {
                Code::NotFound => CauseKind::Missing,
                Code::ResourceExhausted => CauseKind::Exhausted,
                Code::InvalidArgument | Code::Unimplemented => CauseKind::Invalid,
                Code::DeadlineExceeded => CauseKind::Deadline,
                _ => CauseKind::Failed,
            },
            Self::Local { source, .. } => errno_kind(source),
            Self::Missing { .. } => CauseKind::Missing,
            Self::Invalid { .. } => CauseKind::Invalid,
            Self::Busy { .. } | Self::Moved => CauseKind::Failed,
        }
    }

    /// The cause for the loop.
    pub fn cause(&self) -> Cause {
        let hint = match self {
            Self::Missing { hint, .. } | Self::Invalid { hint, .. } => hint.clone(),
            _ => None,
        };
        Cause { kind: self.kind(), message: self.chain(), hint }
    }
}

impl From<CallError> for Outcome {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Moved => Outcome::Moved,
            error if error.is_unsure() => Outcome::Unsure(error.cause()),
            error => Outcome::Refused(error.cause()),
        }
    }
}

fn errno_kind(error: &io::Error) -> CauseKind {
    use io::ErrorKind::{
        FileTooLarge, NotADirectory, NotFound, OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    match error.kind() {
        StorageFull | QuotaExceeded | OutOfMemory | FileTooLarge => CauseKind::Exhausted,
        NotFound => CauseKind::Missing,
        NotADirectory | ReadOnlyFilesystem => CauseKind::Invalid,
        _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => CauseKind::Exhausted,
        _ => CauseKind::Failed,
    }
}

/// connect(2) alone gives these: nothing was sent.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return matches!(io.kind(), ConnectionRefused | NotFound | PermissionDenied)
                || io.raw_os_error() == Some(libc::ENOTSOCK);
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_not_the_transport_even_when_it_says_unavailable() {
        let locked = CallError::from_status("Content.Write", Status::unavailable("ref x locked"));
        assert_eq!(locked.kind(), CauseKind::Failed);
        assert!(matches!(Outcome::from(locked), Outcome::Refused(_)));
    }

    #[test]
    fn a_refused_connection_is_not_unsure_and_a_broken_one_is() {
        for (kind, sent) in [(io::ErrorKind::ConnectionRefused, false), (io::ErrorKind::BrokenPipe, true)] {
            let status = Status::from_error(Box::new(io::Error::from(kind)));
            let error = CallError::from_status("Tasks.Create", status);
            assert_eq!((error.kind(), error.is_unsure()), (CauseKind::Unavailable, sent), "{kind:?}");
        }
    }

    #[test]
    fn a_broken_connection_is_told_in_one_sentence() {
        let status = Status::from_error(Box::new(io::Error::from_raw_os_error(libc::ECONNREFUSED)));
        let error = CallError::from_status("Version", status);
        assert_eq!(error.chain(), "containerd cannot be reached for Version: Connection refused (os error 111)");
    }
}
