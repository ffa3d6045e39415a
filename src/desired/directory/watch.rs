//! When to look again: file events, gathered until they are quiet, and a sweep for file systems that send none.

use futures::StreamExt as _;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A save is several events; they belong together when they come within this time of each other.
const QUIET: Duration = Duration::from_millis(50);
/// The same while every file that changed came whole (renamed into place, or written and closed): what may follow is
/// another file of the same copy, which is on its way by then.
const QUIET_WHOLE: Duration = Duration::from_millis(10);
/// A directory that never gets quiet is read all the same after this time.
const QUIET_MAX: Duration = Duration::from_millis(500);
/// How often files are compared where no event may come (NFS, overlay lower layers, bind mounts).
const SWEEP: Duration = Duration::from_secs(30);
/// The same while events cannot be had, or while the directory is not there.
const SWEEP_BLIND: Duration = Duration::from_secs(2);
/// How long a file that is being written is waited for. Longer than any save takes; a descriptor that somebody forgot to
/// close does not hold its app up for good.
const WRITING_MAX: Duration = Duration::from_secs(10);
/// How many directories are watched: each costs a kilobyte of the kernel's memory. The sweep sees the others.
const WATCHES_MAX: usize = 4096;
/// Room for events of one read.
const BUFFER: usize = 16 << 10;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// Something happened.
    Event,
    /// Time to compare.
    Sweep,
}

/// The watches.
pub struct Watch {
    /// Nothing where the kernel gives no more instances.
    stream: Option<EventStream<[u8; BUFFER]>>,
    watched: BTreeMap<PathBuf, WatchDescriptor>,
    paths: HashMap<WatchDescriptor, PathBuf>,
    /// Whether a directory was added since the last look: something may have happened before it was watched.
    added: bool,
    /// Files that were written to and not closed since, with the time of the first write.
    writing: BTreeMap<PathBuf, Instant>,
    /// Whether some directory could not be watched.
    pub blind: bool,
}

/// Whether what was gathered so far is a finished save.
#[derive(Default)]
struct Half {
    /// Files that were begun and not finished.
    begun: BTreeSet<PathBuf>,
    /// Whether something went away: half of a save by editors that move the old file aside first.
    gone: bool,
}

impl Half {
    fn take(&mut self, event: &inotify::EventOwned, path: Option<PathBuf>) {
        match path {
            Some(path) if event.mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO) => {
                self.begun.remove(&path);
            }
            Some(path) if event.mask.intersects(EventMask::CREATE | EventMask::MODIFY) => {
                self.begun.insert(path);
            }
            _ => self.gone = true,
        }
    }

    fn quiet(&self) -> Duration {
        if self.begun.is_empty() && !self.gone { QUIET_WHOLE } else { QUIET }
    }
}

impl Watch {
    /// Watches nothing yet.
    pub fn new() -> Self {
        let stream = Inotify::init().and_then(|inotify| inotify.into_event_stream([0; BUFFER])).ok();
        Self {
            stream,
            watched: BTreeMap::new(),
            paths: HashMap::new(),
            added: false,
            writing: BTreeMap::new(),
            blind: false,
        }
    }

    /// Watches these directories and no others. One that is not there is watched for by its nearest ancestor that is.
    pub fn aim(&mut self, wanted: &BTreeSet<PathBuf>) {
        let Some(stream) = &self.stream else {
            self.blind = true;
            return;
        };
        let mut watches = stream.watches();
        let there: BTreeSet<PathBuf> = wanted.iter().filter_map(|path| nearest(path)).take(WATCHES_MAX).collect();
        self.blind = false;
        let gone: Vec<PathBuf> = self.watched.keys().filter(|path| !there.contains(*path)).cloned().collect();
        for path in gone {
            if let Some(watch) = self.watched.remove(&path) {
                self.paths.remove(&watch);
                // It may be gone by itself.
                let _ = watches.remove(watch);
            }
        }
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::CLOSE_WRITE
            | WatchMask::ATTRIB
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        for path in there {
            // A watch belongs to an inode: adding it again finds out whether the path leads to another one now.
            match watches.add(&path, mask) {
                Ok(watch) => {
                    if self.watched.insert(path.clone(), watch.clone()) != Some(watch.clone()) {
                        self.added = true;
                    }
                    self.paths.insert(watch, path);
                }
                Err(_) => self.blind = true,
            }
        }
    }

