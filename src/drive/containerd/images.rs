//! Looking at images: what the node's platform takes from each, and whether all of it is there.

use super::documents::{Config, Document, Manifest, Platform};
use super::error::CallError;
use super::link::READ;
use super::{Containerd, SNAPSHOTTER};
use crate::model::{ImageSeen, ImageUse};
use containerd_client::services::v1::snapshots::StatSnapshotRequest;
use containerd_client::services::v1::{GetImageRequest, Image, InfoRequest, ListContentRequest, ListImagesRequest};
use futures::future::BoxFuture;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// An index may name an index; deeper than this it is not an image that tools make.
const DEPTH: u32 = 3;

/// What an image's target comes to on this platform.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// One manifest with its config.
    Image {
        /// The digests of the documents on the way: index, manifest, config.
        documents: Vec<String>,
        /// The manifest.
        manifest: Arc<Manifest>,
        /// The config.
        config: Arc<Config>,
    },
    /// Nothing for this platform.
    WrongPlatform(Vec<String>),
    /// A document is missing or damaged.
    Incomplete,
}

/// Where to find out what is there: in whole lists, or by asking for each.
pub enum Inventory<'a> {
    /// Content digests and committed snapshots.
    Listed { content: &'a HashSet<String>, snapshots: &'a HashSet<String> },
    /// Ask containerd.
    Ask,
}

impl Containerd {
    /// Follows a target to the manifest and config for this platform.
    pub async fn resolve(&self, digest: &str) -> Result<Resolved, CallError> {
        self.resolve_below(digest.to_owned(), DEPTH).await
    }

