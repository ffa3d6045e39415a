//! The books of a run: what was done to each object, how processes truly ended, and every broken promise.

use super::world::{Daemon, Link, Owner, Snapshot, World};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::net::Ipv4Addr;
use stead::model::{
    Attachment, Desired, Exit, ExitStatus, InstanceKey, InstanceSpec, Limits, Names, NetnsIdentity, Record, Ruleset,
    Service, Step,
};

/// How many lines of what happened are kept for a failure's print.
const LINES: usize = 60;

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The oracle that saw it.
    pub oracle: &'static str,
    /// When, in milliseconds since the run began.
    pub at: u64,
    /// What.
    pub what: String,
}

/// The books.
#[derive(Debug, Default)]
pub struct Audit {
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// Effects by object and kind: Sieve's update summary.
    pub tally: BTreeMap<(String, &'static str), u32>,
    /// How processes ended, by container, pid and boot.
    pub truth: BTreeMap<(String, u32, u32), u32>,
    /// Instances whose task or network something other than the agent has touched.
    pub shaken: BTreeSet<InstanceKey>,
    /// Everything that the agent has asked for, by step name.
    pub asked: u64,
    /// A picture of an earlier time was served: what it leads to is not judged as knowledge.
    pub misled: bool,
    /// The last things that happened.
    pub lines: VecDeque<String>,
    /// Keep lines (only when a failure is shown).
    pub keep_lines: bool,
}

impl Audit {
    /// Counts an effect.
    pub fn count(&mut self, of: impl Display, what: &'static str) {
        *self.tally.entry((of.to_string(), what)).or_default() += 1;
    }

    /// Something other than the agent has touched an instance.
    pub fn shake(&mut self, instance: &InstanceKey) {
        self.shaken.insert(instance.clone());
    }

    /// Keeps a line for the print.
    pub fn line(&mut self, text: impl FnOnce() -> String) {
        if self.keep_lines {
            if self.lines.len() == LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(text());
        }
    }
}

/// A spec without what changes under the running process (DESIGN section 3), written apart from the planner's own list.
pub fn lasting(spec: &InstanceSpec) -> InstanceSpec {
    let mut spec = spec.clone();
    spec.labels.clear();
    spec.container_name = None;
    spec.restart = None;
    spec.stop_signal = None;
    spec.stop_grace_ms = None;
    spec.ports.clear();
    spec.names = Names::default();
    spec.limits = Limits::default();
    spec.networks.iter_mut().for_each(|network| network.aliases.clear());
    if let Some(archive) = spec.image.archive.as_mut() {
        archive.path.clear();
    }
    spec
}

/// Whether recorded attachments are what this service may have on these networks.
pub fn attachments_fit(desired: &Desired, key: &InstanceKey, service: &Service, all: &[Attachment]) -> bool {
    let Some(app) = desired.apps.get(&key.app) else {
        return false;
    };
    let mut outward_given = false;
    let fit = service.spec.networks.iter().zip(all).enumerate().all(|(index, (wanted, at))| {
        let Some(network) = app.networks.get(&wanted.network) else {
            return false;
        };
        let outward = !network.internal && !outward_given;
        outward_given |= outward;
        let first = at.subnet.hosts().next();
        let gateway = network.gateway.or(first);
        at.network.network == wanted.network
            && at.network.app == key.app
            && at.interface == format!("eth{index}")
            && subnet_fits(network.subnet, at.subnet)
            && at.subnet.contains(&at.address)
            && Some(at.address) != gateway
            && wanted.address.is_none_or(|address| address == at.address)
            && at.gateway == if outward { gateway } else { None }
    });
    fit && service.spec.networks.len() == all.len()
}

/// Whether a network may have this subnet: the one that is named, or else one of the pool.
pub fn subnet_fits(named: Option<Ipv4Net>, subnet: Ipv4Net) -> bool {
    let pool = Ipv4Net::new_assert(Ipv4Addr::new(10, 208, 0, 0), 12);
    named.map_or_else(|| pool.contains(&subnet), |named| named == subnet)
}

impl World {
    /// Notes a broken promise.
    pub fn violate(&mut self, oracle: &'static str, what: String) {
        let at = self.now;
        self.audit.line(|| format!("{at:>8} !! {oracle}: {what}"));
        if self.audit.violations.len() < 20 {
            self.audit.violations.push(Violation { oracle, at, what });
        }
    }

    /// Whether an instance's running task is just what is wanted, so that nothing may end it.
    pub fn serves_as_wanted(&self, desired: &Desired, id: &str) -> bool {
        let Some(container) = self.runtime.containers.get(id) else {
            return false;
        };
        let (Some(key), Some(record)) = (&container.instance, &container.record) else {
            return false;
        };
        if !container.pristine || !container.task.as_ref().is_some_and(|task| task.runs()) {
            return false;
        }
        if self.containers_of(key).count() > 1 {
            return false;
        }
        let Some(service) = desired.service(key) else {
            // of an app that is not known nothing may be removed
            return !desired.may_remove(&key.app);
        };
        let shares_address = self.runtime.containers.iter().any(|(other, found)| {
            let theirs = found.record.iter().flat_map(|record| &record.attachments);
            other != id && theirs.into_iter().any(|at| record.attachments.iter().any(|our| same_place(our, at)))
        });
        let archive = service.spec.image.archive.as_ref();
        lasting(&record.spec) == lasting(&service.spec)
            && archive.is_none_or(|archive| archive.digest == record.image_digest)
            && attachments_fit(desired, key, service, &record.attachments)
            && !shares_address
    }

