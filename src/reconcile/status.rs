//! From the loop's view to the status document. Pure but for one memory: since when something is waited for.

use super::{RuntimeLink, StepLine, View};
use crate::model::{
    AddressStatus, AppName, AppStatus, Blocker, ContainerSeen, Decision, Exit, ExitStatus, InstanceKey, InstanceStatus,
    Key, LinkSeen, NetworkKey, NetworkStatus, ObjectStatus, PortStatus, Published, Restart, Service, ServiceName,
    ServiceStatus, Severity, Status, Target, TaskSeen, TimelineStatus, Timelines, Timestamp, VolumeStatus,
    WaitingStatus,
};
use crate::plan::digest;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Builds the documents, and remembers what only time can tell.
#[derive(Debug, Default)]
pub struct Teller {
    /// Where volumes are.
    pub volumes_dir: PathBuf,
    /// Since when each object waits for each thing.
    since: BTreeMap<(Key, String), Timestamp>,
    /// The last rows of instances, shown while containerd cannot be looked at.
    last: BTreeMap<String, InstanceStatus>,
}

impl Teller {
    /// A teller that knows the rows of an earlier document: they are shown until containerd was seen once.
    pub fn new(volumes_dir: PathBuf, before: Option<&Status>) -> Self {
        let services = before.into_iter().flat_map(|status| &status.apps).flat_map(|app| &app.services);
        let rows = services.flat_map(|service| &service.instances).map(|row| (row.instance.clone(), row.clone()));
        Self { volumes_dir, since: BTreeMap::new(), last: rows.collect() }
    }

    /// The document; what is the agent's own (version, pid, counters) is left to the caller.
    pub fn tell(&mut self, view: &View<'_>) -> Status {
        self.remember(view);
        let mut status = Status::default();
        status.agent.generation = view.desired.generation;
        status.agent.settled = view.settled;
        status.agent.runtime = match view.runtime {
            RuntimeLink::Connected => "connected",
            RuntimeLink::Resyncing => "resyncing",
            RuntimeLink::Unavailable => "unavailable",
        }
        .to_owned();
        status.agent.steps = view.steps.iter().map(|((step, word), n)| (format!("{step}/{word}"), *n)).collect();
        status.errors = view.desired.findings.iter().map(Into::into).collect();
        let mut instances: BTreeMap<&AppName, BTreeMap<&ServiceName, BTreeSet<&InstanceKey>>> = BTreeMap::new();
        for key in view.decisions.keys() {
            if let Key::Instance(key) = key {
                instances.entry(&key.app).or_default().entry(&key.service).or_default().insert(key);
            }
        }
        let names: BTreeSet<&AppName> = view.desired.apps.keys().chain(instances.keys().copied()).collect();
        for name in names {
            let services = instances.get(name).cloned().unwrap_or_default();
            if view.desired.apps.contains_key(name) || services.values().flatten().any(|key| lingers(view, key)) {
                status.apps.push(self.app(view, name, &services));
            }
        }
        let others = view.decisions.iter().filter(|(key, _)| !matches!(key, Key::Instance(_)));
        let unsettled = others.filter(|(_, decision)| **decision != Decision::Settled);
        status.unsettled = unsettled.map(|(key, decision)| self.object(view, key, decision)).collect();
        if view.observed.runtime.is_seen() {
            let rows = status.apps.iter().flat_map(|app| &app.services).flat_map(|service| &service.instances);
            self.last = rows.map(|row| (row.instance.clone(), row.clone())).collect();
        }
        status
    }

    fn remember(&mut self, view: &View<'_>) {
        let mut now: BTreeMap<(Key, String), Timestamp> = BTreeMap::new();
        for (key, decision) in view.decisions {
            let Decision::Wait(blockers) = decision else {
                continue;
            };
            for blocker in blockers {
                let place = (key.clone(), subject(blocker));
                let since = self.since.get(&place).copied().unwrap_or(view.now);
                now.insert(place, since);
            }
        }
        self.since = now;
    }

