//! Netns files under `/run/netns`: made, found, looked into and removed the way `ip netns` does it, so that `ip netns
//! exec` works on them and containerd sees them.

use crate::drive::fault::{Fault, Said as _};
use crate::model::{Marks, NetnsIdentity, Outcome};
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How often a netns file is unmounted before that counts as failed: mounts on one file can be stacked.
const STACKED_MOUNTS: usize = 16;

/// The folder of netns files.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

impl Folder {
    /// A netns by name: its inode and a handle; inode 0 for a file that is no netns; `None` without a file.
    pub(super) fn open(&self, name: &str) -> Result<Option<(u64, Option<OwnedFd>)>, Fault> {
        let path = self.path.join(name);
        let said = || format!("open netns {}", path.display());
        match open(&path, OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK, Mode::empty()) {
            Ok(fd) => Ok(Some((inode(&fd).said(said)?, Some(fd)))),
            Err(nix::Error::ENOENT) => Ok(None),
            // A symbolic link in this place is no netns of ours, whatever it leads to.
            Err(nix::Error::ELOOP) => Ok(Some((0, None))),
            Err(error) => Err(error).said(said),
        }
    }

    /// The netns that a step was decided on; `None` when the name is gone or leads to another one.
    pub(super) fn open_same(&self, netns: &NetnsIdentity) -> Result<Option<OwnedFd>, Fault> {
        Ok(self.open(&netns.name)?.filter(|(inode, _)| *inode == netns.inode && *inode != 0).and_then(|(_, fd)| fd))
    }

    /// The names of all netns files that carry our mark: our prefix and exactly a hash behind it, so that an agent
    /// `stead` does not take the netns of an agent `stead-2` for its own.
    pub(super) fn ours(&self, marks: &Marks) -> Result<Vec<String>, Fault> {
        let said = || format!("list {}", self.path.display());
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).said(said),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.said(said)?.file_name();
            names.extend(name.to_str().filter(|name| is_ours(marks, name)).map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Mounts a fresh netns on a file of this name. The calling thread is inside of it afterwards.
    pub(super) fn make(&self, name: &str) -> Result<Outcome, Fault> {
        if self.open(name)?.is_some_and(|(inode, _)| inode != 0) {
            return Ok(Outcome::Already);
        }
        self.prepare()?;
        unshare(CloneFlags::CLONE_NEWNET).said(|| "make a network namespace".into())?;
        self.place(name, Path::new("/proc/thread-self/ns/net"))?;
        Ok(Outcome::Done)
    }

    /// Mounts the netns of a live process on a file of this name.
    pub(super) fn adopt(&self, name: &str, pid: u32, start_ticks: u64) -> Result<Outcome, Fault> {
        let source = format!("/proc/{pid}/ns/net");
        let Ok(fd) = open(source.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) else {
            return Ok(Outcome::Moved);
        };
        // Compared after opening: the handle is of the process whose start time this is.
        if started(pid) != Some(start_ticks) {
            return Ok(Outcome::Moved);
        }
        let inode = inode(&fd).said(|| format!("read {source}"))?;
        match self.open(name)? {
            Some((there, _)) if there == inode => return Ok(Outcome::Already),
            Some((there, _)) if there != 0 => return Ok(Outcome::Moved),
            _ => {}
        }
        self.prepare()?;
        self.place(name, &Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string()))?;
        Ok(Outcome::Done)
    }

