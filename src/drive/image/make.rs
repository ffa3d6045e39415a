//! A small image from files: one layer with a folder's content or a few binaries, for machines without a registry.
//!
//! The same files give the same digest: entries are sorted, times are zero, owners are root.

use crate::drive::containerd::documents::{Platform, sha256};
use crate::model::hex;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Seek as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// An archive that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The manifest's digest.
    pub digest: String,
    /// What it runs by itself, where it holds a single program.
    pub entrypoint: Option<String>,
}

/// Writes an OCI archive under `to` that holds the files: a folder's content becomes the image's root, a file lies in
/// its root under its own name, and a single file is what the image runs.
pub fn from_files(reference: &str, paths: &[PathBuf], to: &Path) -> io::Result<Made> {
    let entries = gather(paths)?;
    let single = match paths {
        [one] if !one.is_dir() => entries.keys().next().map(|name| format!("/{}", name.display())),
        _ => None,
    };
    let scratch = to.with_extension("layer");
    let made = write(reference, &entries, single, &scratch, to);
    // the layer is in the archive now, or nothing is
    let _ = fs::remove_file(&scratch);
    made
}

/// Every file by its place in the image.
fn gather(paths: &[PathBuf]) -> io::Result<BTreeMap<PathBuf, PathBuf>> {
    let mut entries = BTreeMap::new();
    for path in paths {
        if fs::metadata(path)?.is_dir() {
            walk(path, Path::new(""), &mut entries)?;
        } else {
            let name = path.file_name().ok_or_else(|| io::Error::other(format!("{} has no name", path.display())))?;
            entries.insert(PathBuf::from(name), fs::canonicalize(path)?);
        }
    }
    Ok(entries)
}

fn walk(folder: &Path, place: &Path, entries: &mut BTreeMap<PathBuf, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let place = place.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &place, entries)?;
        }
        entries.insert(place, entry.path());
    }
    Ok(())
}

fn write(
    reference: &str,
    entries: &BTreeMap<PathBuf, PathBuf>,
    entrypoint: Option<String>,
    scratch: &Path,
    to: &Path,
) -> io::Result<Made> {
    let mut layer = Counting { inner: File::create(scratch)?, hash: Sha256::new(), size: 0 };
    let mut builder = Builder::new(&mut layer);
    for (place, source) in entries {
        add(&mut builder, place, source)?;
    }
    builder.into_inner()?.flush()?;
    let (layer_digest, layer_size) = (format!("sha256:{}", hex(&layer.hash.finalize())), layer.size);
    let here = Platform::here();
    let process = match &entrypoint {
        Some(program) => serde_json::json!({ "Entrypoint": [program], "Env": [PATH] }),
        None => serde_json::json!({ "Env": [PATH], "Cmd": ["/bin/sh"] }),
    };
    let config = serde_json::to_vec(&serde_json::json!({
        "architecture": here.architecture, "os": here.os, "config": process,
        "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
    }))?;
    let manifest = serde_json::to_vec(&serde_json::json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": { "mediaType": CONFIG, "digest": sha256(&config), "size": config.len() },
        "layers": [{ "mediaType": LAYER, "digest": layer_digest, "size": layer_size }],
    }))?;
    let digest = sha256(&manifest);
    let index = serde_json::to_vec(&serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{ "mediaType": MANIFEST, "digest": digest, "size": manifest.len(),
            "annotations": { "io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference } }],
    }))?;
    let mut archive = Builder::new(File::create(to)?);
    put(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    put(&mut archive, "index.json", &index)?;
    put(&mut archive, &blob(&digest), &manifest)?;
    put(&mut archive, &blob(&sha256(&config)), &config)?;
    let mut content = File::open(scratch)?;
    content.rewind()?;
    archive.append_data(&mut header(layer_size, 0o644), blob(&layer_digest), &mut content)?;
    archive.into_inner()?.sync_all()?;
    Ok(Made { digest, entrypoint })
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn add<W: Write>(builder: &mut Builder<W>, place: &Path, source: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(source)?;
    let mode = found.permissions().mode() & 0o7777;
    if found.is_dir() {
        let mut header = header(0, mode);
        header.set_entry_type(EntryType::Directory);
        return builder.append_data(&mut header, place.join(""), io::empty());
    }
    if found.is_symlink() {
        let mut header = header(0, 0o777);
        header.set_entry_type(EntryType::Symlink);
        return builder.append_link(&mut header, place, fs::read_link(source)?);
    }
    if !found.is_file() {
        return Err(io::Error::other(format!("{} is no file, folder or symbolic link", source.display())));
    }
    file(builder, place, source, &found, mode)
}

fn file<W: Write>(
    builder: &mut Builder<W>,
    place: &Path,
    source: &Path,
    found: &Metadata,
    mode: u32,
) -> io::Result<()> {
    // a file that grows meanwhile is cut where it ended: the header comes first
    let content = File::open(source)?.take(found.len());
    builder.append_data(&mut header(found.len(), mode), place, content)
}

fn header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn put<W: Write>(archive: &mut Builder<W>, name: &str, content: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(content.len() as u64, 0o644), name, content)
}

/// A writer that hashes and counts what passes.
struct Counting {
    inner: File,
    hash: Sha256,
    size: u64,
}

impl Write for &mut Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_digest_and_a_single_file_runs() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("bin")).expect("folders");
        fs::write(root.join("bin/tool"), b"tool").expect("a file");
        std::os::unix::fs::symlink("tool", root.join("bin/other")).expect("a link");
        let make = |to: &str, from: &Path| from_files("x/y:1", &[from.to_owned()], &dir.path().join(to)).expect("made");
        let first = make("a.tar", &root);
        fs::File::open(root.join("bin/tool")).expect("there").set_modified(std::time::UNIX_EPOCH).expect("a time");
        assert_eq!(first, make("b.tar", &root));
        assert_eq!(first.entrypoint, None);
        let single = make("c.tar", &root.join("bin/tool"));
        assert_eq!(single.entrypoint.as_deref(), Some("/tool"));
        assert_ne!(single.digest, first.digest);
    }
}
