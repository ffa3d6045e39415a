//! Capability sets.

use crate::drive::containerd::error::CallError;
use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilities, LinuxCapabilitiesBuilder};
use std::collections::BTreeSet;
use std::str::FromStr;

/// What a process gets that asks for nothing: Docker's default set.
const DEFAULT: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// All capabilities, in the kernel's order: the place is the bit.
const ALL: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The names of the set bits of a mask.
pub fn of_mask(mask: u64) -> BTreeSet<String> {
    ALL.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| (*name).to_owned()).collect()
}

/// The set of a process: the default ones, with what is added and dropped, or all of them for a privileged one; as far
/// as the agent has them itself. What was asked for by name and cannot be given is told in `clamped`.
pub fn granted(
    privileged: bool,
    add: &BTreeSet<String>,
    drop: &BTreeSet<String>,
    available: &BTreeSet<String>,
    clamped: &mut Vec<String>,
) -> Result<BTreeSet<String>, CallError> {
    if let Some(unknown) = add.iter().chain(drop).find(|name| *name != "ALL" && !ALL.contains(&name.as_str())) {
        return Err(CallError::invalid(format!("there is no capability `{unknown}`")));
    }
    let mut wanted: BTreeSet<String> = if privileged || add.contains("ALL") {
        available.clone()
    } else if drop.contains("ALL") {
        BTreeSet::new()
    } else {
        DEFAULT.iter().map(|name| (*name).to_owned()).collect()
    };
    if !privileged {
        wanted.retain(|name| !drop.contains(name));
        wanted.extend(add.iter().filter(|name| *name != "ALL").cloned());
    }
    let missing: Vec<&String> = wanted.difference(available).collect();
    for name in missing {
        clamped.push(format!("capability {name} is not given: the agent does not have it"));
    }
    Ok(wanted.intersection(available).cloned().collect())
}

/// The sets for the OCI spec: bounding, effective and permitted alike; none is inherited or ambient.
pub fn sets(granted: &BTreeSet<String>) -> Result<LinuxCapabilities, CallError> {
    let mut set = Capabilities::new();
    for name in granted {
        let capability =
            Capability::from_str(name).map_err(|_| CallError::invalid(format!("no capability `{name}`")))?;
        set.insert(capability);
    }
    LinuxCapabilitiesBuilder::default()
        .bounding(set.clone())
        .effective(set.clone())
        .permitted(set)
        .inheritable(Capabilities::new())
        .ambient(Capabilities::new())
        .build()
        .map_err(|error| CallError::invalid(format!("capability sets: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn all() -> BTreeSet<String> {
        of_mask(u64::MAX)
    }

    fn give(privileged: bool, add: &[&str], drop: &[&str], available: &BTreeSet<String>) -> (BTreeSet<String>, usize) {
        let mut clamped = Vec::new();
        let granted = granted(privileged, &set(add), &set(drop), available, &mut clamped).expect("names are known");
        (granted, clamped.len())
    }

    #[test]
    fn additions_and_drops_follow_docker() {
        assert_eq!(give(false, &[], &[], &all()).0, set(&DEFAULT));
        assert_eq!(give(false, &["NET_ADMIN"], &["ALL"], &all()).0, set(&["NET_ADMIN"]));
        assert_eq!(give(false, &["ALL"], &["SYS_ADMIN"], &all()).0.len(), ALL.len() - 1);
        assert_eq!(give(true, &[], &["ALL"], &all()).0, all());
        let mut clamped = Vec::new();
        assert!(granted(false, &set(&["NET_ADMON"]), &set(&[]), &all(), &mut clamped).is_err());
    }

    #[test]
    fn what_the_agent_lacks_is_told_only_where_it_was_asked_for() {
        let poor: BTreeSet<String> = all().into_iter().filter(|name| name != "SYS_RESOURCE").collect();
        assert_eq!(give(true, &[], &[], &poor), (poor.clone(), 0));
        let (granted, told) = give(false, &["SYS_RESOURCE"], &[], &poor);
        assert_eq!((granted, told), (set(&DEFAULT), 1));
    }

    #[test]
    fn every_name_is_known_to_the_runtime_spec() {
        let sets = sets(&all()).expect("all are");
        assert_eq!(sets.bounding().as_ref().map(|set| set.len()), Some(ALL.len()));
    }
}
