//! Shims that containerd has lost. When the client of a Tasks.Delete dies in the middle of the call, containerd 1.7 may
//! forget the task before it has ended the shim: the process and its bundle then stay until containerd's own restart.
//!
//! And bundles: when containerd 1.6 dies in the middle of a Tasks.Create, it may leave the directory without a shim, and
//! fail every later create of that id on it.

use super::{Containerd, process};
use crate::drive::containerd::CallError;
use crate::model::{Outcome, StrayKey};
use containerd_client::services::v1::Container;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What a shim's program is called.
const PROGRAM: &str = "containerd-shim-runc-v2";
/// Where containerd keeps the bundles of running tasks, beside its socket.
const BUNDLES: &str = "io.containerd.runtime.v2.task";
/// From this age on a bundle without a shim is nobody's: a create makes the shim right after the bundle.
const OLD: Duration = Duration::from_secs(3);
/// How long a killed process may take to be gone, and how often that is asked.
const GONE_WITHIN: u32 = 100;
const ASK_EVERY: Duration = Duration::from_millis(10);

impl Containerd {
    /// The shims of our namespace that no record and no task is left for.
    pub(super) async fn lost_shims(&self, known: &[Container]) -> Result<Vec<StrayKey>, CallError> {
        let known: HashSet<&str> = known.iter().map(|container| container.id.as_str()).collect();
        let all =
            shims(self.marks().agent().as_str()).map_err(|error| CallError::local("the list of processes", error))?;
        let mut lost = Vec::new();
        for shim in all.into_iter().filter(|shim| !known.contains(shim.id.as_str())) {
            if self.is_lost_shim(&shim.id, shim.pid, shim.start_ticks).await? {
                lost.push(StrayKey::Shim { id: shim.id, pid: shim.pid, start_ticks: shim.start_ticks });
            }
        }
        Ok(lost)
    }

    /// Whether a shim is there, and containerd knows nothing by its container's id.
    pub(super) async fn is_lost_shim(&self, id: &str, pid: u32, start_ticks: u64) -> Result<bool, CallError> {
        let there = process::start_ticks(pid) == Some(start_ticks) && is_running(pid);
        Ok(there && self.get_container(id).await?.is_none() && self.get_task(id).await?.is_none())
    }

    /// Ends a lost shim and removes its bundle.
    pub(super) async fn end_shim(&self, id: &str, pid: u32, start_ticks: u64) -> Result<Outcome, CallError> {
        if process::start_ticks(pid).is_none() {
            return Ok(Outcome::Already);
        }
        if !self.is_lost_shim(id, pid, start_ticks).await? {
            return Ok(Outcome::Moved);
        }
        self.end(id, pid, start_ticks).await?;
        Ok(Outcome::Done)
    }

    /// Ends whatever shim is left of a container that has no task any more: its record is about to go, and nothing would
    /// lead to the shim after that.
    pub(super) async fn end_shims_of(&self, id: &str) -> Result<(), CallError> {
        let all =
            shims(self.marks().agent().as_str()).map_err(|error| CallError::local("the list of processes", error))?;
        for shim in all.into_iter().filter(|shim| shim.id == id) {
            self.end(id, shim.pid, shim.start_ticks).await?;
        }
        Ok(())
    }

    async fn end(&self, id: &str, pid: u32, start_ticks: u64) -> Result<(), CallError> {
        let told = |error| CallError::local(format!("ending the shim of {id}"), error);
        // a shim works in its bundle: STATE/<namespace>/<id>
        let Ok(bundle) = fs::read_link(format!("/proc/{pid}/cwd")) else {
            return Ok(()); // it ended by itself meanwhile
        };
        self.link().count_write("end-shim", id);
        let raw = i32::try_from(pid).map_err(|_| CallError::invalid("a pid that is no pid"))?;
        match kill(Pid::from_raw(raw), Signal::SIGKILL) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(errno) => return Err(told(errno.into())),
        }
        for _ in 0..GONE_WITHIN {
            if process::start_ticks(pid) != Some(start_ticks) || !is_running(pid) {
                break;
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        if bundle.ends_with(Path::new(self.marks().agent().as_str()).join(id)) {
            // containerd may be at the same: what it removes first is removed
            remove_bundle(&bundle).or_else(|_| remove_bundle(&bundle)).map_err(told)?;
        }
        Ok(())
    }

    /// Removes the bundle that a crash of containerd has left of a task which is in no book and has no shim. One that is
    /// young may be of a create that is still on its way.
    pub(super) async fn clear_bundle(&self, id: &str) -> Result<bool, CallError> {
        let namespace = self.marks().agent().as_str();
        let state = self.link().socket().parent().unwrap_or(Path::new("/"));
        let bundle = state.join(BUNDLES).join(namespace).join(id);
        let made =
            fs::symlink_metadata(&bundle).ok().filter(fs::Metadata::is_dir).and_then(|there| there.modified().ok());
        let old = made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age >= OLD);
        let told = |error| CallError::local(format!("the bundle {}", bundle.display()), error);
        if !old
            || shims(namespace).map_err(told)?.iter().any(|shim| shim.id == id)
            || self.get_task(id).await?.is_some()
        {
            return Ok(false);
        }
        self.link().count_write("clear-bundle", id);
        remove_bundle(&bundle).or_else(|_| remove_bundle(&bundle)).map_err(told)?;
        Ok(true)
    }
}

struct Shim {
    id: String,
    pid: u32,
    start_ticks: u64,
}

/// Every shim of a namespace, by its own command line.
fn shims(namespace: &str) -> io::Result<Vec<Shim>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // gone since it was listed, or a kernel thread
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let Some(id) = id_of(&line, namespace) else { continue };
        if let Some(start_ticks) = process::start_ticks(pid).filter(|_| is_running(pid)) {
            found.push(Shim { id, pid, start_ticks });
        }
    }
    Ok(found)
}

/// The container's id in the command line of a shim that serves this namespace.
fn id_of(line: &[u8], namespace: &str) -> Option<String> {
    let words: Vec<&str> = line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let after = |flag: &str| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied();
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    // `start` and `delete` are the short-lived helpers around a shim
    let serves = program == PROGRAM && !words.iter().any(|word| ["start", "delete"].contains(word));
    (serves && after("-namespace") == Some(namespace)).then(|| after("-id").map(str::to_owned)).flatten()
}

/// Whether a process is more than a zombie.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X') | None))
}

fn remove_bundle(bundle: &Path) -> io::Result<()> {
    // not mounted is as good as unmounted
    let _ = umount2(&bundle.join("rootfs"), MntFlags::MNT_DETACH);
    if let Ok(work) = fs::read_link(bundle.join("work")) {
        let _ = fs::remove_dir_all(work);
    }
    match fs::remove_dir_all(bundle) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_serving_shim_of_the_namespace_is_one() {
        let line = |words: &[&str]| words.join("\0").into_bytes();
        let shim = ["/usr/bin/containerd-shim-runc-v2", "-namespace", "stead", "-id", "web-1", "-address", "/c.sock"];
        assert_eq!(id_of(&line(&shim), "stead").as_deref(), Some("web-1"));
        assert_eq!(id_of(&line(&shim), "other"), None);
        assert_eq!(id_of(&line(&[&shim[..], &["start"]].concat()), "stead"), None);
        assert_eq!(id_of(b"/bin/sh\0-namespace\0stead\0-id\0web-1", "stead"), None);
        assert_eq!(id_of(b"", "stead"), None);
    }
}
