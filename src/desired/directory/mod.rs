//! # The directory source
//!
//! A directory of Compose files as a stream of whole pictures.
//!
//! Guarantees:
//! 1. The directory is read as one set, after a quiet period; the first picture comes at once.
//! 2. A bad file, a conflict or an unreadable entry leaves its app as it was last good, across restarts.
//! 3. A directory that is missing, unreadable or not the one that was accepted removes nothing.
//! 4. Nothing here waits for a file's other end: FIFOs, devices and huge files are findings.
//!
//! Never: writes into the directory, but for its marker; decides on what happens with an app.
//!
//! Tests: `tests/desired_files.rs`.

mod circle;
mod conflict;
mod marker;
mod picture;
mod scan;
mod store;
mod watch;

use super::app::{Checked, check};
use super::finding::about_file;
use super::load::Request;
use crate::model::{AppName, Desired, Finding};
use futures::Stream;
use scan::{Candidate, Scan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use watch::{Print, Ring, Watch};

pub use marker::MARKER;

/// What to open.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The directory.
    pub dir: PathBuf,
    /// Where the last known good contents are kept (`STATE/good`, `STATE/desired.json`).
    pub state: PathBuf,
    /// Values for substitution from the agent's own env file; they win over the apps' `.env` files.
    pub env: BTreeMap<String, String>,
    /// The active profiles; services of others do not run.
    pub profiles: Vec<String>,
    /// Where subnets come from when a file names none; the usual pool where not set.
    pub pool: Option<ipnet::Ipv4Net>,
}

/// A directory of desired state.
pub struct Directory {
    dir: PathBuf,
    env: BTreeMap<String, String>,
    profiles: Vec<String>,
    pool: Option<ipnet::Ipv4Net>,
    writes: bool,
    store: Store,
    /// The digest of the picture that was given out last.
    given: Option<String>,
    /// Files and directories that have a say in the last picture.
    inputs: BTreeSet<PathBuf>,
    /// The same by app, under its first file.
    inputs_of: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    print: Print,
    /// Whether the directory counted when it was looked at last.
    admitted: bool,
}

impl Directory {
    /// Opens a directory to follow it.
    pub fn open(options: Options) -> Self {
        Self::new(options, true)
    }

    /// Opens it for one look that leaves no trace, neither in the directory nor in the state.
    pub fn peek(options: Options) -> Self {
        Self::new(options, false)
    }

    fn new(options: Options, writes: bool) -> Self {
        let Options { dir, state, env, profiles, pool } = options;
        // Findings and the record of what was accepted name the directory by its whole path.
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        let store = Store::open(&state, writes);
        let inputs = BTreeSet::from([dir.clone()]);
        Self {
            dir,
            env,
            profiles,
            pool,
            writes,
            store,
            given: None,
            inputs,
            inputs_of: BTreeMap::new(),
            print: Print::new(),
            admitted: false,
        }
    }

    /// Reads the whole directory. Answers the picture when it is another one than before.
    pub fn refresh(&mut self) -> Option<Arc<Desired>> {
        self.refresh_but(&BTreeSet::new())
    }

    /// The same, while somebody is in the middle of writing some files: their apps stay as they were last good.
    fn refresh_but(&mut self, busy: &BTreeSet<PathBuf>) -> Option<Arc<Desired>> {
        self.print = watch::print(&self.inputs);
        let mut inputs = BTreeSet::from([self.dir.clone()]);
        let mut desired = match self.look() {
            Ok(scan) => {
                let checked = self.check_all(&scan, busy, &mut inputs);
                inputs.extend(scan.folders.iter().cloned());
                picture::seen(&scan, checked, &mut self.store)
            }
            Err(why) => picture::unseen(*why, &self.store),
        };
        desired.pool = self.pool;
        self.admitted = desired.whole;
        if inputs != self.inputs {
            self.inputs = inputs;
            self.print = watch::print(&self.inputs);
        }
        desired.generation = self.generation(&desired);
        self.store.flush();
        // A disk that is full is part of the picture: it has to be told.
        desired.findings.extend(self.store.findings());
        let digest = picture::picture_digest(&desired);
        if self.given.as_ref() == Some(&digest) {
            return None;
        }
        self.given = Some(digest);
        Some(Arc::new(desired))
    }

    /// Reads the whole directory and answers the picture.
    pub fn read(mut self) -> Arc<Desired> {
        self.refresh().unwrap_or_default()
    }

    /// The generation of a picture: the last one's when nothing has changed.
    fn generation(&mut self, desired: &Desired) -> u64 {
        let mut memory = self.store.memory.clone();
        let digest = picture::picture_digest(desired);
        if memory.picture != digest {
            memory.generation += 1;
            memory.picture = digest;
        }
        let generation = memory.generation;
        self.store.remember(memory);
        generation
    }

