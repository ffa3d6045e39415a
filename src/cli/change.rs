//! `stead restart`, `stop`, `start`, `scale`, `set image`: edits of an app's override file. The agent does the rest.

use super::apply::{answer, locked};
use super::report::WallClock;
use super::say::{Failure, Out, fail};
use super::{Paths, wait};
use crate::desired::record::{self, Edit, Recorded, Refused, Scalar};
use crate::desired::{Request, check, config};
use crate::model::{AppName, ServiceName};
use crate::reconcile::Clock as _;
use clap::{Args, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

const STOPPED: &[&str] = &["x-stead", "stopped"];
const RESTARTED: &[&str] = &["x-stead", "restarted"];

/// What is changed.
#[derive(Debug, Clone)]
pub struct Target {
    app: AppName,
    service: Option<ServiceName>,
}

impl std::str::FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (app, service) = match text.split_once('/') {
            Some((app, service)) => (app, Some(service)),
            None => (text, None),
        };
        let service = service.map(|service| match service.split_once('/') {
            Some((service, _)) => {
                Err(format!("all instances of a service are changed together: write {app}/{service}"))
            }
            None => ServiceName::new(service).map_err(|error| error.to_string()),
        });
        Ok(Self { app: AppName::new(app).map_err(|error| error.to_string())?, service: service.transpose()? })
    }
}

/// The flags of `restart`, `stop` and `start`.
#[derive(Debug, Args)]
pub struct Flags {
    /// APP for all of its services, or APP/SERVICE.
    #[arg(required = true)]
    targets: Vec<Target>,
    #[command(flatten)]
    waiting: Waiting,
}

/// Whether to wait for what the edit leads to.
#[derive(Debug, Args)]
pub struct Waiting {
    /// Wait until it is settled.
    #[arg(long)]
    wait: bool,
    /// How long --wait may take.
    #[arg(long, value_parser = wait::duration, default_value = "60s", requires = "wait")]
    timeout: Duration,
}

/// The flags of `scale`.
#[derive(Debug, Args)]
pub struct Scale {
    /// APP/SERVICE=N.
    #[arg(required = true, value_parser = scale)]
    services: Vec<(Target, u32)>,
    #[command(flatten)]
    waiting: Waiting,
}

fn scale(text: &str) -> Result<(Target, u32), String> {
    let (target, count) = text.split_once('=').ok_or("write it as APP/SERVICE=N")?;
    let target: Target = target.parse()?;
    if target.service.is_none() {
        return Err("name the service: APP/SERVICE=N".to_owned());
    }
    Ok((target, count.parse().map_err(|_| format!("`{count}` is not a number of instances"))?))
}

/// `set`.
#[derive(Debug, Subcommand)]
pub enum Set {
    /// Run another image.
    Image(Image),
}

/// The flags of `set image`.
#[derive(Debug, Args)]
pub struct Image {
    /// APP/SERVICE.
    target: Target,
    /// The image.
    image: String,
    #[command(flatten)]
    waiting: Waiting,
}

/// What is asked for by a name alone.
#[derive(Debug, Clone, Copy)]
pub enum Verb {
    /// `restart`.
    Restart,
    /// `stop`.
    Stop,
    /// `start`.
    Start,
}

/// Runs `restart`, `stop` or `start`.
pub fn run(paths: &Paths, verb: Verb, flags: &Flags, out: &mut Out) -> Result<ExitCode, Failure> {
    let token = token();
    each(&flags.targets, |target| {
        change(paths, target, &flags.waiting, out, |now| {
            let flag = |value| Edit { service: now.service.clone(), path: STOPPED, value };
            let runs = if now.stopped_in_file { Some(Scalar::Flag(false)) } else { None };
            match verb {
                Verb::Stop => vec![flag(Some(Scalar::Flag(true)))],
                Verb::Start => vec![flag(runs)],
                Verb::Restart => {
                    let value = Some(Scalar::Text(token.clone()));
                    vec![flag(runs), Edit { service: now.service.clone(), path: RESTARTED, value }]
                }
            }
        })
    })
}

