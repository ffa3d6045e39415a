//! The exits that were seen and not written down on a container yet, one small file each: `RUN/exits/<id>.<pid>`.
//!
//! They survive the agent. The first exit that is written for a (container, pid) stays.

use crate::model::Exit;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of exits.
#[derive(Debug, Clone)]
pub struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// In this folder, which is made on the first write where [`Journal::prepare`] has not made it.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Makes the folder, so that it is there whether or not there is an exit.
    pub fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)
    }

    /// Writes an exit down, whole or not at all; an earlier one of the same process stays.
    pub fn write(&self, container: &str, exit: &Exit) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(container, exit.pid);
        let draft = self.folder.join(format!(".{container}.{}", exit.pid));
        fs::write(&draft, serde_json::to_vec(exit)?)?;
        // A link does not replace what is there: the first exit wins.
        let linked = match fs::hard_link(&draft, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        fs::remove_file(&draft)?;
        linked
    }

    /// The containers of which exits are written down.
    pub fn containers(&self) -> io::Result<BTreeSet<String>> {
        Ok(self.names()?.into_iter().map(|(container, _)| container).collect())
    }

    /// The exits of a container, the latest last.
    pub fn exits(&self, container: &str) -> io::Result<Vec<Exit>> {
        let mut exits = Vec::new();
        for (id, pid) in self.names()? {
            if id == container {
                exits.extend(self.exit(container, pid)?);
            }
        }
        exits.sort_by_key(|exit| exit.at);
        Ok(exits)
    }

    /// The exit of one process.
    pub fn exit(&self, container: &str, pid: u32) -> io::Result<Option<Exit>> {
        match fs::read(self.path(container, pid)) {
            // A file that is no exit (a crash of the machine, a foreign hand) tells nothing.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok().filter(|exit: &Exit| exit.pid == pid)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets the exit of one process.
    pub fn forget(&self, container: &str, pid: u32) {
        remove(&self.path(container, pid));
    }

    /// Forgets every exit of a container.
    pub fn forget_all(&self, container: &str) {
        for (id, pid) in self.names().unwrap_or_default() {
            if id == container {
                self.forget(container, pid);
            }
        }
    }

    /// Container and pid of each file.
    fn names(&self) -> io::Result<Vec<(String, u32)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            names.extend(name.to_str().and_then(split).map(|(container, pid)| (container.to_owned(), pid)));
        }
        Ok(names)
    }

    fn path(&self, container: &str, pid: u32) -> PathBuf {
        self.folder.join(format!("{container}.{pid}"))
    }
}

fn split(name: &str) -> Option<(&str, u32)> {
    if name.starts_with('.') {
        return None;
    }
    let (container, pid) = name.rsplit_once('.')?;
    Some((container, pid.parse().ok()?))
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "an exit that is written down could not be forgotten");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ExitStatus, Timestamp};

    fn exit(pid: u32, code: u32, at: u64) -> Exit {
        Exit { pid, status: ExitStatus::Code(code), at: Timestamp(at) }
    }

    #[test]
    fn the_first_exit_of_a_process_stays_and_is_found_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let journal = Journal::new(folder.path().join("exits"));
        assert!(journal.containers().expect("no folder is no exits").is_empty());
        journal.write("web.a-1-0123", &exit(7, 3, 20)).expect("writes");
        journal.write("web.a-1-0123", &exit(7, 137, 30)).expect("writes");
        journal.write("web.a-1-0123", &exit(5, 1, 10)).expect("writes");
        assert_eq!(journal.exits("web.a-1-0123").expect("reads"), [exit(5, 1, 10), exit(7, 3, 20)]);
        assert_eq!(journal.containers().expect("reads"), BTreeSet::from(["web.a-1-0123".to_owned()]));
        journal.forget("web.a-1-0123", 5);
        assert_eq!(journal.exit("web.a-1-0123", 5).expect("reads"), None);
        journal.forget_all("web.a-1-0123");
        assert_eq!(fs::read_dir(folder.path().join("exits")).expect("there").count(), 0);
    }

    #[test]
    fn a_torn_file_tells_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let journal = Journal::new(folder.path().to_path_buf());
        fs::write(folder.path().join("a.1"), b"{\"pid\":1,").expect("writes");
        fs::write(folder.path().join("a.x"), b"").expect("writes");
        assert!(journal.exits("a").expect("reads").is_empty());
    }
}
