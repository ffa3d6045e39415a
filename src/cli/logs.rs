//! `stead logs`: the plain log files of instances. Needs no agent.

use super::Paths;
use super::poll::until;
use super::say::{Failure, Out, fail};
use crate::model::AppName;
use clap::Args;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The longest piece of a line that is held: an instance that never ends its line is shown in pieces.
const PIECE_MAX: u64 = 64 * 1024;

/// The flags of `logs`.
#[derive(Debug, Args)]
pub struct Flags {
    /// APP, APP/SERVICE or APP/SERVICE/REPLICA.
    target: String,
    /// Go on with what is written from now on.
    #[arg(short, long)]
    follow: bool,
    /// Only the last N lines of each instance.
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Without the instance's name before each line.
    #[arg(long)]
    no_prefix: bool,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let target = Target::read(&flags.target)?;
    let found = target.find(&paths.logs);
    if found.is_empty() && !flags.follow {
        return Err(Failure::new(format!("no log of {} in {}", flags.target, paths.logs.display())));
    }
    let prefix = !flags.no_prefix && (found.len() > 1 || flags.follow);
    let mut logs: BTreeMap<String, Log> = BTreeMap::new();
    for (name, path) in found {
        let mut log = Log::new(path, prefix.then_some(&name));
        log.skip_to_the_last(flags.lines).and_then(|()| log.print(out, !flags.follow))?;
        logs.insert(name, log);
    }
    if !flags.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let mut more = || -> Result<(), Failure> {
        for (name, path) in target.find(&paths.logs) {
            let log = logs.entry(name).or_insert_with_key(|name| Log::new(path, prefix.then_some(name)));
            log.print(out, false)?;
        }
        out.flush()
    };
    match until(None, || more().err())? {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// What was asked for.
struct Target {
    app: AppName,
    service: Option<String>,
    replica: Option<String>,
}

impl Target {
    fn read(text: &str) -> Result<Self, Failure> {
        let mut parts = text.split('/');
        let app = AppName::new(parts.next().unwrap_or_default())
            .map_err(|error| fail(format!("`{text}` names no app"), &error).code(super::USAGE))?;
        Ok(Self { app, service: parts.next().map(str::to_owned), replica: parts.next().map(str::to_owned) })
    }

    /// The log files that there are now, by instance.
    fn find(&self, logs: &Path) -> BTreeMap<String, PathBuf> {
        let asked = |part: &Option<String>, is: &str| part.as_deref().is_none_or(|part| part == is);
        let entries = std::fs::read_dir(logs.join(self.app.as_str())).into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "log"));
        let named = files.filter_map(|path| {
            let stem = path.file_stem()?.to_str()?.to_owned();
            let (service, replica) = stem.rsplit_once('-')?;
            let wanted = asked(&self.service, service) && asked(&self.replica, replica);
            wanted.then(|| (format!("{}/{service}/{replica}", self.app), path))
        });
        named.collect()
    }
}

/// One file, read up to a place.
struct Log {
    path: PathBuf,
    prefix: String,
    at: u64,
    inode: u64,
    /// Whether the last piece that was shown had no end of line.
    open: bool,
}

impl Log {
    fn new(path: PathBuf, name: Option<&String>) -> Self {
        let prefix = name.map(|name| format!("{name} | ")).unwrap_or_default();
        Self { path, prefix, at: 0, inode: 0, open: false }
    }

    fn cannot(&self, error: &std::io::Error) -> Failure {
        fail(format!("cannot read {}", self.path.display()), error)
    }

    /// Opens the file; one that is away is no failure, since it may come back. A file that is another one than before,
    /// or has become shorter, is read from its beginning.
    fn file(&mut self) -> std::io::Result<Option<File>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let found = file.metadata()?;
        if found.ino() != self.inode || found.len() < self.at {
            (self.at, self.inode, self.open) = (0, found.ino(), false);
        }
        Ok(Some(file))
    }

    /// Goes to where the last `lines` begin.
    fn skip_to_the_last(&mut self, lines: Option<usize>) -> Result<(), Failure> {
        let Some(lines) = lines else { return Ok(()) };
        let mut find = || -> std::io::Result<u64> {
            let Some(file) = self.file()? else { return Ok(0) };
            let mut starts = VecDeque::new();
            let (mut reader, mut at, mut fresh) = (BufReader::new(file), 0_u64, true);
            loop {
                let mut piece = Vec::new();
                let read = reader.by_ref().take(PIECE_MAX).read_until(b'\n', &mut piece)?;
                if read == 0 {
                    return Ok(if lines == 0 { at } else { starts.front().copied().unwrap_or(at) });
                }
                if fresh {
                    starts.push_back(at);
                }
                if starts.len() > lines {
                    starts.pop_front();
                }
                fresh = piece.ends_with(b"\n");
                at += read as u64;
            }
        };
        self.at = find().map_err(|error| self.cannot(&error))?;
        Ok(())
    }

    /// Prints what is there from where it stands. A last line without an end is left for later, unless `all`.
    fn print(&mut self, out: &mut Out, all: bool) -> Result<(), Failure> {
        let file = self.file().map_err(|error| self.cannot(&error))?;
        let Some(mut file) = file else { return Ok(()) };
        file.seek(SeekFrom::Start(self.at)).map_err(|error| self.cannot(&error))?;
        let mut reader = BufReader::new(file);
        loop {
            let mut piece = Vec::new();
            let read = reader.by_ref().take(PIECE_MAX).read_until(b'\n', &mut piece);
            let read = read.map_err(|error| self.cannot(&error))? as u64;
            let whole = piece.ends_with(b"\n") || read == PIECE_MAX;
            if read == 0 || !(whole || all) {
                return if all && self.open { out.text("\n") } else { Ok(()) };
            }
            if !self.open {
                out.text(&self.prefix)?;
            }
            out.bytes(&piece)?;
            self.at += read;
            self.open = !piece.ends_with(b"\n");
        }
    }
}
