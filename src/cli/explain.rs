//! `stead explain`: why an instance is as it is.

use super::Paths;
use super::report::WallClock;
use super::say::{Failure, Out};
use super::table::{Colour, fault, not_running, state_colour};
use crate::model::{AppStatus, InstanceStatus, ObjectStatus, Status, TimelineStatus, Timelines, WaitingStatus};
use crate::reconcile::Clock as _;
use clap::Args;
use std::process::ExitCode;

/// The flags of `explain`.
#[derive(Debug, Args)]
pub struct Flags {
    /// APP, APP/SERVICE or APP/SERVICE/REPLICA.
    target: String,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let status = paths.read_status()?;
    let below = format!("{}/", flags.target);
    let fits = |row: &&InstanceStatus| row.instance == flags.target || row.instance.starts_with(&below);
    let services = status.apps.iter().flat_map(|app| &app.services);
    let rows: Vec<&InstanceStatus> = services.flat_map(|service| &service.instances).filter(fits).collect();
    let name = flags.target.split('/').next().unwrap_or_default();
    let app = status.apps.iter().find(|app| app.app == name).filter(|app| app.app == flags.target || !rows.is_empty());
    let app = app.ok_or_else(|| {
        Failure::new(format!("nothing named {} is wanted or there", flags.target))
            .hint("stead status lists what there is")
    })?;
    if !status.agent.running {
        out.beside(format!("warning: {}", not_running(&status, WallClock.now())))?;
    }
    file(app, out)?;
    let timelines = paths.timelines();
    for row in rows {
        instance(row, &timelines, out)?;
    }
    beside(&status, app, &timelines, out)?;
    Ok(ExitCode::SUCCESS)
}

/// Who asks for the app, and what is wrong with that.
fn file(app: &AppStatus, out: &mut Out) -> Result<(), Failure> {
    if app.file.is_empty() {
        out.line(format!("{}: no file asks for it any more; it is being removed", app.app))?;
    }
    for error in &app.errors {
        let text = fault(error, out.colour());
        out.text(text)?;
    }
    if !app.errors.is_empty() && !app.services.is_empty() {
        out.line(format!("{} goes on with the last good content of {}", app.app, app.file))?;
    }
    Ok(())
}

fn line(out: &mut Out, name: &str, text: &str) -> Result<(), Failure> {
    out.line(format!("  {name:<12} {text}"))
}

fn instance(row: &InstanceStatus, timelines: &Timelines, out: &mut Out) -> Result<(), Failure> {
    let state = out.paint(&row.state, state_colour(&row.state));
    out.line(format!("{}  {state}", row.instance))?;
    if let Some(place) = &row.asked_by {
        line(out, "asked by", place)?;
    }
    let digest = row.image_digest.as_deref().map(|digest| format!(" ({digest})")).unwrap_or_default();
    line(out, "image", &format!("{}{digest}", row.image))?;
    if let Some(container) = &row.container_id {
        line(out, "container", container)?;
    }
    if let (Some(pid), Some(started)) = (row.pid, &row.started_at) {
        line(out, "process", &format!("pid {pid} since {started}"))?;
    }
    line(out, "restarts", &row.restarts.to_string())?;
    match (row.exit_code, &row.exit) {
        (Some(code), _) => line(out, "last exit", &describe_exit(code))?,
        (None, Some(exit)) => line(out, "last exit", exit)?,
        (None, None) => {}
    }
    for address in &row.addresses {
        line(out, "address", &format!("{} in {} ({})", address.ip, address.network, address.mac))?;
    }
    for port in &row.ports {
        line(out, "port", &format!("{}:{} -> {}/{}", port.host_ip, port.host, port.container, port.protocol))?;
    }
    for clamped in &row.clamped {
        line(out, "clamped", clamped)?;
    }
    trouble(out, &row.waiting, row.last_error.as_deref(), row.hint.as_deref())?;
    steps(timelines.objects.get(&row.instance).map(Vec::as_slice).unwrap_or_default(), out)
}

fn trouble(out: &mut Out, waiting: &[WaitingStatus], error: Option<&str>, hint: Option<&str>) -> Result<(), Failure> {
    for waiting in waiting {
        let next = waiting.next_attempt.as_deref().map(|at| format!(", next attempt {at}")).unwrap_or_default();
        line(out, "waits for", &format!("{} (since {}{next})", waiting.on, waiting.since))?;
    }
    if let Some(error) = error {
        line(out, "error", error)?;
    }
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        line(out, "way out", hint)?;
    }
    Ok(())
}

fn steps(steps: &[TimelineStatus], out: &mut Out) -> Result<(), Failure> {
    if !steps.is_empty() {
        out.line("  last steps")?;
    }
    for step in steps {
        let error = step.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        let outcome = if step.outcome == "done" { String::new() } else { format!(" {}", step.outcome) };
        let why = out.paint(&step.why, Colour::Grey);
        out.line(format!("    {}  {:<16} {:>5} ms{outcome}  {why}{error}", step.at, step.step, step.took_ms))?;
    }
    Ok(())
}

/// What the app's instances may wait for: its networks and volumes, its images, and what all apps share.
fn beside(status: &Status, app: &AppStatus, timelines: &Timelines, out: &mut Out) -> Result<(), Failure> {
    for object in status.unsettled.iter().filter(|object| concerns(object, app)) {
        let mark = out.paint("not settled", Colour::Yellow);
        out.line(format!("{}  {mark}", object.object))?;
        trouble(out, &object.waiting, object.last_error.as_deref(), object.hint.as_deref())?;
        steps(timelines.objects.get(&object.object).map(Vec::as_slice).unwrap_or_default(), out)?;
    }
    Ok(())
}

/// Whether an object is one of an app's, or one that every app needs.
pub fn concerns(object: &ObjectStatus, app: &AppStatus) -> bool {
    let mut rows = app.services.iter().flat_map(|service| &service.instances);
    match object.object.split_once(' ') {
        Some(("image", reference)) => rows.any(|row| row.image == reference),
        Some(("network" | "volume", name)) => name.split('/').next() == Some(app.app.as_str()),
        _ => object.object == "ports",
    }
}

/// A code with the signal that it stands for.
fn describe_exit(code: u32) -> String {
    let signal = code.checked_sub(128).and_then(|n| i32::try_from(n).ok());
    match signal.and_then(|n| nix::sys::signal::Signal::try_from(n).ok()) {
        Some(signal) => format!("code {code} ({signal})"),
        None => format!("code {code}"),
    }
}
