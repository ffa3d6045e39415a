//! `stead validate`: everything that is wrong with Compose files, with its place.

use super::Paths;
use super::say::{Failure, Out};
use crate::desired::{check, render};
use crate::model::{Finding, Severity};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// The flags of `validate`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Compose files, or directories of desired state.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Also say which keys are accepted without a meaning on a node.
    #[arg(short, long)]
    verbose: bool,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let mut findings: Vec<Finding> = Vec::new();
    for file in &flags.files {
        if file.is_dir() {
            let desired = super::plan::peek(paths, file)?;
            findings.extend(desired.findings.iter().cloned());
            findings.extend(desired.apps.values().flat_map(|app| app.findings.iter().cloned()));
        } else {
            findings.extend(check(&paths.request(file)?).findings);
        }
    }
    for finding in findings.iter().filter(|finding| finding.severity != Severity::Note || flags.verbose) {
        let text = render(finding, out.colour());
        out.text(text)?;
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    if errors == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(format!("{errors} fault{}", if errors == 1 { "" } else { "s" })))
}
