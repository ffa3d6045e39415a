//! Status as a person reads it: one line an instance, what is wrong below.

use crate::model::{ErrorStatus, InstanceStatus, Status, Timestamp};
use std::fmt::Write as _;

/// ANSI colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Good.
    Green,
    /// On its way.
    Yellow,
    /// Bad.
    Red,
    /// Beside the point.
    Grey,
}

/// Text in a colour, where colours are wanted.
pub fn paint(text: &str, colour: Colour, wanted: bool) -> String {
    let code = match colour {
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Red => 31,
        Colour::Grey => 90,
    };
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// The colour of an instance's state.
pub fn state_colour(state: &str) -> Colour {
    match state {
        "running" | "completed" => Colour::Green,
        "pending" | "pulling" | "creating" | "starting" | "stopping" => Colour::Yellow,
        "exited" | "backoff" | "blocked" | "degraded" => Colour::Red,
        _ => Colour::Grey,
    }
}

const HEAD: [&str; 7] = ["INSTANCE", "STATE", "AGE", "RESTARTS", "PID", "ADDRESS", "PORTS"];
/// The longest name that a column shows whole.
const WIDEST: usize = 40;

/// The whole document.
pub fn render(status: &Status, now: Timestamp, colour: bool) -> String {
    let mut text = String::new();
    if !status.agent.running {
        let _ = writeln!(text, "{}", paint(&not_running(status, now), Colour::Red, colour));
    }
    head(&mut text, status, colour);
    let services = status.apps.iter().flat_map(|app| &app.services);
    let rows: Vec<&InstanceStatus> = services.flat_map(|service| &service.instances).collect();
    if !rows.is_empty() {
        table(&mut text, &rows, now, colour);
    }
    for row in &rows {
        note(&mut text, row, now, colour);
    }
    for error in status.apps.iter().flat_map(|app| &app.errors).chain(&status.errors) {
        text.push_str(&fault(error, colour));
    }
    for object in &status.unsettled {
        let why = object.last_error.clone().or_else(|| object.waiting.first().map(|waiting| waiting.on.clone()));
        let _ = writeln!(text, "{}: {}", paint(&object.object, Colour::Yellow, colour), why.unwrap_or_default());
        help(&mut text, object.hint.as_deref());
    }
    text
}

/// What a reader of an old document has to know.
pub fn not_running(status: &Status, now: Timestamp) -> String {
    let ago = parse_rfc3339(&status.agent.written_at).map(|at| format!(", as it was {} ago", age(at, now)));
    format!("the agent is not running; this is what it knew last{}", ago.unwrap_or_default())
}

fn head(text: &mut String, status: &Status, colour: bool) {
    let settled = if status.agent.settled { ("settled", Colour::Green) } else { ("not settled", Colour::Yellow) };
    let runtime = match status.agent.runtime.as_str() {
        "connected" => String::new(),
        other => format!(", containerd {}", paint(other, Colour::Red, colour)),
    };
    let services = || status.apps.iter().flat_map(|app| &app.services);
    let (wanted, running): (u32, u32) =
        (services().map(|service| service.desired).sum(), services().map(|service| service.running).sum());
    let agent = &status.agent;
    let settled = paint(settled.0, settled.1, colour);
    let _ = writeln!(
        text,
        "{} generation {}, {settled}, {running}/{wanted} running{runtime}",
        agent.name, agent.generation
    );
}

fn table(text: &mut String, rows: &[&InstanceStatus], now: Timestamp, colour: bool) {
    let cells: Vec<[String; 7]> = rows.iter().map(|row| cells(row, now)).collect();
    let mut widths = HEAD.map(str::len);
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = HEAD.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    let _ = writeln!(text, "{}", paint(head.join("  ").trim_end(), Colour::Grey, colour));
    for row in &cells {
        let mut line = Vec::new();
        for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
            let padded = format!("{cell:<width$}");
            line.push(if index == 1 { paint(&padded, state_colour(cell), colour) } else { padded });
        }
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
}

fn cells(row: &InstanceStatus, now: Timestamp) -> [String; 7] {
    let dash = || "-".to_owned();
    let age = row.started_at.as_deref().filter(|_| row.pid.is_some()).and_then(parse_rfc3339).map(|at| age(at, now));
    let address = row.addresses.first().map(|address| address.ip.clone());
    let more = row.addresses.len().saturating_sub(1);
    let ports: Vec<String> = row
        .ports
        .iter()
        .map(|port| {
            let ip = if port.host_ip == "0.0.0.0" { String::new() } else { format!("{}:", port.host_ip) };
            let protocol = if port.protocol == "tcp" { String::new() } else { format!("/{}", port.protocol) };
            format!("{ip}{}->{}{protocol}", port.host, port.container)
        })
        .collect();
    [
        cut(&row.instance),
        row.state.clone(),
        age.unwrap_or_else(dash),
        row.restarts.to_string(),
        row.pid.map_or_else(dash, |pid| pid.to_string()),
        address.map_or_else(dash, |ip| if more > 0 { format!("{ip} +{more}") } else { ip }),
        if ports.is_empty() { dash() } else { ports.join(", ") },
    ]
}

/// A long name without its middle: the ends tell instances apart.
fn cut(name: &str) -> String {
    if name.chars().count() <= WIDEST {
        return name.to_owned();
    }
    let head: String = name.chars().take(WIDEST / 2 - 1).collect();
    let tail: String = name.chars().skip(name.chars().count() - WIDEST / 2).collect();
    format!("{head}…{tail}")
}

/// What is wrong with an instance, in a line below the table.
fn note(text: &mut String, row: &InstanceStatus, now: Timestamp, colour: bool) {
    let ended = match (row.exit_code, &row.exit) {
        _ if !["exited", "backoff"].contains(&row.state.as_str()) => None,
        (Some(code), _) => Some(format!("exited with code {code}")),
        (None, Some(exit)) => Some(format!("exited ({exit})")),
        (None, None) => None,
    };
    let waiting = row.waiting.first();
    let reason = row.last_error.clone().or_else(|| waiting.map(|waiting| waiting.on.clone()));
    let next = waiting.and_then(|waiting| waiting.next_attempt.as_deref()).and_then(parse_rfc3339);
    let next =
        next.map(|at| if at > now { format!("next attempt in {}", age(now, at)) } else { "trying again".into() });
    let told: Vec<String> = [ended, reason, next].into_iter().flatten().collect();
    if !told.is_empty() {
        let _ = writeln!(text, "{}: {}", paint(&row.instance, Colour::Yellow, colour), told.join("; "));
    }
    help(text, row.hint.as_deref());
}

fn help(text: &mut String, hint: Option<&str>) {
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        let _ = writeln!(text, "  help: {hint}");
    }
}

/// A fault of a file, with its place.
pub fn fault(error: &ErrorStatus, colour: bool) -> String {
    let place = match error.line {
        0 => error.file.clone(),
        line => format!("{}:{line}:{}", error.file, error.column),
    };
    let mut text = format!("{place}: {}: {}\n", paint("error", Colour::Red, colour), error.message);
    help(&mut text, error.hint.as_deref());
    text
}

/// How long ago, in the largest unit that says enough.
pub fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(at).as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Reads a time back as status writes it.
fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // days from civil, the way back of the model's own arithmetic
    let shifted_year = if month <= 2 { year.checked_sub(1)? } else { year };
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(Timestamp((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000))
}

#[cfg(test)]
mod tests;
