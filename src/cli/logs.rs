//! `stead logs`: the plain log files of instances. Needs no agent.

use super::Paths;
use super::say::{Failure, fail};
use clap::Args;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
pub fn run(paths: &Paths, flags: &Flags) -> Result<ExitCode, Failure> {
    let mut logs = find(paths, &flags.target);
    if logs.is_empty() {
        return Err(Failure::new(format!("no log of {} in {}", flags.target, paths.logs.display())));
    }
    let prefix = !flags.no_prefix && (logs.len() > 1 || flags.follow);
    for (name, log) in &mut logs {
        log.tail(flags.lines).map_err(|error| fail(format!("cannot read {}", log.path.display()), &error))?;
        log.print(name, prefix);
    }
    if !flags.follow {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        for (name, path) in find(paths, &flags.target).into_iter().map(|(name, log)| (name, log.path)) {
            let log = logs.entry(name.clone()).or_insert(Log { path, at: 0, lines: VecDeque::new(), rest: Vec::new() });
            // a log that is away for a moment comes back; whoever follows goes on waiting
            if log.more().is_ok() {
                log.print(&name, prefix);
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

struct Log {
    path: PathBuf,
    at: u64,
    lines: VecDeque<Vec<u8>>,
    rest: Vec<u8>,
}

/// The log files of what was asked for, by instance.
fn find(paths: &Paths, target: &str) -> BTreeMap<String, Log> {
    let mut parts = target.split('/');
    let (app, service, replica) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let fits = |of: &str, number: &str| {
        service.is_none_or(|service| service == of) && replica.is_none_or(|replica| replica == number)
    };
    let entries = std::fs::read_dir(paths.logs.join(app)).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "log"));
    let named = files.filter_map(|path| {
        let stem = path.file_stem()?.to_str()?.to_owned();
        let (of, number) = stem.rsplit_once('-')?;
        let log = Log { path, at: 0, lines: VecDeque::new(), rest: Vec::new() };
        fits(of, number).then(|| (format!("{app}/{of}/{number}"), log))
    });
    named.collect()
}

impl Log {
    /// Reads all of it, and keeps the last lines only.
    fn tail(&mut self, lines: Option<usize>) -> std::io::Result<()> {
        let mut reader = BufReader::new(File::open(&self.path)?);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            self.at += line.len() as u64;
            self.lines.push_back(std::mem::take(&mut line));
            if lines.is_some_and(|lines| self.lines.len() > lines) {
                self.lines.pop_front();
            }
        }
        Ok(())
    }

    /// Reads what was added since; a file that has become shorter was truncated, and is read from its beginning.
    fn more(&mut self) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() < self.at {
            self.at = 0;
        }
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = std::mem::take(&mut self.rest);
        self.at += file.read_to_end(&mut bytes)? as u64;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.rest = bytes.split_off(whole);
        self.lines.extend(bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec));
        Ok(())
    }

    fn print(&mut self, name: &str, prefix: bool) {
        let mut out = std::io::stdout().lock();
        for line in self.lines.drain(..) {
            let end: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
            let head = if prefix { format!("{name} | ") } else { String::new() };
            if out.write_all(&[head.as_bytes(), &line, end].concat()).is_err() {
                std::process::exit(0); // the reader has gone
            }
        }
        let _ = out.flush();
    }
}
