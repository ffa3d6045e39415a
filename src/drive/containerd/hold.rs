//! Who works under an import lease: a lock on one byte of a file in the run directory, held by the process that imports.
//! It ends with its process, so a lease without a held lock is one that a crash has left; and nothing is left but the
//! one file, whatever is killed when.

use crate::model::slot_hash;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// The file's name.
pub const FILE: &str = "imports.lock";

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub struct Hold {
    _file: File,
}

/// Whether somebody works under this lease.
pub fn is_held(path: &Path, lease: &str) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let mut lock = lock(lease, libc::F_WRLCK);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Takes the lock of a lease; `None` when somebody else has it.
pub fn take(path: &Path, lease: &str) -> io::Result<Option<Hold>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&lock(lease, libc::F_WRLCK))) {
        Ok(_) => Ok(Some(Hold { _file: file })),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// One byte at an offset that is the lease's own.
fn lock(lease: &str, kind: i32) -> libc::flock {
    let offset = slot_hash(lease) >> 2;
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: 0, // SEEK_SET
        l_start: i64::try_from(offset).unwrap_or_default(),
        l_len: 1,
        l_pid: 0, // what open file description locks ask for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_as_long_as_its_hold_lives() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(FILE);
        assert!(!is_held(&path, "l").expect("asks"));
        let hold = take(&path, "l").expect("asks").expect("is free");
        assert!(is_held(&path, "l").expect("asks"));
        assert!(!is_held(&path, "another").expect("asks"));
        assert!(take(&path, "l").expect("asks").is_none());
        drop(hold);
        assert!(!is_held(&path, "l").expect("asks"));
        assert!(take(&path, "l").expect("asks").is_some());
    }
}
