//! # files: what instances have mounted, volumes, and the host's resolver
//!
//! Each instance has `hosts`, `resolv.conf` and `hostname` in a folder under the agent's run directory; they are
//! mounted into it, so they are changed in place and keep their inodes. Each named volume is a directory. Configs and secrets
//! are files in memory.
//!
//! Guarantees: a look is whole or unseen; only names that can be read as an app, a service and a replica are ours, and
//! anything else in the tree is left alone; a volume's content is never looked at or removed.
//!
//! Never: a symbolic link followed inside an instance's folder; a volume removed.
//!
//! Tests: `tests/driver_files.rs`.

pub(in crate::drive) mod grants;
mod paths;
mod resolver;
mod wakes;

pub use paths::{instance_dir, log_file, volume_dir};

use super::fault::{Fault, Said as _};
use super::{Counters, Wake, sight, source, thread};
use crate::model::{FilesSeen, InstanceFile, InstanceFiles, InstanceKey, Outcome, Sight, Step, VolumeKey};
use futures::{Stream, stream};
use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How much of a file is read. A workload may have written its hosts file full; that is not ours to load.
const LARGEST: u64 = 1 << 20;

/// What the driver works with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The agent's run directory: `/run/stead`.
    pub run_dir: PathBuf,
    /// Where logs are: `/var/log/stead`.
    pub log_dir: PathBuf,
    /// Where volumes are: `/var/lib/stead/volumes`.
    pub volumes_dir: PathBuf,
    /// The host's resolver file: `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// The file with the true name servers where the other one names a stub on the host's loopback.
    pub resolv_conf_behind_stub: PathBuf,
    /// What is counted.
    pub counters: Arc<Counters>,
}

impl Options {
    /// The usual places on a machine.
    pub fn at(run_dir: PathBuf, log_dir: PathBuf, volumes_dir: PathBuf, counters: Arc<Counters>) -> Self {
        Self {
            run_dir,
            log_dir,
            volumes_dir,
            resolv_conf: "/etc/resolv.conf".into(),
            resolv_conf_behind_stub: "/run/systemd/resolve/resolv.conf".into(),
            counters,
        }
    }
}

/// The file driver.
#[derive(Debug)]
pub struct Files {
    options: Arc<Options>,
}

impl Files {
    /// A driver that has looked at nothing yet.
    pub fn new(options: Options) -> Self {
        Self { options: Arc::new(options) }
    }

    /// Looks at all files.
    pub async fn look_files(&self) -> Sight<FilesSeen> {
        let options = Arc::clone(&self.options);
        sight(thread::run("look at files", move || whole(&options)).await)
    }

    /// Looks at one instance's files; `None` when it has neither a folder nor a log.
    pub async fn look_instance(&self, key: &InstanceKey) -> Sight<Option<InstanceFiles>> {
        let (options, key) = (Arc::clone(&self.options), key.clone());
        sight(thread::run("look at an instance's files", move || instance(&options, &key)).await)
    }

    /// Looks whether a volume has its directory.
    pub async fn look_volume(&self, key: &VolumeKey) -> Sight<bool> {
        let path = volume_dir(&self.options.volumes_dir, key);
        sight(thread::run("look at a volume", move || is_directory(&path)).await)
    }

    /// Does one step of this domain. A step of another domain is refused.
    pub async fn perform(&self, step: Step) -> Outcome {
        self.options.counters.file_writes.fetch_add(1, Ordering::Relaxed);
        let options = Arc::clone(&self.options);
        let acted = thread::run(step.name(), move || act(&options, &step)).await;
        acted.unwrap_or_else(|fault| fault.outcome())
    }

    /// What happens to these files, from now on and for ever. Needs a tokio runtime.
    pub fn wakes(&self) -> impl Stream<Item = Wake> + use<> {
        stream::select(
            Box::pin(source::listen::<wakes::Tree>(&self.options)),
            Box::pin(source::listen::<wakes::HostFiles>(&self.options)),
        )
    }
}

fn whole(options: &Options) -> Result<FilesSeen, Fault> {
    let mut seen = FilesSeen { resolver: resolver::look(options)?, ..FilesSeen::default() };
    let mut keys: BTreeSet<InstanceKey> = paths::instances(&options.run_dir)?.into_iter().collect();
    keys.extend(paths::logs(&options.log_dir)?);
    for key in keys {
        // Gone since it was listed, if it has nothing.
        if let Some(files) = instance(options, &key)? {
            seen.instances.insert(key, files);
        }
    }
    seen.volumes = paths::volumes(&options.volumes_dir)?;
    Ok(seen)
}

fn instance(options: &Options, key: &InstanceKey) -> Result<Option<InstanceFiles>, Fault> {
    let folder = instance_dir(&options.run_dir, key);
    if !is_directory(&folder)? {
        let log = log_file(&options.log_dir, key);
        let there = log.try_exists().said(|| format!("look at {}", log.display()))?;
        return Ok(there.then(InstanceFiles::default));
    }
    let file = |file: InstanceFile| read(&folder.join(file.name()));
    Ok(Some(InstanceFiles {
        hosts: file(InstanceFile::Hosts)?,
        resolv_conf: file(InstanceFile::ResolvConf)?,
        hostname: file(InstanceFile::Hostname)?,
        grants: grants::look(&folder)?,
    }))
}

