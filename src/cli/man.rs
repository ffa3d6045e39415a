//! `stead man`: the manual pages, made from the flags themselves.

use super::Cli;
use super::say::{Failure, Out, fail};
use clap::{Args, CommandFactory as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The flags of `man`.
#[derive(Debug, Args)]
pub struct Flags {
    /// The subcommand whose page is printed [default: the page of stead itself].
    #[arg(conflicts_with = "dir")]
    command: Option<String>,
    /// Write every page into this directory, which has to be there.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Runs it.
pub fn run(flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let mut all = Cli::command();
    all.build();
    if let Some(dir) = &flags.dir {
        clap_mangen::generate_to(all, dir)
            .map_err(|error| fail(format!("cannot write manual pages into {}", dir.display()), &error))?;
        return Ok(ExitCode::SUCCESS);
    }
    let page = match &flags.command {
        None => all,
        Some(name) => all.find_subcommand(name).cloned().ok_or_else(|| {
            Failure::new(format!("there is no subcommand `{name}`")).hint("stead help lists them").code(super::USAGE)
        })?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(|error| fail("cannot make the page", &error))?;
    out.bytes(&text)?;
    Ok(ExitCode::SUCCESS)
}