    fn waiting(&self, view: &View<'_>, key: &Key) -> Vec<WaitingStatus> {
        let one = |blocker: &Blocker| {
            let since = self.since.get(&(key.clone(), subject(blocker))).copied().unwrap_or(view.now);
            let next_attempt = match blocker {
                Blocker::Until { at, .. } => Some(at.rfc3339()),
                _ => None,
            };
            WaitingStatus { on: subject(blocker), since: since.rfc3339(), next_attempt }
        };
        match view.decisions.get(key) {
            Some(Decision::Wait(blockers)) => blockers.iter().map(one).collect(),
            Some(Decision::Do(..) | Decision::Settled) | None => Vec::new(),
        }
    }

    fn app(&self, view: &View<'_>, name: &AppName, seen: &BTreeMap<&ServiceName, BTreeSet<&InstanceKey>>) -> AppStatus {
        let app = view.desired.apps.get(name);
        let settled = |key: &Key, decision: &Decision| key.app() != Some(name) || *decision == Decision::Settled;
        let doing = view.doing.keys().any(|key| key.app() == Some(name));
        let names: BTreeSet<&ServiceName> =
            app.into_iter().flat_map(|app| app.services.keys()).chain(seen.keys().copied()).collect();
        let services = names.into_iter().map(|service| {
            let wanted = app.and_then(|app| app.services.get(service));
            self.service(view, name, service, wanted, seen.get(service))
        });
        let services: Vec<ServiceStatus> = services.filter(|service| !service.instances.is_empty()).collect();
        let bad = |finding: &&crate::model::Finding| finding.severity == Severity::Error;
        AppStatus {
            app: name.to_string(),
            file: app.map(|app| app.file.display().to_string()).unwrap_or_default(),
            generation: app.map_or(0, |app| app.generation),
            settled: !doing
                && app.is_some()
                && services.iter().all(|service| service.instances.iter().all(|row| row.state != "unknown"))
                && view.decisions.iter().all(|(key, decision)| settled(key, decision))
                && app.is_some_and(|app| planned(view, name, app)),
            errors: app.into_iter().flat_map(|app| &app.findings).filter(bad).map(Into::into).collect(),
            services,
            networks: app
                .into_iter()
                .flat_map(|app| app.networks.keys())
                .map(|n| self.network(view, name, n))
                .collect(),
            volumes: app
                .into_iter()
                .flat_map(|app| &app.volumes)
                .map(|volume| VolumeStatus {
                    volume: volume.to_string(),
                    path: self.volumes_dir.join(name.as_str()).join(volume.as_str()).display().to_string(),
                })
                .collect(),
        }
    }

    fn network(&self, view: &View<'_>, app: &AppName, network: &crate::model::NetworkName) -> NetworkStatus {
        let key = NetworkKey { app: app.clone(), network: network.clone() };
        let link = view.observed.net.seen().and_then(|net| net.networks.get(&key));
        NetworkStatus {
            network: network.to_string(),
            bridge: link.map(|link| link.name.clone()).unwrap_or_default(),
            subnets: link.into_iter().flat_map(subnets).collect(),
            waiting: self.waiting(view, &Key::Network(key)),
        }
    }

    fn service(
        &self,
        view: &View<'_>,
        app: &AppName,
        service: &ServiceName,
        wanted: Option<&Service>,
        seen: Option<&BTreeSet<&InstanceKey>>,
    ) -> ServiceStatus {
        let replicas = wanted.map_or(0, |wanted| wanted.replicas);
        let all = (1..=replicas).map(|replica| InstanceKey { app: app.clone(), service: service.clone(), replica });
        let mut keys: BTreeSet<InstanceKey> = all.collect();
        keys.extend(seen.into_iter().flatten().filter(|key| lingers(view, key)).map(|key| (*key).clone()));
        let instances: Vec<InstanceStatus> = keys.iter().map(|key| self.instance(view, key, wanted)).collect();
        let running =
            instances.iter().filter(|row| ["running", "degraded"].contains(&row.state.as_str())).count() as u32;
        let older = |key: &InstanceKey| {
            let side = view.observed.runtime.seen().and_then(|all| all.instances.get(key));
            let wanted = wanted.map(|wanted| digest(key, &wanted.spec));
            side.is_some_and(|side| side.containers.iter().any(|have| Some(&have.digest) != wanted.as_ref()))
        };
        ServiceStatus {
            service: service.to_string(),
            desired: replicas,
            running,
            healthy: running,
            updating: keys.iter().any(older),
            instances,
        }
    }

