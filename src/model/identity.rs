//! What a destructive step was decided on: compared again at the moment of acting.

use super::time::Timestamp;
use serde::Serialize;

/// A container that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerIdentity {
    /// Its id.
    pub id: String,
    /// When its record was made.
    pub created_at: Timestamp,
}

/// A link that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkIdentity {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its alias.
    pub alias: Option<String>,
}

/// A netns that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetnsIdentity {
    /// Its name under `/run/netns`.
    pub name: String,
    /// Its inode; 0 when the file is no netns.
    pub inode: u64,
}
