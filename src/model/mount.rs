//! What is mounted into an instance, and how.

use super::name::VolumeName;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

fn is_false(value: &bool) -> bool {
    !value
}

/// Something mounted into an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where in the container, absolute and clean.
    pub target: String,
    /// What.
    pub source: MountSource,
    /// Whether writing is refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// How it is mounted, where that was written.
    #[serde(default, skip_serializing_if = "MountSettings::is_empty")]
    pub settings: MountSettings,
}

/// How something is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MountSettings {
    /// How mounts below it spread; not at all where not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Propagation>,
    /// Whether mounts below the source are shown, and as what; shown as they are where not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive: Option<Recursive>,
    /// A new volume stays empty, whatever the image has there.
    #[serde(skip_serializing_if = "is_false")]
    pub no_copy: bool,
    /// The part of the volume that is mounted, relative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
}

impl MountSettings {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How mounts below a mount spread between host and container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Propagation {
    /// Not at all, at this mount alone.
    Private,
    /// Both ways.
    Shared,
    /// Both ways, with all mounts below.
    Rshared,
    /// Into the container.
    Slave,
    /// Into the container, with all mounts below.
    Rslave,
}

impl Propagation {
    /// As the mount option is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Rshared => "rshared",
            Self::Slave => "slave",
            Self::Rslave => "rslave",
        }
    }
}

/// What becomes of mounts below a bind mount's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recursive {
    /// They are not shown.
    Disabled,
    /// They stay writable below a read-only mount.
    Writable,
    /// They are read-only as well, or it is refused.
    Readonly,
}

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountSource {
    /// A path of the host.
    Bind {
        /// Absolute.
        path: PathBuf,
        /// Whether a missing directory is made.
        create: bool,
    },
    /// A named volume of the app.
    Volume(VolumeName),
    /// Memory.
    Tmpfs {
        /// Mount options as written (`size=64m`, `mode=1777`).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<String>,
    },
}
