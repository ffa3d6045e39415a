//! What lies in the directory: which files make which app.

use super::super::finding::about_file;
use crate::model::Finding;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How many entries of the directory are looked at: far beyond any node, and an end for a directory that is not ours.
const ENTRIES_MAX: usize = 20_000;
/// The names that a Compose file may have in a directory of its own, the preferred one first.
const COMPOSE_NAMES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// The files of one app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The name that the path gives it.
    pub stem: String,
    /// The Compose file, then its overrides.
    pub files: Vec<PathBuf>,
}

/// What a look at the directory gave.
#[derive(Debug, Default)]
pub struct Scan {
    /// The apps, in the order of their paths.
    pub candidates: Vec<Candidate>,
    /// Entries that could be an app's directory and cannot be looked into: what was in them stays.
    pub closed: Vec<PathBuf>,
    /// Every directory that was looked into.
    pub folders: Vec<PathBuf>,
    /// What there is to say.
    pub findings: Vec<Finding>,
}

/// Looks at the directory. An error means that nothing is known of what is in it.
pub fn scan(dir: &Path) -> std::io::Result<Scan> {
    let mut scan = Scan::default();
    let mut mains: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut overrides: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (number, entry) in std::fs::read_dir(dir)?.enumerate() {
        let path = entry?.path();
        if number >= ENTRIES_MAX {
            return Err(std::io::Error::other(format!("it has more than {ENTRIES_MAX} entries")));
        }
        let Some(name) = path.file_name().and_then(OsStr::to_str) else {
            scan.findings.push(about_file(&path, "the file's name is not UTF-8, so it cannot name an app"));
            continue;
        };
        if is_hidden(name) {
            continue;
        }
        let kind = std::fs::metadata(&path);
        let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml"));
        match (kind, stem) {
            (Ok(kind), _) if kind.is_dir() => scan.folder(&path, name),
            (_, Some(stem)) => match stem.strip_suffix(".override") {
                Some(app) => overrides.entry(app.to_owned()).or_default().push(path),
                None => {
                    mains.insert(path.clone(), stem.to_owned());
                }
            },
            // Whatever it was, it leads nowhere now; an app may have been behind it.
            (Err(_), None) => scan.closed.push(path),
            (Ok(_), None) => {}
        }
    }
    for (path, stem) in mains {
        scan.candidates.push(Candidate { stem, files: vec![path] });
    }
    scan.attach(overrides);
    scan.candidates.sort_by(|a, b| a.files.cmp(&b.files));
    Ok(scan)
}

/// Names that editors and tools use for what is not meant to be read: hidden files, backups, swap files.
fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '#', '~']) || name.ends_with(['~', '#'])
}

impl Scan {
    /// A directory that may hold an app.
    fn folder(&mut self, path: &Path, name: &str) {
        // Looking into it tells apart "has no Compose file" and "cannot be seen".
        if let Err(error) = std::fs::read_dir(path) {
            let message = format!("the directory cannot be read: {error}");
            self.findings.push(about_file(path, message));
            self.closed.push(path.to_owned());
            return;
        }
        self.folders.push(path.to_owned());
        let found: Vec<PathBuf> =
            COMPOSE_NAMES.iter().map(|name| path.join(name)).filter(|path| path.symlink_metadata().is_ok()).collect();
        let Some(first) = found.first() else {
            if name.ends_with(".yaml") || name.ends_with(".yml") {
                let mut finding = about_file(path, "this is a directory, and there is no Compose file in it");
                finding.hint = Some(format!("an app's directory holds a {}", COMPOSE_NAMES[0]));
                self.findings.push(finding);
            }
            return;
        };
        if let Some(second) = found.get(1) {
            let mut finding = about_file(second, format!("{} is used and this file is not", first.display()));
            finding.severity = crate::model::Severity::Warning;
            finding.hint = Some("keep one of the two".to_owned());
            self.findings.push(finding);
        }
        let stem = first.file_stem().and_then(OsStr::to_str).unwrap_or("compose");
        let over = ["yaml", "yml"]
            .into_iter()
            .map(|ending| path.join(format!("{stem}.override.{ending}")))
            .find(|path| path.symlink_metadata().is_ok());
        let files = std::iter::once(first.clone()).chain(over).collect();
        self.candidates.push(Candidate { stem: name.to_owned(), files });
    }

    /// Gives each `<app>.override.yaml` to its app.
    fn attach(&mut self, overrides: BTreeMap<String, Vec<PathBuf>>) {
        for (app, mut paths) in overrides {
            paths.sort();
            let mut any = false;
            for candidate in self.candidates.iter_mut().filter(|candidate| candidate.stem == app) {
                candidate.files.extend(paths.iter().cloned());
                any = true;
            }
            if !any {
                for path in paths {
                    let mut finding = about_file(&path, format!("there is no app `{app}` that this file could change"));
                    finding.hint = Some(format!("it goes with {app}.yaml or {app}/compose.yaml"));
                    self.findings.push(finding);
                }
            }
        }
    }
}
