//! Order: what a service needs before it starts, and who goes first on the way down.
//!
//! Nothing is remembered of the way up: the conditions are judged on what is seen, at every start, whatever caused it
//! (an edit, a reboot, an exit). What runs is never stopped because something that it needs has gone.

use super::target::{Ready, Target};
use super::{Picture, exit};
use crate::model::{
    AppName, Blocker, Condition, ContainerSeen, Exit, ExitStatus, Health, InstanceKey, InstanceSpec, Key, Need,
    RuntimeSide, Service, ServiceName, SpecDigest, TaskSeen, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A dependent that has not ended this long after its stop grace is in the kernel's hands: nobody waits for it.
const GIVEN_UP: Duration = Duration::from_secs(2);
/// The grace where a record says nothing.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Where a needed instance stands.
enum Standing {
    Met,
    /// It is on its way.
    Coming(Blocker),
    /// Nothing that is going on will bring it there.
    Failed(Blocker),
}

/// A service by its app.
type Of = (AppName, ServiceName);

/// Who needs whom among what is being taken away, by what their records say.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// The instances that need a service.
    dependents: BTreeMap<Of, BTreeSet<InstanceKey>>,
    /// The services that a service needs.
    needs: BTreeMap<Of, BTreeSet<Of>>,
}

/// Why an instance with this spec cannot be started now; empty when it can.
pub(super) fn unmet(picture: &Picture<'_>, spec: &InstanceSpec) -> Vec<Blocker> {
    let standings = spec.needs.iter().flat_map(|need| standings(picture, need).into_iter().map(move |one| (need, one)));
    let blockers = standings.filter_map(|(need, standing)| match standing {
        Standing::Met => None,
        Standing::Coming(blocker) => Some(blocker),
        Standing::Failed(blocker) => (!need.optional).then_some(blocker),
    });
    blockers.collect()
}

fn stuck(what: String, hint: String) -> Standing {
    Standing::Failed(Blocker::Stuck { what, hint })
}

/// Every instance of a needed service, each by itself.
fn standings(picture: &Picture<'_>, need: &Need) -> Vec<Standing> {
    let app = picture.desired.apps.get(&need.app);
    let instance = |replica| InstanceKey { app: need.app.clone(), service: need.service.clone(), replica };
    match app.and_then(|app| app.services.get(&need.service)) {
        // as in Compose, nobody waits for a service that is scaled to nothing
        Some(service) => {
            (1..=service.replicas).map(|n| of_instance(picture, need, &instance(n), Some(service))).collect()
        }
        None if picture.desired.may_remove(&need.app) => vec![stuck(
            format!("it needs {need}, and no file asks for that"),
            format!("write the service `{}` of the app `{}`, or leave the need out", need.service, need.app),
        )],
        // the file cannot say what it is: what its records say counts
        None => {
            let all = picture.observed.runtime.seen().into_iter().flat_map(|all| all.instances.keys());
            let those = all.filter(|key| key.app == need.app && key.service == need.service);
            let mut found: Vec<Standing> = those.map(|key| of_instance(picture, need, key, None)).collect();
            if found.is_empty() {
                let what = need.condition.awaited().to_owned();
                found.push(Standing::Coming(Blocker::On { key: Key::Instance(instance(1)), what }));
            }
            found
        }
    }
}

fn of_instance(picture: &Picture<'_>, need: &Need, key: &InstanceKey, service: Option<&Service>) -> Standing {
    if service.is_some_and(|service| service.spec.stopped) {
        return stuck(format!("it needs {key}, which is stopped"), format!("stead start {need}"));
    }
    let coming = |what: &str| Standing::Coming(Blocker::On { key: Key::Instance(key.clone()), what: what.to_owned() });
    let awaited = need.condition.awaited();
    let Some(side) = picture.observed.runtime.seen().and_then(|all| all.instances.get(key)) else {
        return coming(awaited);
    };
    let Some((container, spec)) = counting(picture, need, key, service, side) else {
        return coming(awaited);
    };
    let running = matches!(container.task, TaskSeen::Running { .. })
        && container.stopping.is_none_or(|stopping| stopping.revoked);
    match (running, need.condition) {
        (true, Condition::Started) => Standing::Met,
        (true, Condition::Completed) => coming(awaited),
        (true, Condition::Healthy) => healthy(key, container, &spec),
        (false, condition) => match exit::over(container, &spec) {
            None => coming(awaited),
            Some(exit) if exit.status.is_success() && condition != Condition::Healthy => Standing::Met,
            Some(exit) => ended(key, exit, condition),
        },
    }
}

/// The container that counts: of the wanted generation, or of the one that is kept true while that cannot be made. A
/// job has to have completed as it is written now.
fn counting<'s>(
    picture: &Picture<'_>,
    need: &Need,
    key: &InstanceKey,
    service: Option<&Service>,
    side: &'s RuntimeSide,
) -> Option<(&'s ContainerSeen, InstanceSpec)> {
    if let Some(service) = service {
        let target = Target::of_service(picture, key, service);
        if let Some(current) = target.current(side) {
            return Some((current, service.spec.clone()));
        }
        let kept = need.condition != Condition::Completed && matches!(target.ready(picture, key, side), Ready::Not(_));
        if !kept {
            return None;
        }
    }
    let old = Target::of_record(side)?;
    Some((old.current(side)?, old.record.spec))
}

