//! Where things are, and whose a path is.
//!
//! A service or a volume may be called `.` or `..`: such a name is written with `%2e` for its dots. No name has a `%`.

use super::names;
use crate::drive::fault::Fault;
use crate::model::{AppName, InstanceKey, ServiceName, VolumeKey};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder with the files of all instances.
pub(super) fn instances_root(run_dir: &Path) -> PathBuf {
    run_dir.join("instances")
}

/// The folder with an instance's files.
pub fn instance_dir(run_dir: &Path, key: &InstanceKey) -> PathBuf {
    let service = encode(key.service.as_str());
    instances_root(run_dir).join(key.app.as_str()).join(service).join(key.replica.to_string())
}

/// The log of an instance.
pub fn log_file(log_dir: &Path, key: &InstanceKey) -> PathBuf {
    log_dir.join(key.app.as_str()).join(format!("{}-{}.log", key.service, key.replica))
}

/// Every instance that has a log.
pub(super) fn logs(log_dir: &Path) -> Result<Vec<InstanceKey>, Fault> {
    let mut found = Vec::new();
    for app in names(log_dir)?.into_iter().filter(|app| app.parse::<AppName>().is_ok()) {
        let files = names(&log_dir.join(&app))?;
        found.extend(files.iter().filter_map(|name| {
            let (service, replica) = name.strip_suffix(".log")?.rsplit_once('-')?;
            let key =
                InstanceKey { app: app.parse().ok()?, service: service.parse().ok()?, replica: replica.parse().ok()? };
            (log_file(log_dir, &key).file_name()?.to_str()? == name).then_some(key)
        }));
    }
    Ok(found)
}

/// The directory of a named volume.
pub fn volume_dir(volumes_dir: &Path, key: &VolumeKey) -> PathBuf {
    volumes_dir.join(key.app.as_str()).join(encode(key.volume.as_str()))
}

/// Whose a folder is, by its parts below [`instances_root`].
pub(super) fn instance_of(app: &str, service: &str, replica: &str) -> Option<InstanceKey> {
    let key =
        InstanceKey { app: app.parse().ok()?, service: decode(service).parse().ok()?, replica: replica.parse().ok()? };
    // `+1` and `01` are numbers, but no folders of ours.
    (key.replica.to_string() == replica && encode(key.service.as_str()) == service).then_some(key)
}

/// Whose a directory is, by its parts below the folder of volumes.
pub(super) fn volume_of(app: &str, name: &str) -> Option<VolumeKey> {
    let key = VolumeKey { app: app.parse().ok()?, volume: decode(name).parse().ok()? };
    (encode(key.volume.as_str()) == name).then_some(key)
}

/// Every instance that has a folder.
pub(super) fn instances(run_dir: &Path) -> Result<Vec<InstanceKey>, Fault> {
    let root = instances_root(run_dir);
    let mut found = Vec::new();
    for app in names(&root)?.into_iter().filter(|app| app.parse::<AppName>().is_ok()) {
        for service in names(&root.join(&app))?.into_iter().filter(|name| decode(name).parse::<ServiceName>().is_ok()) {
            let replicas = names(&root.join(&app).join(&service))?;
            found.extend(replicas.iter().filter_map(|replica| instance_of(&app, &service, replica)));
        }
    }
    Ok(found)
}

/// Every volume that has a directory.
pub(super) fn volumes(volumes_dir: &Path) -> Result<BTreeSet<VolumeKey>, Fault> {
    let mut found = BTreeSet::new();
    for app in names(volumes_dir)?.into_iter().filter(|app| app.parse::<AppName>().is_ok()) {
        let volumes = names(&volumes_dir.join(&app))?.into_iter().filter_map(|name| volume_of(&app, &name));
        found.extend(volumes.filter(|key| volume_dir(volumes_dir, key).is_dir()));
    }
    Ok(found)
}

fn encode(name: &str) -> String {
    if matches!(name, "." | "..") { name.replace('.', "%2e") } else { name.to_owned() }
}

fn decode(name: &str) -> String {
    name.replace("%2e", ".")
}
