//! The two kernel settings that publishing needs, of the calling thread's network namespace.

use crate::drive::fault::{Fault, Said as _};
use crate::model::Outcome;
use std::fs;

const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Whether the host forwards IPv4.
pub(super) fn ip_forward() -> Result<bool, Fault> {
    Ok(read(IP_FORWARD)? == "1")
}

/// Switches forwarding on.
pub(super) fn enable_forwarding() -> Result<Outcome, Fault> {
    enable(IP_FORWARD)
}

/// Lets a link carry connections from 127.0.0.1.
pub(super) fn enable_route_localnet(link: &str) -> Result<Outcome, Fault> {
    enable(&format!("/proc/sys/net/ipv4/conf/{link}/route_localnet"))
}

fn enable(path: &str) -> Result<Outcome, Fault> {
    if read(path)? == "1" {
        return Ok(Outcome::Already);
    }
    fs::write(path, "1").said(|| format!("write {path}"))?;
    Ok(Outcome::Done)
}

fn read(path: &str) -> Result<String, Fault> {
    Ok(fs::read_to_string(path).said(|| format!("read {path}"))?.trim().to_owned())
}
