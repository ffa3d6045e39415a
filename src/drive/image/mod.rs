//! # image: archives in, and small images out of files
//!
//! Imports OCI archives (and what `docker save` writes) into containerd, unpacks layers, and makes archives from files. Used by the runtime driver's
//! steps and by `stead image`.
//!
//! Guarantees: bytes are streamed, checked by digest, and resumed where an earlier try stopped; everything written
//! belongs to a lease from its first moment, and to the image record in the end; whoever imports holds the lease's lock,
//! so that nobody takes the lease for a leftover. Never: a whole layer in memory, a file outside the archive.
//!
//! Tests: beside the code, and `tests/driver_containerd/images.rs` on a real containerd.

mod archive;
mod content;
mod docker;
mod make;
mod unpack;

pub use archive::{Described, describe};
pub use make::{Made, from_files};

use super::containerd::documents::{Blob, Config, Document, Index, Manifest, Platform, parse};
use super::containerd::{CallError, Containerd, hold};
use crate::model::{Archive, Outcome};
use archive::Layout;
use containerd_client::services::v1::{CreateImageRequest, CreateRequest, DeleteRequest, Image, UpdateImageRequest};
use containerd_client::types::Descriptor;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// A call that commits to the database, or runs the garbage collector.
const WRITE: Duration = Duration::from_secs(30);
/// After this long a lease ends by itself, should nobody come back to it.
const LEASE_HOURS: u64 = 24;

/// A drop of a leftover lease takes the garbage collector's time: this often, this far apart.
const HOLD_TRIES: u32 = 20;
const HOLD_AGAIN: Duration = Duration::from_millis(50);

/// How far an import is, for whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that containerd has.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// The step that imports an archive under a reference.
pub(super) async fn import_step(
    containerd: &Containerd,
    reference: &str,
    archive: &Archive,
) -> Result<Outcome, CallError> {
    import(containerd, &archive.path, reference, Some(&archive.digest), &mut |_| {}).await?;
    Ok(Outcome::Done)
}

/// The step that unpacks an image whose content is there.
pub(super) async fn unpack_step(containerd: &Containerd, reference: &str) -> Result<Outcome, CallError> {
    let work = Work::begin(containerd, reference).await?;
    let image =
        containerd.get_image(reference).await?.ok_or_else(|| CallError::missing(format!("image {reference}")))?;
    let digest = image.target.map(|target| target.digest).unwrap_or_default();
    unpack::image(containerd, &work.lease, &digest).await?;
    work.end(containerd).await?;
    Ok(Outcome::Done)
}

/// The step that ends a lease that a cut-off import left; one that somebody works under is left to him.
pub(super) async fn drop_lease(containerd: &Containerd, id: &str) -> Result<Outcome, CallError> {
    let hold = hold::take(&containerd.holds_file(), id);
    match hold.map_err(|error| CallError::local("the lock of the import", error))? {
        Some(_hold) => end_lease(containerd, id).await,
        None => Ok(Outcome::Moved),
    }
}

/// Ends a lease; what only the lease held is collected before it answers.
async fn end_lease(containerd: &Containerd, id: &str) -> Result<Outcome, CallError> {
    let request = containerd.link().request(DeleteRequest { id: id.to_owned(), sync: true });
    let mut client = containerd.link().leases();
    match containerd.link().write("Leases.Delete", id, WRITE, client.delete(request)).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.is_not_found() => Ok(Outcome::Already),
        Err(error) => Err(error),
    }
}

