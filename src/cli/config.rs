//! `stead config`: what a Compose file says, in one form.

use super::say::{Failure, fail};
use crate::desired::{render, request_for};
use crate::model::Severity;
use clap::Args;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The flags of `config`.
#[derive(Debug, Args)]
pub struct Flags {
    /// The Compose file.
    file: PathBuf,
}

/// Runs it.
pub fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let (model, findings) = crate::desired::config(&request_for(&flags.file));
    for finding in findings.iter().filter(|finding| finding.severity != Severity::Note) {
        eprint!("{}", render(finding, std::io::stderr().is_terminal()));
    }
    let model = model.ok_or_else(|| Failure::new("the file has faults"))?;
    let text = serde_json::to_string_pretty(&model).map_err(|error| fail("cannot print the model", &error))?;
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// The agent's own values for substitution.
pub fn env_file(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    crate::desired::env_file(path).map_err(|finding| {
        eprint!("{}", render(&finding, false));
        Failure::new(format!("--env-file {} has faults", path.display()))
    })
}
