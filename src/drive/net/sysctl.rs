//! The kernel settings that publishing needs, of the calling thread's network namespace.

use crate::drive::fault::{Fault, Said as _};
use crate::model::Outcome;
use std::fs;

const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const IP6_FORWARD: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// Whether the host forwards IPv4.
pub(super) fn ip_forward() -> Result<bool, Fault> {
    Ok(read(IP_FORWARD)? == "1")
}

/// Whether the host forwards IPv6; a kernel without IPv6 does not.
pub(super) fn ip6_forward() -> Result<bool, Fault> {
    Ok(read_if_there(IP6_FORWARD)?.is_some_and(|value| value == "1"))
}

/// Switches forwarding on.
pub(super) fn enable_forwarding(six: bool) -> Result<Outcome, Fault> {
    if six {
        keep_hearing_routers()?;
    }
    enable(if six { IP6_FORWARD } else { IP_FORWARD })
}

/// Switches forwarding off again.
pub(super) fn restore_forwarding(six: bool) -> Result<Outcome, Fault> {
    write(if six { IP6_FORWARD } else { IP_FORWARD }, "0")
}

/// Lets an interface of the calling thread's netns have IPv6 addresses.
pub(super) fn allow_ipv6(link: &str) -> Result<(), Fault> {
    // Nobody asks whether the link's own address is taken: it is from the MAC, which is ours. For as long as that takes,
    // neighbours could not be found.
    for setting in ["disable_ipv6", "accept_dad"] {
        let path = format!("/proc/sys/net/ipv6/conf/{link}/{setting}");
        match read_if_there(&path)? {
            Some(value) if value != "0" => drop(write(&path, "0")?),
            _ => {}
        }
    }
    Ok(())
}

/// A host that forwards IPv6 no longer hears of routers, on interfaces that say 1; 2 says: nevertheless. Without it, a
/// machine that has its address and its way out from a router would lose both.
fn keep_hearing_routers() -> Result<(), Fault> {
    const CONF: &str = "/proc/sys/net/ipv6/conf";
    for entry in fs::read_dir(CONF).said(|| format!("list {CONF}"))?.flatten() {
        let name = entry.file_name();
        let path = format!("{CONF}/{}/accept_ra", name.to_string_lossy());
        let general = matches!(name.to_str(), Some("all" | "default" | "lo"));
        if !general && read_if_there(&path)?.is_some_and(|value| value == "1") {
            write(&path, "2")?;
        }
    }
    Ok(())
}

/// Lets a link carry connections from 127.0.0.1.
pub(super) fn enable_route_localnet(link: &str) -> Result<Outcome, Fault> {
    enable(&format!("/proc/sys/net/ipv4/conf/{link}/route_localnet"))
}

fn enable(path: &str) -> Result<Outcome, Fault> {
    write(path, "1")
}

fn write(path: &str, value: &str) -> Result<Outcome, Fault> {
    if read(path)? == value {
        return Ok(Outcome::Already);
    }
    fs::write(path, value).said(|| format!("write {path}"))?;
    Ok(Outcome::Done)
}

fn read_if_there(path: &str) -> Result<Option<String>, Fault> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).said(|| format!("read {path}")),
    }
}

fn read(path: &str) -> Result<String, Fault> {
    Ok(fs::read_to_string(path).said(|| format!("read {path}"))?.trim().to_owned())
}
