//! # cli: one file a subcommand
//!
//! Parses flags, puts rooms together, prints. Errors are one sentence on stderr with the chain of causes after it; a
//! usage error exits 64. Never: a decision about the node, or an effect on it that is not a driver's.
//!
//! Tests: `tests/cli_*.rs` on the built binary, and beside the code.

mod agent;
mod apply;
mod change;
mod completions;
mod config;
mod doctor;
mod explain;
mod image;
mod logs;
mod man;
mod paths;
mod plan;
mod poll;
mod report;
mod rm;
mod say;
mod seams;
mod status;
mod table;
mod validate;
mod wait;

pub use paths::Paths;

use clap::{Args, Parser, Subcommand};
use say::{Failure, Out, fail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code of a usage error (sysexits' EX_USAGE).
const USAGE: u8 = 64;

/// stead keeps one machine running what a directory of Compose files says.
#[derive(Debug, Parser)]
#[command(name = "stead", version, about, long_about = None, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    node: NodeFlags,
    #[command(subcommand)]
    command: Command,
}

/// Which agent, and where its things are.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which agent")]
struct NodeFlags {
    /// The agent's name: separates agents on one machine.
    #[arg(long = "name", global = true, value_name = "NAME", default_value = "stead")]
    agent: String,
    /// The directory that says what runs [default: /etc/NAME/desired, or the running agent's].
    #[arg(long, global = true, value_name = "DIR")]
    desired_state: Option<PathBuf>,
    /// Values for `${...}` in files, as in an .env file; they win over the apps' own [default: the running agent's].
    #[arg(long, global = true, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Where the subnets of networks come from that name none [default: 10.208.0.0/12, or the running agent's].
    #[arg(long, global = true, value_name = "CIDR")]
    pool: Option<ipnet::Ipv4Net>,
    /// containerd's socket.
    #[arg(long, global = true, value_name = "SOCKET", default_value = "/run/containerd/containerd.sock")]
    containerd: PathBuf,
    /// What has to survive a reboot: volumes, last known good files [default: /var/lib/NAME].
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    /// What lives as long as this boot: status, instance files [default: /run/NAME].
    #[arg(long, global = true, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Logs of instances [default: /var/log/NAME].
    #[arg(long, global = true, value_name = "DIR")]
    logs: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the agent: keep the machine as the directory says, until SIGTERM.
    Agent(agent::Flags),
    /// Show what the agent would do, and why, without doing it.
    Plan(plan::Flags),
    /// Record a Compose file as an app.
    Apply(apply::Flags),
    /// Remove an app's files; the agent then takes the app down. Volumes stay.
    Rm(rm::Flags),
    /// Start services again, in the containers that they have.
    Restart(change::Flags),
    /// Stop services and keep them stopped.
    Stop(change::Flags),
    /// Start services that were stopped.
    Start(change::Flags),
    /// Run more or fewer instances of services.
    Scale(change::Scale),
    /// Change one thing of a service.
    #[command(subcommand)]
    Set(change::Set),
    /// Show what runs.
    Status(status::Flags),
    /// Wait until apps are settled, or gone.
    Wait(wait::Flags),
    /// Tell why an instance is as it is.
    Explain(explain::Flags),
    /// Show what instances wrote to stdout and stderr; works while the agent is down.
    Logs(logs::Flags),
    /// Check Compose files and tell all that is wrong with them.
    Validate(validate::Flags),
    /// Print a Compose file's normalised model as JSON.
    Config(config::Flags),
    /// Import, list and make images.
    #[command(subcommand)]
    Image(image::Command),
    /// Check what this machine lacks or what gets in the way, with the fix for each.
    Doctor(doctor::Flags),
    /// Print a completion script for a shell.
    Completions(completions::Flags),
    /// Print a manual page, or write all of them.
    Man(man::Flags),
}

/// Runs a command line and answers the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>, colour: bool) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // a closed pipe while printing help is nobody's problem
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let mut out = Out::new(colour);
    let ended = dispatch(cli, &mut out);
    // what was printed before a failure comes before its sentence
    let flushed = out.flush();
    match ended.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(failure) => failure.say(),
    }
}

fn dispatch(cli: Cli, out: &mut Out) -> Result<ExitCode, Failure> {
    let paths = Paths::new(&cli.node)?;
    match cli.command {
        Command::Agent(flags) => agent::run(&paths, &flags, out),
        Command::Plan(flags) => plan::run(&paths, &flags, out),
        Command::Apply(flags) => apply::run(&paths, &flags, out),
        Command::Rm(flags) => rm::run(&paths, &flags, out),
        Command::Restart(flags) => change::run(&paths, change::Verb::Restart, &flags, out),
        Command::Stop(flags) => change::run(&paths, change::Verb::Stop, &flags, out),
        Command::Start(flags) => change::run(&paths, change::Verb::Start, &flags, out),
        Command::Scale(flags) => change::run_scale(&paths, &flags, out),
        Command::Set(set) => change::run_set(&paths, &set, out),
        Command::Status(flags) => status::run(&paths, &flags, out),
        Command::Wait(flags) => wait::run(&paths, &flags),
        Command::Explain(flags) => explain::run(&paths, &flags, out),
        Command::Logs(flags) => logs::run(&paths, &flags, out),
        Command::Validate(flags) => validate::run(&paths, &flags, out),
        Command::Config(flags) => config::run(&paths, &flags, out),
        Command::Image(command) => image::run(&paths, command, out),
        Command::Doctor(flags) => doctor::run(&paths, &flags, out),
        Command::Completions(flags) => completions::run(&flags, out),
        Command::Man(flags) => man::run(&flags, out),
    }
}

/// A current-thread runtime for commands that ask containerd or the kernel something once.
fn once<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| fail("cannot start the runtime", &error))?.block_on(work))
}
