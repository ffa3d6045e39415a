//! `stead doctor`: what this machine lacks, or what gets in the way, with the fix for each.

use super::say::Failure;
use super::table::{Colour, paint};
use super::{Paths, once};
use crate::drive::node::{Node, Places};
use crate::drive::{Counters, Drive as _};
use crate::model::{Domain, Scope, Sighting};
use clap::Args;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// The flags of `doctor`.
#[derive(Debug, Args)]
pub struct Flags {}

/// One thing that was checked.
struct Check {
    what: String,
    grade: Grade,
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Good,
    Warning,
    Blocking,
}

fn good(what: impl Into<String>) -> Check {
    Check { what: what.into(), grade: Grade::Good, fix: None }
}

fn warning(what: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { what: what.into(), grade: Grade::Warning, fix: Some(fix.into()) }
}

fn blocking(what: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { what: what.into(), grade: Grade::Blocking, fix: Some(fix.into()) }
}

/// Runs it.
pub fn run(paths: &Paths, _flags: &Flags, colour: bool) -> Result<ExitCode, Failure> {
    let mut checks = vec![root(), runc(), exit_witness(), cgroups(), forwarding()];
    checks.extend(once(node(paths))?);
    checks.extend(once(other_firewalls(paths))?);
    checks.push(directory(&paths.desired_state()));
    checks.extend([&paths.root, &paths.logs].map(|dir| room(dir)));
    for check in &checks {
        let (mark, shade) = match check.grade {
            Grade::Good => ("ok     ", Colour::Green),
            Grade::Warning => ("warning", Colour::Yellow),
            Grade::Blocking => ("missing", Colour::Red),
        };
        println!("{}  {}", paint(mark, shade, colour), check.what);
        if let Some(fix) = &check.fix {
            println!("         fix: {fix}");
        }
    }
    let blocked = checks.iter().any(|check| check.grade == Grade::Blocking);
    Ok(if blocked { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn root() -> Check {
    if nix::unistd::Uid::effective().is_root() {
        good("running as root")
    } else {
        blocking("not running as root: namespaces, links and nft need it", "run it with sudo")
    }
}

fn runc() -> Check {
    let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    match places.iter().map(|dir| Path::new(dir).join("runc")).find(|path| path.exists()) {
        Some(path) => good(format!("runc is {}", path.display())),
        None => blocking("there is no runc in the usual places", "install it: apt-get install runc"),
    }
}

/// Linux 6.15 tells a process's exit through its pidfd; before, an exit during a containerd restart may stay unknown.
fn exit_witness() -> Check {
    let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_default();
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

fn cgroups() -> Check {
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let legacy = Path::new("/sys/fs/cgroup/memory").exists();
    match (unified, legacy) {
        (true, _) => good("cgroup v2"),
        (false, true) => good("cgroup v1 (containerd 2.x warns that it is deprecated)"),
        (false, false) => blocking("no cgroup hierarchy in /sys/fs/cgroup", "mount cgroup2 there"),
    }
}

fn forwarding() -> Check {
    match std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward") {
        Ok(text) if text.trim() == "1" => good("IPv4 forwarding is on"),
        Ok(_) => good("IPv4 forwarding is off; the agent switches it on for the first network that has a way out"),
        Err(error) => blocking(format!("net.ipv4.ip_forward cannot be read: {error}"), "mount /proc"),
    }
}

/// containerd, netlink and nft as the agent's own drivers see them.
async fn node(paths: &Paths) -> Vec<Check> {
    let places = Places {
        containerd: paths.containerd.clone(),
        run: paths.run.clone(),
        logs: paths.logs.clone(),
        volumes: paths.volumes(),
    };
    let node = Node::new(paths.marks.clone(), &places, &Arc::new(Counters::default()));
    let mut checks = Vec::new();
    for domain in [Domain::Runtime, Domain::Net, Domain::Ports] {
        let (what, blind, fix) = match node.look(Scope::Domain(domain)).await {
            Sighting::Runtime(sight) => {
                let socket = paths.containerd.display();
                (
                    "containerd answers",
                    why(sight),
                    format!("start containerd, or name its socket: --containerd (now {socket})"),
                )
            }
            Sighting::Net(sight) => (
                "links and netns can be read",
                why(sight),
                "run it as root, on the host's own network namespace".to_owned(),
            ),
            Sighting::Ports(sight) => ("nft works", why(sight), "install it: apt-get install nftables".to_owned()),
            _ => continue,
        };
        checks.push(match blind {
            None => good(what),
            Some(why) => blocking(format!("not so: {what}: {why}"), fix),
        });
    }
    checks
}

fn why<T>(sight: crate::model::Sight<T>) -> Option<String> {
    match sight {
        crate::model::Sight::Seen(_) => None,
        crate::model::Sight::Unseen(blind) => Some(blind.why),
    }
}

/// Drops of others at the forward hook: an accept of ours does not overrule them.
async fn other_firewalls(paths: &Paths) -> Vec<Check> {
    match crate::drive::net::forward_drops(paths.marks.agent()).await {
        Err(_) => Vec::new(), // nft itself is checked above
        Ok(drops) if drops.is_empty() => vec![good("no other table drops forwarded packets by policy")],
        Ok(drops) => drops
            .into_iter()
            .map(|chain| {
                warning(
                    format!("{chain} drops forwarded packets by policy: published ports and the way out may not work"),
                    "accept packets from and to the agent's bridges (interfaces st*) in that chain",
                )
            })
            .collect(),
    }
}

fn directory(dir: &Path) -> Check {
    let shown = dir.display();
    match std::fs::metadata(dir) {
        Err(error) => warning(format!("{shown}: {error}"), format!("make it: mkdir -p {shown}")),
        Ok(found) if !found.is_dir() => blocking(format!("{shown} is no directory"), "name one: --desired-state DIR"),
        Ok(found) if found.permissions().mode() & 0o002 != 0 => blocking(
            format!("everybody may write {shown}, and so decide what runs here as root"),
            format!("chmod o-w {shown}"),
        ),
        Ok(_) => good(format!("desired state is read from {shown}")),
    }
}

fn room(dir: &Path) -> Check {
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
