//! `stead image`: images without the agent.

use super::say::{Failure, Out, fail};
use super::table::{Colour, paint};
use super::{Paths, once};
use crate::desired::normalise_reference;
use crate::drive::Counters;
use crate::drive::containerd::{self, CallError, Containerd};
use crate::drive::image::{Progress, describe, from_files, import};
use crate::model::{ImageUse, Sight};
use clap::Subcommand;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// What to do with images.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the images in the agent's containerd namespace.
    Ls,
    /// Import an OCI archive.
    Import {
        /// The archive: a tar with an index.json.
        file: PathBuf,
        /// The name to give the image [default: the one in the archive].
        #[arg(long = "as", value_name = "IMAGE")]
        reference: Option<String>,
    },
    /// Make a small image from a static binary, or from a root folder, and import it.
    FromFiles {
        /// The image's name.
        #[arg(value_name = "IMAGE")]
        reference: String,
        /// Files lie in the image's root; a folder's content becomes its root. A single file is what the image runs.
        #[arg(required = true, value_name = "PATH")]
        files: Vec<PathBuf>,
        /// Write an OCI archive instead of importing it.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Runs it.
pub fn run(paths: &Paths, command: Command, out: &mut Out) -> Result<ExitCode, Failure> {
    match command {
        Command::Ls => once(list(paths, out))??,
        Command::Import { file, reference } => once(bring(paths, &file, reference.as_deref(), out))??,
        Command::FromFiles { reference, files, output } => make(paths, &reference, &files, output.as_deref(), out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn connect(paths: &Paths) -> Containerd {
    Containerd::new(containerd::Options {
        socket: paths.containerd.clone(),
        marks: paths.marks.clone(),
        run_dir: paths.run.clone(),
        log_dir: paths.logs.clone(),
        volumes_dir: paths.volumes(),
        counters: Arc::new(Counters::default()),
    })
}

fn told(what: &str, error: &CallError) -> Failure {
    let cause = error.cause();
    let failure = Failure::new(format!("{what}: {}", cause.message));
    match cause.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn normal(name: &str) -> Result<String, Failure> {
    normalise_reference(name).map_err(|why| Failure::new(format!("`{name}` is no image name: {why}")))
}

async fn list(paths: &Paths, out: &mut Out) -> Result<(), Failure> {
    let runtime = match connect(paths).look_runtime().await {
        Sight::Seen(runtime) => runtime,
        Sight::Unseen(blind) => {
            return Err(Failure::new(format!("containerd cannot be looked at: {}", blind.why))
                .hint("stead doctor says what is missing"));
        }
    };
    let width = runtime.images.keys().map(String::len).max().unwrap_or_default().max(5);
    let head = format!("{:<width$}  {:<19}  STATE", "IMAGE", "DIGEST");
    let head = out.paint(&head, Colour::Grey);
    out.line(head)?;
    for (name, image) in &runtime.images {
        let state = match &image.usable {
            ImageUse::Ready { .. } => "ready".to_owned(),
            ImageUse::Packed => "not unpacked".to_owned(),
            ImageUse::Incomplete => "parts are missing".to_owned(),
            ImageUse::WrongPlatform { has } => format!("only for {}", has.join(", ")),
        };
        out.line(format!("{name:<width$}  {:<19}  {state}", image.digest.get(..19).unwrap_or(&image.digest)))?;
    }
    Ok(())
}

async fn bring(paths: &Paths, file: &Path, name: Option<&str>, out: &mut Out) -> Result<(), Failure> {
    let what = format!("{} was not imported", file.display());
    let images = describe(file).await.map_err(|error| told(&what, &error))?;
    let wanted: Vec<String> = match name {
        Some(name) => vec![normal(name)?],
        None => images.iter().filter_map(|image| image.name.as_deref()).map(normal).collect::<Result<_, _>>()?,
    };
    if wanted.is_empty() {
        return Err(Failure::new(format!("{what}: the archive does not name its image")).hint("name it: --as IMAGE"));
    }
    let containerd = connect(paths);
    for reference in wanted {
        let mut bar = Bar::new(&reference);
        let digest = import(&containerd, file, &reference, None, &mut |progress| bar.show(progress)).await;
        bar.end();
        let digest = digest.map_err(|error| told(&what, &error))?;
        out.line(format!("{reference} {digest}"))?;
    }
    Ok(())
}

fn make(paths: &Paths, name: &str, files: &[PathBuf], output: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    let reference = normal(name)?;
    let scratch = paths.run.join(format!("from-files-{}.tar", std::process::id()));
    let to = output.unwrap_or(&scratch);
    let made = match output {
        Some(_) => Ok(()), // where the user says; its directory is the user's to make
        None => std::fs::create_dir_all(&paths.run),
    };
    let made = made.and_then(|()| from_files(&reference, files, to));
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            if output.is_none() {
                let _ = std::fs::remove_file(to);
            }
            return Err(fail("the image was not made", &error));
        }
    };
    if output.is_some() {
        return out.line(format!("{reference} {} in {}", made.digest, to.display()));
    }
    let brought = once(bring(paths, to, Some(&reference), out))?;
    let _ = std::fs::remove_file(to);
    brought
}

/// A line on a terminal that says how far an import is.
struct Bar {
    name: String,
    shown: bool,
    last: u64,
}

impl Bar {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), shown: false, last: u64::MAX }
    }

    fn show(&mut self, progress: Progress) {
        let percent = progress.done * 100 / progress.total.max(1);
        if percent == self.last || !std::io::stderr().is_terminal() {
            return;
        }
        (self.last, self.shown) = (percent, true);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let filled = "#".repeat(usize::try_from(percent / 5).unwrap_or_default());
        let line = format!("{} [{filled:<20}] {:.1}/{:.1} MiB", self.name, mib(progress.done), mib(progress.total));
        let _ = write!(std::io::stderr(), "\r{}", paint(&line, Colour::Grey, true));
    }

    fn end(&self) {
        if self.shown {
            let _ = writeln!(std::io::stderr());
        }
    }
}
