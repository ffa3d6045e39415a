//! What has to be installed, reachable and writable, and what others on this machine may get in the way with.

use super::{Check, blocking, good, warning};
use crate::cli::Paths;
use crate::drive::net::forward_drops;
use crate::drive::node::Node;
use crate::drive::{Counters, Drive as _};
use crate::model::{Domain, Scope, Sight, Sighting};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

/// Who asks.
pub fn root() -> Check {
    if nix::unistd::Uid::effective().is_root() {
        good("running as root")
    } else {
        blocking("not running as root: namespaces, links and nft need it", "run it with sudo")
    }
}

/// What containerd runs containers with.
pub fn runc() -> Check {
    let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    match places.iter().map(|dir| Path::new(dir).join("runc")).find(|path| path.exists()) {
        Some(path) => good(format!("runc is {}", path.display())),
        None => blocking("there is no runc in the usual places", "install it: apt-get install runc"),
    }
}

fn driver(paths: &Paths) -> Node {
    Node::new(paths.marks.clone(), &paths.places(), &Arc::new(Counters::default()))
}

/// Whether containerd answers, and which one it is.
pub async fn containerd(paths: &Paths) -> Vec<Check> {
    let socket = paths.containerd.display();
    let version = match driver(paths).containerd().version().await {
        Ok(version) => version,
        Err(error) => {
            let cause = error.cause();
            return vec![blocking(
                format!("containerd does not answer at {socket}: {}", cause.message),
                "start containerd (apt-get install containerd), or name its socket: --containerd",
            )];
        }
    };
    vec![containerd_version(&version)]
}

/// Known good from 1.6 on.
fn containerd_version(version: &str) -> Check {
    let mut numbers =
        version.trim_start_matches('v').split(['.', '-', '~', '+']).map_while(|part| part.parse::<u32>().ok());
    let release = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if release >= (1, 6) {
        good(format!("containerd {version} answers"))
    } else {
        warning(format!("containerd {version} answers; nothing older than 1.6 has been tried"), "install 1.6 or later")
    }
}

/// The domains as the agent's own drivers see them.
pub async fn node(paths: &Paths) -> Vec<Check> {
    let node = driver(paths);
    let mut checks = Vec::new();
    for domain in [Domain::Runtime, Domain::Net, Domain::Ports] {
        let (what, blind, fix) = match node.look(Scope::Domain(domain)).await {
            Sighting::Runtime(sight) => ("containers and images", why(sight), "start containerd"),
            Sighting::Net(sight) => ("links and network namespaces", why(sight), "run it as root"),
            Sighting::Ports(sight) => ("the nft table", why(sight), "install nft: apt-get install nftables"),
            _ => continue,
        };
        checks.push(match blind {
            None => good(format!("{what} can be looked at")),
            Some(why) => blocking(format!("{what} cannot be looked at: {why}"), fix),
        });
    }
    checks
}

fn why<T>(sight: Sight<T>) -> Option<String> {
    match sight {
        Sight::Seen(_) => None,
        Sight::Unseen(blind) => Some(blind.why),
    }
}

/// Drops of others at the forward hook: an accept of ours does not overrule them.
pub async fn other_firewalls(paths: &Paths) -> Vec<Check> {
    let mut checks = match forward_drops(paths.marks.agent()).await {
        Err(_) => Vec::new(), // nft itself is checked above
        Ok(drops) if drops.is_empty() => vec![good("no other nft table drops forwarded packets by policy")],
        Ok(drops) => drops
            .into_iter()
            .map(|chain| {
                warning(
                    format!("{chain} drops forwarded packets by policy: published ports and the way out may not work"),
                    "accept packets from and to the agent's bridges (interfaces st*) in that chain",
                )
            })
            .collect(),
    };
    let legacy = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if legacy.lines().any(|table| table == "filter") {
        checks.push(warning(
            "iptables-legacy has a filter table, which nft does not show; a drop in its FORWARD chain counts too",
            "look: iptables-legacy -S FORWARD; where it drops, accept interfaces st+ there",
        ));
    }
    checks
}

/// Whoever may write there decides what runs here as root.
pub fn directory(dir: &Path) -> Check {
    let shown = dir.display();
    match std::fs::metadata(dir) {
        Err(error) => warning(format!("{shown}: {error}"), format!("make it: mkdir -p {shown}")),
        Ok(found) if !found.is_dir() => blocking(format!("{shown} is no directory"), "name one: --desired-state DIR"),
        Ok(found) if found.permissions().mode() & 0o002 != 0 => blocking(
            format!("everybody may write {shown}, and so decide what runs here as root"),
            format!("chmod o-w {shown}"),
        ),
        Ok(found) if found.uid() != 0 => warning(
            format!("{shown} belongs to user {}, who so decides what runs here as root", found.uid()),
            format!("if that is not meant: chown root {shown}"),
        ),
        Ok(_) => good(format!("desired state is read from {shown}")),
    }
}

/// Whether there is room.
pub fn room(dir: &Path) -> Check {
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(dir);
    match nix::sys::statvfs::statvfs(existing) {
        Ok(stat) if stat.blocks_available() * 20 < stat.blocks() => warning(
            format!("less than 5 % of the file system of {} is free", dir.display()),
            "make room: a full disk stops imports and new last known good files",
        ),
        Ok(_) => good(format!("there is room in {}", dir.display())),
        Err(error) => warning(format!("{}: {error}", dir.display()), "check the file system"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn versions_of_containerd_are_read_as_they_are_written() {
        for (version, grade) in [
            ("1.6.20~ds1", Grade::Good),
            ("v1.7.24", Grade::Good),
            ("2.3.4", Grade::Good),
            ("1.5.9", Grade::Warning),
            ("unknown", Grade::Warning),
        ] {
            assert_eq!(containerd_version(version).grade, grade, "{version}");
        }
    }

    #[test]
    fn a_directory_that_everybody_may_write_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        let check = directory(dir.path());
        assert_eq!((check.grade, check.fix), (Grade::Blocking, Some(format!("chmod o-w {}", dir.path().display()))));
        mode(0o755);
        assert_ne!(directory(dir.path()).grade, Grade::Blocking);
        assert_eq!(directory(&dir.path().join("missing")).grade, Grade::Warning);
    }
}
