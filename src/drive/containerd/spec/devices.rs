//! Device files: those of the host that a container gets, and the rules that let it use them.

use crate::drive::containerd::error::CallError;
use crate::model::{Device, DeviceRule, InstanceSpec};
use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Character devices that every container has, beside those that the runtime itself adds (ptmx, ttys).
const ALWAYS: [(i64, i64); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1)];
/// Directories of a host's /dev that a privileged container gets as its own.
const OWN_DEV: [&str; 6] = ["pts", "shm", "mqueue", "fd", "hugepages", ".udev"];
/// A directory of devices deeper than this is none.
const DEPTH: u32 = 4;

/// A device with what may be done with it.
struct Given {
    device: LinuxDevice,
    permissions: String,
}

/// The device files of a container: all of the host's for a privileged one, and those that were written.
pub fn files(spec: &InstanceSpec) -> Result<Vec<LinuxDevice>, CallError> {
    let mut devices = Vec::new();
    if spec.privileged {
        collect(Path::new("/dev"), Path::new("/dev"), DEPTH, &mut devices);
    }
    for given in written(&spec.setup.devices)? {
        devices.retain(|device: &LinuxDevice| device.path() != given.device.path());
        devices.push(given.device);
    }
    Ok(devices)
}

/// The rules of a container's device cgroup: later ones win.
pub fn rules(spec: &InstanceSpec) -> Result<Vec<LinuxDeviceCgroup>, CallError> {
    let rule = || LinuxDeviceCgroupBuilder::default().access("rwm".to_owned());
    if spec.privileged {
        return Ok(vec![rule().allow(true).typ(LinuxDeviceType::A).build().map_err(unbuilt)?]);
    }
    let mut rules = vec![rule().allow(false).typ(LinuxDeviceType::A).build().map_err(unbuilt)?];
    for typ in [LinuxDeviceType::C, LinuxDeviceType::B] {
        // Nodes may be made, not opened.
        let make = LinuxDeviceCgroupBuilder::default().allow(true).typ(typ).access("m".to_owned());
        rules.push(make.build().map_err(unbuilt)?);
    }
    for (major, minor) in ALWAYS {
        let open = rule().allow(true).typ(LinuxDeviceType::C).major(major).minor(minor);
        rules.push(open.build().map_err(unbuilt)?);
    }
    for Given { device, permissions } in written(&spec.setup.devices)? {
        let open = LinuxDeviceCgroupBuilder::default().allow(true).typ(device.typ()).access(permissions);
        rules.push(open.major(device.major()).minor(device.minor()).build().map_err(unbuilt)?);
    }
    for wanted in &spec.setup.device_rules {
        rules.push(of_text(wanted)?);
    }
    Ok(rules)
}

fn of_text(wanted: &DeviceRule) -> Result<LinuxDeviceCgroup, CallError> {
    let typ = match wanted.kind {
        'b' => LinuxDeviceType::B,
        'c' => LinuxDeviceType::C,
        _ => LinuxDeviceType::A,
    };
    let mut rule = LinuxDeviceCgroupBuilder::default().allow(true).typ(typ).access(wanted.permissions.clone());
    if let Some(major) = wanted.major {
        rule = rule.major(i64::from(major));
    }
    if let Some(minor) = wanted.minor {
        rule = rule.minor(i64::from(minor));
    }
    rule.build().map_err(unbuilt)
}

/// The devices that were written, with all of a directory's.
fn written(devices: &[Device]) -> Result<Vec<Given>, CallError> {
    let mut out = Vec::new();
    for Device { source, target, permissions } in devices {
        let missing = || CallError::Missing {
            what: format!("the device {} is not there", source.display()),
            hint: Some("plug it in or load its driver, or take it out of `devices`".to_owned()),
        };
        let meta = std::fs::metadata(source).map_err(|_| missing())?;
        let mut found = Vec::new();
        if meta.is_dir() {
            collect(source, target, DEPTH, &mut found);
        } else {
            found.extend(device(target, &meta));
        }
        if found.is_empty() {
            return Err(CallError::Invalid {
                what: format!("{} is no device", source.display()),
                hint: Some("bind-mount a file that is no device under `volumes`".to_owned()),
            });
        }
        out.extend(found.into_iter().map(|device| Given { device, permissions: permissions.clone() }));
    }
    Ok(out)
}

