//! `stead status`: the agent's document, as a table or as it is.

use super::Paths;
use super::agent::WallClock;
use super::paths::alive;
use super::say::{Failure, fail};
use super::table;
use crate::model::Status;
use crate::reconcile::Clock as _;
use clap::{Args, ValueEnum};
use std::process::ExitCode;
use std::time::Duration;

/// The flags of `status`.
#[derive(Debug, Args)]
pub struct Flags {
    /// APP or APP/SERVICE.
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
pub fn run(paths: &Paths, flags: &Flags, colour: bool) -> Result<ExitCode, Failure> {
    let mut shown = None;
    loop {
        let status = paths.status().ok_or_else(|| {
            Failure::new(format!("there is no status in {}", paths.run.display())).hint("start the agent: stead agent")
        })?;
        let runs = alive(&status);
        if shown.as_ref() != Some(&(status.clone(), runs)) {
            show(&status, runs, flags, colour)?;
            shown = Some((status, runs));
        }
        if !flags.watch {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn show(status: &Status, runs: bool, flags: &Flags, colour: bool) -> Result<(), Failure> {
    let mut status = status.clone();
    if let Some(target) = &flags.target {
        narrow(&mut status, target)?;
    }
    if !runs {
        eprintln!("warning: the agent is not running; this is what it knew at {}", status.agent.written_at);
    }
    if flags.output == Output::Json {
        let text = serde_json::to_string_pretty(&status).map_err(|error| fail("cannot print the status", &error))?;
        println!("{text}");
        return Ok(());
    }
    if flags.watch && colour {
        print!("\x1b[H\x1b[2J");
    }
    print!("{}", table::render(&status, WallClock.now(), colour));
    Ok(())
}

fn narrow(status: &mut Status, target: &str) -> Result<(), Failure> {
    let (app, service) = target.split_once('/').map_or((target, None), |(app, service)| (app, Some(service)));
    status.apps.retain(|one| one.app == app);
    for one in &mut status.apps {
        one.services.retain(|one| service.is_none_or(|service| one.service == service));
    }
    if status.apps.is_empty() {
        return Err(Failure::new(format!("there is no app {app}")).hint("stead status lists what there is"));
    }
    Ok(())
}
