//! `stead apply`: validates a Compose file and records it as an app. The agent does the rest.

use super::paths::alive;
use super::say::{Failure, fail};
use super::{Paths, wait};
use crate::desired::record::{self, Recorded, Refused};
use crate::desired::{content_digest, recorded, render};
use crate::model::AppName;
use clap::Args;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
    #[arg(long, value_parser = wait::duration, default_value = "60s")]
    timeout: Duration,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags) -> Result<ExitCode, Failure> {
    let text = text(flags)?;
    let dir = paths.desired_state();
    if !dir.is_dir() {
        return Err(Failure::new(format!("there is no directory {}", dir.display()))
            .hint("make it, or name another one: --desired-state DIR"));
    }
    let name = flags.app.clone().or_else(|| {
        let stem = flags.file.file_stem().filter(|_| flags.file.as_os_str() != "-")?.to_str()?;
        AppName::new(stem).ok().filter(|_| !text.lines().any(|line| line.starts_with("name:")))
    });
    let done = record::apply(&dir, name.as_ref(), &text, &BTreeMap::new()).map_err(|refused| tell(&refused))?;
    for finding in &done.checked.findings {
        if finding.severity == crate::model::Severity::Warning {
            eprint!("{}", render(finding, std::io::stderr().is_terminal()));
        }
    }
    answer(paths, &done, flags)
}

fn text(flags: &Flags) -> Result<String, Failure> {
    let read = || -> std::io::Result<String> {
        if flags.file.as_os_str() != "-" {
            return std::fs::read_to_string(&flags.file);
        }
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|error| fail(format!("cannot read {}", flags.file.display()), &error))
}

fn tell(refused: &Refused) -> Failure {
    if let Refused::Faults(checked) = refused {
        for finding in &checked.findings {
            eprint!("{}", render(finding, std::io::stderr().is_terminal()));
        }
        return Failure::new("nothing was recorded: the file has faults");
    }
    let failure = fail("nothing was recorded", refused);
    match refused {
        Refused::NoName => failure.hint("give it one: --app NAME"),
        _ => failure,
    }
}

/// The generation in which the agent has taken it; without an agent there is none yet.
fn answer(paths: &Paths, done: &Recorded, flags: &Flags) -> Result<ExitCode, Failure> {
    let file = done.file.display();
    let runs = paths.status().is_some_and(|status| alive(&status));
    if !runs {
        println!("{} recorded in {file}; no agent runs, it takes effect when one starts", done.app);
        return if flags.wait {
            Err(Failure::new("no agent runs, so nothing can be waited for"))
        } else {
            Ok(ExitCode::SUCCESS)
        };
    }
    let wanted = content_digest(&done.checked);
    let taken = || recorded(&paths.root, &done.app).filter(|(_, digest)| Some(digest) == wanted.as_ref());
    match wait::until(Duration::from_secs(5), || taken().map(|(generation, _)| generation)) {
        Some(generation) => println!("{} recorded in {file}, generation {generation}", done.app),
        None => eprintln!("{} recorded in {file}; the agent has not taken it yet, see stead status", done.app),
    }
    if flags.wait {
        wait::settled(paths, std::slice::from_ref(&done.app), flags.timeout)
    } else {
        Ok(ExitCode::SUCCESS)
    }
}
