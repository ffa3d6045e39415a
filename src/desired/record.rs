//! Recording edits: the only way in which a command changes what runs.
//!
//! Guarantees: an edit is checked before it is written, is durable when the call returns, and is whole or absent on disk
//! at every moment. Never: removes anything but the app's own files.

use super::app::{Checked, check};
use super::durable;
use super::load::Request;
use crate::model::AppName;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why an edit was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The text has faults; they are in the findings.
    #[error("the file has faults")]
    Faults(Box<Checked>),
    /// The file names another app.
    #[error("the file names the app `{named}`, not `{asked}`")]
    OtherName {
        /// In the file.
        named: AppName,
        /// By the caller.
        asked: AppName,
    },
    /// No name to record it under.
    #[error("the app has no name: the file has no `name:`, and none was given")]
    NoName,
    /// Nothing to remove.
    #[error("there is no app `{0}` in {1}")]
    NoApp(AppName, PathBuf),
    /// The files could not be written.
    #[error("{what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// An edit that is on disk.
#[derive(Debug)]
pub struct Recorded {
    /// The app.
    pub app: AppName,
    /// Its file.
    pub file: PathBuf,
    /// Whether the file is another one than before.
    pub changed: bool,
    /// What was found in it: warnings and notes.
    pub checked: Checked,
}

/// Records a text as an app's file. Without a name, the text's own `name:` counts.
pub fn apply(
    dir: &Path,
    app: Option<&AppName>,
    text: &str,
    env: &BTreeMap<String, String>,
) -> Result<Recorded, Refused> {
    let probe = |file: PathBuf, overrides: Vec<PathBuf>, name: &str| {
        let files = std::iter::once(file).chain(overrides).collect();
        let (text, default_name) = (Some(text.to_owned()), name.to_owned());
        check(&Request { files, text, default_name, env: env.clone(), ..Request::default() })
    };
    let asked = app.map(AppName::as_str).unwrap_or_default();
    // Where it goes depends on its name, and what it says may depend on where it is (`.env`): two looks.
    let named = probe(dir.join("app.yaml"), Vec::new(), asked);
    let name = match (named.app.clone(), app) {
        (Some(named), Some(asked)) if named != *asked => {
            return Err(Refused::OtherName { named, asked: asked.clone() });
        }
        (Some(name), _) => name,
        (None, Some(asked)) => asked.clone(),
        (None, None) => return Err(Refused::NoName),
    };
    let files = files_of(dir, &name).unwrap_or_else(|| vec![dir.join(format!("{name}.yaml"))]);
    let file = files.first().cloned().unwrap_or_default();
    let mut checked = probe(file.clone(), files.into_iter().skip(1).collect(), name.as_str());
    if !checked.is_good() {
        return Err(Refused::Faults(Box::new(checked)));
    }
    checked.file = file.clone();
    let changed = std::fs::read(&file).ok().as_deref() != Some(text.as_bytes());
    if changed {
        let write = |path: &Path| durable::write(path, text.as_bytes(), 0o644);
        // A file that is a symlink stays one: what it leads to is written.
        let real = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
        write(&real).map_err(|source| Refused::Io { what: "cannot write", path: real, source })?;
    }
    Ok(Recorded { app: name, file, changed, checked })
}

/// Removes an app's files. Of an app with a directory of its own, the Compose files go, and the directory if nothing
/// else is in it.
pub fn remove(dir: &Path, app: &AppName) -> Result<Vec<PathBuf>, Refused> {
    let files = files_of(dir, app).ok_or_else(|| Refused::NoApp(app.clone(), dir.to_owned()))?;
    // The Compose file goes last: an override alone is a finding, the Compose file alone would be another app.
    for file in files.iter().rev() {
        durable::remove(file).map_err(|source| Refused::Io { what: "cannot remove", path: file.clone(), source })?;
    }
    if let Some(parent) = files.first().and_then(|file| file.parent()).filter(|parent| *parent != dir) {
        match std::fs::remove_dir(parent) {
            Err(error) if !matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {
                return Err(Refused::Io { what: "cannot remove", path: parent.to_owned(), source: error });
            }
            // What else lies there (an .env file, data) is not ours to remove.
            _ => {}
        }
    }
    Ok(files)
}

/// The files of an app: by the name in the file, which wins over the file's own.
pub fn files_of(dir: &Path, app: &AppName) -> Option<Vec<PathBuf>> {
    let scan = super::directory::scan_candidates(dir).ok()?;
    let named = |stem: &str, files: &[PathBuf]| {
        check(&Request { files: files.to_vec(), default_name: stem.to_owned(), ..Request::default() }).app
    };
    let found = scan.iter().find(|(stem, files)| named(stem, files).as_ref() == Some(app));
    found.map(|(_, files)| files.clone())
}
