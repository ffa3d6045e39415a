//! The exit witness: a pidfd on every process of ours, so that its end and its status are known without containerd,
//! which forgets exits across its own restart and makes up the status of a process whose shim died.
//!
//! Taken right after a task is made and before it is started; taken late (agent restart) only when the process is
//! still the one that was looked at. What is seen goes to the [`Journal`] first and wakes the instance afterwards.

use super::journal::Journal;
use super::{pidfd, process};
use crate::model::{Exit, ExitStatus, InstanceKey};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// A process is reaped by its shim within a few ms; when the shim is dead, by pid 1, which took 1 s where it was slow.
/// After this the status stays unknown.
const REAPED_WITHIN: Duration = Duration::from_millis(1500);
/// How often the kernel is asked in between.
const ASK_EVERY: Duration = Duration::from_millis(4);

/// All witnesses of one agent. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Witness {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    journal: Journal,
    tells_status: bool,
    watched: Mutex<BTreeMap<(String, u32), Watched>>,
    woken: Mutex<BTreeSet<InstanceKey>>,
    bell: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Watched {
    start_ticks: Option<u64>,
    state: Watch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// It lives, as far as we know.
    Alive,
    /// It has ended; its status is being established.
    Ended,
}

impl Witness {
    /// Witnesses that write to this journal.
    pub fn new(journal: Journal) -> Self {
        let shared = Shared {
            journal,
            tells_status: kernel_tells_status(),
            watched: Mutex::default(),
            woken: Mutex::default(),
            bell: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What they have written down.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Watches a process, unless it is watched already. With `start_ticks`, only if it is still that process.
    pub fn arm(&self, instance: &InstanceKey, container: &str, pid: u32, start_ticks: Option<u64>) -> io::Result<()> {
        let id = (container.to_owned(), pid);
        if lock(&self.shared.watched).contains_key(&id) {
            return Ok(());
        }
        let handle = pidfd::open(pid)?;
        let seen_ticks = process::start_ticks(pid);
        if start_ticks.is_some() && start_ticks != seen_ticks {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let handle = pidfd::watch(handle)?;
        if start_ticks.is_none() {
            // A process that was made just now: an exit under the same pid is of an earlier one.
            self.shared.journal.forget(container, pid);
        }
        let watched = Watched { start_ticks: seen_ticks, state: Watch::Alive };
        lock(&self.shared.watched).insert(id, watched);
        let (shared, instance, container) = (Arc::clone(&self.shared), instance.clone(), container.to_owned());
        #[expect(clippy::disallowed_methods, reason = "an exit has to be seen even while the loop awaits a step")]
        tokio::spawn(watch(shared, instance, container, pid, handle));
        Ok(())
    }

    /// Stops watching a process that is about to be removed without having run: its end is no exit.
    pub fn disarm(&self, container: &str, pid: u32) {
        lock(&self.shared.watched).remove(&(container.to_owned(), pid));
    }

    /// The processes that live, as far as we know, by container.
    pub fn alive(&self) -> BTreeSet<(String, u32)> {
        let watched = lock(&self.shared.watched);
        watched.iter().filter(|(_, watched)| watched.state == Watch::Alive).map(|(id, _)| id.clone()).collect()
    }

    /// Whether a process is known to have ended while its status is not established yet.
    pub fn is_pending(&self, container: &str, pid: u32) -> bool {
        let watched = lock(&self.shared.watched).get(&(container.to_owned(), pid)).copied();
        watched.is_some_and(|watched| watched.state == Watch::Ended)
    }

    /// A process of this container whose end has not been written down, and whether it has ended.
    pub fn open_of(&self, container: &str) -> Option<(u32, bool)> {
        let watched = lock(&self.shared.watched);
        let open = watched.iter().find(|((id, _), _)| id == container);
        open.map(|((_, pid), watched)| (*pid, watched.state == Watch::Ended))
    }

    /// Sends SIGKILL to the watched processes of a container, each only if it is still the one that is watched. For
    /// processes that containerd has no task for any more; answers whether there was one.
    pub fn kill(&self, container: &str) -> io::Result<bool> {
        let watched = lock(&self.shared.watched).clone();
        let mut killed = false;
        for ((_, pid), watched) in watched.iter().filter(|((id, _), _)| id == container) {
            match pidfd::open(*pid) {
                Ok(handle) if watched.start_ticks.is_some() && process::start_ticks(*pid) == watched.start_ticks => {
                    rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::KILL)?;
                    killed = true;
                }
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(killed)
    }

    /// The instances with a new exit since the last call; waits for one.
    pub async fn exits(&self) -> BTreeSet<InstanceKey> {
        loop {
            let rung = self.shared.bell.notified();
            let woken = std::mem::take(&mut *lock(&self.shared.woken));
            if !woken.is_empty() {
                return woken;
            }
            rung.await;
        }
    }
}

async fn watch(shared: Arc<Shared>, instance: InstanceKey, container: String, pid: u32, handle: AsyncFd<OwnedFd>) {
    let ended = handle.readable().await.map(|_| process::wall_time());
    let id = (container, pid);
    match lock(&shared.watched).get_mut(&id) {
        Some(watched) => watched.state = Watch::Ended,
        None => return, // disarmed
    }
    if let Ok(at) = ended {
        let status = status(&shared, handle.get_ref()).await;
        if let Err(error) = shared.journal.write(&id.0, &Exit { pid, status, at }) {
            tracing::error!(container = %id.0, pid, %error, "an exit could not be written down");
        }
    }
    lock(&shared.watched).remove(&id);
    lock(&shared.woken).insert(instance);
    shared.bell.notify_one();
}

async fn status(shared: &Shared, handle: &OwnedFd) -> ExitStatus {
    if !shared.tells_status {
        return ExitStatus::Unknown;
    }
    let mut waited = Duration::ZERO;
    loop {
        if let Some(status) = pidfd::wait_status(handle.as_fd()) {
            return decode(status);
        }
        if waited >= REAPED_WITHIN {
            return ExitStatus::Unknown;
        }
        tokio::time::sleep(ASK_EVERY).await;
        waited += ASK_EVERY;
    }
}

/// A wait status as shells count it.
fn decode(status: i32) -> ExitStatus {
    if libc::WIFEXITED(status) {
        ExitStatus::Code(libc::WEXITSTATUS(status).unsigned_abs())
    } else if libc::WIFSIGNALED(status) {
        ExitStatus::Code(128 + libc::WTERMSIG(status).unsigned_abs())
    } else {
        ExitStatus::Unknown
    }
}

/// Linux tells the status of a reaped process through its pidfd since 6.15. An older kernel ignores the question, so
/// asking it would only cost time after each exit.
fn kernel_tells_status() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 15)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves these maps whole: every change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AppName, ServiceName};

    fn key() -> InstanceKey {
        InstanceKey { app: AppName::new("a").unwrap(), service: ServiceName::new("s").unwrap(), replica: 1 }
    }

    #[test]
    fn wait_statuses_are_told_as_shells_do() {
        assert_eq!(decode(0), ExitStatus::Code(0));
        assert_eq!(decode(0x700), ExitStatus::Code(7));
        assert_eq!(decode(9), ExitStatus::Code(137));
        assert_eq!(decode(0x137f), ExitStatus::Unknown, "stopped is no exit");
    }

    #[tokio::test]
    async fn an_exit_is_written_down_with_its_status_before_it_wakes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let witness = Witness::new(Journal::new(folder.path().to_path_buf()));
        #[expect(clippy::disallowed_methods, reason = "a process to watch")]
        let mut child = tokio::process::Command::new("sh")
            .args(["-c", "read x; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh runs");
        let pid = child.id().expect("it runs");
        witness.arm(&key(), "c", pid, process::start_ticks(pid)).expect("it lives");
        assert!(witness.arm(&key(), "c", pid + 100_000_000, None).is_err(), "no such process");
        drop(child.stdin.take());
        child.wait().await.expect("it ends");
        let woken = tokio::time::timeout(Duration::from_secs(5), witness.exits()).await.expect("rings");
        assert_eq!(woken, BTreeSet::from([key()]));
        let exit = witness.journal().exit("c", pid).expect("reads").expect("written down");
        let expected = if kernel_tells_status() { ExitStatus::Code(7) } else { ExitStatus::Unknown };
        assert_eq!(exit.status, expected);
    }
}
