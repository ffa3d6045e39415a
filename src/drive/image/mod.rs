//! # image: archives in and out
