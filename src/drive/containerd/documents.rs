//! The JSON documents of an image: index, manifest, config. Read by digest, checked, and kept, since content under a
//! digest never changes.

use super::error::CallError;
use super::link::{Link, READ};
use crate::model::hex;
use containerd_client::services::v1::ReadContentRequest;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Documents are some KiB; a larger one is not one of an image that can be run.
pub const DOCUMENT_LIMIT: usize = 4 << 20;
/// Kept at once; beyond that all are dropped and read again.
const KEPT: usize = 512;

/// A blob that a document names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blob {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: String,
    /// Its size.
    pub size: u64,
    /// What it is for, in an index.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Names and notes, in an index.
    #[serde(default)]
    pub annotations: Option<HashMap<String, String>>,
}

/// A platform, in Go's names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Platform {
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// `amd64`, `arm64` ...
    #[serde(default)]
    pub architecture: String,
    /// `v8` ...
    #[serde(default)]
    pub variant: Option<String>,
}

impl Platform {
    /// This node's.
    pub fn here() -> Self {
        let architecture = crate::model::architecture();
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    /// Whether it runs here. Variants above the base one of an architecture ask for more than every CPU has.
    pub fn runs_here(&self) -> bool {
        let here = Self::here();
        let base = match self.architecture.as_str() {
            "amd64" => ["", "v1"],
            "arm64" => ["", "v8"],
            "arm" => ["v6", "v7"],
            _ => ["", ""],
        };
        let variant = self.variant.as_deref().unwrap_or("");
        self.os == here.os
            && self.architecture == here.architecture
            && (base.contains(&variant) || (self.architecture == "arm" && variant.is_empty()))
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match self.variant.as_deref() {
            Some(variant) if !variant.is_empty() => write!(f, "/{variant}"),
            _ => Ok(()),
        }
    }
}

/// An index: one manifest for each platform.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Index {
    /// They.
    pub manifests: Vec<Blob>,
}

/// A manifest: one image for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// Its config.
    pub config: Blob,
    /// Its layers, the lowest first.
    pub layers: Vec<Blob>,
}

/// A config: how to run it. Fields that some tools write as `null` are options.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Config {
    /// What it runs on.
    #[serde(flatten)]
    pub platform: Platform,
    /// What to run.
    #[serde(default)]
    pub config: Option<Process>,
    /// What it is made of.
    pub rootfs: RootFs,
}

/// The layers of a config.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RootFs {
    /// Digests of the unpacked layers.
    #[serde(default)]
    pub diff_ids: Vec<String>,
}

/// The process that a config describes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Process {
    /// `user[:group]`.
    #[serde(default)]
    pub user: Option<String>,
    /// `NAME=value`.
    #[serde(default)]
    pub env: Option<Vec<String>>,
    /// What is run.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    /// Its arguments.
    #[serde(default)]
    pub cmd: Option<Vec<String>>,
    /// Where.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// What stops it.
    #[serde(default)]
    pub stop_signal: Option<String>,
}

impl Config {
    /// The name of the snapshot that holds all layers: each layer's name is a digest over the one below it and its own.
    pub fn chain_id(&self) -> Option<String> {
        self.chain_ids().pop()
    }

    /// The names of the snapshots of all layers, the lowest first.
    pub fn chain_ids(&self) -> Vec<String> {
        let mut chain: Vec<String> = Vec::with_capacity(self.rootfs.diff_ids.len());
        for diff in &self.rootfs.diff_ids {
            let id = match chain.last() {
                None => diff.clone(),
                Some(below) => sha256(format!("{below} {diff}").as_bytes()),
            };
            chain.push(id);
        }
        chain
    }
}

/// A digest as documents write it.
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// One document.
#[derive(Debug, Clone)]
pub enum Document {
    /// An index.
    Index(Arc<Index>),
    /// A manifest.
    Manifest(Arc<Manifest>),
    /// A config.
    Config(Arc<Config>),
}

