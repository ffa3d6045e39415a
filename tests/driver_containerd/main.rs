//! The containerd driver on real containerds, 1.6 and 1.7: each test has a node of its own, in which it starts, kills and
//! freezes containerd as it likes.

#![allow(clippy::disallowed_methods, reason = "tests run programs, and read real clocks")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../support/mod.rs"]
mod support;

mod exits;
mod images;
mod life;
mod process;
mod restarts;
mod rig;
mod strays;
mod wakes;
