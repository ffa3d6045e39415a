//! How a step went, as its driver answers.

use serde::Serialize;

/// How a step went. Nothing is concluded from it but when to look and try again: what *is* comes from the next look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The effect took place.
    Done,
    /// It had taken place before.
    Already,
    /// The object is another one than the step was decided on; nothing was done.
    Moved,
    /// It was refused; nothing was done, or as much as the next look will show.
    Refused(Cause),
    /// It was sent, and no answer came.
    Unsure(Cause),
}

impl Outcome {
    /// One word for the log.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Already => "already",
            Self::Moved => "moved",
            Self::Refused(_) => "refused",
            Self::Unsure(_) => "unsure",
        }
    }
}

/// Why a step was refused, classified once by its driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// What kind of trouble.
    pub kind: CauseKind,
    /// One sentence with the chain of sources.
    pub message: String,
    /// What a person can do, where one can.
    pub hint: Option<String>,
}

/// Kinds of trouble, as far as they make a difference to retrying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// The other side cannot be reached: its domain is blind until it can.
    Unavailable,
    /// No answer within the step's deadline.
    Deadline,
    /// Something that is needed is not there (an image, an archive, a bind source).
    Missing,
    /// No room on disk, no memory, no descriptors.
    Exhausted,
    /// The definition cannot work here.
    Invalid,
    /// Anything else.
    Failed,
}