    /// What is in the directory, if it counts.
    fn look(&mut self) -> Result<Scan, Box<Finding>> {
        let scan = scan::scan(&self.dir).map_err(|error| {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => "the directory does not exist".to_owned(),
                _ => format!("the directory cannot be read: {error}"),
            };
            let mut finding = about_file(&self.dir, why);
            finding.hint = Some("until it is back, everything stays as it was last good".to_owned());
            Box::new(finding)
        })?;
        marker::admit(&self.dir, &scan, &mut self.store, self.writes)?;
        Ok(scan)
    }

    fn check_all(
        &mut self,
        scan: &Scan,
        busy: &BTreeSet<PathBuf>,
        inputs: &mut BTreeSet<PathBuf>,
    ) -> Vec<(String, Checked)> {
        let mut all = Vec::new();
        let before = std::mem::take(&mut self.inputs_of);
        for Candidate { stem, files } in &scan.candidates {
            let known = before.get(&files[0]).filter(|known| !known.is_disjoint(busy));
            if let Some(checked) = known.and_then(|known| self.as_last_good(&files[0], known)) {
                inputs.extend(checked.inputs.iter().cloned());
                self.inputs_of.insert(files[0].clone(), checked.inputs.clone());
                all.push((stem.clone(), checked));
                continue;
            }
            let request = Request {
                files: files.clone(),
                default_name: stem.clone(),
                env: self.env.clone(),
                profiles: self.profiles.clone(),
                ..Request::default()
            };
            let checked = check(&request);
            inputs.extend(checked.inputs.iter().cloned());
            self.inputs_of.insert(files[0].clone(), checked.inputs.clone());
            all.push((stem.clone(), checked));
        }
        all
    }

    /// A file's app as it was last good, if it was.
    fn as_last_good(&self, file: &Path, inputs: &BTreeSet<PathBuf>) -> Option<Checked> {
        let (app, good) = self.store.good.iter().find(|(_, good)| good.file == file)?;
        let (file, content) = (file.to_owned(), Some(good.content.clone()));
        Some(Checked { file, app: Some(app.clone()), content, findings: Vec::new(), inputs: inputs.clone() })
    }

    /// The directories whose events matter, those behind symlinks included.
    fn watched(&self) -> BTreeSet<PathBuf> {
        let mut dirs = BTreeSet::new();
        for path in &self.inputs {
            let is_dir = path.is_dir();
            dirs.extend(if is_dir { Some(path.as_path()) } else { path.parent() }.map(Path::to_owned));
            if let Ok(real) = std::fs::canonicalize(path)
                && real != *path
            {
                dirs.extend(if is_dir { Some(real.as_path()) } else { real.parent() }.map(Path::to_owned));
            }
        }
        if !self.dir.is_dir() {
            dirs.extend(self.dir.parent().map(Path::to_owned));
        }
        dirs
    }

    /// Whether an event on a path can change the picture. Things that appear or go always may; of writes only those to
    /// files that have a say, so that a log beside a Compose file costs nothing.
    fn relevant(&self, path: &Path, appears: bool, real: &BTreeSet<PathBuf>) -> bool {
        appears || self.inputs.contains(path) || real.contains(path) || {
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            ["yaml", "yml"].contains(&ending) || path.ends_with(MARKER)
        }
    }

    /// Whether anything has changed since the last read, or is still to be written.
    fn stale(&self) -> bool {
        self.store.behind() || watch::print(&self.inputs) != self.print
    }

    /// The pictures, one after the other, for ever. The first one comes at once.
    pub fn stream(self) -> impl Stream<Item = Arc<Desired>> + Send {
        futures::stream::unfold(Following { directory: self, watch: Watch::new(), first: true }, Following::next)
    }
}

struct Following {
    directory: Directory,
    watch: Watch,
    first: bool,
}

impl Following {
    /// Waits for the next picture that differs.
    async fn next(mut self) -> Option<(Arc<Desired>, Self)> {
        loop {
            if !std::mem::take(&mut self.first) && !self.due().await {
                continue;
            }
            let busy = self.watch.busy();
            let (directory, fresh, watched) = blocking(self.directory, move |mut directory| {
                let fresh = directory.refresh_but(&busy);
                let watched = directory.watched();
                (directory, fresh, watched)
            })
            .await;
            self.directory = directory;
            self.watch.aim(&watched);
            if let Some(fresh) = fresh {
                return Some((fresh, self));
            }
        }
    }

    /// Waits until it is time; whether the directory is to be read then.
    async fn due(&mut self) -> bool {
        let real: BTreeSet<PathBuf> =
            self.directory.inputs.iter().filter_map(|path| std::fs::canonicalize(path).ok()).collect();
        let relevant = |path: &Path, appears: bool| self.directory.relevant(path, appears, &real);
        let hurry = !self.directory.admitted;
        match self.watch.ring(&relevant, hurry).await {
            Ring::Event => true,
            Ring::Sweep => self.directory.stale(),
        }
    }
}

/// Works with the directory on a thread that may block: a file system that hangs must not hang the loop.
async fn blocking<T: Send + 'static>(directory: Directory, work: impl FnOnce(Directory) -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(move || work(directory)).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down: nobody waits for the answer.
            Err(_) => std::future::pending().await,
        },
    }
}

/// The generation in which an app's present content was first seen, by the state directory: what `apply` waits for.
pub fn recorded(state: &Path, app: &AppName) -> Option<(u64, String)> {
    let bytes = std::fs::read(state.join("good").join(format!("{app}.json"))).ok()?;
    let good: store::Good = serde_json::from_slice(&bytes).ok()?;
    Some((good.generation, good.digest))
}

/// The digest of what an app's files ask for, to compare with [`recorded`].
pub fn content_digest(checked: &Checked) -> Option<String> {
    checked.content.as_ref().map(store::digest)
}

/// The apps that lie in a directory: the name that the path gives each, and its files.
pub(super) fn scan_candidates(dir: &Path) -> std::io::Result<Vec<(String, Vec<PathBuf>)>> {
    Ok(scan::scan(dir)?.candidates.into_iter().map(|one| (one.stem, one.files)).collect())
}