/// Imports the image that an archive holds under a reference, and answers its digest. With `expect`, another digest in
/// the archive is refused.
pub async fn import(
    containerd: &Containerd,
    path: &Path,
    reference: &str,
    expect: Option<&str>,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<String, CallError> {
    let layout = Layout::open(path).await?;
    let target = layout.target(reference, expect)?;
    let work = Work::begin(containerd, reference).await?;
    let image = chosen(&layout, &target).await?;
    let total = image.blobs().map(|blob| blob.size).sum();
    let mut done = 0;
    for blob in image.blobs() {
        content::put(containerd, &work.lease, &layout, blob, image.labels(blob), &mut |part| {
            progress(Progress { done: done + part, total });
        })
        .await?;
        done += blob.size;
        progress(Progress { done, total });
    }
    record(containerd, &work.lease, reference, &target).await?;
    unpack::image(containerd, &work.lease, &target.digest).await?;
    work.end(containerd).await?;
    Ok(target.digest)
}

/// An import at work: its lease, and the lock that says so.
struct Work {
    lease: String,
    _hold: hold::Hold,
}

impl Work {
    async fn begin(containerd: &Containerd, reference: &str) -> Result<Self, CallError> {
        let lease = containerd.marks().lease(reference);
        let hold = take_hold(containerd, &lease)
            .await?
            .ok_or_else(|| CallError::busy(format!("another import of {reference} is at work")))?;
        let expire = super::containerd::after_hours(LEASE_HOURS).rfc3339();
        let labels = HashMap::from([("containerd.io/gc.expire".to_owned(), expire)]);
        let request = containerd.link().request(CreateRequest { id: lease.clone(), labels });
        let mut client = containerd.link().leases();
        match containerd.link().write("Leases.Create", &lease, WRITE, client.create(request)).await {
            Ok(_) => {}
            Err(error) if error.already_exists() => {}
            Err(error) => return Err(error),
        }
        Ok(Self { lease, _hold: hold })
    }

    /// Everything is held by the image record now.
    async fn end(self, containerd: &Containerd) -> Result<(), CallError> {
        end_lease(containerd, &self.lease).await.map(drop)
    }
}

/// Takes the lock of a lease. A look or a drop has it for a moment only, an import for longer than is waited here.
async fn take_hold(containerd: &Containerd, lease: &str) -> Result<Option<hold::Hold>, CallError> {
    for _ in 0..HOLD_TRIES {
        let hold = hold::take(&containerd.holds_file(), lease);
        let hold = hold.map_err(|error| CallError::local("the lock of the import", error))?;
        if hold.is_some() {
            return Ok(hold);
        }
        tokio::time::sleep(HOLD_AGAIN).await;
    }
    Ok(None)
}

/// The blobs of the image that this platform takes from an archive, the innermost first.
struct Chosen {
    layers: Vec<Blob>,
    config: Blob,
    manifest: Blob,
    /// The index above the manifest, where the archive has one.
    index: Option<Blob>,
    chain_id: Option<String>,
}

async fn chosen(layout: &Layout, target: &Blob) -> Result<Chosen, CallError> {
    let (manifest_blob, index) = match document(layout, target).await? {
        Document::Index(index) => (for_this_platform(layout, &index)?, Some(target.clone())),
        _ => (target.clone(), None),
    };
    let Document::Manifest(manifest) = document(layout, &manifest_blob).await? else {
        return Err(CallError::invalid(format!("{} is no image manifest", manifest_blob.digest)));
    };
    let Document::Config(config) = document(layout, &manifest.config).await? else {
        return Err(CallError::invalid(format!("{} is no image config", manifest.config.digest)));
    };
    check(&manifest, &config)?;
    let Manifest { config: config_blob, layers } = (*manifest).clone();
    Ok(Chosen { layers, config: config_blob, manifest: manifest_blob, index, chain_id: config.chain_id() })
}

fn check(manifest: &Manifest, config: &Config) -> Result<(), CallError> {
    if !config.platform.runs_here() && config.platform != Platform::default() {
        return Err(CallError::invalid(format!(
            "the image is for {}, this machine is {}",
            config.platform,
            Platform::here()
        )));
    }
    if manifest.layers.len() != config.rootfs.diff_ids.len() {
        return Err(CallError::invalid(format!(
            "the manifest has {} layers, the config {}",
            manifest.layers.len(),
            config.rootfs.diff_ids.len()
        )));
    }
    Ok(())
}

fn for_this_platform(layout: &Layout, index: &Index) -> Result<Blob, CallError> {
    let fits = |blob: &&Blob| blob.platform.as_ref().is_none_or(Platform::runs_here) && layout.has(&blob.digest);
    index.manifests.iter().find(fits).cloned().ok_or_else(|| {
        let has = index.manifests.iter().filter_map(|blob| blob.platform.as_ref()).map(ToString::to_string);
        let has: Vec<String> = has.collect();
        CallError::invalid(format!("the archive has no image for {}, only for {}", Platform::here(), has.join(", ")))
    })
}

async fn document(layout: &Layout, blob: &Blob) -> Result<Document, CallError> {
    let bytes = layout.small(blob).await?;
    parse(&bytes).map_err(|error| CallError::invalid(format!("{}: {error}", blob.digest)))
}

impl Chosen {
    fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.layers.iter().chain([&self.config, &self.manifest]).chain(&self.index)
    }

    /// What keeps the rest of an image from the garbage collector, as containerd's own clients write it.
    fn labels(&self, blob: &Blob) -> HashMap<String, String> {
        let mut labels = HashMap::new();
        if blob.digest == self.config.digest {
            if let Some(chain_id) = &self.chain_id {
                labels.insert(
                    format!("containerd.io/gc.ref.snapshot.{}", super::containerd::SNAPSHOTTER),
                    chain_id.clone(),
                );
            }
        } else if blob.digest == self.manifest.digest {
            labels.insert("containerd.io/gc.ref.content.config".to_owned(), self.config.digest.clone());
            for (index, layer) in self.layers.iter().enumerate() {
                labels.insert(format!("containerd.io/gc.ref.content.l.{index}"), layer.digest.clone());
            }
        } else if self.index.as_ref().is_some_and(|index| index.digest == blob.digest) {
            labels.insert("containerd.io/gc.ref.content.m.0".to_owned(), self.manifest.digest.clone());
        }
        labels
    }
}

/// Makes the image record, or points it at another target.
async fn record(containerd: &Containerd, lease: &str, reference: &str, target: &Blob) -> Result<(), CallError> {
    let descriptor = Descriptor {
        media_type: target.media_type.clone(),
        digest: target.digest.clone(),
        size: i64::try_from(target.size).unwrap_or(i64::MAX),
        ..Descriptor::default()
    };
    let image = Image { name: reference.to_owned(), target: Some(descriptor), ..Image::default() };
    let link = containerd.link();
    let request =
        link.leased(CreateImageRequest { image: Some(image.clone()), ..CreateImageRequest::default() }, lease);
    let mut client = link.images();
    match link.write("Images.Create", reference, WRITE, client.create(request)).await {
        Ok(_) => return Ok(()),
        Err(error) if error.already_exists() => {}
        Err(error) => return Err(error),
    }
    let request = link.leased(UpdateImageRequest { image: Some(image), ..UpdateImageRequest::default() }, lease);
    link.write("Images.Update", reference, WRITE, client.update(request)).await.map(drop)
}