fn is_directory(path: &Path) -> Result<bool, Fault> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error).said(|| format!("look at {}", path.display())),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

/// A file's text; `None` without a file. What is no text, or too long, reads as something that is never wanted.
fn read(path: &Path) -> Result<Option<String>, Fault> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        // A symbolic link in a file's place is replaced by the file.
        Err(error) if is_link(&error) => return Ok(None),
        Err(error) => return Err(error).said(|| format!("read {}", path.display())),
    };
    let mut bytes = Vec::new();
    match file.take(LARGEST).read_to_end(&mut bytes) {
        // It hinders the writing of this one file; the look at all others goes on.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(None),
        whole => whole.said(|| format!("read {}", path.display()))?,
    };
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Does a step on the calling thread.
fn act(options: &Options, step: &Step) -> Result<Outcome, Fault> {
    match step {
        Step::WriteFile { instance, file, content } => {
            write(&instance_dir(&options.run_dir, instance), file.name(), content.as_bytes())
        }
        Step::SetGrants { instance, write, remove } => {
            grants::set(&instance_dir(&options.run_dir, instance), write, remove)
        }
        Step::DropFiles { instance } => drop_files(options, instance),
        Step::MakeVolume { volume } => {
            let path = volume_dir(&options.volumes_dir, volume);
            if is_directory(&path)? {
                return Ok(Outcome::Already);
            }
            let said = || format!("make {}", path.display());
            fs::create_dir_all(&path).said(said)?;
            fs::set_permissions(&path, Permissions::from_mode(0o755)).said(said)?;
            sync_parents(&path, &options.volumes_dir).said(said)?;
            Ok(Outcome::Done)
        }
        other => Err(Fault::Refused {
            why: format!("{} is no step on files", other.name()),
            hint: "this is a defect of the agent",
        }),
    }
}

/// Writes a file: into the one that is there, since it may be mounted somewhere; else a whole one under its name.
fn write(folder: &Path, name: &str, content: &[u8]) -> Result<Outcome, Fault> {
    let path = folder.join(name);
    let said = || format!("write {}", path.display());
    match OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path) {
        Ok(file) => {
            // At no moment is it empty for a reader.
            file.write_all_at(content, 0).said(said)?;
            file.set_len(content.len() as u64).said(said)?;
        }
        Err(error) if is_absent(&error) || is_link(&error) => {
            fs::create_dir_all(folder).said(said)?;
            let draft = folder.join(format!(".{name}.tmp"));
            let mut file = File::create(&draft).said(said)?;
            // Everybody in the instance may read it, whatever the agent's umask is.
            file.set_permissions(Permissions::from_mode(0o644)).said(said)?;
            file.write_all(content).said(said)?;
            fs::rename(&draft, &path).said(said)?;
        }
        Err(error) => return Err(error).said(said),
    }
    Ok(Outcome::Done)
}

/// Removes an instance's log and its folder, and the folders above them that they leave empty. The folder goes last: it
/// is what tells of the instance.
fn drop_files(options: &Options, key: &InstanceKey) -> Result<Outcome, Fault> {
    let log = log_file(&options.log_dir, key);
    match fs::remove_file(&log) {
        Err(error) if !is_absent(&error) => return Err(error).said(|| format!("remove {}", log.display())),
        _ => {}
    }
    if let Some(app) = log.parent() {
        // Another instance's log is in it, or it is gone already.
        let _ = fs::remove_dir(app);
    }
    let folder = instance_dir(&options.run_dir, key);
    let outcome = match fs::remove_dir_all(&folder) {
        Ok(()) => Outcome::Done,
        Err(error) if is_absent(&error) => Outcome::Already,
        Err(error) => return Err(error).said(|| format!("remove {}", folder.display())),
    };
    let root = paths::instances_root(&options.run_dir);
    for parent in folder.ancestors().skip(1).take_while(|parent| *parent != root) {
        // Another instance's files are in it, or it is gone already.
        if fs::remove_dir(parent).is_err() {
            break;
        }
    }
    Ok(outcome)
}

/// Makes the names of fresh directories durable, from the innermost up to `root`.
fn sync_parents(path: &Path, root: &Path) -> io::Result<()> {
    for parent in path.ancestors().skip(1).take_while(|parent| parent.starts_with(root)) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// The names in a directory; none when it is not there.
fn names(path: &Path) -> Result<Vec<String>, Fault> {
    let said = || format!("list {}", path.display());
    let mut folder = match Dir::open(path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
        Ok(folder) => folder,
        Err(nix::Error::ENOENT | nix::Error::ENOTDIR) => return Ok(Vec::new()),
        Err(error) => return Err(error).said(said),
    };
    let mut names = Vec::new();
    for entry in folder.iter() {
        let entry = entry.said(said)?;
        // A name that is no text is none that we gave.
        names.extend(entry.file_name().to_str().ok().filter(|name| !matches!(*name, "." | "..")).map(str::to_owned));
    }
    Ok(names)
}
