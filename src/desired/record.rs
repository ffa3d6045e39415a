//! Recording edits: the only way in which a command changes what runs.
//!
//! Guarantees: an edit is checked before it is written, is durable when the call returns, and is whole or absent on disk
//! at every moment. Never: removes anything but the app's own files.

use super::app::{Checked, check};
use super::durable;
use super::edit as text;
pub use super::edit::Scalar;
use super::load::Request;
use crate::model::{AppName, ServiceName};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
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
    /// The app has no such service.
    #[error("there is no service `{0}` in the app `{1}`")]
    NoService(ServiceName, AppName),
    /// Another command changes files there.
    #[error("another command is changing files in {0}")]
    Busy(PathBuf),
    /// Somebody saved the file while it was edited here.
    #[error("{0} was changed by somebody else at the same moment")]
    Overtaken(PathBuf),
    /// The file is written in a way that cannot be edited line by line.
    #[error("{}: {why}", path.display())]
    InTheWay {
        /// The file.
        path: PathBuf,
        /// What is in the way.
        why: text::InTheWay,
    },
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

/// A change of one service, for its app's override file.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The service.
    pub service: ServiceName,
    /// The keys below it.
    pub path: &'static [&'static str],
    /// The value; none takes it out.
    pub value: Option<Scalar>,
}

/// Holds the directory for one edit, so that no two commands change it at a time. Given back when it is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not used")] Flock<std::fs::File>);

/// Takes the lock, or says that somebody has it.
pub fn lock(dir: &Path) -> Result<Lock, Refused> {
    let io = |source| Refused::Io { what: "cannot lock", path: dir.to_owned(), source };
    let file = std::fs::File::open(dir).map_err(io)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(Lock(held)),
        Err((_, Errno::EWOULDBLOCK)) => Err(Refused::Busy(dir.to_owned())),
        Err((_, errno)) => Err(io(errno.into())),
    }
}

/// Writes changes into an app's override file. Every other line of it stays; an override that says nothing any more is
/// removed. An editor that saved it in the meantime wins, and the caller is told.
pub fn edit(
    dir: &Path,
    app: &AppName,
    edits: &[Edit],
    env: &BTreeMap<String, String>,
    _held: &Lock,
) -> Result<Recorded, Refused> {
    let files = files_of(dir, app).ok_or_else(|| Refused::NoApp(app.clone(), dir.to_owned()))?;
    let main = files.first().cloned().unwrap_or_default();
    let over = files.get(1..).and_then(<[PathBuf]>::last).cloned().unwrap_or_else(|| override_of(&main));
    let read = || match std::fs::read_to_string(&over) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|source| Refused::Io { what: "cannot read", path: over.clone(), source }),
    };
    let before = read()?;
    let mut text = before.clone().unwrap_or_else(|| HEAD.to_owned());
    for edit in edits {
        text = edited(&text, edit).map_err(|why| Refused::InTheWay { path: over.clone(), why })?;
    }
    let empty = text::is_empty(&text);
    let mut all: Vec<PathBuf> = files.iter().filter(|file| **file != over).cloned().collect();
    let texts = if empty { BTreeMap::new() } else { BTreeMap::from([(over.clone(), text.clone())]) };
    all.extend(texts.keys().cloned());
    let request = Request { files: all, texts, default_name: app.to_string(), env: env.clone(), ..Request::default() };
    let checked = check(&request);
    if !checked.is_good() {
        return Err(Refused::Faults(Box::new(checked)));
    }
    let services = checked.content.as_ref().map(|content| &content.services);
    if let Some(edit) = edits.iter().find(|edit| services.is_some_and(|all| !all.contains_key(&edit.service))) {
        return Err(Refused::NoService(edit.service.clone(), app.clone()));
    }
    let changed = before.as_deref() != (!empty).then_some(text.as_str());
    if changed {
        if read()? != before {
            return Err(Refused::Overtaken(over));
        }
        let real = std::fs::canonicalize(&over).unwrap_or_else(|_| over.clone());
        let done = if empty { durable::remove(&over) } else { durable::write(&real, text.as_bytes(), 0o644) };
        done.map_err(|source| Refused::Io { what: "cannot write", path: over.clone(), source })?;
    }
    Ok(Recorded { app: app.clone(), file: over, changed, checked })
}

/// The first line of an override file that is made here.
const HEAD: &str =
    "# Written by stead commands (restart, stop, start, scale, set). It is yours to edit, and to remove.\n";

/// Where the override of a Compose file lies.
fn override_of(main: &Path) -> PathBuf {
    let stem = main.file_stem().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    main.with_file_name(format!("{stem}.override.yaml"))
}

fn edited(before: &str, edit: &Edit) -> Result<String, text::InTheWay> {
    let path: Vec<&str> = ["services", edit.service.as_str()].into_iter().chain(edit.path.iter().copied()).collect();
    let after = match &edit.value {
        Some(value) => text::set(before, &path, value)?,
        None => text::unset(before, &path)?,
    };
    if text::same_beside(before, &after, &path) {
        return Ok(after);
    }
    Err(text::InTheWay { line: 1, what: format!("an alias shares `{}` with others", path.join(".")) })
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
