//! What is mounted into a container, in order.

use super::Surroundings;
use crate::drive::containerd::error::CallError;
use crate::model::{InstanceFile, InstanceSpec, Ipc, MountSource, Propagation, Recursive};
use oci_spec::runtime::{Mount, MountBuilder};
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

/// Where the init of a container is in it: in its own /dev, so that nothing of it is left in the image's files.
pub const INIT: &str = "/dev/init";

/// All mounts: the kernel's, the instance's files, the user's. A user's mount takes the place of a default one.
pub fn all(spec: &InstanceSpec, around: &Surroundings<'_>) -> Result<Vec<Mount>, CallError> {
    let taken = |target: &str| spec.mounts.iter().any(|mount| mount.target == target);
    let mut mounts = kernel(spec, &taken)?;
    for (file, target) in FILES {
        // With the host's host name, that file would tell another one.
        let host_name = file == InstanceFile::Hostname && spec.setup.namespaces.host_uts;
        if !taken(target) && !host_name {
            mounts.push(bind(target, &around.files.join(file.name()), &[])?);
        }
    }
    if spec.setup.init {
        mounts.push(bind(INIT, &around.helper, &["ro"])?);
    }
    for wanted in &spec.mounts {
        mounts.push(match &wanted.source {
            MountSource::Bind { path, create: _ } => bound(wanted, path)?,
            MountSource::Volume(name) => {
                let volume = around.volumes.join(name.as_str());
                bound(wanted, &wanted.settings.subpath.iter().fold(volume, |path, inside| path.join(inside)))?
            }
            MountSource::Tmpfs { options } => tmpfs(&wanted.target, options, wanted.read_only)?,
        });
    }
    let folder = crate::drive::files::grants::folder(&around.files);
    for grant in &spec.grants {
        mounts.push(bind(&grant.target, &folder.join(grant.file()), &["ro", "nosuid", "nodev"])?);
    }
    Ok(mounts)
}

fn kernel(spec: &InstanceSpec, taken: &impl Fn(&str) -> bool) -> Result<Vec<Mount>, CallError> {
    let mut mounts = Vec::new();
    let ipc = spec.setup.namespaces.ipc;
    for (target, typ, source, options) in KERNEL {
        if taken(target) || (target == "/dev/shm" && ipc == Some(Ipc::NoShm)) {
            continue;
        }
        if target == "/dev/shm" && ipc == Some(Ipc::Host) {
            mounts.push(bind(target, Path::new(target), &[])?);
            continue;
        }
        let writable = spec.privileged && target.starts_with("/sys");
        let options = options.split(',').filter(|option| !(writable && *option == "ro"));
        let size = spec.setup.shm_size.filter(|_| target == "/dev/shm");
        let option = |option: &str| match size {
            Some(size) if option.starts_with("size=") => format!("size={size}"),
            _ => option.to_owned(),
        };
        mounts.push(mount(target, typ, Path::new(source), options.map(option).collect())?);
    }
    Ok(mounts)
}

/// How the root filesystem spreads mounts, where one of the user's has to spread.
pub fn root_propagation(spec: &InstanceSpec) -> Option<&'static str> {
    let spreads = |wanted: &[Propagation]| {
        spec.mounts.iter().any(|mount| mount.settings.propagation.is_some_and(|how| wanted.contains(&how)))
    };
    if spreads(&[Propagation::Shared, Propagation::Rshared]) {
        return Some("rshared");
    }
    spreads(&[Propagation::Slave, Propagation::Rslave]).then_some("rslave")
}

/// A bind mount as its settings say.
fn bound(wanted: &crate::model::Mount, source: &Path) -> Result<Mount, CallError> {
    let kind = if wanted.settings.recursive == Some(Recursive::Disabled) { "bind" } else { "rbind" };
    let propagation = wanted.settings.propagation.map_or("rprivate", Propagation::as_str);
    let mut options = vec![kind.to_owned(), propagation.to_owned()];
    if wanted.read_only {
        let all = wanted.settings.recursive == Some(Recursive::Readonly);
        options.push(if all { "rro" } else { "ro" }.to_owned());
    }
    mount(&wanted.target, "bind", source, options)
}

fn bind(target: &str, source: &Path, further: &[&str]) -> Result<Mount, CallError> {
    let options = ["rbind", "rprivate"].iter().chain(further).map(|option| (*option).to_owned());
    mount(target, "bind", source, options.collect())
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
