//! Files of configs and secrets: in memory only, each under a name that tells its content and owner.

use super::{is_absent, is_link, names};
use crate::drive::fault::{Fault, Said as _};
use crate::model::{Grant, GrantFile, Outcome, hex};
use rustix::fs::{Gid, Mode, Uid};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A longer file is none of ours.
const LARGEST: u64 = 2 << 20;
/// File systems that keep nothing on a disk: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Where an instance's files of configs and secrets are.
pub(in crate::drive) fn folder(instance: &Path) -> PathBuf {
    instance.join("grants")
}

/// The files that are as their names tell.
pub(super) fn look(instance: &Path) -> Result<BTreeSet<String>, Fault> {
    let folder = folder(instance);
    let mut intact = BTreeSet::new();
    for name in names(&folder)? {
        if told_name(&folder.join(&name))?.is_some_and(|told| told == name) {
            intact.insert(name);
        }
    }
    Ok(intact)
}

/// The name that a file's content and owner tell; `None` for what is no regular file.
fn told_name(path: &Path) -> Result<Option<String>, Fault> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let said = || format!("read {}", path.display());
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) || is_link(&error) => return Ok(None),
        Err(error) => return Err(error).said(said),
    };
    let meta = file.metadata().said(said)?;
    if !meta.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).said(said)?;
    let digest = hex(&Sha256::digest(&bytes));
    Ok(Some(Grant::file_name(&digest, meta.uid(), meta.gid(), meta.mode() & 0o7777)))
}

/// Writes the files that are missing and removes those that are not wanted any more.
pub(super) fn set(instance: &Path, write: &[GrantFile], remove: &[String]) -> Result<Outcome, Fault> {
    let folder = folder(instance);
    let said = || format!("write in {}", folder.display());
    // Nobody but root looks into it from the host, whatever the files' own bits are.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).said(said)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).said(said)?;
    let kind = rustix::fs::statfs(&folder).map_err(io::Error::from).said(said)?.f_type;
    if !write.is_empty() && !IN_MEMORY.contains(&(kind as u64)) {
        return Err(Fault::Refused {
            why: format!("configs and secrets are kept in memory only, and {} is on a disk", folder.display()),
            hint: "give the agent a --state directory on a tmpfs, as /run is one",
        });
    }
    for file in write {
        put(&folder, file).said(|| format!("write {}", folder.join(&file.name).display()))?;
    }
    for name in remove {
        match fs::remove_file(folder.join(name)) {
            Err(error) if !is_absent(&error) => return Err(error).said(said),
            _ => {}
        }
    }
    Ok(Outcome::Done)
}

/// Into the file that is there, since it may be mounted; else a whole one under its name.
fn put(folder: &Path, wanted: &GrantFile) -> io::Result<()> {
    let path = folder.join(&wanted.name);
    let content = wanted.content.open();
    match OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path) {
        Ok(file) => {
            file.write_all_at(content, 0)?;
            file.set_len(content.len() as u64)?;
            owned(&file, wanted)
        }
        Err(error) if is_absent(&error) || is_link(&error) => {
            let draft = folder.join(format!(".{}.tmp", wanted.name));
            let _ = fs::remove_file(&draft);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(content)?;
            owned(&file, wanted)?;
            fs::rename(&draft, &path)
        }
        Err(error) => Err(error),
    }
}

/// The owner first: to give a file away clears bits of its mode.
fn owned(file: &File, wanted: &GrantFile) -> io::Result<()> {
    rustix::fs::fchown(file, Some(Uid::from_raw(wanted.uid)), Some(Gid::from_raw(wanted.gid)))?;
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode))?)
}