    fn instance(&self, view: &View<'_>, key: &InstanceKey, wanted: Option<&Service>) -> InstanceStatus {
        let object = Key::Instance(key.clone());
        let waiting = self.waiting(view, &object);
        let name = key.to_string();
        let Some(runtime) = view.observed.runtime.seen() else {
            let before = self.last.get(&name).cloned();
            let mut row = before.unwrap_or_else(|| InstanceStatus {
                instance: name,
                health: "none".to_owned(),
                image: wanted.map(|service| service.spec.image.reference.clone()).unwrap_or_default(),
                ..InstanceStatus::default()
            });
            "unknown".clone_into(&mut row.state);
            row.waiting = waiting;
            return row;
        };
        let containers = runtime.instances.get(key).map(|side| side.containers.as_slice()).unwrap_or_default();
        let best = containers.iter().max_by_key(|container| (container.task.may_live(), container.created_at));
        let (last_error, hint) = trouble(view, &object);
        let exit = best.and_then(last_exit);
        InstanceStatus {
            instance: name,
            container_id: best.map(|best| best.id.clone()),
            pid: best.filter(|best| best.task.may_live()).and_then(|best| best.task.pid()),
            started_at: best.and_then(|best| best.run.as_ref()).map(|run| run.at.rfc3339()),
            state: state(view, &object, best, wanted).to_owned(),
            health: "none".to_owned(),
            restarts: best.and_then(|best| best.run.as_ref()).map_or(0, |run| run.count.saturating_sub(1)),
            exit_code: exit.and_then(|exit| match exit.status {
                ExitStatus::Code(code) => Some(code),
                ExitStatus::Unknown | ExitStatus::Reboot => None,
            }),
            exit: exit.and_then(|exit| match exit.status {
                ExitStatus::Code(_) => None,
                ExitStatus::Unknown => Some("unknown".to_owned()),
                ExitStatus::Reboot => Some("reboot".to_owned()),
            }),
            image: wanted.map(|service| service.spec.image.reference.clone()).unwrap_or_else(|| {
                best.and_then(|best| best.record.as_ref()).map(|r| r.spec.image.reference.clone()).unwrap_or_default()
            }),
            image_digest: best.and_then(|best| best.record.as_ref()).map(|record| record.image_digest.clone()),
            addresses: addresses(view, key),
            ports: ports(view, key),
            waiting,
            last_error,
            hint,
            clamped: best.map(|best| best.clamped.clone()).unwrap_or_default(),
            asked_by: wanted.map(|service| {
                let place = &service.place;
                format!("{}:{}:{}", place.file.display(), place.line, place.column)
            }),
        }
    }

    fn object(&self, view: &View<'_>, key: &Key, decision: &Decision) -> ObjectStatus {
        let (last_error, hint) = trouble(view, key);
        let mut waiting = self.waiting(view, key);
        if let Decision::Do(step, why) = decision {
            let on = format!("{}: {why}", step.name());
            waiting.push(WaitingStatus { on, since: view.now.rfc3339(), next_attempt: None });
        }
        ObjectStatus { object: key.to_string(), waiting, last_error, hint }
    }
}

/// The steps of every object.
pub fn timelines(view: &View<'_>) -> Timelines {
    let line = |line: &StepLine| TimelineStatus {
        at: line.at.rfc3339(),
        step: line.step.to_owned(),
        why: line.why.clone(),
        outcome: line.outcome.to_owned(),
        took_ms: u64::try_from(line.took.as_millis()).unwrap_or(u64::MAX),
        error: line.error.clone(),
    };
    let objects = view.history.iter().map(|(key, lines)| (key.to_string(), lines.iter().map(line).collect()));
    Timelines { objects: objects.collect() }
}

