//! An archive on disk: a tar whose entries are found once, and read where they lie.

use super::{Blob, docker};
use crate::drive::containerd::CallError;
use crate::drive::containerd::documents::{DOCUMENT_LIMIT, Index, sha256};
use flate2::read::GzDecoder;
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An archive has an entry for each layer and a few more; one with more than this is none.
const ENTRIES: usize = 10_000;
/// The annotations under which tools name an image in an index.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
/// Where a compressed archive is unpacked to, in a file without a name: on disk, or where the first cannot be written.
const SPOOLS: [&str; 2] = ["/var/tmp", "/tmp"];

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

/// The blobs of an archive by digest, and its index.
#[derive(Debug)]
pub(super) struct Layout {
    path: PathBuf,
    file: Arc<File>,
    blobs: HashMap<String, Place>,
    index: Index,
}

/// Where a blob is.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// In the file: where it begins, and how long it is.
    File(u64, u64),
    /// Made from what the archive says in another form.
    Made(Arc<[u8]>),
}

/// The entries of a tar by name.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Files.
    files: HashMap<String, (u64, u64)>,
    /// Links, with what they name.
    links: HashMap<String, String>,
}

impl Layout {
    /// Finds all entries and reads the index.
    pub async fn open(path: &Path) -> Result<Self, CallError> {
        let owned = path.to_path_buf();
        let opened = tokio::task::spawn_blocking(move || read(&owned)).await;
        opened.map_err(|error| CallError::local("reading the archive", io::Error::other(error)))?
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
        self.blobs.contains_key(digest)
    }

    /// A document, checked by its digest.
    pub async fn small(&self, blob: &Blob) -> Result<Vec<u8>, CallError> {
        if blob.size > DOCUMENT_LIMIT as u64 {
            return Err(CallError::invalid(format!("a document of {} bytes in {}", blob.size, self.path.display())));
        }
        let bytes = self.part(blob, 0, blob.size).await?;
        if sha256(&bytes) == blob.digest {
            return Ok(bytes);
        }
        let what = format!("{} in {} does not have this digest: it is damaged", blob.digest, self.path.display());
        Err(CallError::invalid(what))
    }

    /// At most `length` bytes of a blob from an offset on.
    pub async fn part(&self, blob: &Blob, offset: u64, length: u64) -> Result<Vec<u8>, CallError> {
        let length = length.min(blob.size.saturating_sub(offset));
        match self.find(blob)? {
            Place::Made(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let to = usize::try_from(offset.saturating_add(length)).unwrap_or(usize::MAX);
                Ok(bytes.get(from..to).unwrap_or_default().to_vec())
            }
            Place::File(start, _) => {
                let (file, at) = (Arc::clone(&self.file), start + offset);
                let reading = tokio::task::spawn_blocking(move || bytes(&file, at, length)).await;
                let read = reading.map_err(io::Error::other).and_then(|read| read);
                read.map_err(|error| CallError::local(format!("the archive {}", self.path.display()), error))
            }
        }
    }

    fn find(&self, blob: &Blob) -> Result<Place, CallError> {
        let path = self.path.display();
        let found = self.blobs.get(&blob.digest);
        let place = found.ok_or_else(|| CallError::missing(format!("{} is not in {path}", blob.digest)))?;
        let size = match place {
            Place::File(_, size) => *size,
            Place::Made(bytes) => bytes.len() as u64,
        };
        if size == blob.size {
            return Ok(place.clone());
        }
        Err(CallError::invalid(format!("{} in {path} has {size} bytes, to be {}", blob.digest, blob.size)))
    }
}

/// Whether the name in an archive means the reference: whole, or by its tag alone as some tools write it.
fn names(name: &str, reference: &str) -> bool {
    name == reference || reference.rsplit_once(':').is_some_and(|(_, tag)| tag == name)
}

fn bytes(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn read(path: &Path) -> Result<Layout, CallError> {
    let told = |error: io::Error| match error.kind() {
        // The file was read; what it says makes no sense.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            CallError::invalid(format!("{} is no archive of an image: {error}", path.display()))
        }
        _ => CallError::local(format!("the archive {}", path.display()), error),
    };
    let file = plain(File::open(path).map_err(told)?).map_err(told)?;
    let entries = scan(&file).map_err(told)?;
    let document = |at: (u64, u64)| {
        if at.1 > DOCUMENT_LIMIT as u64 {
            return Err(CallError::invalid(format!("a document of {} bytes in {}", at.1, path.display())));
        }
        bytes(&file, at.0, at.1).map_err(told)
    };
    let broken = |error| CallError::invalid(format!("{}: {error}", path.display()));
    let (index, blobs) = if let Some(at) = entries.find("index.json") {
        (serde_json::from_slice(&document(at)?).map_err(broken)?, entries.blobs())
    } else if let Some(at) = entries.find("manifest.json") {
        docker::convert(&entries, &document(at)?, document)?
    } else {
        return Err(CallError::Invalid {
            what: format!("{} is no OCI archive: it has no index.json", path.display()),
            hint: Some("make one: `skopeo copy ... oci-archive:FILE`, `docker save`".to_owned()),
        });
    };
    Ok(Layout { path: path.to_path_buf(), file: Arc::new(file), blobs, index })
}

/// The tar itself, unpacked to a file without a name where it is compressed.
fn plain(file: File) -> io::Result<File> {
    let mut magic = [0; 2];
    let read = file.read_at(&mut magic, 0)?;
    if magic.get(..read) != Some(&[0x1f, 0x8b]) {
        return Ok(file);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = |folder: &str| rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR);
    let mut spool = File::from(open(SPOOLS[0]).or_else(|_| open(SPOOLS[1]))?);
    io::copy(&mut GzDecoder::new(BufReader::new(file)), &mut spool)?;
    Ok(spool)
}

fn scan(file: &File) -> io::Result<Entries> {
    let length = file.metadata()?.len();
    let mut entries = Entries::default();
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
        let (start, size) = (entry.raw_file_position(), entry.size());
        if start.checked_add(size).is_none_or(|end| end > length) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it is cut off in `{name}`")));
        }
        match entry.link_name()? {
            Some(target) => drop(entries.links.insert(name, target.to_string_lossy().into_owned())),
            None => drop(entries.files.insert(name, (start, size))),
        }
        if entries.files.len() + entries.links.len() > ENTRIES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has too many entries for an image"));
        }
    }
    Ok(entries)
}

impl Entries {
    /// Where a file lies; one link is followed, as `docker save` used them for layers that two images share.
    pub fn find(&self, name: &str) -> Option<(u64, u64)> {
        if let Some(at) = self.files.get(name) {
            return Some(*at);
        }
        let target = self.links.get(name)?;
        let mut parts: Vec<&str> = name.split('/').collect();
        parts.pop();
        for part in target.split('/') {
            match part {
                "." | "" => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        self.files.get(&parts.join("/")).copied()
    }

    /// The blobs of an OCI layout.
    fn blobs(&self) -> HashMap<String, Place> {
        let blob = |(name, at): (&String, &(u64, u64))| {
            let digest = name.strip_prefix("blobs/")?.replacen('/', ":", 1);
            Some((digest, Place::File(at.0, at.1)))
        };
        self.files.iter().filter_map(blob).collect()
    }
}
