//! Who works under an import lease: a lock file beside the run directory, held by the process that imports. It ends
//! with its process, so a lease without a held lock is one that a crash has left.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A held lock; dropping it lets go and removes the file.
#[derive(Debug)]
pub struct Hold {
    path: PathBuf,
    _file: File,
}

/// Whether somebody works under this lease.
pub fn is_held(folder: &Path, lease: &str) -> io::Result<bool> {
    let file = match File::open(folder.join(lease)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes the lock of a lease; `None` when somebody else has it.
pub fn take(folder: &Path, lease: &str) -> io::Result<Option<Hold>> {
    fs::create_dir_all(folder)?;
    let path = folder.join(lease);
    let file = File::options().create(true).truncate(false).write(true).open(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Between opening and locking, the holder before us may have removed the file: then this lock is nobody's.
    let same = fs::metadata(&path).is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
    Ok(same.then_some(Hold { path, _file: file }))
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "a lock file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_as_long_as_its_hold_lives() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(!is_held(folder.path(), "l").expect("asks"));
        let hold = take(folder.path(), "l").expect("asks").expect("is free");
        assert!(is_held(folder.path(), "l").expect("asks"));
        assert!(take(folder.path(), "l").expect("asks").is_none());
        drop(hold);
        assert!(!is_held(folder.path(), "l").expect("asks"));
        assert!(take(folder.path(), "l").expect("asks").is_some());
    }
}