/// Whether every object of a wanted app has been decided on: before that nobody can say that it is settled.
fn planned(view: &View<'_>, name: &AppName, app: &crate::model::App) -> bool {
    let decided = |service: &ServiceName, replicas: u32| {
        (1..=replicas).all(|replica| {
            let key = InstanceKey { app: name.clone(), service: service.clone(), replica };
            view.decisions.contains_key(&Key::Instance(key))
        })
    };
    app.services.iter().all(|(service, wanted)| decided(service, wanted.replicas))
}

/// Whether something of an instance is there that is not wanted, or it is being taken away.
fn lingers(view: &View<'_>, key: &InstanceKey) -> bool {
    let object = Key::Instance(key.clone());
    let there = view.observed.runtime.seen().is_some_and(|all| all.instances.contains_key(key))
        || view.observed.net.seen().is_some_and(|all| all.instances.contains_key(key));
    there || view.doing.contains_key(&object) || view.decisions.get(&object).is_some_and(|d| *d != Decision::Settled)
}

/// What is waited for, without the time (which has a field of its own).
fn subject(blocker: &Blocker) -> String {
    match blocker {
        Blocker::Until { what, .. } => what.clone(),
        other => other.to_string(),
    }
}

fn trouble(view: &View<'_>, key: &Key) -> (Option<String>, Option<String>) {
    if let Some(hold) = view.holds.get(key) {
        return (Some(format!("{}: {}", hold.step, hold.error)), hold.hint.clone());
    }
    if let Some(Decision::Wait(blockers)) = view.decisions.get(key) {
        let stuck = blockers.iter().find_map(|blocker| match blocker {
            Blocker::Stuck { what, hint } => Some((what.clone(), hint.clone())),
            Blocker::On { key, .. } => stuck_on(view, key),
            _ => None,
        });
        if let Some((what, hint)) = stuck {
            return (Some(what), Some(hint));
        }
    }
    (None, None)
}

/// What another object, that is waited for, is stuck on.
fn stuck_on(view: &View<'_>, key: &Key) -> Option<(String, String)> {
    if let Some(hold) = view.holds.get(key) {
        return Some((format!("{key}: {}: {}", hold.step, hold.error), hold.hint.clone().unwrap_or_default()));
    }
    match view.decisions.get(key) {
        Some(Decision::Wait(blockers)) => blockers.iter().find_map(|blocker| match blocker {
            Blocker::Stuck { what, hint } => Some((what.clone(), hint.clone())),
            _ => None,
        }),
        _ => None,
    }
}

fn last_exit(container: &ContainerSeen) -> Option<&Exit> {
    match &container.task {
        TaskSeen::Stopped(exit) => Some(container.exit.as_ref().filter(|w| w.pid == exit.pid).unwrap_or(exit)),
        _ => container.exit.as_ref(),
    }
}

