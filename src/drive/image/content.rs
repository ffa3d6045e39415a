//! Writing blobs: one stream of messages each, resumed where an earlier one stopped, checked by containerd's commit.

use super::archive::Layout;
use super::{Blob, WRITE};
use crate::drive::containerd::{CallError, Containerd};
use containerd_client::services::v1::{
    AbortRequest, Info, UpdateRequest, WriteAction, WriteContentRequest, WriteContentResponse,
};
use futures::channel::mpsc;
use futures::{SinkExt as _, StreamExt as _};
use prost_types::FieldMask;
use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Streaming};

/// Bytes in one message: large enough that messages cost nothing, small enough for gRPC's 4 MiB.
const PART: u64 = 1 << 20;
/// One message to the disk; a commit syncs the whole blob.
const PART_WITHIN: Duration = Duration::from_secs(60);

/// Puts a blob of an archive into containerd with its labels, unless it is there.
pub(super) async fn put(
    containerd: &Containerd,
    lease: &str,
    layout: &Layout,
    blob: &Blob,
    labels: HashMap<String, String>,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(), CallError> {
    let name = format!("{lease}-{}", blob.digest);
    let written = write(containerd, lease, &name, layout, blob, &labels, progress).await;
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.already_exists() => label(containerd, lease, blob, labels).await,
        Err(error) if error.code() == Some(Code::FailedPrecondition) => {
            // what was ingested can never become this blob
            abort(containerd, &name).await;
            Err(CallError::invalid(format!("{} in the archive does not have this digest: it is damaged", blob.digest)))
        }
        Err(error) => Err(error),
    }
}

async fn write(
    containerd: &Containerd,
    lease: &str,
    name: &str,
    layout: &Layout,
    blob: &Blob,
    labels: &HashMap<String, String>,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(), CallError> {
    let total = i64::try_from(blob.size).map_err(|_| CallError::invalid("a blob larger than any disk"))?;
    let base = WriteContentRequest {
        r#ref: name.to_owned(),
        total,
        expected: blob.digest.clone(),
        ..WriteContentRequest::default()
    };
    // one message waits while one is on its way
    let (mut sender, receiver) = mpsc::channel(1);
    containerd.link().count_write("Content.Write", &blob.digest);
    let stat = WriteContentRequest { action: WriteAction::Stat.into(), ..base.clone() };
    send(&mut sender, stat).await?;
    let request = containerd.link().leased(receiver, lease);
    let mut client = containerd.link().content();
    let opened = tokio::time::timeout(PART_WITHIN, client.write(request)).await.map_err(|_| late())?;
    let mut answers = opened.map_err(|status| CallError::from_status("Content.Write", status))?.into_inner();
    let mut offset = answer(&mut answers).await?.offset;
    while offset < total {
        let data = layout.part(blob, u64::try_from(offset).unwrap_or_default(), PART).await?;
        let message = WriteContentRequest { action: WriteAction::Write.into(), offset, data, ..base.clone() };
        send(&mut sender, message).await?;
        offset = answer(&mut answers).await?.offset;
        progress(u64::try_from(offset).unwrap_or_default());
    }
    let commit =
        WriteContentRequest { action: WriteAction::Commit.into(), offset: total, labels: labels.clone(), ..base };
    send(&mut sender, commit).await?;
    answer(&mut answers).await.map(drop)
}

async fn send(sender: &mut mpsc::Sender<WriteContentRequest>, message: WriteContentRequest) -> Result<(), CallError> {
    // a closed stream tells why by its next answer
    match tokio::time::timeout(PART_WITHIN, sender.send(message)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(late()),
    }
}

async fn answer(answers: &mut Streaming<WriteContentResponse>) -> Result<WriteContentResponse, CallError> {
    match tokio::time::timeout(PART_WITHIN, answers.next()).await {
        Ok(Some(Ok(answer))) => Ok(answer),
        Ok(Some(Err(status))) => Err(CallError::from_status("Content.Write", status)),
        Ok(None) => Err(CallError::invalid("containerd ended the write without an answer")),
        Err(_) => Err(late()),
    }
}

fn late() -> CallError {
    CallError::Deadline { what: "Content.Write", within: PART_WITHIN }
}

/// A blob that was there before gets the labels that this image needs, and comes under the lease.
async fn label(
    containerd: &Containerd,
    lease: &str,
    blob: &Blob,
    labels: HashMap<String, String>,
) -> Result<(), CallError> {
    if labels.is_empty() {
        return Ok(());
    }
    let paths = labels.keys().map(|key| format!("labels.{key}")).collect();
    let info = Info { digest: blob.digest.clone(), labels, ..Info::default() };
    let request = UpdateRequest { info: Some(info), update_mask: Some(FieldMask { paths }) };
    let request = containerd.link().leased(request, lease);
    let mut client = containerd.link().content();
    containerd.link().write("Content.Update", &blob.digest, WRITE, client.update(request)).await.map(drop)
}

async fn abort(containerd: &Containerd, name: &str) {
    let request = containerd.link().request(AbortRequest { r#ref: name.to_owned() });
    let mut client = containerd.link().content();
    if let Err(error) = containerd.link().write("Content.Abort", name, WRITE, client.abort(request)).await {
        tracing::debug!(name, %error, "an ingest stays; the garbage collector takes it");
    }
}
