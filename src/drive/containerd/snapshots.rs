//! Steps on snapshots.

use super::error::CallError;
use super::link::{READ, WRITE};
use super::{Containerd, SNAPSHOTTER, labels};
use crate::model::{InstanceKey, Outcome, Timestamp};
use containerd_client::services::v1::snapshots::{MountsRequest, PrepareSnapshotRequest, RemoveSnapshotRequest};
use containerd_client::types::Mount;

impl Containerd {
    /// Prepares the writable snapshot of a container, labelled as the instance's and as a GC root in the same call.
    pub(super) async fn prepare_snapshot(
        &self,
        instance: &InstanceKey,
        key: &str,
        parent: &str,
    ) -> Result<Outcome, CallError> {
        let mut labels = labels::of_instance(instance);
        labels.insert(labels::GC_ROOT.to_owned(), Timestamp::rfc3339(super::process::wall_time()));
        let request = self.link().request(PrepareSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels,
        });
        self.known().add(key, instance);
        let echo = self.echoes().expect("/snapshot/prepare", key);
        let answer = self.link().write("Snapshots.Prepare", key, WRITE, self.link().snapshots().prepare(request)).await;
        match answer {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => {
                echo.cancel();
                if !error.already_exists() {
                    return Err(error);
                }
                match self.stat_snapshot(key).await? {
                    Some(info) if labels::instance(&info.labels).as_ref() == Some(instance) => Ok(Outcome::Already),
                    Some(_) => Err(CallError::invalid(format!("a snapshot `{key}` that is not ours is in the way"))),
                    None => Err(error),
                }
            }
        }
    }

    /// Removes a snapshot of ours.
    pub(super) async fn remove_snapshot(&self, key: &str) -> Result<Outcome, CallError> {
        let Some(info) = self.stat_snapshot(key).await? else { return Ok(Outcome::Already) };
        if !info.labels.contains_key(labels::APP) {
            return Ok(Outcome::Moved);
        }
        let request = RemoveSnapshotRequest { snapshotter: SNAPSHOTTER.to_owned(), key: key.to_owned() };
        let request = self.link().request(request);
        let echo = self.echoes().expect("/snapshot/remove", key);
        match self.link().write("Snapshots.Remove", key, WRITE, self.link().snapshots().remove(request)).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => {
                echo.cancel();
                if error.is_not_found() { Ok(Outcome::Already) } else { Err(error) }
            }
        }
    }

    /// How a snapshot is mounted.
    pub(super) async fn mounts(&self, key: &str) -> Result<Vec<Mount>, CallError> {
        let request = MountsRequest { snapshotter: SNAPSHOTTER.to_owned(), key: key.to_owned() };
        let request = self.link().request(request);
        match self.link().read("Snapshots.Mounts", READ, self.link().snapshots().mounts(request)).await {
            Ok(answer) => Ok(answer.mounts),
            Err(error) if error.is_not_found() => Err(CallError::missing(format!("the snapshot `{key}` is not there"))),
            Err(error) => Err(error),
        }
    }
}
