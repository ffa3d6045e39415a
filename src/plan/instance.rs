//! One instance: the ladder from nothing to a running task, and what an exit leads to.
//!
//! Each rung looks at what is there and answers with the one step that is next. The rungs, in order: what must go
//! (old generations, leftovers), what must be at hand (image, volumes), files, network, snapshot, container, task.

use super::target::{Ready, Target};
use super::{Picture, compare, exit, grants, names, needs, retire, wire};
use crate::model::{
    Attachment, Blocker, Class, ContainerIdentity, ContainerSeen, CreateContainer, Decision, Health, InstanceFile,
    InstanceFiles, InstanceKey, InstanceSpec, Key, NetSide, Run, RuntimeSide, Sight, Step, TaskSeen, Timestamp,
    VolumeKey, Why,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long until a task that could not be judged is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Everything known of one instance at this moment.
pub(super) struct Scene<'a, 'p> {
    pub picture: &'a Picture<'p>,
    pub key: &'a InstanceKey,
    pub now: Timestamp,
    /// What containerd has of it; an empty side when it has nothing.
    pub runtime: Sight<&'a RuntimeSide>,
    pub net: Sight<&'a NetSide>,
    pub files: Sight<Option<&'a InstanceFiles>>,
}

static NO_RUNTIME: RuntimeSide = RuntimeSide { containers: Vec::new(), snapshots: Vec::new() };
static NO_NET: NetSide = NetSide { netns: None, links: BTreeMap::new() };

/// A rung of the ladder: the next step or a wait, or nothing to say.
pub(super) type Rung = Option<Decision>;

pub(super) fn act(step: Step, why: impl Into<String>) -> Decision {
    Decision::Do(Box::new(step), Why::because(why))
}

pub(super) fn identity(container: &ContainerSeen) -> ContainerIdentity {
    ContainerIdentity { id: container.id.clone(), created_at: container.created_at }
}

/// Decides for one instance.
pub(super) fn decide(picture: &Picture<'_>, key: &InstanceKey, now: Timestamp) -> Decision {
    let observed = picture.observed;
    let scene = Scene {
        picture,
        key,
        now,
        runtime: observed.runtime.as_ref().map(|all| all.instances.get(key).unwrap_or(&NO_RUNTIME)),
        net: observed.net.as_ref().map(|all| all.instances.get(key).unwrap_or(&NO_NET)),
        files: observed.files.as_ref().map(|all| all.instances.get(key)),
    };
    let wanted = picture.desired.service(key);
    let runtime = match &scene.runtime {
        Sight::Seen(runtime) => *runtime,
        Sight::Unseen(blind) => {
            let repair = wanted.and_then(|_| blind_repair(&scene));
            return repair
                .unwrap_or_else(|| Decision::Wait(vec![Blocker::RuntimeUnavailable { why: blind.why.clone() }]));
        }
    };
    match wanted {
        Some(service) => {
            let target = Target::of_service(picture, key, service);
            serve(&scene, runtime, target)
        }
        None if picture.desired.may_remove(&key.app) => retire::everything(&scene, runtime),
        // the file cannot say what is wanted: what is there is kept as its record says
        None => match Target::of_record(runtime) {
            Some(target) => ladder(&scene, runtime, &target),
            None => Decision::Settled,
        },
    }
}

/// The wanted generation where it can be made; until then the one that serves now is kept true.
fn serve(scene: &Scene<'_, '_>, runtime: &RuntimeSide, target: Target) -> Decision {
    let ready = target.ready(scene.picture, scene.key, runtime);
    let keep = |blockers: Vec<Blocker>| {
        let kept = Target::of_record(runtime).map(|old| ladder(scene, runtime, &old));
        match kept {
            Some(Decision::Do(step, why)) => Decision::Do(step, why),
            _ => Decision::Wait(blockers),
        }
    };
    match ready {
        // an older generation that serves is not given up before the new one may be started
        Ready::Yes if serves(runtime) && target.current(runtime).is_none() && !target.record.spec.stopped => {
            let unmet = needs::unmet(scene.picture, &target.record.spec);
            if unmet.is_empty() { ladder(scene, runtime, &target) } else { keep(unmet) }
        }
        Ready::Yes => ladder(scene, runtime, &target),
        Ready::Not(blockers) => keep(blockers),
    }
}

/// Whether a generation is there that goes on as long as it is let: one that is being stopped is not taken back.
fn serves(runtime: &RuntimeSide) -> bool {
    let goes_on = |container: &ContainerSeen| container.stopping.is_none_or(|stopping| stopping.revoked);
    runtime.containers.iter().any(|one| one.task.may_live() && one.record.is_some() && goes_on(one))
}

/// Files and network of a wanted instance can be kept true while containerd is away, as far as nothing is rebuilt.
fn blind_repair(scene: &Scene<'_, '_>) -> Rung {
    let service = scene.picture.desired.service(scene.key)?;
    let attachments = scene.picture.allocation().attachments(scene.key, &service.spec, scene.picture.marks).ok()?;
    let in_hosts = wire::names_from(scene, &service.spec, &attachments)?;
    // an instance that was never made has no file yet, and is not begun now
    let have = scene.files.seen()?.as_ref()?;
    let made = have.hosts.is_some() && have.resolv_conf.is_some() && have.hostname.is_some();
    let current = || files(scene, &service.spec, &in_hosts);
    (if made { current() } else { None })
        .or_else(|| wire::repair(scene, &attachments))
        .filter(|decision| matches!(decision, Decision::Do(..)))
}

fn ladder(scene: &Scene<'_, '_>, runtime: &RuntimeSide, target: &Target) -> Decision {
    let current = target.current(runtime);
    retire::others(scene, runtime, current, target)
        .or_else(|| named(scene, target))
        .or_else(|| wire::whole(scene, runtime, target))
        .or_else(|| volumes(scene, target))
        .or_else(|| grants::current(scene, target))
        .or_else(|| container(scene, runtime, current, target))
        .or_else(|| current.and_then(|current| task(scene, current, target)))
        .unwrap_or(Decision::Settled)
}

/// The files of names, once it is known what they say.
fn named(scene: &Scene<'_, '_>, target: &Target) -> Rung {
    let spec = &target.record.spec;
    match wire::names_from(scene, spec, &target.record.attachments) {
        Some(attachments) => files(scene, spec, &attachments),
        None => Some(wire::wait_for_owner(scene, spec)),
    }
}

/// `/etc/hosts`, `/etc/resolv.conf` and `/etc/hostname`, kept current in place.
fn files(scene: &Scene<'_, '_>, spec: &InstanceSpec, attachments: &[Attachment]) -> Rung {
    let have = match &scene.files {
        Sight::Seen(have) => *have,
        Sight::Unseen(blind) => {
            return Some(Decision::Wait(vec![Blocker::Blind { what: "files".to_owned(), why: blind.why.clone() }]));
        }
    };
    let want = names::files(scene.picture, scene.key, spec, attachments);
    let pairs = [
        (InstanceFile::Hostname, have.and_then(|have| have.hostname.as_ref()), want.hostname),
        (InstanceFile::ResolvConf, have.and_then(|have| have.resolv_conf.as_ref()), want.resolv_conf),
        (InstanceFile::Hosts, have.and_then(|have| have.hosts.as_ref()), want.hosts),
    ];
    pairs.into_iter().find_map(|(file, have, want)| {
        let content = want.filter(|want| have != Some(want))?;
        let why = format!("{} {}", file.name(), if have.is_some() { "is out of date" } else { "is missing" });
        Some(act(Step::WriteFile { instance: scene.key.clone(), file, content }, why))
    })
}

fn volumes(scene: &Scene<'_, '_>, target: &Target) -> Rung {
    let have = scene.picture.observed.files.seen()?;
    let missing: Vec<Blocker> = target
        .volumes(scene.key)
        .filter(|volume: &VolumeKey| !have.volumes.contains(volume))
        .map(|volume| Blocker::On { key: Key::Volume(volume), what: "directory to be made".to_owned() })
        .collect();
    (!missing.is_empty()).then_some(Decision::Wait(missing))
}

/// The snapshot and the container record, when the target has none yet.
fn container(scene: &Scene<'_, '_>, runtime: &RuntimeSide, current: Option<&ContainerSeen>, target: &Target) -> Rung {
    // what is not to run is not made for it
    if current.is_some() || target.record.spec.stopped {
        return None;
    }
    let (id, attempt) = target.next_id(scene.picture.marks, scene.key, runtime);
    let Some(chain_id) = target.chain_id(scene.picture) else {
        return Some(Decision::Wait(vec![Blocker::On {
            key: Key::Image(target.record.spec.image.reference.clone()),
            what: "to be ready".to_owned(),
        }]));
    };
    if !runtime.snapshots.iter().any(|snapshot| snapshot.key == id) {
        let step = Step::PrepareSnapshot { instance: scene.key.clone(), key: id, parent: chain_id };
        return Some(act(step, "no snapshot for the container"));
    }
    let netns = match wire::joined(scene, &target.record.spec) {
        Some(netns) => netns,
        None => return Some(wire::wait_for_owner(scene, &target.record.spec)),
    };
    let step = CreateContainer {
        id: id.clone(),
        instance: scene.key.clone(),
        digest: target.digest.clone(),
        attempt,
        snapshot: id,
        netns,
        record: target.record.clone(),
    };
    Some(act(Step::CreateContainer(Box::new(step)), "no container"))
}

fn task(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target) -> Rung {
    match &current.task {
        TaskSeen::None => exit::after_exit(scene, current, target),
        TaskSeen::Created { pid } => Some(start(scene, current, target, *pid)),
        TaskSeen::Running { pid, start_ticks } => running(scene, current, target, *pid, *start_ticks),
        TaskSeen::Stopped(exit) => Some(exit::stopped(current, exit)),
        TaskSeen::Unknown { why } => Some(Decision::Wait(vec![
            Blocker::Stuck {
                what: format!("the task's state is unknown: {why}"),
                hint: "its shim may hang; it is left alone until it answers".to_owned(),
            },
            Blocker::Until { at: scene.now.after(LOOK_AGAIN), what: "it is looked at again".to_owned() },
        ])),
    }
}

/// A made task: its run is written down, then it is started.
fn start(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target, pid: u32) -> Decision {
    let spec = &target.record.spec;
    if spec.stopped {
        return act(Step::DeleteTask { container: identity(current), pid }, "it is not to run");
    }
    let boot = &scene.picture.runtime_boot();
    let ended = |run: &Run| current.exit.as_ref().is_some_and(|exit| exit.pid == run.pid && exit.at >= run.at);
    let recorded = current.run.as_ref().is_some_and(|run| run.pid == pid && run.boot == *boot && !ended(run));
    if recorded {
        return act(Step::StartTask { container: identity(current), pid }, "the task is made and not started");
    }
    let unmet = needs::unmet(scene.picture, spec);
    if !unmet.is_empty() {
        return Decision::Wait(unmet);
    }
    let count = current.run.as_ref().map_or(0, |run| run.count).saturating_add(1);
    // a run begins after the exit before it, whatever the clock says: else that exit would count as this run's
    let after_exit = current.exit.as_ref().map(|exit| Timestamp(exit.at.0.saturating_add(1)));
    let at = after_exit.map_or(scene.now, |after| after.max(scene.now));
    let failures = exit::failures_so_far(current, spec);
    let run = Run { boot: boot.clone(), pid, at, count, failures, ..begun(scene, current, target) };
    act(Step::RecordRun { container: identity(current), run }, format!("run {count} is about to start"))
}

/// What a run is started for, and beside.
fn begun(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target) -> Run {
    let spec = &target.record.spec;
    Run {
        restarted: spec.restarted.clone(),
        generation: current.record.as_ref().map(|record| record.generation),
        beside: needs::beside(scene.picture, spec),
        ..Run::default()
    }
}

fn running(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target, pid: u32, start_ticks: u64) -> Rung {
    if current.witnessed.as_ref().is_some_and(|exit| exit.pid == pid) {
        return Some(Decision::Wait(vec![Blocker::Until {
            at: scene.now.after(Duration::from_millis(200)),
            what: "its process has ended, containerd has not noticed yet; looked at again".to_owned(),
        }]));
    }
    let recorded = current.run.as_ref().filter(|run| run.pid == pid);
    if let Some((why, unhealthy)) = recorded.and_then(|run| end_it(scene, current, target, run)) {
        return Some(retire::stop(scene, current, (pid, start_ticks), why, None, unhealthy));
    }
    if current.stopping.is_some_and(|stopping| !stopping.revoked) {
        return Some(act(Step::RevokeStop { container: identity(current) }, "it is wanted again"));
    }
    if recorded.is_none() {
        let count = current.run.as_ref().map_or(0, |run| run.count).saturating_add(1);
        let boot = scene.picture.runtime_boot();
        let run = Run { boot, pid, at: scene.now, count, ..begun(scene, current, target) };
        return Some(act(Step::RecordRun { container: identity(current), run }, "it was started by somebody else"));
    }
    in_place(scene, current, target, Some(pid))
}

/// Why a run that is wanted is ended all the same, and whether for its health.
fn end_it(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target, run: &Run) -> Option<(String, bool)> {
    let spec = &target.record.spec;
    if spec.stopped {
        return Some(("it is not to run any more".to_owned(), false));
    }
    if exit::restart_asked(run, spec) {
        return Some(("a restart was asked for".to_owned(), false));
    }
    if let Some(name) = needs::renewed(scene.picture, spec, &run.beside) {
        return Some((format!("{name}, which it needs, was renewed"), false));
    }
    let restarts = spec.health.as_ref().is_some_and(|check| check.restart);
    let unhealthy = current.health.as_ref().filter(|seen| seen.health == Health::Unhealthy);
    match (unhealthy, current.stopping.filter(|stopping| !stopping.revoked && stopping.unhealthy)) {
        (Some(seen), _) if restarts => Some((format!("it is unhealthy: {}", seen.said), true)),
        // begun is done: half-way back, its health is not asked once more
        (_, Some(_)) => Some(("it was unhealthy".to_owned(), true)),
        _ => None,
    }
}

/// Changes that the running process does not notice.
pub(super) fn in_place(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target, pid: Option<u32>) -> Rung {
    let record = current.record.as_ref()?;
    let changes = compare::changes(&record.spec, &target.record.spec);
    if changes.is_empty() {
        return None;
    }
    debug_assert!(changes.iter().all(|change| change.class == Class::InPlace), "a recreate change has another digest");
    let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
    let text = format!("changed in place: {}", fields.join(", "));
    let step = Step::UpdateRecord {
        container: identity(current),
        instance: scene.key.clone(),
        limits_of: pid.filter(|_| record.spec.limits != target.record.spec.limits),
        record: Box::new(target.record_for(record)),
    };
    Some(Decision::Do(Box::new(step), Why { text, changes }))
}
