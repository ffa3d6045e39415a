//! `stead status`: the agent's document, as a table or as it is.

use super::Paths;
use super::explain::concerns;
use super::poll::until;
use super::report::WallClock;
use super::say::{Failure, Out};
use super::table;
use crate::model::Status;
use crate::reconcile::Clock as _;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// The flags of `status`.
#[derive(Debug, Args)]
pub struct Flags {
    /// APP or APP/SERVICE [default: all].
    target: Option<String>,
    /// The form.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Show it again whenever it changes.
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Table,
    Json,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    if !flags.watch {
        show(&paths.read_status()?, flags, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = None;
    let mut again = || -> Result<(), Failure> {
        let status = paths.read_status()?;
        if shown.as_ref() != Some(&status) {
            if out.colour() {
                out.text("\x1b[H\x1b[2J")?; // to the corner, and nothing below it
            }
            show(&status, flags, out)?;
            out.flush()?;
            shown = Some(status);
        }
        Ok(())
    };
    match until(None, || again().err())? {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn show(status: &Status, flags: &Flags, out: &mut Out) -> Result<(), Failure> {
    let mut status = status.clone();
    if let Some(target) = &flags.target {
        narrow(&mut status, target)?;
    }
    if flags.output == Output::Json {
        return out.json(&status);
    }
    let text = table::render(&status, WallClock.now(), out.colour());
    out.text(text)
}

/// Leaves what was asked for.
fn narrow(status: &mut Status, target: &str) -> Result<(), Failure> {
    let (app, service) = target.split_once('/').map_or((target, None), |(app, service)| (app, Some(service)));
    status.apps.retain(|one| one.app == app);
    let Some(found) = status.apps.first_mut() else {
        return Err(Failure::new(format!("there is no app {app}")).hint("stead status lists what there is"));
    };
    if let Some(service) = service {
        found.services.retain(|one| one.service == service);
        if found.services.is_empty() {
            return Err(Failure::new(format!("the app {app} has no service {service}"))
                .hint(format!("stead status {app} lists what it has")));
        }
    }
    // what is wrong elsewhere is no part of the answer
    let found = found.clone();
    status.unsettled.retain(|object| concerns(object, &found));
    status.errors.clear();
    Ok(())
}
