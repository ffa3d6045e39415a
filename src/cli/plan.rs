//! `stead plan`: every step to where nothing more can be done, from the planner that the agent runs.

use super::agent::WallClock;
use super::say::{Failure, fail};
use super::status::Output;
use super::table::{Colour, paint};
use super::{Paths, once};
use crate::desired::{Directory, Options, check, render, request_for};
use crate::drive::node::{Node, Places};
use crate::drive::{Counters, Drive as _};
use crate::model::{Class, Desired, Domain, Key, Observed, Scope, Severity, Sight, Step, Why};
use crate::plan::to_the_end;
use crate::reconcile::Clock as _;
use clap::Args;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Steps that a plan shows at most; a planner that needs more has a fault.
const LIMIT: usize = 100_000;

/// The flags of `plan`.
#[derive(Debug, Args)]
pub struct Flags {
    /// A Compose file, or a directory of desired state [default: the agent's].
    path: Option<PathBuf>,
    /// Exit 0 when there is nothing to do, 2 when there are steps.
    #[arg(long)]
    detailed_exitcode: bool,
    /// The form.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Runs it.
pub fn run(paths: &Paths, flags: &Flags, colour: bool) -> Result<ExitCode, Failure> {
    let (desired, only) = wanted(paths, flags.path.as_deref())?;
    let observed = once(look(paths, &desired))?;
    if let Sight::Unseen(blind) = &observed.runtime {
        return Err(Failure::new(format!("containerd cannot be looked at: {}", blind.why))
            .hint("stead doctor says what is missing"));
    }
    let steps = to_the_end(&desired, &observed, &paths.marks, WallClock.now(), LIMIT);
    let steps: Vec<(Key, Step, Why)> = steps
        .into_iter()
        .filter(|(key, _, _)| only.as_ref().is_none_or(|app| key.app().is_none_or(|of| of == app)))
        .collect();
    match flags.output {
        Output::Json => json(&steps)?,
        Output::Table => text(&steps, colour),
    }
    Ok(if flags.detailed_exitcode && !steps.is_empty() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// Reads a directory once, leaving no trace.
pub fn peek(paths: &Paths, dir: &Path) -> Arc<Desired> {
    let options = Options { dir: dir.to_owned(), state: paths.root.clone(), ..Options::default() };
    Directory::peek(options).read()
}

/// What is wanted, and the one app that is asked about.
fn wanted(paths: &Paths, path: Option<&Path>) -> Result<(Desired, Option<crate::model::AppName>), Failure> {
    let dir = path.map_or_else(|| paths.desired_state(), Path::to_owned);
    if !dir.is_file() {
        if !dir.is_dir() {
            return Err(Failure::new(format!("there is no file or directory {}", dir.display())));
        }
        let desired = peek(paths, &dir);
        for finding in desired.findings.iter().chain(desired.apps.values().flat_map(|app| &app.findings)) {
            if finding.severity != Severity::Note {
                eprint!("{}", render(finding, std::io::stderr().is_terminal()));
            }
        }
        return Ok(((*desired).clone(), None));
    }
    let checked = check(&request_for(&dir));
    for finding in checked.findings.iter().filter(|finding| finding.severity != Severity::Note) {
        eprint!("{}", render(finding, std::io::stderr().is_terminal()));
    }
    let app = checked.app.clone().filter(|_| checked.is_good());
    let app = app.ok_or_else(|| Failure::new("the file has faults"))?;
    // beside what the agent keeps already: addresses and ports are chosen past it
    let mut desired = (*peek(paths, &paths.desired_state())).clone();
    desired.whole = false;
    desired.apps.insert(app.clone(), checked.into_app(desired.generation + 1));
    Ok((desired, Some(app)))
}

async fn look(paths: &Paths, desired: &Desired) -> Observed {
    let places = Places {
        containerd: paths.containerd.clone(),
        run: paths.run.clone(),
        logs: paths.logs.clone(),
        volumes: paths.volumes(),
    };
    let node = Node::new(paths.marks.clone(), &places, &Arc::new(Counters::default()));
    node.expect(desired);
    let mut observed = Observed::nothing_yet();
    for domain in Domain::ALL {
        observed.take(node.look(Scope::Domain(domain)).await);
    }
    observed
}

fn json(steps: &[(Key, Step, Why)]) -> Result<(), Failure> {
    let list: Vec<serde_json::Value> = steps
        .iter()
        .map(|(key, step, why)| {
            serde_json::json!({
                "object": key.to_string(), "kind": key.kind(), "why": why.text, "changes": why.changes, "do": step,
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&list).map_err(|error| fail("cannot print the plan", &error))?;
    println!("{text}");
    Ok(())
}

fn text(steps: &[(Key, Step, Why)], colour: bool) {
    if steps.is_empty() {
        println!("nothing to do");
        return;
    }
    let mut last = None;
    for (key, step, why) in steps {
        if last != Some(key) {
            println!("{key}");
            last = Some(key);
        }
        println!("  {:<18} {}", step.name(), paint(&why.text, Colour::Grey, colour));
        for change in &why.changes {
            let class = match change.class {
                Class::InPlace => paint("in place", Colour::Green, colour),
                Class::Recreate => paint("recreate", Colour::Yellow, colour),
            };
            println!("    {}: {} -> {} ({class})", change.field, change.old, change.new);
        }
    }
    println!("{} step{}", steps.len(), if steps.len() == 1 { "" } else { "s" });
}
