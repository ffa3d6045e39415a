//! Writing a file so that it is there whole or not at all, whatever happens meanwhile.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a file: a new one beside it, synced, renamed over it, and the directory synced.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let (dir, name) = parts(path)?;
    // Hidden, so that no reader of the directory takes it for an app; one name, so that a crash leaves at most one.
    let temporary = dir.join(format!(".{name}.stead-new"));
    let result = fill(&temporary, bytes, mode).and_then(|()| std::fs::rename(&temporary, path));
    if let Err(error) = result {
        // Best effort: on a full disk the half-written file is in the way.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    sync(dir)
}

/// Removes a file if it is there, and syncs its directory.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => sync(parts(path)?.0),
    }
}

/// Makes a rename or a removal in a directory last.
pub fn sync(dir: &Path) -> Result<()> {
    File::open(dir)?.sync_all()
}

fn parts(path: &Path) -> Result<(&Path, &str)> {
    let bad = || Error::new(ErrorKind::InvalidInput, "the path has no file name");
    Ok((path.parent().ok_or_else(bad)?, path.file_name().and_then(|name| name.to_str()).ok_or_else(bad)?))
}

fn fill(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
