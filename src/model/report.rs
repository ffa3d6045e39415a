//! What people are told: findings in files, and status.

use super::spec::Place;
use serde::{Deserialize, Serialize};

/// Something wrong, or worth saying, at a place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// One sentence, no final stop.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Further places: the first use of a port, the chain of `extends` that led here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// The text of the line at the place, for the caret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_line: Option<String>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is taken, but the reader should know.
    Warning,
    /// Accepted without a meaning on a node; said by `validate -v` only.
    Note,
}

/// A further place of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Where.
    pub place: Place,
    /// What is there.
    pub message: String,
}
