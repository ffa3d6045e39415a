//! # Every key of the Compose Specification, as data
//!
//! For each key at each level: what its value may be, whether a node honours it, and what a change of it costs.
//! Parsing, merging, printing and the documentation all read this one table.
//!
//! Guarantees: a key that is not here is unknown, one that is [`Stand::Refused`] says why and what to do instead.
//! Never: a key that is read and then dropped in silence.
//!
//! Tests: `tests/compose_table.rs` compares it with the schema.

mod docs;
mod parts;
mod resources;
mod runtime;
mod service;
mod top;

pub use docs::markdown;
pub(super) use parts::{ATTACHMENT, MOUNT, PORT};
pub(super) use resources::DEVICE_REQUEST;
pub(super) use runtime::{BUILD, DEPENDENCY, DEVICE, ENV_FILE, EXTENDS, EXTERNAL, GRANT, INCLUDE, MODEL_USE, ULIMIT};
pub use service::SERVICE;
pub use top::TOP;

/// The keys of one kind of mapping.
#[derive(Debug)]
pub struct Table {
    /// What the mapping is, for messages: "service", "healthcheck".
    pub what: &'static str,
    /// Its keys, in the order of their names.
    pub keys: &'static [Key],
    /// Whether `x-` keys are taken.
    pub extensions: bool,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value may be.
    pub shape: Shape,
    /// Whether a node honours it.
    pub stand: Stand,
    /// What a change of it costs.
    pub class: Class,
}

/// Whether a node honours a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// It has its effect.
    Honoured,
    /// It carries no meaning on a node, for this reason; said on demand.
    Meaningless(&'static str),
    /// Refused: why, and what to do instead.
    Refused(&'static str, &'static str),
}

/// What a change of a key costs a running instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing: it is not part of what runs.
    Nothing,
    /// Changed while it runs, with the same pid.
    InPlace,
    /// A new container.
    Recreate,
}

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Anything, kept as it is.
    Any,
    /// Text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Number,
    /// A size in bytes.
    Bytes,
    /// A duration.
    Duration,
    /// True, false, or text.
    BoolOrText,
    /// Text or nothing.
    TextOrNull,
    /// When an image is pulled.
    PullPolicy,
    /// A number, or `all`.
    Count,
    /// Permission bits, in octal however written.
    FileMode,
    /// A path, relative to the file's directory.
    Path,
    /// A path, or a list of them.
    Paths,
    /// A build context: a path or a remote place.
    Context,
    /// Further build contexts by name.
    Contexts,
    /// Keys for a build: a list, or a mapping.
    Ssh,
    /// A list of texts and numbers.
    Strings,
    /// A list of texts.
    Texts,
    /// A text, or a list of them.
    TextOrTexts,
    /// Names with values: a mapping, or a list of `NAME=value`.
    Dict,
    /// The same, where nothing stands for an empty value.
    Labels,
    /// The same, where a name without a value takes one from outside or vanishes.
    Args,
    /// Names with texts or numbers.
    Options,
    /// Host names with addresses.
    ExtraHosts,
    /// A command: words, or a line to split into words.
    Command,
    /// Published ports.
    Ports,
    /// Mounts of a service.
    Mounts,
    /// Networks that a service is in.
    Attachments,
    /// Services that this one waits for.
    DependsOn,
    /// Files with variables.
    EnvFiles,
    /// The service that this one is made from.
    Extends,
    /// Files that this one includes.
    Includes,
    /// Whether something is made by others.
    External,
    /// Configs (false) or secrets (true) of a service.
    Grants(bool),
    /// Device files.
    Devices,
    /// GPUs.
    Gpus,
    /// How an image is built.
    Build,
    /// What a healthcheck runs.
    Test,
    /// Limits by name.
    Ulimits,
    /// Models of a service.
    Models,
    /// A mapping with known keys.
    Table(&'static Table),
    /// The same; nothing stands for an empty one.
    TableOrNull(&'static Table),
    /// A list of mappings with known keys.
    Tables(&'static Table),
    /// A mapping of free names to mappings with known keys; whether a name alone is enough.
    Names(&'static Table, bool),
}

impl Shape {
    /// The keys of the mappings that a value of this shape is, or holds one level below, in its normal form.
    pub fn keys(self) -> Option<&'static Table> {
        Some(match self {
            Self::Table(table) | Self::TableOrNull(table) | Self::Tables(table) | Self::Names(table, _) => table,
            Self::Ports => &parts::PORT,
            Self::Mounts => &parts::MOUNT,
            Self::Attachments => &parts::ATTACHMENT,
            Self::DependsOn => &runtime::DEPENDENCY,
            Self::EnvFiles => &runtime::ENV_FILE,
            Self::Extends => &runtime::EXTENDS,
            Self::Includes => &runtime::INCLUDE,
            Self::External => &runtime::EXTERNAL,
            Self::Grants(_) => &runtime::GRANT,
            Self::Devices => &runtime::DEVICE,
            Self::Gpus => &resources::DEVICE_REQUEST,
            Self::Build => &runtime::BUILD,
            Self::Ulimits => &runtime::ULIMIT,
            Self::Models => &runtime::MODEL_USE,
            _ => return None,
        })
    }
}

impl Table {
    /// A key of this table by name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.binary_search_by(|key| key.name.cmp(name)).ok().map(|at| &self.keys[at])
    }
}

/// A key that has its effect.
const fn honoured(name: &'static str, shape: Shape, class: Class) -> Key {
    Key { name, shape, stand: Stand::Honoured, class }
}

/// A key without a meaning on a node.
const fn meaningless(name: &'static str, shape: Shape, why: &'static str) -> Key {
    Key { name, shape, stand: Stand::Meaningless(why), class: Class::Nothing }
}

/// A key that is refused.
const fn refused(name: &'static str, shape: Shape, why: &'static str, instead: &'static str) -> Key {
    Key { name, shape, stand: Stand::Refused(why, instead), class: Class::Nothing }
}
