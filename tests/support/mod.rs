//! # The lab: a node for each test
//!
//! [`Node`] is a machine of its own in namespaces (mounts, network, processes, cgroups, host name) with its own
//! containerd, a second host on its network ([`Enter::client`]), and [`Agent`] the built `stead` binary running on it.
//! [`inside`] runs a test's body itself inside a node, for tests that call driver code in-process.
//!
//! Guarantees: nothing of the host changes (its root is read-only in a node, and no namespace is shared but the user's);
//! when a node is dropped, or its test panics or is killed, everything in it is gone; tests can run side by side.
//! A failing test prints the ends of the logs. Never: a sleep instead of a predicate ([`await_until`]).
//!
//! It needs root and what `setup.sh` installs. Tests of the lab: `tests/node_lab.rs`.

#![allow(dead_code, reason = "each test binary uses its part of the lab")]
#![allow(unused_imports, reason = "each test binary uses its part of the lab")]
#![allow(clippy::disallowed_methods, reason = "tests run programs, and read real clocks and their own environment")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod agent;
mod containerd;
mod enter;
mod image;
mod inside;
mod node;
mod picture;
mod power;
pub mod scene;
mod wait;

pub use agent::Agent;
pub use containerd::{CONFIG, SOCKET, Version};
pub use enter::Enter;
pub use image::{BUSYBOX, busybox_archive, echo_server};
pub use inside::inside;
pub use node::{Daemon, Node, host_leftovers};
pub use picture::Picture;
pub use scene::Scene;
pub use wait::{await_until, holds_for};
