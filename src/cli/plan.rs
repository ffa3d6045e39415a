//! `stead plan`: every step to where nothing more can be done, from the planner that the agent runs.

use super::report::WallClock;
use super::say::{Failure, Out};
use super::status::Output;
use super::table::Colour;
use super::{Paths, once};
use crate::desired::{Directory, Options, check};
use crate::drive::node::Node;
use crate::drive::{Counters, Drive as _};
use crate::model::{
    AppName, Blocker, Change, Class, Decision, Desired, Domain, Key, Marks, Observed, Scope, Sight, Step, Timestamp,
    Why,
};
use crate::plan::{Holds, Picture, decide, foresee, to_the_end};
use crate::reconcile::Clock as _;
use clap::Args;
use serde::Serialize;
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
pub fn run(paths: &Paths, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let (desired, only) = wanted(paths, flags.path.as_deref(), out)?;
    let observed = once(look(paths, &desired))?;
    seen(&observed)?;
    let mut plan = Plan::of(&desired, &observed, &paths.marks, WallClock.now());
    if let Some(app) = &only {
        plan.narrow(app);
    }
    match flags.output {
        Output::Json => out.json(&plan.json())?,
        Output::Table => plan.text(out)?,
    }
    Ok(if flags.detailed_exitcode && !plan.steps.is_empty() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// Reads a directory once, leaving no trace.
pub fn peek(paths: &Paths, dir: &Path) -> Result<Arc<Desired>, Failure> {
    let (state, env) = (paths.root.clone(), paths.env()?);
    Ok(Directory::peek(Options { dir: dir.to_owned(), state, env, pool: paths.pool(), ..Options::default() }).read())
}

/// What is wanted, and the one app that is asked about.
fn wanted(paths: &Paths, path: Option<&Path>, out: &mut Out) -> Result<(Desired, Option<AppName>), Failure> {
    let dir = path.map_or_else(|| paths.desired_state(), Path::to_owned);
    if !dir.is_file() {
        if !dir.is_dir() {
            return Err(Failure::new(format!("there is no file or directory {}", dir.display()))
                .hint("name one: stead plan FILE, or stead plan --desired-state DIR"));
        }
        let desired = peek(paths, &dir)?;
        out.findings(desired.findings.iter().chain(desired.apps.values().flat_map(|app| &app.findings)))?;
        return Ok(((*desired).clone(), None));
    }
    let checked = check(&paths.request(&dir)?);
    out.findings(&checked.findings)?;
    let app = checked.app.clone().filter(|_| checked.is_good());
    let app = app.ok_or_else(|| Failure::new("the file has faults"))?;
    // beside what the agent keeps already: addresses and ports are chosen past it
    let mut desired = (*peek(paths, &paths.desired_state())?).clone();
    // the one app that is asked about is known whole, whatever is known of the rest
    desired.whole = true;
    desired.apps.insert(app.clone(), checked.into_app(desired.generation + 1));
    Ok((desired, Some(app)))
}

async fn look(paths: &Paths, desired: &Desired) -> Observed {
    let node = Node::new(paths.marks.clone(), &paths.places(), &Arc::new(Counters::default()));
    node.expect(desired);
    let mut observed = Observed::nothing_yet();
    for domain in Domain::ALL {
        observed.take(node.look(Scope::Domain(domain)).await);
    }
    observed
}

/// A plan on half a picture would be half a plan.
fn seen(observed: &Observed) -> Result<(), Failure> {
    fn blind<T>(what: &str, sight: &Sight<T>) -> Result<(), Failure> {
        match sight {
            Sight::Seen(_) => Ok(()),
            Sight::Unseen(blind) => {
                let sentence = format!("{what} cannot be looked at, so nothing can be planned: {}", blind.why);
                Err(Failure::new(sentence).hint("stead doctor says what is missing"))
            }
        }
    }
    blind("containerd", &observed.runtime)?;
    blind("the network", &observed.net)?;
    blind("the nft table", &observed.ports)?;
    blind("the agent's files", &observed.files)
}

/// The plan as JSON.
#[derive(Serialize)]
struct Document<'a> {
    steps: Vec<StepLine<'a>>,
    waiting: Vec<WaitLine>,
}

#[derive(Serialize)]
struct StepLine<'a> {
    object: String,
    kind: &'static str,
    why: &'a str,
    changes: &'a [Change],
    #[serde(rename = "do")]
    step: &'a Step,
}

#[derive(Serialize)]
struct WaitLine {
    object: String,
    kind: &'static str,
    on: Vec<String>,
}

/// Every step, and what is still waited for after the last one.
struct Plan {
    steps: Vec<(Key, Step, Why)>,
    waiting: Vec<(Key, Vec<Blocker>)>,
}

impl Plan {
    fn of(desired: &Desired, observed: &Observed, marks: &Marks, now: Timestamp) -> Self {
        let steps = to_the_end(desired, observed, marks, now, LIMIT);
        let mut end = observed.clone();
        for (key, step, _) in &steps {
            foresee(&mut end, marks, key, step, now);
        }
        let picture = Picture::new(desired, &end, marks);
        let waits = |key: Key| match decide(&picture, &key, &Holds::new(), now) {
            Decision::Wait(blockers) => Some((key, blockers)),
            Decision::Do(..) | Decision::Settled => None,
        };
        let waiting = picture.keys().into_iter().filter_map(waits).collect();
        Self { steps, waiting }
    }

    /// Leaves one app, and what belongs to no app: its images, the node's table.
    fn narrow(&mut self, app: &AppName) {
        let concerns = |key: &Key| key.app().is_none_or(|of| of == app);
        self.steps.retain(|(key, ..)| concerns(key));
        self.waiting.retain(|(key, _)| concerns(key));
    }

    fn json(&self) -> Document<'_> {
        let steps = self.steps.iter().map(|(key, step, why)| StepLine {
            object: key.to_string(),
            kind: key.kind(),
            why: &why.text,
            changes: &why.changes,
            step,
        });
        let waiting = self.waiting.iter().map(|(key, on)| WaitLine {
            object: key.to_string(),
            kind: key.kind(),
            on: on.iter().map(ToString::to_string).collect(),
        });
        Document { steps: steps.collect(), waiting: waiting.collect() }
    }

    fn text(&self, out: &mut Out) -> Result<(), Failure> {
        let mut last = None;
        for (key, step, why) in &self.steps {
            if last != Some(key) {
                out.line(key)?;
                last = Some(key);
            }
            let reason = out.paint(&why.text, Colour::Grey);
            out.line(format!("  {:<18} {reason}", step.name()))?;
            for change in &why.changes {
                let class = match change.class {
                    Class::InPlace => out.paint("in place", Colour::Green),
                    Class::Recreate => out.paint("recreate", Colour::Yellow),
                };
                out.line(format!("    {}: {} -> {} ({class})", change.field, change.old, change.new))?;
            }
        }
        for (key, blockers) in &self.waiting {
            for blocker in blockers {
                let waits = out.paint("waits", Colour::Yellow);
                out.line(format!("{key}: {waits}: {blocker}"))?;
                if let Blocker::Stuck { hint, .. } = blocker
                    && !hint.is_empty()
                {
                    out.line(format!("  help: {hint}"))?;
                }
            }
        }
        match (self.steps.len(), self.waiting.is_empty()) {
            (0, true) => out.line("nothing to do"),
            (0, false) => out.line("nothing can be done now"),
            (1, _) => out.line("1 step"),
            (count, _) => out.line(format!("{count} steps")),
        }
    }
}
