//! `stead config`: what a Compose file says, in one form.

use super::Paths;
use super::say::{Failure, Out};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// The flags of `config`.
#[derive(Debug, Args)]
pub struct Flags {
    /// The Compose file.
    file: PathBuf,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let (model, findings) = crate::desired::config(&paths.request(&flags.file)?);
    out.findings(&findings)?;
    out.json(&model.ok_or_else(|| Failure::new("the file has faults"))?)?;
    Ok(ExitCode::SUCCESS)
}
