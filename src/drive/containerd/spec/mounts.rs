//! What is mounted into a container, in order.

use super::Surroundings;
use crate::drive::containerd::error::CallError;
use crate::model::{InstanceFile, InstanceSpec, MountSource};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceBuilder, LinuxDeviceType, Mount, MountBuilder};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What every container sees of the kernel: target, type, source, options.
const KERNEL: [(&str, &str, &str, &str); 7] = [
    ("/proc", "proc", "proc", "nosuid,noexec,nodev"),
    ("/dev", "tmpfs", "tmpfs", "nosuid,strictatime,mode=755,size=65536k"),
    ("/dev/pts", "devpts", "devpts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
    ("/dev/shm", "tmpfs", "shm", "nosuid,noexec,nodev,mode=1777,size=67108864"),
    ("/dev/mqueue", "mqueue", "mqueue", "nosuid,noexec,nodev"),
    ("/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,ro"),
    ("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid,noexec,nodev,relatime,ro"),
];

/// The files of an instance and where they go.
const FILES: [(InstanceFile, &str); 3] = [
    (InstanceFile::Hosts, "/etc/hosts"),
    (InstanceFile::ResolvConf, "/etc/resolv.conf"),
    (InstanceFile::Hostname, "/etc/hostname"),
];

/// Directories of a host's /dev that a privileged container gets as its own.
const OWN_DEV: [&str; 6] = ["pts", "shm", "mqueue", "fd", "hugepages", ".udev"];
/// A /dev deeper or larger than this is none.
const DEV_DEPTH: u32 = 4;

/// All mounts: the kernel's, the instance's files, the user's. A user's mount takes the place of a default one.
pub fn all(spec: &InstanceSpec, around: &Surroundings<'_>) -> Result<Vec<Mount>, CallError> {
    let taken = |target: &str| spec.mounts.iter().any(|mount| mount.target == target);
    let mut mounts = Vec::new();
    for (target, typ, source, options) in KERNEL {
        if taken(target) {
            continue;
        }
        let writable = spec.privileged && target.starts_with("/sys");
        let options = options.split(',').filter(|option| !(writable && *option == "ro"));
        mounts.push(mount(target, typ, Path::new(source), options.map(str::to_owned).collect())?);
    }
    for (file, target) in FILES {
        if !taken(target) {
            mounts.push(bind(target, &around.files.join(file.name()), false)?);
        }
    }
    for wanted in &spec.mounts {
        mounts.push(match &wanted.source {
            MountSource::Bind { path, create: _ } => bind(&wanted.target, path, wanted.read_only)?,
            MountSource::Volume(name) => bind(&wanted.target, &around.volumes.join(name.as_str()), wanted.read_only)?,
            MountSource::Tmpfs { options } => tmpfs(&wanted.target, options, wanted.read_only)?,
        });
    }
    Ok(mounts)
}

fn bind(target: &str, source: &Path, read_only: bool) -> Result<Mount, CallError> {
    let mut options = vec!["rbind".to_owned(), "rprivate".to_owned()];
    if read_only {
        options.push("ro".to_owned());
    }
    mount(target, "bind", source, options)
}

fn tmpfs(target: &str, wanted: &[String], read_only: bool) -> Result<Mount, CallError> {
    let mut options: Vec<String> = ["noexec", "nosuid", "nodev"].map(str::to_owned).to_vec();
    for option in wanted {
        // The positive form of a default takes it back (`exec`).
        options.retain(|default| default.strip_prefix("no") != Some(option.as_str()) && default != option);
        options.push(option.clone());
    }
    if read_only {
        options.push("ro".to_owned());
    }
    mount(target, "tmpfs", Path::new("tmpfs"), options)
}

fn mount(target: &str, typ: &str, source: &Path, options: Vec<String>) -> Result<Mount, CallError> {
    MountBuilder::default()
        .destination(target)
        .typ(typ.to_owned())
        .source(source)
        .options(options)
        .build()
        .map_err(|error| CallError::invalid(format!("mount of {target}: {error}")))
}

/// Every device of the host, for a privileged container.
pub fn host_devices() -> Vec<LinuxDevice> {
    let mut devices = Vec::new();
    collect(Path::new("/dev"), DEV_DEPTH, &mut devices);
    devices
}

fn collect(directory: &Path, depth: u32, devices: &mut Vec<LinuxDevice>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let Ok(meta) = entry.metadata() else { continue };
        let kind = meta.file_type();
        let name = entry.file_name();
        if kind.is_dir() && depth > 0 && !OWN_DEV.iter().any(|own| name == *own) {
            collect(&entry.path(), depth - 1, devices);
        }
        let typ = match (kind.is_char_device(), kind.is_block_device()) {
            (true, _) => LinuxDeviceType::C,
            (_, true) => LinuxDeviceType::B,
            _ => continue,
        };
        if name == "console" || meta.rdev() == 0 {
            continue;
        }
        let number = |part: u32| i64::from(part);
        let device = LinuxDeviceBuilder::default()
            .path(entry.path())
            .typ(typ)
            .major(number(libc::major(meta.rdev())))
            .minor(number(libc::minor(meta.rdev())))
            .file_mode(meta.mode() & 0o7777)
            .uid(meta.uid())
            .gid(meta.gid());
        devices.extend(device.build().ok());
    }
}
