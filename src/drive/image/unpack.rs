//! Layers to snapshots: each on the one below it, named by its chain id, compared with its diff id.

use super::WRITE;
use crate::drive::containerd::documents::Blob;
use crate::drive::containerd::images::{Inventory, Resolved};
use crate::drive::containerd::{CallError, Containerd, SNAPSHOTTER};
use containerd_client::services::v1::ApplyRequest;
use containerd_client::services::v1::snapshots::{
    CommitSnapshotRequest, PrepareSnapshotRequest, RemoveSnapshotRequest,
};
use containerd_client::types::{Descriptor, Mount};
use std::collections::HashMap;
use std::time::Duration;

/// Unpacking one layer: gigabytes on a slow disk.
const APPLY: Duration = Duration::from_secs(20 * 60);

/// Unpacks whatever of an image is not unpacked yet.
pub(super) async fn image(containerd: &Containerd, lease: &str, digest: &str) -> Result<(), CallError> {
    let (manifest, config) = match containerd.resolve(digest).await? {
        Resolved::Image { manifest, config, .. } => (manifest, config),
        Resolved::Incomplete => return Err(CallError::missing(format!("parts of the image {digest}"))),
        Resolved::WrongPlatform(has) => {
            return Err(CallError::invalid(format!("the image is not for this machine, only for {}", has.join(", "))));
        }
    };
    let chain = config.chain_ids();
    let mut parent = String::new();
    for ((layer, diff_id), chain_id) in manifest.layers.iter().zip(&config.rootfs.diff_ids).zip(chain) {
        if !containerd.has_snapshot(&Inventory::Ask, &chain_id).await? {
            let work = Layer { containerd, lease, blob: layer, diff_id, chain_id: &chain_id, parent: &parent };
            work.unpack().await?;
        }
        parent = chain_id;
    }
    Ok(())
}

struct Layer<'a> {
    containerd: &'a Containerd,
    lease: &'a str,
    blob: &'a Blob,
    diff_id: &'a str,
    chain_id: &'a str,
    parent: &'a str,
}

impl Layer<'_> {
    async fn unpack(&self) -> Result<(), CallError> {
        let key = format!("extract-{}-{}", self.lease, self.chain_id);
        let mounts = self.prepare(&key).await?;
        let applied = self.apply(mounts).await;
        let outcome = match applied {
            Ok(digest) if digest == self.diff_id => self.commit(&key).await,
            Ok(digest) => Err(CallError::invalid(format!(
                "layer {} unpacks to {digest}, the config says {}",
                self.blob.digest, self.diff_id
            ))),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            // half a layer is of no use to anybody; if this fails too, the next try begins with it
            let _ = self.remove(&key).await;
        }
        outcome
    }

    async fn prepare(&self, key: &str) -> Result<Vec<Mount>, CallError> {
        match self.try_prepare(key).await {
            // left by a try that was cut off: nobody else works under this lease's lock
            Err(error) if error.already_exists() => {
                self.remove(key).await?;
                self.try_prepare(key).await
            }
            other => other,
        }
    }

    async fn try_prepare(&self, key: &str) -> Result<Vec<Mount>, CallError> {
        let link = self.containerd.link();
        let request = PrepareSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: key.to_owned(),
            parent: self.parent.to_owned(),
            labels: HashMap::new(),
        };
        let mut client = link.snapshots();
        let call = client.prepare(link.leased(request, self.lease));
        Ok(link.write("Snapshots.Prepare", key, WRITE, call).await?.mounts)
    }

    async fn apply(&self, mounts: Vec<Mount>) -> Result<String, CallError> {
        let link = self.containerd.link();
        let diff = Descriptor {
            media_type: self.blob.media_type.clone(),
            digest: self.blob.digest.clone(),
            size: i64::try_from(self.blob.size).unwrap_or(i64::MAX),
            ..Descriptor::default()
        };
        let request = ApplyRequest { diff: Some(diff), mounts, ..ApplyRequest::default() };
        let mut client = link.diff();
        let call = client.apply(link.leased(request, self.lease));
        let answer = link.write("Diff.Apply", &self.blob.digest, APPLY, call).await?;
        Ok(answer.applied.map(|applied| applied.digest).unwrap_or_default())
    }

    async fn commit(&self, key: &str) -> Result<(), CallError> {
        let link = self.containerd.link();
        let request = CommitSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            name: self.chain_id.to_owned(),
            key: key.to_owned(),
            ..CommitSnapshotRequest::default()
        };
        let mut client = link.snapshots();
        let call = client.commit(link.leased(request, self.lease));
        match link.write("Snapshots.Commit", key, WRITE, call).await {
            Ok(()) => Ok(()),
            // somebody unpacked the same layer meanwhile: theirs counts
            Err(error) if error.already_exists() => self.remove(key).await,
            Err(error) => Err(error),
        }
    }

    async fn remove(&self, key: &str) -> Result<(), CallError> {
        let link = self.containerd.link();
        let request = RemoveSnapshotRequest { snapshotter: SNAPSHOTTER.to_owned(), key: key.to_owned() };
        let mut client = link.snapshots();
        match link.write("Snapshots.Remove", key, WRITE, client.remove(link.request(request))).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
