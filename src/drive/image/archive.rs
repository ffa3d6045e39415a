//! An OCI archive on disk: a tar whose entries are found once, and read where they lie.

use super::Blob;
use crate::drive::containerd::CallError;
use crate::drive::containerd::documents::{DOCUMENT_LIMIT, Index, sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

/// An archive has an entry for each layer and a few more; one with more than this is none.
const ENTRIES: usize = 10_000;
/// The annotations under which tools name an image in an index.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// An image in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name, where the archive gives it one.
    pub name: Option<String>,
    /// Its digest.
    pub digest: String,
}

/// The images that an archive holds.
pub async fn describe(path: &Path) -> Result<Vec<Described>, CallError> {
    let layout = Layout::open(path).await?;
    Ok(layout.index.manifests.iter().map(|blob| Described { name: name(blob), digest: blob.digest.clone() }).collect())
}

fn name(blob: &Blob) -> Option<String> {
    let annotations = blob.annotations.as_ref()?;
    NAMES.iter().find_map(|key| annotations.get(*key)).cloned()
}

/// The entries of an archive by name, with where they lie.
pub(super) struct Layout {
    path: PathBuf,
    entries: HashMap<String, (u64, u64)>,
    index: Index,
}

impl Layout {
    /// Finds all entries and reads the index.
    pub async fn open(path: &Path) -> Result<Self, CallError> {
        let owned = path.to_path_buf();
        let scanned = tokio::task::spawn_blocking(move || scan(&owned)).await;
        let told = |error| CallError::local(format!("the archive {}", path.display()), error);
        let entries = scanned.map_err(|error| told(io::Error::other(error)))?.map_err(told)?;
        let mut layout = Self { path: path.to_path_buf(), entries, index: Index { manifests: Vec::new() } };
        let Some(at) = layout.entries.get("index.json").copied() else {
            return Err(CallError::Invalid {
                what: format!("{} is no OCI archive: it has no index.json", path.display()),
                hint: Some("make one: skopeo copy docker-archive:IN oci-archive:OUT".to_owned()),
            });
        };
        let index = layout.bytes(at).await?;
        layout.index = serde_json::from_slice(&index)
            .map_err(|error| CallError::invalid(format!("index.json of {}: {error}", path.display())))?;
        Ok(layout)
    }

    /// The image that is meant: the one with the expected digest, the one named like the reference, or the only one.
    pub fn target(&self, reference: &str, expect: Option<&str>) -> Result<Blob, CallError> {
        let all = &self.index.manifests;
        let found = match expect {
            Some(digest) => all.iter().find(|blob| blob.digest == digest),
            None if all.len() == 1 => all.first(),
            None => all.iter().find(|blob| name(blob).is_some_and(|name| names(&name, reference))),
        };
        found.cloned().ok_or_else(|| {
            let has: Vec<String> = all.iter().map(|blob| name(blob).unwrap_or_else(|| blob.digest.clone())).collect();
            let wanted = expect.unwrap_or(reference);
            CallError::missing(format!("{} does not hold {wanted}, but {}", self.path.display(), has.join(", ")))
        })
    }

    /// Whether a blob is in the archive.
    pub fn has(&self, digest: &str) -> bool {
        self.entries.contains_key(&place(digest))
    }

    /// A document, checked by its digest.
    pub async fn small(&self, blob: &Blob) -> Result<Vec<u8>, CallError> {
        let bytes = self.bytes(self.find(blob)?).await?;
        if sha256(&bytes) == blob.digest {
            return Ok(bytes);
        }
        Err(CallError::invalid(format!(
            "{} in {} does not have this digest: it is damaged",
            blob.digest,
            self.path.display()
        )))
    }

    /// A reader of a blob from an offset on.
    pub async fn reader(
        &self,
        blob: &Blob,
        offset: u64,
    ) -> Result<impl tokio::io::AsyncRead + Unpin + use<>, CallError> {
        let (start, size) = self.find(blob)?;
        let told = |error| CallError::local(format!("the archive {}", self.path.display()), error);
        let mut file = tokio::fs::File::open(&self.path).await.map_err(told)?;
        file.seek(SeekFrom::Start(start + offset)).await.map_err(told)?;
        Ok(file.take(size.saturating_sub(offset)))
    }

    fn find(&self, blob: &Blob) -> Result<(u64, u64), CallError> {
        let found = self.entries.get(&place(&blob.digest)).copied();
        let (start, size) =
            found.ok_or_else(|| CallError::missing(format!("{} is not in {}", blob.digest, self.path.display())))?;
        if size != blob.size {
            let what = format!("{} in {} has {size} bytes, to be {}", blob.digest, self.path.display(), blob.size);
            return Err(CallError::invalid(what));
        }
        Ok((start, size))
    }

    async fn bytes(&self, (start, size): (u64, u64)) -> Result<Vec<u8>, CallError> {
        if size > DOCUMENT_LIMIT as u64 {
            return Err(CallError::invalid(format!("a document of {size} bytes in {}", self.path.display())));
        }
        let told = |error| CallError::local(format!("the archive {}", self.path.display()), error);
        let mut file = tokio::fs::File::open(&self.path).await.map_err(told)?;
        file.seek(SeekFrom::Start(start)).await.map_err(told)?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.take(size).read_to_end(&mut bytes).await.map_err(told)?;
        Ok(bytes)
    }
}

fn place(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

/// Whether the name in an archive means the reference: whole, or by its tag alone as some tools write it.
fn names(name: &str, reference: &str) -> bool {
    name == reference || reference.rsplit_once(':').is_some_and(|(_, tag)| tag == name)
}

fn scan(path: &Path) -> io::Result<HashMap<String, (u64, u64)>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut entries = HashMap::new();
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
        let (start, size) = (entry.raw_file_position(), entry.size());
        if start.checked_add(size).is_none_or(|end| end > length) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it is cut off in `{name}`")));
        }
        entries.insert(name, (start, size));
        if entries.len() > ENTRIES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has too many entries for an image"));
        }
    }
    Ok(entries)
}
