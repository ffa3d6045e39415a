//! `stead wait`: until apps are as their files say, or gone.

use super::Paths;
use super::explain::concerns;
use super::poll::until;
use super::say::Failure;
use crate::desired::{Request, check, content_digest, record, recorded};
use crate::model::{AppName, AppStatus, Status, WaitingStatus};
use clap::{Args, ValueEnum};
use std::process::ExitCode;
use std::time::Duration;

/// The flags of `wait`.
#[derive(Debug, Args)]
pub struct Flags {
    /// The apps.
    #[arg(required = true)]
    apps: Vec<AppName>,
    /// What for.
    #[arg(long = "for", value_enum, default_value = "settled")]
    condition: Condition,
    /// How long.
    #[arg(long, value_parser = duration, default_value = "60s")]
    timeout: Duration,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Condition {
    /// Everything of it is as its file says.
    Settled,
    /// Settled, and every running instance is healthy.
    Healthy,
    /// Nothing of it is left.
    Gone,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags) -> Result<ExitCode, Failure> {
    match flags.condition {
        Condition::Settled | Condition::Healthy => settled(paths, &flags.apps, flags.timeout),
        Condition::Gone => all(paths, &flags.apps, flags.timeout, gone),
    }
}

/// Waits until apps are settled in the generation of their present files.
pub fn settled(paths: &Paths, apps: &[AppName], timeout: Duration) -> Result<ExitCode, Failure> {
    all(paths, apps, timeout, is_settled)
}

fn all(
    paths: &Paths,
    apps: &[AppName],
    timeout: Duration,
    condition: fn(&Paths, &Status, &AppName) -> Result<(), String>,
) -> Result<ExitCode, Failure> {
    let mut reason = String::new();
    let met = until(Some(timeout), || {
        let failing = apps.iter().find_map(|app| match paths.status() {
            None => Some("no agent has run here yet".to_owned()),
            Some(status) if !status.agent.running => Some("no agent runs".to_owned()),
            Some(status) => condition(paths, &status, app).err(),
        });
        match failing {
            Some(why) => {
                reason = why;
                None
            }
            None => Some(()),
        }
    })?;
    match met {
        Some(()) => Ok(ExitCode::SUCCESS),
        None => Err(Failure::new(format!("not within {} s: {reason}", timeout.as_secs_f64()))),
    }
}

fn is_settled(paths: &Paths, status: &Status, app: &AppName) -> Result<(), String> {
    let found = status.apps.iter().find(|one| one.app == app.as_str());
    if let Some(error) = found.and_then(|found| found.errors.first()) {
        return Err(format!("{}:{}:{}: {}", error.file, error.line, error.column, error.message));
    }
    if let Some(found) = found.filter(|found| !found.settled) {
        return Err(why_unsettled(status, found));
    }
    let generation = taken(paths, app)?;
    match found {
        Some(found) if found.generation < generation => Err(format!("{app}: the agent has not planned it yet")),
        Some(_) => Ok(()),
        None => Err(format!("{app}: the agent does not know of it yet")),
    }
}

/// The generation in which the agent took an app's present files.
fn taken(paths: &Paths, app: &AppName) -> Result<u64, String> {
    let dir = paths.desired_state();
    let files = record::files_of(&dir, app).ok_or_else(|| format!("there is no app {app} in {}", dir.display()))?;
    let env = paths.env().map_err(|failure| failure.to_string())?;
    let checked = check(&Request { files, default_name: app.to_string(), env, ..Request::default() });
    let now = content_digest(&checked).ok_or_else(|| format!("the file of {app} has faults; see stead validate"))?;
    let recorded = recorded(&paths.root, app).filter(|(_, digest)| *digest == now);
    recorded.map(|(generation, _)| generation).ok_or_else(|| format!("{app}: the agent has not taken its file yet"))
}

/// The first few reasons: instances that do not run, then what they may wait for.
fn why_unsettled(status: &Status, app: &AppStatus) -> String {
    let reason = |waiting: &[WaitingStatus], error: &Option<String>| match (error, waiting.first()) {
        (Some(error), _) => format!(", {error}"),
        (None, Some(waiting)) => format!(", waits for {}", waiting.on),
        (None, None) => String::new(),
    };
    let rows = app.services.iter().flat_map(|service| &service.instances).filter(|row| row.state != "running");
    let rows = rows.map(|row| format!("{} is {}{}", row.instance, row.state, reason(&row.waiting, &row.last_error)));
    let objects = status.unsettled.iter().filter(|object| concerns(object, app));
    let objects = objects
        .map(|object| format!("{} is not settled{}", object.object, reason(&object.waiting, &object.last_error)));
    let told: Vec<String> = rows.chain(objects).take(3).collect();
    if told.is_empty() { format!("{} is not settled", app.app) } else { told.join("; ") }
}

fn gone(paths: &Paths, status: &Status, app: &AppName) -> Result<(), String> {
    if let Some(found) = status.apps.iter().find(|one| one.app == app.as_str()) {
        return match found.file.as_str() {
            "" => Err(why_unsettled(status, found)),
            file => Err(format!("{app} is wanted by {file}")),
        };
    }
    match record::files_of(&paths.desired_state(), app).and_then(|files| files.into_iter().next()) {
        Some(file) => Err(format!("{app} is wanted by {}", file.display())),
        None if recorded(&paths.root, app).is_some() => {
            Err(format!("the agent has not taken the removal of {app} yet"))
        }
        None => Ok(()),
    }
}

/// A time span as flags take it: `90s`, `1m30s`, `500ms`, `2h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no time span; write it as 90s, 1m30s, 500ms or 2h");
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let factor = match &rest[digits..unit_end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(bad()),
        };
        total = total.saturating_add(Duration::from_millis(number.saturating_mul(factor)));
        rest = &rest[unit_end..];
    }
    if text.is_empty() { Err(bad()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_read_with_their_units_and_nothing_else_is() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "5", "s", "1x", "1.5s", "-1s", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