    /// Judges a step at the moment it is asked for, by what the agent has been told and by what is.
    pub fn judge_request(&mut self, desired: Option<&Desired>, step: &Step) {
        self.audit.asked += 1;
        let Some(desired) = desired else {
            return self.violate("acts-blind", format!("{} before any desired state", step.name()));
        };
        match step {
            Step::StopTask { container, .. }
            | Step::KillTask { container, .. }
            | Step::DeleteTask { container, .. }
            | Step::DeleteContainer { container } => {
                let same = self.runtime.containers.get(&container.id);
                let same = same.is_some_and(|found| found.created_at == container.created_at);
                if same && !self.audit.misled && self.serves_as_wanted(desired, &container.id) {
                    let told = format!("told generation {}", desired.generation);
                    self.violate("kills-wanted", format!("{} on {}; {told}", step.name(), container.id));
                }
            }
            Step::CreateContainer(create) => self.judge_start(desired, Some(&create.instance), step),
            Step::CreateTask { container } | Step::StartTask { container, .. } => {
                let found = self.runtime.containers.get(&container.id);
                let instance = found.and_then(|found| found.instance.clone());
                self.judge_start(desired, instance.as_ref(), step);
            }
            Step::DropLink { link } => {
                let network = self.registry.bridge_owner(&link.name).cloned();
                let wanted = network.as_ref().is_some_and(|network| desired.network(network).is_some());
                if wanted && !self.audit.misled {
                    self.violate("drops-wanted-network", format!("{} of {network:?}", link.name));
                }
            }
            _ => {}
        }
    }

    fn judge_start(&mut self, desired: &Desired, instance: Option<&InstanceKey>, step: &Step) {
        let Some(instance) = instance else {
            return;
        };
        if desired.service(instance).is_none() && desired.may_remove(&instance.app) {
            self.violate("starts-unwanted", format!("{} for {instance}", step.name()));
        }
    }

    /// Judges a step against what it is about to hit: never another incarnation, never something foreign.
    pub fn judge_target(&mut self, decided: &Step, done: &Step) {
        if let Some((container, pid)) = container_target(decided) {
            let Some(found) = self.runtime.containers.get(&container.id) else {
                return;
            };
            let other_record = found.created_at != container.created_at;
            let other_run = pid.is_some_and(|pid| found.task.as_ref().is_some_and(|task| task.pid != pid));
            let acted = container_target(done);
            let checked = acted.is_none_or(|(container, pid)| {
                found.created_at != container.created_at
                    || pid.is_some_and(|pid| found.task.as_ref().is_some_and(|task| task.pid != pid))
            });
            if (other_record || other_run) && !checked {
                self.violate("other-incarnation", format!("{} meant {container:?} pid {pid:?}", decided.name()));
            }
        }
        match (decided, done) {
            (Step::DropLink { link }, Step::DropLink { link: hit }) if link != hit => {
                let there = self.net.links.get(&hit.index).is_some_and(|found| found.seen.name == hit.name);
                if there {
                    self.violate("other-incarnation", format!("drop-link meant {link:?}, hit {hit:?}"));
                }
            }
            (Step::DropNetns { netns }, Step::DropNetns { netns: hit })
                if netns != hit && self.net.files.get(&hit.name) == Some(&hit.inode) =>
            {
                self.violate("other-incarnation", format!("drop-netns meant {netns:?}, hit {hit:?}"));
            }
            _ => {}
        }
    }

    pub(super) fn audit_exit(&mut self, id: &str, exit: &Exit) {
        let container = self.container(id);
        if container.task.as_ref().is_some_and(|task| task.pid == exit.pid && task.exit.is_none()) {
            return self.violate("exit-lie", format!("an exit of {id} is written, and its process {} lives", exit.pid));
        }
        let boot = container.run.as_ref().map(|run| run.boot.clone());
        let truth = self.audit.truth.iter().find(|((of, pid, at), _)| {
            of == id && *pid == exit.pid && boot.as_ref().is_none_or(|boot| *boot == format!("boot-{at}"))
        });
        let truth = truth.map(|(_, code)| *code);
        let seen = self.witnessed.get(&(id.to_owned(), exit.pid)).map(|seen| seen.status);
        let lie = match exit.status {
            ExitStatus::Code(code) => truth != Some(code),
            ExitStatus::Reboot => boot == Some(self.boot_id()),
            ExitStatus::Unknown => matches!(seen, Some(ExitStatus::Code(_))) && !self.audit.misled,
        };
        if lie {
            let what =
                format!("{:?} is written for {id} pid {}; it was {truth:?}, seen {seen:?}", exit.status, exit.pid);
            self.violate("exit-lie", what);
        }
    }

