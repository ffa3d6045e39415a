//! # desired: from Compose files to [`Desired`](crate::model::Desired)
//!
//! Text becomes a tree in which every key and value knows its place; the tree is substituted, brought into one form,
//! merged, and lowered into the model. The directory source gives whole pictures; [`record`] writes edits.
//!
//! Guarantees: a field is honoured or refused with its place and a way out; all findings of a file are told at once;
//! values come from files, never from this process's environment; bad input costs bounded time and memory.
//! Never: looks at the node, decides on what happens, drops a key in silence.
//!
//! Tests: `tests/desired_*.rs`, `tests/compose_*.rs`, and beside the code.

mod app;
mod complete;
mod directory;
mod dotenv;
mod dump;
mod durable;
mod edit;
mod extend;
mod finding;
mod interpolate;
mod load;
mod lower;
mod map;
mod node;
mod read;
pub mod record;
mod scalar;
mod shape;
mod substitute;
pub mod table;
mod units;
mod verify;
mod yaml;

pub use app::{Checked, check, config, env_file, request_for};
pub use directory::{Directory, MARKER, Options, content_digest, recorded};
pub use finding::render;
pub use load::Request;
pub use lower::{Claim, Claimed, Content, normalise_reference};
