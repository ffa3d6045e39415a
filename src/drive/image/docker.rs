//! What `docker save` wrote before it wrote OCI layouts: a `manifest.json` that lists configs and plain layers.
//!
//! A layer lies in it unpacked, so that its digest is the one that the config gives; the manifest is made here, always the
//! same for the same archive.

use super::archive::{Entries, Place};
use crate::drive::containerd::CallError;
use crate::drive::containerd::documents::{Config, Index, sha256};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// One image of `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The same archive in OCI's words.
pub(super) fn convert(
    entries: &Entries,
    manifest: &[u8],
    read: impl Fn((u64, u64)) -> Result<Vec<u8>, CallError>,
) -> Result<(Index, HashMap<String, Place>), CallError> {
    let saved: Vec<Saved> =
        serde_json::from_slice(manifest).map_err(|error| CallError::invalid(format!("manifest.json: {error}")))?;
    let find =
        |name: &str| entries.find(name).ok_or_else(|| CallError::missing(format!("`{name}` is not in the archive")));
    let (mut blobs, mut manifests) = (HashMap::new(), Vec::new());
    for image in saved {
        let at = find(&image.config)?;
        let bytes = read(at)?;
        let config: Config = serde_json::from_slice(&bytes)
            .map_err(|error| CallError::invalid(format!("`{}`: {error}", image.config)))?;
        let mut layers = Vec::new();
        for (name, digest) in image.layers.iter().zip(&config.rootfs.diff_ids) {
            let (start, size) = find(name)?;
            blobs.insert(digest.clone(), Place::File(start, size));
            layers.push(json!({"mediaType": LAYER, "digest": digest, "size": size}));
        }
        if layers.len() != config.rootfs.diff_ids.len() {
            return Err(CallError::invalid(format!("`{}` has more layers than the archive", image.config)));
        }
        let config_digest = sha256(&bytes);
        blobs.insert(config_digest.clone(), Place::File(at.0, at.1));
        let made = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "layers": layers,
            "config": {"mediaType": CONFIG, "digest": config_digest, "size": at.1},
        })
        .to_string()
        .into_bytes();
        let tags = image.repo_tags.unwrap_or_default();
        let names: Vec<Option<String>> =
            if tags.is_empty() { vec![None] } else { tags.into_iter().map(Some).collect() };
        manifests.extend(names.into_iter().map(|name| described(&made, name)));
        blobs.insert(sha256(&made), Place::Made(Arc::from(made)));
    }
    let index = serde_json::from_value(json!({"manifests": manifests}));
    Ok((index.map_err(|error| CallError::invalid(format!("manifest.json: {error}")))?, blobs))
}

fn described(manifest: &[u8], name: Option<String>) -> Value {
    let mut blob = json!({"mediaType": MANIFEST, "digest": sha256(manifest), "size": manifest.len()});
    if let Some(name) = name {
        blob["annotations"] = json!({"io.containerd.image.name": name});
    }
    blob
}