/// All devices in a directory, at another place.
fn collect(directory: &Path, target: &Path, depth: u32, devices: &mut Vec<LinuxDevice>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let Ok(meta) = entry.metadata() else { continue };
        let (name, target): (_, PathBuf) = (entry.file_name(), target.join(entry.file_name()));
        if meta.is_dir() && depth > 0 && !OWN_DEV.iter().any(|own| name == *own) {
            collect(&entry.path(), &target, depth - 1, devices);
        } else if name != "console" {
            devices.extend(device(&target, &meta));
        }
    }
}

fn device(target: &Path, meta: &Metadata) -> Option<LinuxDevice> {
    let kind = meta.file_type();
    let typ = match (kind.is_char_device(), kind.is_block_device()) {
        (true, _) => LinuxDeviceType::C,
        (_, true) => LinuxDeviceType::B,
        _ => return None,
    };
    // A whiteout of an overlay is no device.
    if meta.rdev() == 0 {
        return None;
    }
    let device = LinuxDeviceBuilder::default()
        .path(target)
        .typ(typ)
        .major(i64::from(libc::major(meta.rdev())))
        .minor(i64::from(libc::minor(meta.rdev())))
        .file_mode(meta.mode() & 0o7777)
        .uid(meta.uid())
        .gid(meta.gid());
    device.build().ok()
}

/// The numbers of a block device.
pub fn block_numbers(path: &Path) -> Result<(i64, i64), CallError> {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.file_type().is_block_device());
    let meta = meta.ok_or_else(|| CallError::Missing {
        what: format!("there is no block device {}", path.display()),
        hint: Some("name a block device of this node under `blkio_config`".to_owned()),
    })?;
    Ok((i64::from(libc::major(meta.rdev())), i64::from(libc::minor(meta.rdev()))))
}

fn unbuilt(error: oci_spec::OciSpecError) -> CallError {
    CallError::invalid(format!("the devices cannot be built: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: serde_json::Value) -> InstanceSpec {
        let mut whole = serde_json::json!({"image": {"reference": "docker.io/library/web:latest"}});
        whole.as_object_mut().expect("an object").extend(text.as_object().cloned().expect("an object"));
        serde_json::from_value(whole).expect("a spec")
    }

    #[test]
    fn devices_are_denied_but_for_the_harmless_ones_and_those_that_were_written() {
        let plain = rules(&spec(serde_json::json!({}))).expect("builds");
        assert!(!plain[0].allow() && plain[0].typ() == Some(LinuxDeviceType::A));
        assert_eq!(plain.len(), 3 + ALWAYS.len());
        let all = rules(&spec(serde_json::json!({"privileged": true}))).expect("builds");
        assert!(all.len() == 1 && all[0].allow());
        let asked = spec(serde_json::json!({"setup": {
            "devices": [{"source": "/dev/null", "target": "/dev/nothing", "permissions": "r"}],
            "device_rules": [{"kind": "c", "major": 189, "permissions": "rw"}],
        }}));
        let rules = rules(&asked).expect("builds");
        let [.., device, rule] = rules.as_slice() else { panic!("{rules:?}") };
        assert_eq!((device.major(), device.minor(), device.access().as_deref()), (Some(1), Some(3), Some("r")));
        assert_eq!((rule.major(), rule.minor(), rule.access().as_deref()), (Some(189), None, Some("rw")));
        assert_eq!(files(&asked).expect("builds")[0].path(), Path::new("/dev/nothing"));
        let gone = spec(serde_json::json!({"setup": {"devices": [
            {"source": "/dev/no-such", "target": "/dev/x", "permissions": "rwm"}]}}));
        assert!(matches!(files(&gone), Err(CallError::Missing { hint: Some(_), .. })));
    }
}
