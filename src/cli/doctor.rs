//! `stead doctor`: what this machine lacks, or what gets in the way, with the fix for each.

mod checks;
mod kernel;

use super::say::{Failure, Out};
use super::table::Colour;
use super::{Paths, once};
use clap::Args;
use std::process::ExitCode;

/// The flags of `doctor`.
#[derive(Debug, Args)]
pub struct Flags {}

/// One thing that was checked.
#[derive(Debug, PartialEq, Eq)]
struct Check {
    what: String,
    grade: Grade,
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Good,
    Warning,
    Blocking,
}

fn good(what: impl Into<String>) -> Check {
    Check { what: what.into(), grade: Grade::Good, fix: None }
}

fn warning(what: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { what: what.into(), grade: Grade::Warning, fix: Some(fix.into()) }
}

fn blocking(what: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { what: what.into(), grade: Grade::Blocking, fix: Some(fix.into()) }
}

/// Runs it.
pub fn run(paths: &Paths, _flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let mut all = vec![checks::root(), checks::runc()];
    all.extend(once(checks::containerd(paths))?);
    all.extend(once(checks::node(paths))?);
    all.extend(once(kernel::features(paths.marks.agent()))?);
    all.extend([kernel::exit_witness(), kernel::cgroups(), kernel::overlay(), kernel::forwarding()]);
    all.extend(once(checks::other_firewalls(paths))?);
    all.push(checks::directory(&paths.desired_state()));
    all.extend([&paths.root, &paths.logs].map(|dir| checks::room(dir)));
    for check in &all {
        let (mark, shade) = match check.grade {
            Grade::Good => ("ok     ", Colour::Green),
            Grade::Warning => ("warning", Colour::Yellow),
            Grade::Blocking => ("missing", Colour::Red),
        };
        let mark = out.paint(mark, shade);
        out.line(format!("{mark}  {}", check.what))?;
        if let Some(fix) = &check.fix {
            out.line(format!("         fix: {fix}"))?;
        }
    }
    let blocked = all.iter().any(|check| check.grade == Grade::Blocking);
    Ok(if blocked { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