    /// Waits until something relevant has happened and it is quiet again, or until it is time to compare.
    pub async fn ring(&mut self, relevant: &(dyn Fn(&Path, bool) -> bool + Sync), hurry: bool) -> Ring {
        if std::mem::take(&mut self.added) {
            self.gather(relevant, Half { gone: true, ..Half::default() }).await;
            return Ring::Sweep;
        }
        let sweep = Instant::now() + if hurry || self.blind { SWEEP_BLIND } else { SWEEP };
        let overdue = self.writing.values().min().map(|begun| *begun + WRITING_MAX);
        let mut half = Half::default();
        loop {
            match self.event(sweep.min(overdue.unwrap_or(sweep))).await {
                None if overdue.is_some_and(|overdue| overdue <= Instant::now()) => return Ring::Event,
                None => return Ring::Sweep,
                Some(event) if self.counts(&event, relevant) => {
                    half.take(&event, self.path(&event));
                    break;
                }
                Some(_) => {}
            }
        }
        self.gather(relevant, half).await;
        Ring::Event
    }

    /// Takes events until it is quiet.
    async fn gather(&mut self, relevant: &(dyn Fn(&Path, bool) -> bool + Sync), mut half: Half) {
        let latest = Instant::now() + QUIET_MAX;
        let mut quiet = Instant::now() + half.quiet();
        while let Some(event) = self.event(quiet.min(latest)).await {
            if self.counts(&event, relevant) {
                half.take(&event, self.path(&event));
                quiet = Instant::now() + half.quiet();
            }
        }
    }

    /// The file that an event is about.
    fn path(&self, event: &inotify::EventOwned) -> Option<PathBuf> {
        Some(self.paths.get(&event.wd)?.join(event.name.as_ref()?))
    }

    /// The files that somebody is in the middle of writing.
    pub fn busy(&mut self) -> BTreeSet<PathBuf> {
        self.writing.retain(|_, begun| *begun + WRITING_MAX > Instant::now());
        self.writing.keys().cloned().collect()
    }

    /// The next event, or nothing at the deadline.
    async fn event(&mut self, deadline: Instant) -> Option<inotify::EventOwned> {
        let Some(stream) = &mut self.stream else {
            tokio::time::sleep_until(deadline).await;
            return None;
        };
        match timeout_at(deadline, stream.next()).await {
            Ok(Some(Ok(event))) => Some(event),
            Err(_) => None,
            // The queue broke: from now on the sweep alone finds changes.
            Ok(_) => {
                self.stream = None;
                self.blind = true;
                None
            }
        }
    }

    fn counts(&mut self, event: &inotify::EventOwned, relevant: &(dyn Fn(&Path, bool) -> bool + Sync)) -> bool {
        let appears = EventMask::CREATE | EventMask::DELETE | EventMask::MOVED_FROM | EventMask::MOVED_TO;
        let Some(dir) = self.paths.get(&event.wd) else {
            // An overflow has no directory. Events of watches given up a moment ago have none either and are stale.
            return event.mask.contains(EventMask::Q_OVERFLOW);
        };
        match &event.name {
            Some(name) => {
                let path = dir.join(name);
                if !event.mask.contains(EventMask::MODIFY) {
                    self.writing.remove(&path);
                } else if relevant(&path, false) {
                    self.writing.entry(path.clone()).or_insert_with(Instant::now);
                }
                relevant(&path, event.mask.intersects(appears))
            }
            None => !event.mask.contains(EventMask::IGNORED),
        }
    }
}

/// The nearest directory on a path that is there.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|path| path.is_dir()).map(Path::to_owned)
}

/// What tells one state of some files from another.
pub type Print = Vec<(PathBuf, Option<[i64; 7]>)>;

/// The print of some paths, each looked at through its symlinks.
pub fn print(paths: &BTreeSet<PathBuf>) -> Print {
    paths
        .iter()
        .map(|path| {
            let numbers = std::fs::metadata(path).ok().map(|meta| {
                let unsigned = |value: u64| i64::from_ne_bytes(value.to_ne_bytes());
                let (device, inode) = (unsigned(meta.dev()), unsigned(meta.ino()));
                let size = unsigned(meta.size());
                [device, inode, size, meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()]
            });
            (path.clone(), numbers)
        })
        .collect()
}