    fn resolve_below(&self, digest: String, depth: u32) -> BoxFuture<'_, Result<Resolved, CallError>> {
        Box::pin(async move {
            match self.documents().get(self.link(), &digest).await? {
                Some(Document::Manifest(manifest)) => self.resolve_manifest(digest, manifest).await,
                Some(Document::Index(index)) if depth > 0 => {
                    let mut has = Vec::new();
                    let mut incomplete = false;
                    for entry in &index.manifests {
                        if let Some(platform) = &entry.platform
                            && !platform.runs_here()
                        {
                            // Attestations stand in an index under an unknown platform.
                            has.extend((platform.os != "unknown").then(|| platform.to_string()));
                            continue;
                        }
                        match self.resolve_below(entry.digest.clone(), depth - 1).await? {
                            Resolved::Image { mut documents, manifest, config } => {
                                documents.insert(0, digest);
                                return Ok(Resolved::Image { documents, manifest, config });
                            }
                            Resolved::WrongPlatform(mut more) => has.append(&mut more),
                            Resolved::Incomplete => incomplete = true,
                        }
                    }
                    Ok(if incomplete { Resolved::Incomplete } else { Resolved::WrongPlatform(has) })
                }
                _ => Ok(Resolved::Incomplete),
            }
        })
    }

    async fn resolve_manifest(&self, digest: String, manifest: Arc<Manifest>) -> Result<Resolved, CallError> {
        let Some(Document::Config(config)) = self.documents().get(self.link(), &manifest.config.digest).await? else {
            return Ok(Resolved::Incomplete);
        };
        if !config.platform.runs_here() && config.platform != Platform::default() {
            return Ok(Resolved::WrongPlatform(vec![config.platform.to_string()]));
        }
        let documents = vec![digest, manifest.config.digest.clone()];
        Ok(Resolved::Image { documents, manifest, config })
    }

    /// All images of our namespace.
    pub(super) async fn list_images(&self) -> Result<Vec<Image>, CallError> {
        let request = self.link().request(ListImagesRequest::default());
        Ok(self.link().read("Images.List", READ, self.link().images().list(request)).await?.images)
    }

    /// One image record.
    pub(in crate::drive) async fn get_image(&self, reference: &str) -> Result<Option<Image>, CallError> {
        let request = self.link().request(GetImageRequest { name: reference.to_owned() });
        match self.link().read("Images.Get", READ, self.link().images().get(request)).await {
            Ok(answer) => Ok(answer.image),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All images as the model has them.
    pub(super) async fn see_images(
        &self,
        leases: &HashSet<String>,
        snapshots: &HashSet<String>,
    ) -> Result<BTreeMap<String, ImageSeen>, CallError> {
        let images = self.list_images().await?;
        let content = if images.is_empty() { HashSet::new() } else { self.list_content().await? };
        let inventory = Inventory::Listed { content: &content, snapshots };
        let mut seen = BTreeMap::new();
        for image in images {
            let lease = leases.contains(&self.marks().lease(&image.name));
            let name = image.name.clone();
            seen.insert(name, self.see_image(image, lease, &inventory).await?);
        }
        Ok(seen)
    }

    /// One image as the model has it.
    pub(super) async fn see_image(
        &self,
        image: Image,
        lease: bool,
        inventory: &Inventory<'_>,
    ) -> Result<ImageSeen, CallError> {
        let digest = image.target.map(|target| target.digest).unwrap_or_default();
        let usable = match self.resolve(&digest).await? {
            Resolved::Incomplete => ImageUse::Incomplete,
            Resolved::WrongPlatform(has) => ImageUse::WrongPlatform { has },
            Resolved::Image { documents, manifest, config } => {
                self.image_use(inventory, &documents, &manifest, &config).await?
            }
        };
        Ok(ImageSeen { digest, usable, lease })
    }

    async fn image_use(
        &self,
        inventory: &Inventory<'_>,
        documents: &[String],
        manifest: &Manifest,
        config: &Config,
    ) -> Result<ImageUse, CallError> {
        for digest in documents {
            if !self.has_content(inventory, digest).await? {
                return Ok(ImageUse::Incomplete);
            }
        }
        let chain_id = config.chain_id().unwrap_or_default();
        if chain_id.is_empty() || self.has_snapshot(inventory, &chain_id).await? {
            let stop_signal = config.config.as_ref().and_then(|process| process.stop_signal.clone());
            let stop_signal = stop_signal.filter(|signal| !signal.is_empty());
            return Ok(ImageUse::Ready { chain_id, stop_signal });
        }
        for layer in &manifest.layers {
            if !self.has_content(inventory, &layer.digest).await? {
                return Ok(ImageUse::Incomplete);
            }
        }
        Ok(ImageUse::Packed)
    }

    async fn list_content(&self) -> Result<HashSet<String>, CallError> {
        let mut client = self.link().content();
        let call = client.list(self.link().request(ListContentRequest::default()));
        let stream = self.link().read("Content.List", READ, call).await?;
        let parts = super::look::drain("Content.List", stream).await?;
        Ok(parts.into_iter().flat_map(|part| part.info).map(|info| info.digest).collect())
    }

    async fn has_content(&self, inventory: &Inventory<'_>, digest: &str) -> Result<bool, CallError> {
        match inventory {
            Inventory::Listed { content, .. } => Ok(content.contains(digest)),
            Inventory::Ask => {
                let request = self.link().request(InfoRequest { digest: digest.to_owned() });
                there(self.link().read("Content.Info", READ, self.link().content().info(request)).await)
            }
        }
    }

    /// Whether a committed snapshot is there.
    pub(in crate::drive) async fn has_snapshot(
        &self,
        inventory: &Inventory<'_>,
        name: &str,
    ) -> Result<bool, CallError> {
        match inventory {
            Inventory::Listed { snapshots, .. } => Ok(snapshots.contains(name)),
            Inventory::Ask => {
                let request = StatSnapshotRequest { snapshotter: SNAPSHOTTER.to_owned(), key: name.to_owned() };
                let request = self.link().request(request);
                there(self.link().read("Snapshots.Stat", READ, self.link().snapshots().stat(request)).await)
            }
        }
    }
}

/// An answer as presence.
fn there<T>(answer: Result<T, CallError>) -> Result<bool, CallError> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