    pub(super) fn audit_start(&mut self, id: &str) {
        let Some(instance) = self.container(id).instance.clone() else {
            return;
        };
        let runs = |(other, found): &(&String, &super::world::Container)| {
            *other != id && found.task.as_ref().is_some_and(|task| task.runs())
        };
        let other = self.containers_of(&instance).find(runs).map(|(other, _)| other.clone());
        if let Some(other) = other {
            return self.violate("two-at-once", format!("{id} is started while {other} runs"));
        }
        let container = self.container(id);
        let (Some(record), Some(task)) = (container.record.clone(), container.task.clone()) else {
            return;
        };
        if self.audit.misled || self.audit.shaken.contains(&instance) {
            return;
        }
        let missing = record.attachments.iter().find_map(|at| self.attachment_stands(&instance, task.space, at).err());
        if let Some(missing) = missing {
            self.violate("starts-before-network", format!("{id}: {missing}"));
        }
    }

    pub(super) fn audit_container_removal(&mut self, id: &str) {
        let task = self.runtime.containers.get(id).and_then(|container| container.task.as_ref());
        if task.is_some_and(|task| task.exit.is_none()) {
            self.violate("removes-under-live-task", format!("the record of {id}"));
        }
    }

    pub(super) fn audit_snapshot_removal(&mut self, key: &str, snapshot: &Snapshot) {
        if snapshot.owner == Owner::Foreign {
            self.violate("foreign-touched", format!("snapshot {key}"));
        }
        let live = |found: &super::world::Container| {
            found.snapshot == key && found.task.as_ref().is_some_and(|task| task.exit.is_none())
        };
        if self.runtime.containers.values().any(live) {
            self.violate("removes-under-live-task", format!("snapshot {key}"));
        }
    }

    pub(super) fn audit_files_removal(&mut self, instance: &InstanceKey) {
        let runs = |found: &super::world::Container| found.task.as_ref().is_some_and(|task| task.runs());
        if self.containers_of(instance).any(|(_, found)| runs(found)) {
            self.violate("removes-under-live-task", format!("files of {instance}"));
        }
    }

    pub(super) fn audit_ruleset(&mut self, new: Option<&Ruleset>) {
        let shared = new.iter().flat_map(|ruleset| &ruleset.publications).find(|(_, targets)| targets.is_empty());
        if let Some((published, _)) = shared {
            self.violate("empty-publication", format!("{published:?} leads nowhere"));
        }
    }

    pub(super) fn audit_link_removal(&mut self, link: &Link) {
        if !link.ours {
            return self.violate("foreign-touched", format!("link {}", link.seen.name));
        }
        let through = |found: &Link| found.peer.as_ref().map(|(inode, _)| *inode);
        let mut spaces: Vec<u64> = through(link).into_iter().collect();
        let ports = self.net.links.values().filter(|port| port.seen.controller == Some(link.seen.index));
        spaces.extend(ports.filter_map(through));
        let live = self.live_in(&spaces, |record| {
            let names = record.1.attachments.iter().map(|at| self.registry.link_name(record.0, &at.network));
            let bridges = record.1.attachments.iter().map(|at| self.registry.bridge_name(&at.network));
            names.chain(bridges).any(|name| name == link.seen.name)
        });
        if let Some(id) = live {
            self.violate("network-pulled", format!("link {} from under {id}", link.seen.name));
        }
    }

    pub(super) fn audit_netns_removal(&mut self, netns: &NetnsIdentity) {
        if !netns.name.starts_with(&self.registry.marks.netns_prefix()) {
            self.violate("foreign-touched", format!("netns {}", netns.name));
        }
        if let Some(id) = self.live_in(&[netns.inode], |_| true) {
            self.violate("network-pulled", format!("netns {} from under {id}", netns.name));
        }
    }

    /// A running task in one of these namespaces whose record says so.
    fn live_in(&self, spaces: &[u64], uses: impl Fn((&InstanceKey, &Record)) -> bool) -> Option<String> {
        let mut containers = self.runtime.containers.iter();
        let found = containers.find(|(_, container)| {
            let runs = container.task.as_ref().is_some_and(|task| task.runs() && spaces.contains(&task.space));
            match (&container.instance, &container.record) {
                (Some(key), Some(record)) => runs && uses((key, record)),
                _ => false,
            }
        });
        found.map(|(id, _)| id.clone())
    }

    /// Whether containerd answers.
    pub fn daemon_answers(&self) -> bool {
        self.runtime.daemon == Daemon::Up
    }
}

fn same_place(one: &Attachment, other: &Attachment) -> bool {
    one.network == other.network && one.address == other.address
}

/// The container, and the process where one is named, that a step would end or remove.
fn container_target(step: &Step) -> Option<(&stead::model::ContainerIdentity, Option<u32>)> {
    match step {
        Step::StopTask { container, pid, .. } | Step::DeleteTask { container, pid } => Some((container, Some(*pid))),
        Step::KillTask { container, pid } => Some((container, *pid)),
        Step::DeleteContainer { container } => Some((container, None)),
        _ => None,
    }
}
