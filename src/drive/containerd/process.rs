//! What the kernel says of processes and of this boot.

use crate::model::Timestamp;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// The start time of a process in clock ticks since boot: with the pid, its identity. `None` when it is gone; a
/// zombie is still there.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, so fields are counted behind the last one: state is field 3.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Whether the process of a made task runs its program already: until then the runtime's init holds the FIFO that a
/// start opens. `false` where the kernel does not show it.
pub fn has_begun(pid: u32) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut waits = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    start_ticks(pid).is_some() && !waits.any(|link| link.ends_with("exec.fifo"))
}

/// The id of this boot of the machine.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Wall time, for the moment of an exit.
#[expect(clippy::disallowed_methods, reason = "the moment of an exit is a fact of the node; no decision is made on it")]
pub fn wall_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Wall time some hours from now, for the end of a lease.
pub fn after_hours(hours: u64) -> Timestamp {
    wall_time().after(std::time::Duration::from_secs(hours * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_start_time_is_constant_and_a_missing_process_has_none() {
        let first = start_ticks(std::process::id()).expect("we run");
        assert!(first > 0);
        assert_eq!(start_ticks(std::process::id()), Some(first));
        assert_eq!(start_ticks(u32::MAX), None);
    }
}
