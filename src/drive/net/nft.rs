//! The one program that is run: `nft`, with a script on its standard input. A script is one transaction: all of it is
//! taken or none.

use super::conntrack;
use super::delta;
use super::listing;
use super::read::Attributes;
use super::render::{self, Table};
use super::wire::{Netfilter, Wire};
use crate::drive::fault::{Fault, Said as _};
use crate::drive::thread;
use crate::model::{AgentName, Outcome, Ruleset, TableSeen};
use std::collections::VecDeque;
use std::io;
use std::process::{Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// The longest that `nft` may take: thousands of elements take a tenth of a second; a busy kernel lock some more.
const WITHIN: Duration = Duration::from_secs(15);

/// How many children of ours are remembered, to know the kernel's echo of what they did. The echo comes at once.
const CHILDREN: usize = 32;

/// How much of a complaint is passed on.
const COMPLAINT: usize = 600;

/// Where distributions have it: the agent's PATH may be a short one.
const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

/// Our table.
#[derive(Debug)]
pub(super) struct Nft {
    table: String,
    children: Mutex<VecDeque<u32>>,
}

impl Nft {
    /// The table of an agent.
    pub(super) fn new(agent: &AgentName) -> Self {
        Self { table: agent.to_string(), children: Mutex::default() }
    }

    /// The table's name.
    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Whether a process is one of the last children of ours.
    pub(super) fn is_ours(&self, pid: u32) -> bool {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
    }

    /// Looks at the table; `None` when there is none.
    pub(super) async fn look(&self) -> Result<Option<TableSeen>, Fault> {
        let Some(state) = self.state().await? else { return Ok(None) };
        let listed = self.run(&["-j", "list", "table", "inet", &self.table], "").await;
        match listed {
            Ok(json) => {
                let seen = listing::read(&json)?;
                Ok(Some(TableSeen { intact: seen.intact && state == State::InForce, ..seen }))
            }
            // It went away in between.
            Err(Fault::Program { .. }) if self.state().await?.is_none() => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Makes the table say this, in one transaction, and cuts the flows that would go on to where the old one sent them.
    pub(super) async fn apply(&self, ruleset: Option<&Ruleset>) -> Result<Outcome, Fault> {
        let Some(ruleset) = ruleset else {
            if self.state().await?.is_none() {
                return Ok(Outcome::Already);
            }
            self.run(&["-f", "-"], &render::removal(&self.table)).await?;
            return Ok(Outcome::Done);
        };
        let table = Table::of(ruleset);
        let whole = || table.script(&self.table);
        // A table that is as it was made is changed where it differs; any other is replaced.
        let seen = self.look().await?.filter(|seen| seen.intact).map(|seen| Table::of(&seen.ruleset));
        let delta = seen.and_then(|old| delta::script(&self.table, &old, &table));
        self.run(&["-f", "-"], &delta.unwrap_or_else(whole)).await?;
        let wanted = ruleset.clone();
        thread::run("cut stale flows", move || conntrack::cut(&wanted)).await?;
        // Only now is the table whole: an agent that dies before this line does the step again.
        self.run(&["-f", "-"], &render::flows_cut(&self.table)).await?;
        Ok(Outcome::Done)
    }

    /// Asks the kernel for the table alone: what `nft` says of a missing one is a sentence, this is an error number.
    async fn state(&self) -> Result<Option<State>, Fault> {
        let name = self.table.clone();
        thread::run("look for the nft table", move || state(&name)).await
    }

    pub(super) async fn run(&self, arguments: &[&str], script: &str) -> Result<Vec<u8>, Fault> {
        let child = start(arguments)?;
        let Output { status, stdout, stderr } = self.feed(child, script).await?;
        if status.success() {
            return Ok(stdout);
        }
        let mut why = String::from_utf8_lossy(&stderr).trim().to_owned();
        if why.is_empty() {
            why = status.to_string();
        }
        let end = why.char_indices().nth(COMPLAINT).map_or(why.len(), |(end, _)| end);
        why.truncate(end);
        Err(Fault::Program { program: "nft", why })
    }

    async fn feed(&self, mut child: Child, script: &str) -> Result<Output, Fault> {
        let said = || "run nft".to_owned();
        if let Some(pid) = child.id() {
            // Before it has its script, so that its echo is known for one.
            let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
            children.push_back(pid);
            if children.len() > CHILDREN {
                children.pop_front();
            }
        }
        let input = child.stdin.take();
        let whole = async {
            if let Some(mut input) = input {
                match input.write_all(script.as_bytes()).await {
                    // It ended before it had read everything; its status says why.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    written => written?,
                }
            }
            child.wait_with_output().await
        };
        match tokio::time::timeout(WITHIN, whole).await {
            Ok(output) => output.said(said),
            Err(_) => Err(Fault::Silent { what: said() }),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one program that is run: nft has no library without C")]
fn start(arguments: &[&str]) -> Result<Child, Fault> {
    for program in PROGRAMS {
        let spawned = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        match spawned {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.said(|| "start nft".into()),
        }
    }
    Err(Fault::NoProgram { program: "nft" })
}

/// How a table stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InForce,
    /// Switched off as a whole.
    Dormant,
}

fn state(table: &str) -> Result<Option<State>, Fault> {
    const SUBSYSTEM: u16 = 10;
    const GET_TABLE: u16 = 1;
    const NAME: u16 = 1;
    const FLAGS: u16 = 2;
    const DORMANT: u8 = 1;
    const HEADER: usize = 4;
    let mut name = table.as_bytes().to_vec();
    name.push(0);
    let message = Netfilter::new(SUBSYSTEM, GET_TABLE, libc::NFPROTO_INET).with(NAME, &name);
    let mut state = State::InForce;
    let asked = Wire::netfilter()?.ask(message, 0, "look for the nft table", &mut |_, body| {
        let flags = Attributes::behind(body, HEADER).find(|(kind, _)| *kind == FLAGS);
        if flags.is_some_and(|(_, flags)| flags.last().is_some_and(|low| low & DORMANT != 0)) {
            state = State::Dormant;
        }
    });
    match asked {
        Ok(()) => Ok(Some(state)),
        Err(fault) if fault.errno() == Some(libc::ENOENT) => Ok(None),
        Err(fault) => Err(fault),
    }
}
