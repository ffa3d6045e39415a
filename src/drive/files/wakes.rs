//! What rings: a file of an instance changed or gone, a volume's directory gone, the host's resolver changed.

use super::{Options, paths};
use crate::drive::source::{Places, Source};
use crate::model::{Domain, Key, Scope};
use futures::StreamExt as _;
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Room for some dozens of events; the rest waits in the kernel.
const BUFFER: usize = 8 << 10;

const ENTRIES: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVE)
    .union(WatchMask::MODIFY)
    .union(WatchMask::ONLYDIR);

type Events = EventStream<Vec<u8>>;

async fn next(events: &mut Events) -> io::Result<Event<OsString>> {
    events.next().await.ok_or(io::ErrorKind::UnexpectedEof)?
}

/// The folders of instances and volumes, down to the level of their files; a volume's content is not watched.
pub(super) struct Tree {
    events: Events,
    options: Arc<Options>,
    folders: HashMap<WatchDescriptor, PathBuf>,
}

impl Source for Tree {
    type Of = Options;
    const DOMAIN: Domain = Domain::Files;

    fn open(options: &Arc<Options>) -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream(vec![0; BUFFER])?;
        let mut tree = Self { events, options: Arc::clone(options), folders: HashMap::new() };
        // Our own roots: they are there as long as the agent is.
        for root in [paths::instances_root(&options.run_dir), options.volumes_dir.clone()] {
            fs::create_dir_all(&root)?;
            tree.watch(&root)?;
        }
        Ok(tree)
    }

    async fn next(&mut self) -> io::Result<Places> {
        let event = next(&mut self.events).await?;
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            // Folders may have been missed too: all of them are listed again.
            return Err(io::Error::other("inotify overrun"));
        }
        let Some(folder) = self.folders.get(&event.wd).cloned() else { return Ok(Places::new()) };
        if event.mask.contains(EventMask::IGNORED) {
            self.folders.remove(&event.wd);
            let is_root = folder == self.options.volumes_dir || folder == paths::instances_root(&self.options.run_dir);
            return if is_root { Err(io::Error::other("a folder of ours was replaced")) } else { Ok(Places::new()) };
        }
        let Some(name) = event.name else { return Ok(Places::new()) };
        let path = folder.join(name);
        let appeared = event.mask.intersects(EventMask::CREATE | EventMask::MOVED_TO);
        if appeared && event.mask.contains(EventMask::ISDIR) {
            self.watch(&path)?;
        }
        Ok(self.place(&path).into_iter().collect())
    }
}

impl Tree {
    /// Watches a folder and what is in it already, as deep as our files go.
    fn watch(&mut self, folder: &Path) -> io::Result<()> {
        const INSTANCE: usize = 3;
        const APP: usize = 1;
        let deepest = match self.below(folder) {
            Some((Root::Instances, parts)) => INSTANCE.checked_sub(parts.len()),
            Some((Root::Volumes, parts)) => APP.checked_sub(parts.len()),
            None => None,
        };
        let Some(levels) = deepest else { return Ok(()) };
        match self.events.watches().add(folder, ENTRIES) {
            Ok(descriptor) => self.folders.insert(descriptor, folder.to_owned()),
            // Gone again, or no folder: nothing to watch.
            Err(error) if super::is_absent(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        if levels == 0 {
            return Ok(());
        }
        for entry in fs::read_dir(folder)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.watch(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Where a change of this path says to look.
    fn place(&self, path: &Path) -> Option<(Scope, &'static str)> {
        let (root, parts) = self.below(path)?;
        let (key, because) = match (root, parts.as_slice()) {
            (Root::Instances, [_, _, _, draft]) if draft.starts_with('.') => return None,
            (Root::Instances, [app, service, replica, ..]) => {
                (Key::Instance(paths::instance_of(app, service, replica)?), "instance file changed")
            }
            (Root::Volumes, [app, name]) => (Key::Volume(paths::volume_of(app, name)?), "volume directory changed"),
            _ => return Some((Scope::Domain(Domain::Files), "folder changed")),
        };
        Some((Scope::Part(key, Domain::Files), because))
    }

    /// The root that a path is below, and its parts from there.
    fn below(&self, path: &Path) -> Option<(Root, Vec<String>)> {
        let roots = [
            (Root::Instances, paths::instances_root(&self.options.run_dir)),
            (Root::Volumes, self.options.volumes_dir.clone()),
        ];
        let (root, rest) = roots.iter().find_map(|(root, at)| Some((*root, path.strip_prefix(at).ok()?)))?;
        Some((root, rest.iter().map(|part| part.to_string_lossy().into_owned()).collect()))
    }
}

#[derive(Clone, Copy)]
enum Root {
    Instances,
    Volumes,
}

/// The host's resolver files. They are replaced by name, by a change of a link, or written in place; so the folders of
/// each name on the way are watched.
pub(super) struct HostFiles {
    events: Events,
    options: Arc<Options>,
    names: BTreeSet<OsString>,
}

impl Source for HostFiles {
    type Of = Options;
    const DOMAIN: Domain = Domain::Files;

    fn open(options: &Arc<Options>) -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream(vec![0; BUFFER])?;
        let mut files = Self { events, options: Arc::clone(options), names: BTreeSet::new() };
        if files.watch() { Ok(files) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    async fn next(&mut self) -> io::Result<Places> {
        let event = next(&mut self.events).await?;
        if event.mask.intersects(EventMask::IGNORED | EventMask::Q_OVERFLOW) {
            return Err(io::Error::other("a folder of the resolver was replaced"));
        }
        if !event.name.is_some_and(|name| self.names.contains(&name)) {
            return Ok(Places::new());
        }
        // A link may lead elsewhere by now.
        self.watch();
        Ok(vec![(Scope::Domain(Domain::Files), "resolver changed")])
    }
}

impl HostFiles {
    /// Watches the folder of each file, and of what it leads to; false when there is none. To watch one twice is to
    /// watch it once.
    fn watch(&mut self) -> bool {
        let files = [self.options.resolv_conf.clone(), self.options.resolv_conf_behind_stub.clone()];
        let targets: Vec<PathBuf> = files.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
        let mut watched = false;
        for path in files.iter().chain(&targets) {
            self.names.extend(path.file_name().map(OsStr::to_owned));
            let folder = path.parent().unwrap_or(Path::new("/"));
            watched |= self.events.watches().add(folder, ENTRIES).is_ok();
        }
        watched
    }
}