fn healthy(key: &InstanceKey, container: &ContainerSeen, spec: &InstanceSpec) -> Standing {
    if spec.health.is_none() {
        let hint = "give it a `healthcheck`, or wait for `service_started`".to_owned();
        return stuck(format!("it needs {key} to be healthy, which has no health check"), hint);
    }
    let what = match &container.health {
        Some(seen) if seen.health == Health::Healthy => return Standing::Met,
        Some(seen) if seen.health == Health::Unhealthy => format!("to be healthy; it is unhealthy: {}", seen.said),
        _ => Condition::Healthy.awaited().to_owned(),
    };
    Standing::Coming(Blocker::On { key: Key::Instance(key.clone()), what })
}

fn ended(key: &InstanceKey, exit: &Exit, condition: Condition) -> Standing {
    let of = format!("{}/{}", key.app, key.service);
    if exit.status == ExitStatus::Unknown {
        let what = format!("it needs {key} {}, and nobody saw how that ended", condition.awaited());
        return stuck(what, format!("run it once more: stead restart {of}"));
    }
    let what = format!("it needs {key} {}, which has ended ({})", condition.awaited(), exit::describe(exit));
    stuck(what, format!("see why: stead logs {of}; run it once more: stead restart {of}"))
}

/// Which containers of the needed services run, as far as their renewal restarts who needs them.
pub(super) fn beside(picture: &Picture<'_>, spec: &InstanceSpec) -> BTreeMap<String, String> {
    let restarting = spec.needs.iter().filter(|need| need.restart);
    restarting.filter_map(|need| Some((need.to_string(), version(picture, need)?))).collect()
}

/// What of a needed service runs; `None` while its condition does not hold.
fn version(picture: &Picture<'_>, need: &Need) -> Option<String> {
    if !standings(picture, need).iter().all(|standing| matches!(standing, Standing::Met)) {
        return None;
    }
    let service = picture.desired.apps.get(&need.app)?.services.get(&need.service)?;
    let key = InstanceKey { app: need.app.clone(), service: need.service.clone(), replica: 1 };
    let side = picture.observed.runtime.seen()?.instances.get(&key)?;
    let (container, _) = counting(picture, need, &key, Some(service), side)?;
    let restarted = container.run.as_ref().and_then(|run| run.restarted.as_deref()).unwrap_or_default();
    let text = format!("{}\0{}\0{restarted}", container.id, container.created_at.0);
    Some(SpecDigest::of(text.as_bytes()).short().to_owned())
}

/// A needed service that was renewed since a run was started, and asks for a restart of who needs it.
pub(super) fn renewed(picture: &Picture<'_>, spec: &InstanceSpec, before: &BTreeMap<String, String>) -> Option<String> {
    let now = beside(picture, spec);
    let other = now.into_iter().find(|(name, version)| before.get(name).is_some_and(|old| old != version));
    other.map(|(name, _)| name)
}

impl Leaving {
    /// From the records of what is seen and not wanted.
    pub fn of(picture: &Picture<'_>) -> Self {
        let mut leaving = Self::default();
        for (key, side) in picture.observed.runtime.seen().into_iter().flat_map(|all| &all.instances) {
            let leaves = picture.desired.service(key).is_none() && picture.desired.may_remove(&key.app);
            if !leaves {
                continue;
            }
            for need in side.containers.iter().filter_map(|c| c.record.as_ref()).flat_map(|record| &record.spec.needs) {
                let (from, to) = ((key.app.clone(), key.service.clone()), (need.app.clone(), need.service.clone()));
                leaving.dependents.entry(to.clone()).or_default().insert(key.clone());
                leaving.needs.entry(from).or_default().insert(to);
            }
        }
        leaving
    }

    /// Who has to have ended before this one is stopped.
    pub fn first(&self, picture: &Picture<'_>, key: &InstanceKey, now: Timestamp) -> Vec<Blocker> {
        let me = (key.app.clone(), key.service.clone());
        let Some(dependents) = self.dependents.get(&me) else { return Vec::new() };
        let runtime = picture.observed.runtime.seen();
        let there = |other: &&InstanceKey| {
            let side = runtime.and_then(|all| all.instances.get(*other));
            side.is_some_and(|side| side.containers.iter().any(|container| ends_soon(container, now)))
        };
        // records of different generations can need each other in a circle: then nobody goes first
        let circle = self.reachable(&me);
        let first = dependents.iter().filter(|other| !circle.contains(&(other.app.clone(), other.service.clone())));
        let on = |key: &InstanceKey| Blocker::On { key: Key::Instance(key.clone()), what: "to end first".to_owned() };
        first.filter(there).map(on).collect()
    }

    /// Every service that a service needs, directly or by others.
    fn reachable(&self, from: &Of) -> BTreeSet<Of> {
        let mut found = BTreeSet::new();
        let mut todo = vec![from.clone()];
        while let Some(next) = todo.pop() {
            for of in self.needs.get(&next).into_iter().flatten() {
                if found.insert(of.clone()) {
                    todo.push(of.clone());
                }
            }
        }
        found
    }
}

/// Whether a container has a task that ends within its grace.
fn ends_soon(container: &ContainerSeen, now: Timestamp) -> bool {
    let live = matches!(container.task, TaskSeen::Running { .. } | TaskSeen::Created { .. });
    let grace = container.record.as_ref().and_then(|record| record.spec.stop_grace_ms);
    let grace = grace.map_or(STOP_GRACE, Duration::from_millis);
    let overdue = |at: Timestamp| at <= now && now >= at.after(grace + GIVEN_UP);
    live && container.stopping.is_none_or(|stopping| stopping.revoked || !overdue(stopping.at))
}
