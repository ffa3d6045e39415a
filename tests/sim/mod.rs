//! # sim: a node to test the loop on, made of plain data and a seed
//!
//! | file | what |
//! |---|---|
//! | `rng` | choices, from a seed or from a tape that proptest shrinks |
//! | `world` | the node: containerd, network, files, and what they do by themselves |
//! | `audit` | the books of a run, and the promises that are judged at each request and effect |
//! | `wake` | what the node announces |
//! | `want` | desired states and edits |
//! | `damage` | a node in any state: residue, wrong things, foreign look-alikes |
//! | `walk` | the planner on the node without the loop, and the progress bound |
//! | `possible` | what cannot be had on this node, whoever tries |
//! | `judge` | what one decision on one picture may be |
//! | `matching` | what it means that the node is as desired, written apart from the planner |
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod agent;
pub mod audit;
pub mod damage;
pub mod judge;
pub mod matching;
pub mod possible;
pub mod rng;
pub mod seed;
pub mod show;
pub mod stage;
pub mod storm;
pub mod wake;
pub mod walk;
pub mod want;
pub mod world;
