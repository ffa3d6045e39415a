//! `stead rm`: removes an app's files.

use super::Paths;
use super::apply::locked;
use super::say::{Failure, Out, fail};
use crate::desired::record;
use crate::model::AppName;
use clap::Args;
use std::process::ExitCode;

/// The flags of `rm`.
#[derive(Debug, Args)]
pub struct Flags {
    /// The apps.
    #[arg(required = true)]
    apps: Vec<AppName>,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let dir = paths.desired_state();
    let held = if dir.is_dir() { Some(locked(&dir)?) } else { None };
    for app in &flags.apps {
        let files = record::remove(&dir, app).map_err(|refused| fail(format!("{app} was not removed"), &refused))?;
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        out.line(format!("{app}: removed {}; its volumes stay", names.join(", ")))?;
    }
    drop(held);
    Ok(ExitCode::SUCCESS)
}
