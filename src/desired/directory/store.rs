//! What outlives the agent: the last known good content of each app, and which directory it came from.
//!
//! Guarantees: a file here is whole or absent; one that cannot be read is set aside, never fatal; a disk that is full
//! keeps what it has, and what could not be written is written later.

use super::super::durable;
use super::super::finding::about_file;
use super::super::lower::Content;
use crate::model::{AppName, Finding, Place, Severity, SpecDigest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The last known good content of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Good {
    /// The file that it came from.
    pub file: PathBuf,
    /// The generation in which this content was first seen.
    pub generation: u64,
    /// The digest of the content, places aside.
    pub digest: String,
    /// The content.
    pub content: Content,
}

/// What is remembered of the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The generation of the last picture.
    pub generation: u64,
    /// The digest of the last picture.
    pub picture: String,
    /// The directory that was accepted, and its marker; no marker where it could not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Accepted>,
}

/// A directory that was accepted once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// Its path.
    pub dir: PathBuf,
    /// What its marker said; nothing where it could not be written.
    pub marker: Option<String>,
}

/// The digest of a content: two are equal when only lines have moved.
pub fn digest(content: &Content) -> String {
    let mut plain = content.clone();
    plain.claims.clear();
    plain.services.values_mut().for_each(|service| service.place = Place::default());
    let bytes = serde_json::to_vec(&plain).unwrap_or_default();
    SpecDigest::of(&bytes).as_str().to_owned()
}

/// The files under the state directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// False for a look that leaves no trace.
    writes: bool,
    /// The last known good contents.
    pub good: BTreeMap<AppName, Good>,
    /// What is remembered of the directory.
    pub memory: Memory,
    /// Apps whose file here is not what `good` says; the memory is written with them.
    unwritten: BTreeSet<AppName>,
    memory_unwritten: bool,
    /// What was found while opening.
    opened: Vec<Finding>,
    /// Why the last write failed.
    failure: Option<(PathBuf, String)>,
}

impl Store {
    /// Reads what is there.
    pub fn open(dir: &Path, writes: bool) -> Self {
        let mut store = Self {
            dir: dir.to_owned(),
            writes,
            good: BTreeMap::new(),
            memory: Memory::default(),
            unwritten: BTreeSet::new(),
            memory_unwritten: false,
            opened: Vec::new(),
            failure: None,
        };
        store.memory = store.document(&dir.join("desired.json")).unwrap_or_default();
        let entries = match std::fs::read_dir(store.good_dir()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return store,
            Err(error) => {
                let path = store.good_dir();
                store.opened.push(about_file(&path, format!("the last known good contents cannot be read: {error}")));
                return store;
            }
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
            let app = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| AppName::new(stem).ok());
            if let (Some(app), Some(good)) = (app, store.document::<Good>(path)) {
                // A crash between two writes leaves the contents ahead of the memory.
                store.memory.generation = store.memory.generation.max(good.generation);
                store.good.insert(app, good);
            }
        }
        store
    }

    fn good_dir(&self) -> PathBuf {
        self.dir.join("good")
    }

    /// Reads a document; one that makes no sense is set aside and told.
    fn document<T: DeserializeOwned>(&mut self, path: &Path) -> Option<T> {
        let said = match std::fs::read(path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(document) => return Some(document),
                Err(error) => error.to_string(),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => error.to_string(),
        };
        let aside = path.with_extension("json.bad");
        if self.writes {
            // When even this fails, the file is overwritten by the next content all the same.
            let _ = std::fs::rename(path, &aside);
        }
        let mut finding = about_file(path, format!("this last known good content cannot be used: {said}"));
        finding.severity = Severity::Warning;
        finding.hint = Some(format!("it was set aside as {}", aside.display()));
        self.opened.push(finding);
        None
    }

    /// Takes a content as the last known good.
    pub fn keep(&mut self, app: &AppName, good: Good) {
        if self.good.get(app) != Some(&good) {
            self.good.insert(app.clone(), good);
            self.unwritten.insert(app.clone());
        }
    }

    /// Forgets an app.
    pub fn forget(&mut self, app: &AppName) {
        if self.good.remove(app).is_some() {
            self.unwritten.insert(app.clone());
        }
    }

    /// Remembers.
    pub fn remember(&mut self, memory: Memory) {
        if self.memory != memory {
            self.memory = memory;
            self.memory_unwritten = true;
        }
    }

    /// Whether something is still to be written.
    pub fn behind(&self) -> bool {
        self.memory_unwritten || !self.unwritten.is_empty()
    }

    /// Writes what is not written yet. What fails stays to be written, and is told by [`findings`](Self::findings).
    pub fn flush(&mut self) {
        if !self.writes || !self.behind() {
            return;
        }
        self.failure = None;
        let good = self.good_dir();
        if let Err(error) = std::fs::create_dir_all(&good) {
            self.failure = Some((good, error.to_string()));
            return;
        }
        for app in std::mem::take(&mut self.unwritten) {
            let path = good.join(format!("{app}.json"));
            let result = match self.good.get(&app) {
                Some(content) => to_json(content).and_then(|bytes| durable::write(&path, &bytes, 0o600)),
                None => durable::remove(&path),
            };
            if let Err(error) = result {
                self.failure = Some((path, error.to_string()));
                self.unwritten.insert(app);
            }
        }
        if self.memory_unwritten {
            let path = self.dir.join("desired.json");
            match to_json(&self.memory).and_then(|bytes| durable::write(&path, &bytes, 0o600)) {
                Ok(()) => self.memory_unwritten = false,
                Err(error) => self.failure = Some((path, error.to_string())),
            }
        }
    }

    /// What there is to say about the state directory.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.opened.clone();
        if let Some((path, error)) = &self.failure {
            let mut finding = about_file(path, format!("the last known good content cannot be written: {error}"));
            finding.severity = Severity::Warning;
            finding.hint = Some("what runs is not affected; it is written once this is mended".to_owned());
            findings.push(finding);
        }
        findings
    }
}

fn to_json<T: Serialize>(document: &T) -> std::io::Result<Vec<u8>> {
    serde_json::to_vec(document).map_err(std::io::Error::other)
}
