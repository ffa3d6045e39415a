//! Status as a person reads it: one line an instance, what is wrong below.

use crate::model::{AppStatus, ErrorStatus, InstanceStatus, Status, Timestamp};
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
    let settled = if status.agent.settled { ("settled", Colour::Green) } else { ("not settled", Colour::Yellow) };
    let runtime = match status.agent.runtime.as_str() {
        "connected" => String::new(),
        other => format!(", containerd {}", paint(other, Colour::Red, colour)),
    };
    let _ = writeln!(
        text,
        "{} generation {}, {}{runtime}",
        status.agent.name,
        status.agent.generation,
        paint(settled.0, settled.1, colour)
    );
    let rows: Vec<(&AppStatus, &InstanceStatus)> = status
        .apps
        .iter()
        .flat_map(|app| {
            app.services.iter().flat_map(move |service| service.instances.iter().map(move |row| (app, row)))
        })
        .collect();
    if !rows.is_empty() {
        table(&mut text, &rows, now, colour);
    }
    for (_, row) in &rows {
        note(&mut text, row, colour);
    }
    for error in status.apps.iter().flat_map(|app| &app.errors).chain(&status.errors) {
        fault(&mut text, error, colour);
    }
    for object in &status.unsettled {
        let why = object.last_error.clone().or_else(|| object.waiting.first().map(|waiting| waiting.on.clone()));
        let _ = writeln!(text, "{}: {}", paint(&object.object, Colour::Yellow, colour), why.unwrap_or_default());
        if let Some(hint) = object.hint.as_ref().filter(|hint| !hint.is_empty()) {
            let _ = writeln!(text, "  help: {hint}");
        }
    }
    text
}

fn table(text: &mut String, rows: &[(&AppStatus, &InstanceStatus)], now: Timestamp, colour: bool) {
    let cells: Vec<[String; 7]> = rows.iter().map(|(_, row)| cells(row, now)).collect();
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
fn note(text: &mut String, row: &InstanceStatus, colour: bool) {
    let ended = match (row.exit_code, &row.exit) {
        _ if !["exited", "backoff"].contains(&row.state.as_str()) => None,
        (Some(code), _) => Some(format!("exited with code {code}")),
        (None, Some(exit)) => Some(format!("exited ({exit})")),
        (None, None) => None,
    };
    let waiting = row.waiting.first().map(|waiting| match &waiting.next_attempt {
        Some(at) => format!("{} at {at}", waiting.on),
        None => waiting.on.clone(),
    });
    let told: Vec<String> = [ended, row.last_error.clone().or(waiting)].into_iter().flatten().collect();
    if !told.is_empty() {
        let _ = writeln!(text, "{}: {}", paint(&row.instance, Colour::Yellow, colour), told.join("; "));
    }
    if let Some(hint) = row.hint.as_ref().filter(|hint| !hint.is_empty()) {
        let _ = writeln!(text, "  help: {hint}");
    }
}

fn fault(text: &mut String, error: &ErrorStatus, colour: bool) {
    let place = format!("{}:{}:{}", error.file, error.line, error.column);
    let _ = writeln!(text, "{place}: {}: {}", paint("error", Colour::Red, colour), error.message);
    if let Some(hint) = &error.hint {
        let _ = writeln!(text, "  help: {hint}");
    }
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
mod tests {
    use super::*;
    use crate::model::{AddressStatus, PortStatus, ServiceStatus, WaitingStatus};

    fn sample() -> Status {
        let web = InstanceStatus {
            instance: "shop/web/1".to_owned(),
            pid: Some(4711),
            started_at: Some("2024-02-29T23:59:59Z".to_owned()),
            state: "running".to_owned(),
            addresses: vec![AddressStatus { ip: "10.208.1.2".to_owned(), ..AddressStatus::default() }],
            ports: vec![PortStatus { host_ip: "0.0.0.0".into(), host: 8080, container: 80, protocol: "tcp".into() }],
            ..InstanceStatus::default()
        };
        let job = InstanceStatus {
            instance: format!("shop/{}/1", "a-very-long-service-name-that-nobody-should-write"),
            state: "backoff".to_owned(),
            restarts: 3,
            exit_code: Some(1),
            waiting: vec![WaitingStatus {
                on: "restart after 3 short runs".to_owned(),
                since: "2024-03-01T00:01:00Z".to_owned(),
                next_attempt: Some("2024-03-01T00:01:01Z".to_owned()),
            }],
            ..InstanceStatus::default()
        };
        let service = ServiceStatus { instances: vec![web, job], ..ServiceStatus::default() };
        let error = ErrorStatus {
            file: "/etc/stead/desired/shop.yaml".to_owned(),
            line: 4,
            column: 5,
            message: "unknown key `comand`".to_owned(),
            hint: Some("did you mean `command`?".to_owned()),
        };
        let app = AppStatus { services: vec![service], errors: vec![error], ..AppStatus::default() };
        let mut status = Status { apps: vec![app], ..Status::default() };
        status.agent.name = "stead".to_owned();
        status.agent.runtime = "connected".to_owned();
        status
    }

    #[test]
    fn one_line_an_instance_and_what_is_wrong_below() {
        insta::assert_snapshot!(render(&sample(), Timestamp(1_709_251_260_000), false), @r"
        stead generation 0, not settled
        INSTANCE                                  STATE    AGE  RESTARTS  PID   ADDRESS     PORTS
        shop/web/1                                running  61s  0         4711  10.208.1.2  8080->80
        shop/a-very-long-se…obody-should-write/1  backoff  -    3         -     -           -
        shop/a-very-long-service-name-that-nobody-should-write/1: exited with code 1; restart after 3 short runs at 2024-03-01T00:01:01Z
        /etc/stead/desired/shop.yaml:4:5: error: unknown key `comand`
          help: did you mean `command`?
        ");
    }
}
