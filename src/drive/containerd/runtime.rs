//! What a task is made with beside its spec: the OCI runtime, the helper, and where its input and output lead.

use super::Containerd;
use super::error::CallError;
use crate::model::{InstanceKey, InstanceSpec, Record, hex};
use prost::Message as _;
use prost_types::Any;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use sha2::{Digest as _, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The helper program (`src/side/helper.rs`).
const HELPER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/helper"));
/// Where a shim of this kind looks up how to read its options.
const OPTIONS: &str = "containerd.runc.v1.Options";
/// The name of the FIFO that a container with an open input reads.
const STDIN: &str = "stdin";

/// The shim's options, as far as they are ours to set.
#[derive(Clone, PartialEq, prost::Message)]
struct RuncOptions {
    /// The runtime's program.
    #[prost(string, tag = "6")]
    binary_name: String,
}

/// The options of the shim for an instance, where it is not to be as usual.
pub(super) fn options(spec: &InstanceSpec) -> Option<Any> {
    let binary_name = spec.setup.runtime.clone()?;
    Some(Any { type_url: OPTIONS.to_owned(), value: RuncOptions { binary_name }.encode_to_vec() })
}

/// Where the streams of a task lead, as containerd takes it.
pub(super) struct Streams {
    pub stdin: String,
    pub stdout: String,
    pub stderr: String,
}

impl Containerd {
    /// The streams of an instance; what they need is made.
    pub(super) fn streams(&self, instance: &InstanceKey, record: &Record, log: &Path) -> Result<Streams, CallError> {
        let setup = &record.spec.setup;
        if setup.init || setup.tty {
            let helper = self.helper();
            install(&helper).map_err(|error| CallError::local(format!("installing {}", helper.display()), error))?;
        }
        let stdin = match setup.stdin_open {
            false => String::new(),
            true => {
                let path = self.instance_files(instance).join(STDIN);
                fifo(&path).map_err(|error| CallError::local(format!("making {}", path.display()), error))?;
                path.display().to_string()
            }
        };
        if setup.tty {
            // A shim copies a terminal into a FIFO or into a program, never into a file.
            let writer = format!("binary://{}?log={}", self.helper().display(), log.display());
            return Ok(Streams { stdin, stdout: writer, stderr: String::new() });
        }
        let file = format!("file://{}", log.display());
        Ok(Streams { stdin, stdout: file.clone(), stderr: file })
    }

    /// The helper program, beside the volumes: `/run` may be mounted so that nothing in it can be run. Another version of
    /// it has another name, so that one in use is never written to.
    pub(super) fn helper(&self) -> PathBuf {
        let digest = hex(&Sha256::digest(HELPER));
        self.volumes_root().with_file_name(format!("helper-{}", &digest[..12]))
    }
}

fn install(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| there.len() == HELPER.len() as u64) {
        return Ok(());
    }
    let draft = path.with_extension("tmp");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o755).open(&draft)?;
    file.write_all(HELPER)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    file.sync_all()?;
    drop(file);
    fs::rename(&draft, path)
}

fn fifo(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_fifo() => return Ok(()),
        Ok(_) => fs::remove_file(path)?,
        Err(_) => {}
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).map_err(io::Error::from)
}

/// A part of a volume has to be there, and to be in the volume: a link that leads out of it is none.
pub(super) fn inside_volume(volume: &Path, inside: &str) -> Result<(), CallError> {
    let local = |error: rustix::io::Errno| {
        CallError::local(format!("{inside} of the volume {}", volume.display()), error.into())
    };
    let root = rustix::fs::open(volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(root.map_err(local)?, inside, flags, Mode::empty(), resolve) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::NOENT) => Err(CallError::Missing {
            what: format!("there is no `{inside}` in the volume {}", volume.display()),
            hint: Some(format!("make it: mkdir -p {}", volume.join(inside).display())),
        }),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::XDEV) => Err(CallError::Invalid {
            what: format!("`{inside}` leads out of the volume {} by a link", volume.display()),
            hint: Some("name a directory of the volume itself".to_owned()),
        }),
        Err(error) => Err(local(error)),
    }
}
