//! What the kernel has to have.

use super::{Check, blocking, good, warning};
use crate::drive::net::probe;
use crate::model::AgentName;
use std::path::Path;

/// What the network needs, tried in a namespace of its own.
pub async fn features(agent: &AgentName) -> Vec<Check> {
    let tried = probe(agent).await.into_iter();
    let check = |(what, fault): crate::drive::net::Tried| match fault {
        None => good(format!("the kernel has {what}")),
        Some(fault) => {
            let cause = fault.cause();
            let fix = cause
                .hint
                .unwrap_or_else(|| "load the kernel modules bridge, veth, nf_tables, nft_nat, nf_conntrack".to_owned());
            blocking(format!("{what} do not work: {}", cause.message), fix)
        }
    };
    tried.map(check).collect()
}

/// Linux 6.15 tells a process's exit through its pidfd; before, an exit during a containerd restart may stay unknown.
pub fn exit_witness() -> Check {
    let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
    witness_of(&release.unwrap_or_default())
}

fn witness_of(release: &str) -> Check {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if version >= (6, 15) {
        return good(format!("Linux {release} tells exits without containerd"));
    }
    warning(
        format!("Linux {release} does not tell exits by pidfd"),
        "from 6.15 on, an exit while containerd is down has its true code; until then it is `unknown` and counts as a failure",
    )
}

/// Where limits are set.
pub fn cgroups() -> Check {
    cgroups_in(Path::new("/sys/fs/cgroup"))
}

fn cgroups_in(root: &Path) -> Check {
    let wanted = ["memory", "cpu", "pids"];
    let unified = std::fs::read_to_string(root.join("cgroup.controllers"));
    let (version, missing): (&str, Vec<&str>) = match &unified {
        Ok(text) => {
            ("v2", wanted.into_iter().filter(|name| !text.split_whitespace().any(|has| has == *name)).collect())
        }
        Err(_) => ("v1", wanted.into_iter().filter(|name| !root.join(name).exists()).collect()),
    };
    match (version, missing.as_slice()) {
        ("v2", []) => good("cgroup v2"),
        (_, []) => good("cgroup v1 (containerd 2.x warns that it is deprecated)"),
        ("v1", all) if all.len() == wanted.len() => {
            blocking(format!("no cgroup hierarchy in {}", root.display()), "mount cgroup2 there")
        }
        (version, missing) => warning(
            format!("cgroup {version} without the controllers {}: their limits have no effect", missing.join(", ")),
            "switch them on: on the kernel's command line, cgroup_enable=memory for one",
        ),
    }
}

/// The file system of every container's root.
pub fn overlay() -> Check {
    let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
    let modules = Path::new("/lib/modules").join(release.unwrap_or_default());
    let loaded = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let loadable = ["modules.builtin", "modules.dep"]
        .iter()
        .any(|list| std::fs::read_to_string(modules.join(list)).is_ok_and(|text| text.contains("/overlay.ko")));
    match loaded.lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay") || loadable {
        true => good("the kernel has overlayfs"),
        false => blocking("the kernel has no overlayfs, on which containers' roots are made", "modprobe overlay"),
    }
}

/// Whether packets are passed on.
pub fn forwarding() -> Check {
    match std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward") {
        Ok(text) if text.trim() == "1" => good("IPv4 forwarding is on"),
        Ok(_) => good("IPv4 forwarding is off; the agent switches it on for the first network that has a way out"),
        Err(error) => blocking(format!("net.ipv4.ip_forward cannot be read: {error}"), "mount /proc"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn a_kernel_tells_exits_from_6_15_on() {
        for (release, grade) in [
            ("6.15.0", Grade::Good),
            ("6.18-rc1", Grade::Good),
            ("7.0.1-generic", Grade::Good),
            ("6.1.0-18-amd64", Grade::Warning),
            ("", Grade::Warning),
        ] {
            assert_eq!(witness_of(release).grade, grade, "{release}");
        }
    }

    #[test]
    fn both_versions_of_cgroups_are_known_and_missing_controllers_named() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(cgroups_in(root.path()).grade, Grade::Blocking);
        for name in ["cpu", "pids"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let check = cgroups_in(root.path());
        assert_eq!(check.grade, Grade::Warning);
        assert!(check.what.contains("memory") && !check.what.contains("pids"), "{}", check.what);
        std::fs::create_dir(root.path().join("memory")).unwrap();
        assert_eq!(cgroups_in(root.path()).grade, Grade::Good);
        std::fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        assert_eq!(cgroups_in(root.path()), good("cgroup v2"));
        std::fs::write(root.path().join("cgroup.controllers"), "cpu\n").unwrap();
        assert!(cgroups_in(root.path()).what.contains("memory, pids"));
    }
}
