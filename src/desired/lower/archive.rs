//! What an OCI archive holds, from its index alone: headers are read one after another, contents are skipped.

use crate::desired::read;
use crate::model::Archive;
use serde::Deserialize;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The largest `index.json` that is read.
const INDEX_MAX: u64 = 4 << 20;
/// How many entries are looked at: an image has one per layer and a few more.
const ENTRIES_MAX: usize = 10_000;

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// Looks into an archive for the image of this reference. The error is a sentence and a hint.
pub fn look(path: &Path, reference: &str) -> Result<Archive, (String, Option<&'static str>)> {
    let index = index(path)?;
    let index: Index = serde_json::from_slice(&index).map_err(|_| not_oci())?;
    let digest = match index.manifests.as_slice() {
        [] => return Err(("the archive's index names no image".to_owned(), None)),
        [one] => one.digest.clone(),
        many => {
            let wanted = |one: &&Descriptor| one.annotations.values().any(|name| same(name, reference));
            match many.iter().find(wanted) {
                Some(one) => one.digest.clone(),
                None => {
                    let message = format!("the archive holds {} images, and none is called `{reference}`", many.len());
                    return Err((message, Some("name one of them under `image`")));
                }
            }
        }
    };
    Ok(Archive { path: path.to_owned(), digest })
}

/// Whether an annotation (a full name, a short one, or a tag alone) means a reference.
fn same(annotation: &str, reference: &str) -> bool {
    annotation == reference
        || super::image::normalise(annotation).is_ok_and(|full| full == reference)
        || reference.rsplit_once(':').is_some_and(|(_, tag)| tag == annotation)
}

fn not_oci() -> (String, Option<&'static str>) {
    (
        "this is not an OCI archive".to_owned(),
        Some("an OCI archive is a tar with an index.json: `skopeo copy ... oci-archive:FILE`"),
    )
}

/// The bytes of `index.json`.
fn index(path: &Path) -> Result<Vec<u8>, (String, Option<&'static str>)> {
    let mut file = read::open(path).map_err(|fault| (fault.to_string(), None))?;
    let io = |error: std::io::Error| (format!("the file cannot be read: {error}"), None);
    let length = file.metadata().map_err(io)?.len();
    let mut at = 0u64;
    for _ in 0..ENTRIES_MAX {
        let mut header = tar::Header::new_old();
        file.seek(SeekFrom::Start(at)).map_err(io)?;
        if at + 512 > length || file.read_exact(header.as_mut_bytes()).is_err() {
            break;
        }
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            break;
        }
        let (Ok(size), true) = (header.entry_size(), checksum_holds(&header)) else { return Err(not_oci()) };
        let name = header.path_bytes();
        if name.strip_prefix(b"./").unwrap_or(&name) == b"index.json" {
            let mut bytes = Vec::new();
            file.take(size.min(INDEX_MAX)).read_to_end(&mut bytes).map_err(io)?;
            return Ok(bytes);
        }
        at = size
            .checked_next_multiple_of(512)
            .and_then(|size| at.checked_add(512)?.checked_add(size))
            .unwrap_or(length);
    }
    Err(not_oci())
}

/// A header's checksum: anything that is not a tar fails here.
fn checksum_holds(header: &tar::Header) -> bool {
    let sum: u32 = header
        .as_bytes()
        .iter()
        .enumerate()
        .map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) })
        .sum();
    header.cksum().is_ok_and(|said| said == sum)
}
