//! Our labels on container records and snapshots: how they are written and read back.

use crate::model::{AppName, Exit, InstanceKey, Run, ServiceName, SpecDigest, Stopping};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// The app.
pub const APP: &str = "stead/app";
/// The service.
pub const SERVICE: &str = "stead/service";
/// The replica.
pub const REPLICA: &str = "stead/replica";
/// The digest of the spec.
pub const SPEC: &str = "stead/spec";
/// The file that asked.
pub const FILE: &str = "stead/file";
/// The attempt at this digest.
pub const ATTEMPT: &str = "stead/attempt";
/// The run, as JSON.
pub const RUN: &str = "stead/run";
/// The last exit, as JSON.
pub const EXIT: &str = "stead/exit";
/// The stop mark, as JSON.
pub const STOP: &str = "stead/stop";
/// `cured` after containerd kept half of a task once, `1` after it did so again.
pub const WEDGED: &str = "stead/wedged";
/// What was clamped, as a JSON list.
pub const CLAMPED: &str = "stead/clamped";
/// Keeps a snapshot from the garbage collector before a container names it.
pub const GC_ROOT: &str = "containerd.io/gc.root";

/// What all our label keys begin with.
pub const PREFIX: &str = "stead/";

/// Labels of one object.
pub type Labels = HashMap<String, String>;

/// The labels that say whose it is.
pub fn of_instance(key: &InstanceKey) -> Labels {
    HashMap::from([
        (APP.to_owned(), key.app.to_string()),
        (SERVICE.to_owned(), key.service.to_string()),
        (REPLICA.to_owned(), key.replica.to_string()),
    ])
}

/// Whose it is; `None` where the labels are not ours or cannot be read.
pub fn instance(labels: &Labels) -> Option<InstanceKey> {
    Some(InstanceKey {
        app: AppName::new(labels.get(APP)?.as_str()).ok()?,
        service: ServiceName::new(labels.get(SERVICE)?.as_str()).ok()?,
        replica: labels.get(REPLICA)?.parse().ok()?,
    })
}

/// The filter that finds what carries the labels of an instance.
pub fn filter(key: &InstanceKey) -> String {
    format!(
        "labels.\"{APP}\"==\"{}\",labels.\"{SERVICE}\"==\"{}\",labels.\"{REPLICA}\"==\"{}\"",
        key.app, key.service, key.replica
    )
}

/// The filter that finds whatever is ours.
pub fn filter_ours() -> String {
    format!("labels.\"{APP}\"")
}

/// What a container's labels tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The digest of its spec.
    pub digest: SpecDigest,
    /// The attempt at this digest.
    pub attempt: u32,
    /// The run.
    pub run: Option<Run>,
    /// The last exit.
    pub exit: Option<Exit>,
    /// The stop mark.
    pub stopping: Option<Stopping>,
    /// Whether no task can be made from the record.
    pub wedged: bool,
    /// What was clamped.
    pub clamped: Vec<String>,
}

/// Reads them; what cannot be read counts as not written.
pub fn told(labels: &Labels) -> Told {
    Told {
        digest: SpecDigest::from_label(labels.get(SPEC).map_or("", String::as_str)),
        attempt: labels.get(ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(0),
        run: json(labels, RUN),
        exit: json(labels, EXIT),
        stopping: json(labels, STOP),
        wedged: labels.get(WEDGED).is_some_and(|text| text == "1"),
        clamped: json(labels, CLAMPED).unwrap_or_default(),
    }
}

/// A value as a label holds it.
pub fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our own types have no map keys that JSON cannot hold")
}

fn json<T: DeserializeOwned>(labels: &Labels, key: &str) -> Option<T> {
    labels.get(key).filter(|text| !text.is_empty()).and_then(|text| serde_json::from_str(text).ok())
}