/// Reads any of the three; which one it is shows in its fields.
pub fn parse(bytes: &[u8]) -> Result<Document, serde_json::Error> {
    #[derive(Deserialize)]
    struct Shape {
        manifests: Option<serde::de::IgnoredAny>,
        config: Option<serde::de::IgnoredAny>,
        layers: Option<serde::de::IgnoredAny>,
    }
    let shape: Shape = serde_json::from_slice(bytes)?;
    if shape.manifests.is_some() {
        Ok(Document::Index(Arc::new(serde_json::from_slice(bytes)?)))
    } else if shape.layers.is_some() && shape.config.is_some() {
        Ok(Document::Manifest(Arc::new(serde_json::from_slice(bytes)?)))
    } else {
        Ok(Document::Config(Arc::new(serde_json::from_slice(bytes)?)))
    }
}

/// The documents that were read so far.
#[derive(Debug, Default)]
pub struct Documents {
    kept: Mutex<HashMap<String, Document>>,
}

impl Documents {
    /// The document under a digest; `None` when containerd does not have it, or when it is no document.
    pub async fn get(&self, link: &Link, digest: &str) -> Result<Option<Document>, CallError> {
        if let Some(document) = self.lock().get(digest) {
            return Ok(Some(document.clone()));
        }
        let Some(bytes) = read(link, digest).await? else { return Ok(None) };
        let Ok(document) = parse(&bytes) else { return Ok(None) };
        let mut kept = self.lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(digest.to_owned(), document.clone());
        Ok(Some(document))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Document>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A small blob; `None` when it is not there, too large, or not what its digest says.
async fn read(link: &Link, digest: &str) -> Result<Option<Vec<u8>>, CallError> {
    let request = ReadContentRequest { digest: digest.to_owned(), offset: 0, size: 0 };
    let collect = async {
        let mut content = link.content();
        let mut stream = link.read("Content.Read", READ, content.read(link.request(request))).await?;
        let mut bytes = Vec::new();
        while let Some(part) =
            stream.message().await.map_err(|status| CallError::from_status("Content.Read", status))?
        {
            bytes.extend_from_slice(&part.data);
            if bytes.len() > DOCUMENT_LIMIT {
                return Ok(None);
            }
        }
        Ok((sha256(&bytes) == digest).then_some(bytes))
    };
    let late = CallError::Deadline { what: "Content.Read", within: READ };
    match tokio::time::timeout(READ, collect).await.unwrap_or(Err(late)) {
        Err(error) if error.is_not_found() => Ok(None),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_ids_follow_the_image_spec() {
        let config: Config = serde_json::from_str(
            r#"{"os":"linux","architecture":"amd64","config":null,"rootfs":{"type":"layers","diff_ids":["sha256:a","sha256:b"]}}"#,
        )
        .expect("a config");
        assert_eq!(config.chain_ids(), ["sha256:a".to_owned(), sha256(b"sha256:a sha256:b")]);
    }

    #[test]
    fn a_document_shows_its_kind() {
        let index =
            br#"{"manifests":[{"digest":"sha256:a","size":1,"platform":{"os":"linux","architecture":"arm64"}}]}"#;
        assert!(matches!(parse(index), Ok(Document::Index(_))));
        let manifest = br#"{"config":{"digest":"sha256:a","size":1},"layers":[]}"#;
        assert!(matches!(parse(manifest), Ok(Document::Manifest(_))));
        let config =
            br#"{"os":"linux","architecture":"amd64","config":{"Cmd":null},"rootfs":{"diff_ids":["sha256:a"]}}"#;
        assert!(matches!(parse(config), Ok(Document::Config(_))));
        assert!(parse(b"[]").is_err());
    }

    #[test]
    fn only_base_variants_run_here() {
        let here = Platform::here();
        assert!(here.runs_here());
        assert!(!Platform { variant: Some("v99".to_owned()), ..here.clone() }.runs_here());
        assert!(!Platform { os: "windows".to_owned(), ..here }.runs_here());
    }
}
