//! `stead completions`: a script for a shell.

use super::Cli;
use super::say::{Failure, Out};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use std::process::ExitCode;

/// The flags of `completions`.
#[derive(Debug, Args)]
pub struct Flags {
    /// The shell.
    shell: Shell,
}

/// Runs it.
pub fn run(flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "stead", &mut script);
    out.bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