fn state(view: &View<'_>, key: &Key, best: Option<&ContainerSeen>, wanted: Option<&Service>) -> &'static str {
    let decision = view.decisions.get(key);
    let held = view.holds.contains_key(key);
    let Key::Instance(instance) = key else {
        return "unknown";
    };
    if wanted.is_none_or(|service| instance.replica > service.replicas) && view.desired.may_remove(&instance.app) {
        return "stopping";
    }
    let stuck = matches!(decision, Some(Decision::Wait(on)) if on.iter().any(|b| matches!(b, Blocker::Stuck { .. })));
    match best.map(|best| (&best.task, best)) {
        Some((TaskSeen::Running { .. }, best)) if best.stopping.is_some_and(|stop| !stop.revoked) => "stopping",
        Some((TaskSeen::Running { .. }, _)) if held || stuck => "degraded",
        Some((TaskSeen::Running { .. }, _)) => "running",
        // containerd answers, the task's shim does not
        Some((TaskSeen::Unknown { .. }, _)) => "degraded",
        Some((TaskSeen::Created { .. }, _)) => "starting",
        Some((TaskSeen::Stopped(_) | TaskSeen::None, best)) if best.run.is_some() => ended(view, key, best, wanted),
        _ if wanted.is_some_and(|service| service.spec.stopped) => "stopped",
        _ => not_yet(view, decision, held, stuck),
    }
}

fn ended(view: &View<'_>, key: &Key, best: &ContainerSeen, wanted: Option<&Service>) -> &'static str {
    let settled = matches!(view.decisions.get(key), Some(Decision::Settled));
    let good = last_exit(best).is_some_and(|exit| exit.status.is_success());
    let once = wanted.is_none_or(|service| matches!(service.spec.restart, None | Some(Restart::No)));
    if wanted.is_some_and(|service| service.spec.stopped) {
        return "stopped";
    }
    // it would be started, and something that it needs is not there
    if let Some(Decision::Wait(on)) = view.decisions.get(key)
        && on.iter().all(|blocker| !matches!(blocker, Blocker::Until { .. }))
    {
        let stuck = on.iter().any(|blocker| matches!(blocker, Blocker::Stuck { .. }));
        return if stuck { "blocked" } else { "pending" };
    }
    match (settled, good) {
        (true, true) => "completed",
        (true, false) => "exited",
        (false, _) if once && !view.doing.contains_key(key) => "exited",
        (false, _) => "backoff",
    }
}

fn not_yet(view: &View<'_>, decision: Option<&Decision>, held: bool, stuck: bool) -> &'static str {
    if held {
        return "backoff";
    }
    if stuck {
        return "blocked";
    }
    match decision {
        None => "pending",
        Some(Decision::Do(..) | Decision::Settled) => "creating",
        Some(Decision::Wait(on)) => {
            let image = on.iter().find_map(|blocker| match blocker {
                Blocker::On { key: key @ Key::Image(_), .. } => Some(key),
                _ => None,
            });
            match image {
                Some(image) if view.doing.contains_key(image) => "pulling",
                Some(image) if stuck_on(view, image).is_some() => "blocked",
                _ => "pending",
            }
        }
    }
}

fn subnets(link: &LinkSeen) -> impl Iterator<Item = String> {
    let four = link.addresses.iter().map(|at| at.trunc().to_string());
    four.chain(link.addresses6.iter().map(|at| at.trunc().to_string()))
}

fn addresses(view: &View<'_>, key: &InstanceKey) -> Vec<AddressStatus> {
    let Some(side) = view.observed.net.seen().and_then(|all| all.instances.get(key)) else {
        return Vec::new();
    };
    let inside = side.netns.iter().flat_map(|netns| netns.interfaces.values());
    let network =
        |index: u32| side.links.iter().find(|(_, link)| link.index == index).map(|(key, _)| key.network.clone());
    inside
        .filter_map(|interface| Some((network(interface.peer_index)?, interface)))
        .flat_map(|(network, interface)| {
            let four = interface.addresses.iter().map(|address| address.addr().to_string());
            let six = interface.addresses6.iter().map(|address| address.addr().to_string());
            four.chain(six).map(move |ip| AddressStatus {
                network: network.to_string(),
                ip,
                mac: interface.mac.map(|byte| format!("{byte:02x}")).join(":"),
            })
        })
        .collect()
}

fn ports(view: &View<'_>, key: &InstanceKey) -> Vec<PortStatus> {
    let own: BTreeSet<String> = addresses(view, key).into_iter().map(|address| address.ip).collect();
    let Some(Some(table)) = view.observed.ports.seen() else {
        return Vec::new();
    };
    let all = table.ruleset.publications.iter().flat_map(|(at, targets)| targets.iter().map(move |to| (at, to)));
    // one line for a port that is published for both families
    let shown = |at: &Published, target: &Target| {
        let four = |other: &&Target| other.address.is_ipv4() && own.contains(&other.address.to_string());
        target.address.is_ipv4() || !table.ruleset.publications[at].iter().any(|other| four(&other))
    };
    all.filter(|(at, target)| own.contains(&target.address.to_string()) && shown(at, target))
        .map(|(at, target)| PortStatus {
            host_ip: at.host_ip.map_or_else(|| "0.0.0.0".to_owned(), |ip| ip.to_string()),
            host: at.port,
            container: target.port,
            protocol: at.protocol.as_str().to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