    /// Unmounts and removes a netns file in which no process lives.
    pub(super) fn drop(&self, netns: &NetnsIdentity) -> Result<Outcome, Fault> {
        let path = self.path.join(&netns.name);
        match self.open(&netns.name)? {
            None => return Ok(Outcome::Already),
            Some((inode, _)) if inode != netns.inode => return Ok(Outcome::Moved),
            Some(_) => {}
        }
        if netns.inode != 0 {
            refuse_resident(&netns.name, resident(|inode, _| inode == netns.inode))?;
        }
        for _ in 0..STACKED_MOUNTS {
            match umount2(&path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => {}
                // Not a mount point (any more).
                Err(nix::Error::EINVAL) => break,
                Err(nix::Error::ENOENT) => return Ok(Outcome::Already),
                Err(error) => return Err(error).said(|| format!("unmount {}", path.display())),
            }
        }
        match fs::remove_file(&path) {
            Ok(()) => Ok(Outcome::Done),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Outcome::Already),
            Err(error) => Err(error).said(|| format!("remove {}", path.display())),
        }
    }

    /// Mounts `source` on the file of this name, which is made where it is missing.
    fn place(&self, name: &str, source: &Path) -> Result<(), Fault> {
        let path = self.path.join(name);
        let said = || format!("mount a netns on {}", path.display());
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o444)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .said(said)?;
        mount(Some(source), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>).said(said)
    }

    /// Makes the folder, and makes it a shared mount, as `ip netns` does: what is mounted in it is then seen in every
    /// mount namespace that the folder is shared with, and unmounting it is seen there too.
    fn prepare(&self) -> Result<(), Fault> {
        let said = || format!("prepare {}", self.path.display());
        DirBuilder::new().recursive(true).mode(0o755).create(&self.path).said(said)?;
        let folder = File::open(&self.path).said(said)?;
        // `ip netns add` takes the same lock: without it, two at once would mount the folder on itself twice.
        let _lock = Flock::lock(folder, FlockArg::LockExclusive).map_err(|(_, error)| error).said(said)?;
        let share =
            || mount(None::<&str>, &self.path, None::<&str>, MsFlags::MS_SHARED | MsFlags::MS_REC, None::<&str>);
        match share() {
            Ok(()) => Ok(()),
            Err(nix::Error::EINVAL) => {
                let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
                mount(Some(&self.path), &self.path, None::<&str>, flags, None::<&str>).said(said)?;
                share().said(said)
            }
            Err(error) => Err(error).said(said),
        }
    }
}

/// Moves the calling thread into a netns. Only for threads that end with this piece of work.
pub(super) fn enter(netns: &impl AsFd) -> Result<(), Fault> {
    setns(netns, CloneFlags::CLONE_NEWNET).said(|| "enter a network namespace".into())
}

/// Whether a name under the folder is one that we give.
pub(super) fn is_ours(marks: &Marks, name: &str) -> bool {
    const HASH: usize = 16;
    name.strip_prefix(&marks.netns_prefix())
        .is_some_and(|hash| hash.len() == HASH && hash.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')))
}

/// A process that lives in a netns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resident {
    pid: u32,
    command: String,
}

/// Refuses when somebody lives there.
pub(super) fn refuse_resident(place: &str, resident: Option<Resident>) -> Result<(), Fault> {
    match resident {
        None => Ok(()),
        Some(Resident { pid, command }) => Err(Fault::Refused {
            why: format!("process {pid} ({command}) lives in the network of {place}"),
            hint: "the network is not taken from a live process; it goes once that process has ended",
        }),
    }
}

/// The first live process whose netns the test accepts; the test gets the inode and the path of the namespace, and is
/// asked once for each namespace. Processes of our own namespace are not looked at.
pub(super) fn resident(mut accept: impl FnMut(u64, &Path) -> bool) -> Option<Resident> {
    let own = namespace_of("thread-self");
    let mut known: BTreeMap<u64, bool> = own.map(|inode| (inode, false)).into_iter().collect();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let inode = namespace_of(&pid.to_string())?;
        let path = entry.path().join("ns/net");
        known.entry(inode).or_insert_with(|| accept(inode, &path)).then(|| Resident {
            pid,
            command: fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_owned(),
        })
    })
}

/// The netns inode of a process; `None` for one that has ended.
fn namespace_of(process: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{process}/ns/net")).ok()?;
    link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// The inode behind a handle when it is a namespace, and 0 when it is anything else.
fn inode(fd: &OwnedFd) -> nix::Result<u64> {
    if fstatfs(fd)?.filesystem_type() != NSFS_MAGIC {
        return Ok(0);
    }
    Ok(fstat(fd)?.st_ino)
}

/// When a process was started, in clock ticks since boot: field 22 of its stat line, counted behind the command's last
/// parenthesis, since a command may hold anything.
fn started(pid: u32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
