//! # model: the nouns
//!
//! Names, keys, specs, [`Desired`], [`Observed`], [`Sight`], [`Step`], [`Outcome`], [`Decision`]: the words in which the
//! other rooms talk to each other.
//!
//! It never does I/O, has no async and no clock, and uses nothing else of ours. Its tests are beside the code; the
//! properties of how the words are used are in `tests/plan_properties.rs` and `tests/simulate.rs`.

mod decision;
mod identity;
mod lifecycle;
mod mount;
mod name;
mod outcome;
mod platform;
mod report;
mod ruleset;
mod seen;
mod setup;
mod sight;
mod sighting;
mod spec;
mod status;
mod step;
mod time;

pub use decision::*;
pub use identity::*;
pub use lifecycle::*;
pub use mount::*;
pub use name::*;
pub use outcome::*;
pub use platform::*;
pub use report::*;
pub use ruleset::*;
pub use seen::*;
pub use setup::*;
pub use sight::*;
pub use sighting::*;
pub use spec::*;
pub use status::*;
pub use step::*;
pub use time::*;
