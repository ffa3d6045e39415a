//! # stead: a declarative node agent
//!
//! ```text
//!  desired-state/*.yaml ─▶ desired ─▶ Desired ─┐
//!  (the CLI only writes files here)            ├─▶ plan (pure) ─▶ one Step per object ─▶ drive ─▶ containerd, netlink, nft
//!                      Observed ◀─ look ───────┘                                          │
//!                          ▲──────────────────────────────────────────────────────────────┘
//! ```
//!
//! | room | what lives there |
//! |---|---|
//! | [`model`] | nouns: names, specs, what is desired and what is seen, steps and outcomes |
//! | [`desired`] | Compose files to [`model::Desired`], with a place for every complaint |
//! | [`plan`] | pure: two pictures in, one decision per object out |
//! | [`drive`] | effects: looking at and changing containerd, links, netns, nft, files |
//! | [`reconcile`] | the loop |
//! | [`cli`] | one file a subcommand |

pub mod cli;
pub mod desired;
pub mod drive;
pub mod model;
pub mod plan;
pub mod reconcile;
