//! `Sight`: not seen is not absent.

use serde::{Deserialize, Serialize};

/// What a look brought back: the whole of it, or nothing with the reason.
///
/// There is no third state: a partial list is `Unseen`. Whoever wants to destroy or rebuild has to have `Seen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight<T> {
    /// The whole list or object, complete at the time of the look.
    Seen(T),
    /// Could not be looked at; assume nothing.
    Unseen(Blind),
}

/// Why something could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blind {
    /// One sentence for a person.
    pub why: String,
}

impl<T> Sight<T> {
    /// A blind sight with its reason.
    pub fn unseen(why: impl Into<String>) -> Self {
        Self::Unseen(Blind { why: why.into() })
    }

    /// The content, if seen.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen(content) => Some(content),
            Self::Unseen(_) => None,
        }
    }

    /// The content for a change in place, if seen.
    pub fn seen_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Seen(content) => Some(content),
            Self::Unseen(_) => None,
        }
    }

    /// Whether the look succeeded.
    pub fn is_seen(&self) -> bool {
        matches!(self, Self::Seen(_))
    }

    /// The same sight of a part of the content.
    pub fn map<U>(self, part: impl FnOnce(T) -> U) -> Sight<U> {
        match self {
            Self::Seen(content) => Sight::Seen(part(content)),
            Self::Unseen(blind) => Sight::Unseen(blind),
        }
    }

    /// A sight of a reference to the content.
    pub fn as_ref(&self) -> Sight<&T> {
        match self {
            Self::Seen(content) => Sight::Seen(content),
            Self::Unseen(blind) => Sight::Unseen(blind.clone()),
        }
    }
}