/// Runs `scale`.
pub fn run_scale(paths: &Paths, flags: &Scale, out: &mut Out) -> Result<ExitCode, Failure> {
    each(&flags.services, |(target, count)| {
        change(paths, target, &flags.waiting, out, |now| {
            let path: &'static [&'static str] = if now.in_deploy { &["deploy", "replicas"] } else { &["scale"] };
            vec![Edit { service: now.service.clone(), path, value: Some(Scalar::Number(*count)) }]
        })
    })
}

/// Runs `set image`.
pub fn run_set(paths: &Paths, set: &Set, out: &mut Out) -> Result<ExitCode, Failure> {
    let Set::Image(flags) = set;
    if flags.target.service.is_none() {
        return Err(Failure::new("name the service: APP/SERVICE").code(super::USAGE));
    }
    change(paths, &flags.target, &flags.waiting, out, |now| {
        let value = Some(Scalar::Text(flags.image.clone()));
        vec![Edit { service: now.service.clone(), path: &["image"], value }]
    })
}

/// One after the other; the first that cannot be recorded ends it.
fn each<T>(all: &[T], mut one: impl FnMut(&T) -> Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    for item in all {
        let code = one(item)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A request of its own, whenever it is made.
fn token() -> String {
    let now = WallClock.now();
    format!("{}.{:03}Z", now.rfc3339().trim_end_matches('Z'), now.0 % 1000)
}

/// A service as its files have it before the edit.
struct Now {
    service: ServiceName,
    /// Its Compose file itself says `stopped`.
    stopped_in_file: bool,
    /// `deploy.replicas` says how many there are.
    in_deploy: bool,
}

/// Records the edits of one app, and tells what became of them.
fn change(
    paths: &Paths,
    target: &Target,
    waiting: &Waiting,
    out: &mut Out,
    edits: impl Fn(&Now) -> Vec<Edit>,
) -> Result<ExitCode, Failure> {
    let (dir, env) = (paths.desired_state(), paths.env()?);
    let held = locked(&dir)?;
    let edits: Vec<Edit> = services(paths, target)?.iter().flat_map(edits).collect();
    let done = record::edit(&dir, &target.app, &edits, &env, &held);
    drop(held);
    let done: Recorded = done.map_err(|refused| told(&refused, out))?;
    answer(paths, &done, waiting.wait.then_some(waiting.timeout), out)
}

/// The services that are meant.
fn services(paths: &Paths, target: &Target) -> Result<Vec<Now>, Failure> {
    let (dir, app) = (paths.desired_state(), &target.app);
    let files = record::files_of(&dir, app)
        .ok_or_else(|| Failure::new(format!("there is no app {app} in {}", dir.display())))?;
    let request = |files| Request { files, default_name: app.to_string(), ..Request::default() };
    let env = paths.env()?;
    let whole = Request { env: env.clone(), ..request(files.clone()) };
    let alone = Request { env, ..request(files.into_iter().take(1).collect()) };
    let Some(content) = check(&whole).content else {
        return Err(Failure::new(format!("nothing was recorded: the file of {app} has faults")).hint("stead validate"));
    };
    let model = config(&whole).0.unwrap_or_default();
    let first = check(&alone).content.unwrap_or_default();
    let one = |service: &ServiceName| Now {
        service: service.clone(),
        stopped_in_file: first.services.get(service).is_some_and(|service| service.spec.stopped),
        in_deploy: !model["services"][service.as_str()]["deploy"]["replicas"].is_null(),
    };
    match &target.service {
        None => Ok(content.services.keys().map(one).collect()),
        Some(service) if content.services.contains_key(service) => Ok(vec![one(service)]),
        Some(service) => Err(Failure::new(format!("there is no service {service} in {app}")).hint(format!(
            "it has {}",
            content.services.keys().map(ServiceName::as_str).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn told(refused: &Refused, out: &mut Out) -> Failure {
    if let Refused::Faults(checked) = refused {
        return match out.findings(&checked.findings) {
            Ok(()) => Failure::new("nothing was recorded: the app would have faults"),
            Err(failure) => failure,
        };
    }
    let failure = fail("nothing was recorded", refused);
    match refused {
        Refused::InTheWay { .. } => failure.hint("edit the file by hand, or write that part of it in lines"),
        _ => failure,
    }
}
