//! `stead apply`: validates a Compose file and records it as an app. The agent does the rest.

use super::poll::until;
use super::say::{Failure, Out, fail};
use super::{Paths, wait};
use crate::desired::record::{self, Lock, Recorded, Refused};
use crate::desired::{Checked, Request, check, content_digest, recorded, request_for};
use crate::model::AppName;
use crate::plan::changes;
use clap::Args;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long the agent may take to take a file: it waits half a second at most for edits to end, then reads it.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// How long other commands may hold the directory.
const LOCKED_WITHIN: Duration = Duration::from_secs(5);

/// The flags of `apply`.
#[derive(Debug, Args)]
pub struct Flags {
    /// The Compose file; `-` reads stdin.
    file: PathBuf,
    /// The app's name, where the file has no `name:`.
    #[arg(long)]
    app: Option<AppName>,
    /// Wait until it is settled.
    #[arg(long)]
    wait: bool,
    /// How long --wait may take.
    #[arg(long, value_parser = wait::duration, default_value = "60s", requires = "wait")]
    timeout: Duration,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let text = text(&flags.file)?;
    let dir = paths.desired_state();
    if !dir.is_dir() {
        return Err(Failure::new(format!("there is no directory {}", dir.display()))
            .hint("make it, or name another one: --desired-state DIR"));
    }
    let env = paths.env()?;
    let here = (flags.file.as_os_str() != "-").then(|| {
        // alone: an override beside it is not recorded with it
        let (text, files) = (Some(text.clone()), vec![flags.file.clone()]);
        let request = Request { files, text, env: env.clone(), ..request_for(&flags.file) };
        (check(&request), AppName::new(&request.default_name).ok())
    });
    // the file's own `name:` counts before the name of its path
    let by_file = here.as_ref().and_then(|(here, default)| here.app.clone().or_else(|| default.clone()));
    let name = flags.app.clone().or(by_file);
    if let Some((here, _)) = &here {
        same_there(paths, here, name.as_ref(), &text)?;
    }
    let held = locked(&dir)?;
    let done = record::apply(&dir, name.as_ref(), &text, &env).map_err(|refused| told(&refused, out))?;
    drop(held);
    out.findings(&done.checked.findings)?;
    answer(paths, &done, flags.wait.then_some(flags.timeout), out)
}

fn text(file: &Path) -> Result<String, Failure> {
    let read = || -> std::io::Result<String> {
        if file.as_os_str() != "-" {
            return std::fs::read_to_string(file);
        }
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|error| fail(format!("cannot read {}", file.display()), &error))
}

/// A file whose relative paths or `.env` file would lead elsewhere from where it is recorded is refused: it would run, as
/// something else.
fn same_there(paths: &Paths, here: &Checked, name: Option<&AppName>, text: &str) -> Result<(), Failure> {
    let (Some(name), Some(before)) = (name, &here.content) else { return Ok(()) };
    let dir = paths.desired_state();
    let file = record::files_of(&dir, name).and_then(|files| files.into_iter().next());
    let files = vec![file.unwrap_or_else(|| dir.join(format!("{name}.yaml")))];
    let (text, default_name, env) = (Some(text.to_owned()), name.to_string(), paths.env()?);
    let there = check(&Request { files, text, default_name, env, ..Request::default() });
    let Some(after) = there.content.as_ref().filter(|_| content_digest(here) != content_digest(&there)) else {
        return Ok(()); // the same, or with faults that are told where it is recorded
    };
    let changed = before.services.iter().find_map(|(service, was)| {
        let change = changes(&was.spec, &after.services.get(service)?.spec).into_iter().next()?;
        Some(format!(": {service}: {}: {} becomes {}", change.field, change.old, change.new))
    });
    let at = there.file.display();
    Err(Failure::new(format!("the file means something else at {at}{}", changed.unwrap_or_default())).hint(format!(
        "write whole paths, or put it with the files that it needs into {}",
        dir.join(name.as_str()).display()
    )))
}

fn told(refused: &Refused, out: &mut Out) -> Failure {
    if let Refused::Faults(checked) = refused {
        return match out.findings(&checked.findings) {
            Ok(()) => Failure::new("nothing was recorded: the file has faults"),
            Err(failure) => failure,
        };
    }
    let failure = fail("nothing was recorded", refused);
    match refused {
        Refused::NoName => failure.hint("give it one: --app NAME"),
        _ => failure,
    }
}

/// Holds the directory against other commands, which take milliseconds.
pub(super) fn locked(dir: &Path) -> Result<Lock, Failure> {
    let mut refused = None;
    let held = until(Some(LOCKED_WITHIN), || record::lock(dir).map_err(|error| refused = Some(error)).ok())?;
    held.ok_or_else(|| match refused {
        Some(error) => fail("nothing was recorded", &error),
        None => Failure::new("nothing was recorded"),
    })
}

/// The generation in which the agent has taken it; without an agent there is none yet.
pub(super) fn answer(
    paths: &Paths,
    done: &Recorded,
    waiting: Option<Duration>,
    out: &mut Out,
) -> Result<ExitCode, Failure> {
    let (app, file) = (&done.app, done.file.display());
    let recorded_in = if done.changed { format!("recorded in {file}") } else { format!("unchanged in {file}") };
    if !paths.status().is_some_and(|status| status.agent.running) {
        out.line(format!("{app} {recorded_in}; no agent runs, it takes effect when one starts"))?;
        return match waiting {
            Some(_) => Err(Failure::new("no agent runs, so nothing can be waited for").hint("start one: stead agent")),
            None => Ok(ExitCode::SUCCESS),
        };
    }
    let wanted = content_digest(&done.checked);
    let taken = || recorded(&paths.root, app).filter(|(_, digest)| Some(digest) == wanted.as_ref());
    match until(Some(TAKEN_WITHIN), || taken().map(|(generation, _)| generation))? {
        Some(generation) => out.line(format!("{app} {recorded_in}, generation {generation}"))?,
        None => return Err(not_taken(paths, app)),
    }
    out.flush()?;
    match waiting {
        Some(timeout) => wait::settled(paths, std::slice::from_ref(app), timeout),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Why the agent goes on with what it had: another app's port, say, or a directory that is not its own.
fn not_taken(paths: &Paths, app: &AppName) -> Failure {
    let sentence = format!("{app} is recorded, but the agent has not taken it");
    let status = paths.status();
    let found = status.iter().flat_map(|status| &status.apps).find(|one| one.app == app.as_str());
    match (found.and_then(|found| found.errors.first()), status.as_ref().map(|status| &status.agent.desired_state)) {
        (Some(error), _) => {
            let failure =
                Failure::new(format!("{sentence}: {}:{}:{}: {}", error.file, error.line, error.column, error.message));
            match &error.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
        (None, Some(dir)) if *dir != paths.desired_state().display().to_string() => {
            Failure::new(format!("{sentence}: it reads {dir}"))
        }
        _ => Failure::new(sentence).hint("stead status says what it is busy with"),
    }
}
