//! `stead explain`: why an instance is as it is.

use super::Paths;
use super::paths::alive;
use super::say::Failure;
use super::table::{paint, state_colour};
use crate::model::{InstanceStatus, Timelines};
use clap::Args;
use std::process::ExitCode;

/// The flags of `explain`.
#[derive(Debug, Args)]
pub struct Flags {
    /// APP, APP/SERVICE or APP/SERVICE/REPLICA.
    target: String,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, colour: bool) -> Result<ExitCode, Failure> {
    let status = paths.status().ok_or_else(|| {
        Failure::new(format!("there is no status in {}", paths.run.display())).hint("start the agent: stead agent")
    })?;
    if !alive(&status) {
        eprintln!("warning: the agent is not running; this is what it knew at {}", status.agent.written_at);
    }
    let fits =
        |row: &&InstanceStatus| row.instance == flags.target || row.instance.starts_with(&format!("{}/", flags.target));
    let services = status.apps.iter().flat_map(|app| &app.services);
    let rows: Vec<&InstanceStatus> = services.flat_map(|service| &service.instances).filter(fits).collect();
    if rows.is_empty() {
        return Err(Failure::new(format!("nothing named {} is wanted or there", flags.target))
            .hint("stead status lists what there is"));
    }
    let timelines = paths.timelines();
    for row in rows {
        instance(row, &timelines, colour);
    }
    Ok(ExitCode::SUCCESS)
}

fn instance(row: &InstanceStatus, timelines: &Timelines, colour: bool) {
    println!("{}  {}", row.instance, paint(&row.state, state_colour(&row.state), colour));
    let line = |name: &str, text: &str| println!("  {name:<12} {text}");
    if let Some(place) = &row.asked_by {
        line("asked by", place);
    }
    let digest = row.image_digest.as_deref().map(|digest| format!(" ({digest})")).unwrap_or_default();
    line("image", &format!("{}{digest}", row.image));
    if let Some(container) = &row.container_id {
        line("container", container);
    }
    if let (Some(pid), Some(since)) = (row.pid, &row.started_at) {
        line("process", &format!("pid {pid} since {since}"));
    }
    line("restarts", &row.restarts.to_string());
    match (row.exit_code, &row.exit) {
        (Some(code), _) => line("last exit", &describe_exit(code)),
        (None, Some(exit)) => line("last exit", exit),
        (None, None) => {}
    }
    for address in &row.addresses {
        line("address", &format!("{} in {} ({})", address.ip, address.network, address.mac));
    }
    for port in &row.ports {
        line("port", &format!("{}:{} -> {}/{}", port.host_ip, port.host, port.container, port.protocol));
    }
    for clamped in &row.clamped {
        line("clamped", clamped);
    }
    for waiting in &row.waiting {
        let next = waiting.next_attempt.as_deref().map(|at| format!(", next attempt {at}")).unwrap_or_default();
        line("waits for", &format!("{} (since {}{next})", waiting.on, waiting.since));
    }
    if let Some(error) = &row.last_error {
        line("error", error);
    }
    if let Some(hint) = row.hint.as_deref().filter(|hint| !hint.is_empty()) {
        line("way out", hint);
    }
    let steps = timelines.objects.get(&row.instance).map(Vec::as_slice).unwrap_or_default();
    if !steps.is_empty() {
        println!("  last steps");
    }
    for step in steps {
        let error = step.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        let outcome = if step.outcome == "done" { String::new() } else { format!(" {}", step.outcome) };
        println!("    {}  {:<16} {:>5} ms{outcome}  {}{error}", step.at, step.step, step.took_ms, step.why);
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
