//! What the planner answers for one object, and the holds it is told of.

use super::name::Key;
use super::step::Step;
use super::time::Timestamp;
use serde::Serialize;
use std::fmt;

/// The planner's answer for one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Do this, for this reason.
    Do(Box<Step>, Why),
    /// Nothing can be done now; each blocker says what for.
    Wait(Vec<Blocker>),
    /// What is seen is what is wanted.
    Settled,
}

/// The reason of a step, for logs, `plan` and `explain`. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// One clause: "no bridge for network shop/default".
    pub text: String,
    /// The fields that differ, when that is the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl Why {
    /// A reason without field changes.
    pub fn because(text: impl Into<String>) -> Self {
        Self { text: text.into(), changes: Vec::new() }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A field of a spec that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The field as Compose names it.
    pub field: String,
    /// What it was.
    pub old: String,
    /// What it is to be.
    pub new: String,
    /// What the change costs.
    pub class: Class,
}

/// What a change of a field costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing: changed under the running process.
    InPlace,
    /// A new container.
    Recreate,
}

/// What an object waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocker {
    /// containerd cannot be looked at.
    RuntimeUnavailable {
        /// Why.
        why: String,
    },
    /// Another domain cannot be looked at.
    Blind {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// Another object has to settle, or to go, first.
    On {
        /// Which.
        key: Key,
        /// What is expected of it.
        what: String,
    },
    /// A time has to come.
    Until {
        /// When.
        at: Timestamp,
        /// What happens then.
        what: String,
    },
    /// Only a person, or a change outside, can help.
    Stuck {
        /// What is wrong.
        what: String,
        /// The way out.
        hint: String,
    },
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RuntimeUnavailable { why } => write!(f, "containerd is unavailable: {why}"),
            Self::Blind { what, why } => write!(f, "{what} cannot be looked at: {why}"),
            Self::On { key, what } => write!(f, "{key}: {what}"),
            Self::Until { at, what } => write!(f, "{what} at {}", at.rfc3339()),
            Self::Stuck { what, .. } => f.write_str(what),
        }
    }
}

/// A refused step that is not tried again before a time. Dropping a hold changes when, never what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// The step's name.
    pub step: String,
    /// How often it failed in a row.
    pub failures: u32,
    /// The last error.
    pub error: String,
    /// What a person can do.
    pub hint: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// The next attempt.
    pub until: Timestamp,
}
