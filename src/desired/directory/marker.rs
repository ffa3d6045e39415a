//! Is this the directory, or another one in its place?
//!
//! A directory that was accepted carries a marker, and its text is remembered. A directory without it, or with another,
//! is not the one that was accepted: a file system that is not mounted, most likely. Nothing is removed on its word.

use super::super::durable;
use super::super::finding::about_file;
use super::scan::Scan;
use super::store::{Accepted, Store};
use crate::model::{Finding, Severity, hex};
use std::io::Read as _;
use std::path::Path;

/// The marker's name.
pub const MARKER: &str = ".stead";

/// Decides whether what was seen in a directory counts; the error says why not.
pub fn admit(dir: &Path, scan: &Scan, store: &mut Store, writes: bool) -> Result<(), Box<Finding>> {
    let path = dir.join(MARKER);
    let found = match super::super::read::text(&path) {
        Ok(text) => Some(text.trim().to_owned()),
        Err(super::super::read::Fault::Missing) => None,
        Err(fault) => return Err(Box::new(about_file(&path, fault.to_string()))),
    };
    let before = store.memory.accepted.clone().filter(|accepted| accepted.dir == dir);
    if let Some(Accepted { marker: Some(marker), .. }) = &before {
        return match found {
            Some(text) if text == *marker => Ok(()),
            found => Err(Box::new(another(dir, &path, marker, found.is_some()))),
        };
    }
    if found.is_none() && scan.candidates.is_empty() {
        return Err(Box::new(empty(dir, &path, store.good.is_empty())));
    }
    let marker = match (found, before) {
        (Some(text), _) => Some(text),
        // Accepted without a marker once, since it could not be written: a directory that is read-only for us.
        (None, Some(_)) => None,
        (None, None) if writes => mark(&path),
        (None, None) => return Ok(()),
    };
    let mut memory = store.memory.clone();
    memory.accepted = Some(Accepted { dir: dir.to_owned(), marker });
    store.remember(memory);
    Ok(())
}

/// Writes a new marker; nothing where the directory does not take it (a read-only mount).
fn mark(path: &Path) -> Option<String> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    let text = hex(&bytes);
    durable::write(path, format!("{text}\n").as_bytes(), 0o644).ok()?;
    Some(text)
}

fn another(dir: &Path, path: &Path, marker: &str, other: bool) -> Finding {
    let what = if other { "has another directory's marker" } else { "has lost its marker" };
    let message = format!("{} {what}: it may not be the directory that was here before", dir.display());
    let mut finding = about_file(dir, message);
    finding.hint = Some(format!("is it mounted? If it is the right one: echo {marker} > {}", path.display()));
    finding
}

fn empty(dir: &Path, path: &Path, new: bool) -> Finding {
    let mut finding = about_file(dir, format!("{} has no app in it and no marker", dir.display()));
    if new {
        finding.severity = Severity::Note;
    }
    finding.hint = Some(format!("if nothing is to run here: touch {}", path.display()));
    finding
}
