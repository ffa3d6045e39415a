//! # desired
