//! One instance: the ladder from nothing to a running task, and what an exit leads to.
//!
//! Each rung looks at what is there and answers with the one step that is next. The rungs, in order: what must go
//! (old generations, leftovers), what must be at hand (image, volumes), files, network, snapshot, container, task.

use super::target::{Ready, Target};
use super::{Picture, compare, names, retire, wire};
use crate::model::{
    Attachment, Blocker, Class, ContainerIdentity, ContainerSeen, CreateContainer, Decision, Exit, ExitStatus,
    GOOD_RUN, InstanceFile, InstanceFiles, InstanceKey, InstanceSpec, Key, NetSide, Restart, Run, RuntimeSide, Sight,
    Step, TaskSeen, Timestamp, VolumeKey, Why, restart_delay, slot_hash,
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
    match ready {
        Ready::Yes => ladder(scene, runtime, &target),
        Ready::Not(blockers) => {
            let kept = Target::of_record(runtime).map(|old| ladder(scene, runtime, &old));
            match kept {
                Some(Decision::Do(step, why)) => Decision::Do(step, why),
                _ => Decision::Wait(blockers),
            }
        }
    }
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
    if current.is_some() {
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
        TaskSeen::None => after_exit(scene, current, target),
        TaskSeen::Created { pid } => Some(start(scene, current, *pid)),
        TaskSeen::Running { pid, .. } => running(scene, current, target, *pid),
        TaskSeen::Stopped(exit) => Some(stopped(current, exit)),
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
fn start(scene: &Scene<'_, '_>, current: &ContainerSeen, pid: u32) -> Decision {
    let boot = &scene.picture.runtime_boot();
    let ended = |run: &Run| current.exit.as_ref().is_some_and(|exit| exit.pid == run.pid && exit.at >= run.at);
    let recorded = current.run.as_ref().is_some_and(|run| run.pid == pid && run.boot == *boot && !ended(run));
    if recorded {
        return act(Step::StartTask { container: identity(current), pid }, "the task is made and not started");
    }
    let failures = match (&current.run, &current.exit) {
        (Some(run), Some(exit)) => failures_after(run, exit),
        _ => 0,
    };
    let count = current.run.as_ref().map_or(0, |run| run.count).saturating_add(1);
    // a run begins after the exit before it, whatever the clock says: else that exit would count as this run's
    let after_exit = current.exit.as_ref().map(|exit| Timestamp(exit.at.0.saturating_add(1)));
    let at = after_exit.map_or(scene.now, |after| after.max(scene.now));
    let run = Run { boot: boot.clone(), pid, at, count, failures, ..Run::default() };
    act(Step::RecordRun { container: identity(current), run }, format!("run {count} is about to start"))
}

fn running(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target, pid: u32) -> Rung {
    if current.witnessed.as_ref().is_some_and(|exit| exit.pid == pid) {
        return Some(Decision::Wait(vec![Blocker::Until {
            at: scene.now.after(Duration::from_millis(200)),
            what: "its process has ended, containerd has not noticed yet; looked at again".to_owned(),
        }]));
    }
    if current.stopping.is_some_and(|stopping| !stopping.revoked) {
        return Some(act(Step::RevokeStop { container: identity(current) }, "it is wanted again"));
    }
    if current.run.as_ref().is_none_or(|run| run.pid != pid) {
        let count = current.run.as_ref().map_or(0, |run| run.count).saturating_add(1);
        let run = Run { boot: scene.picture.runtime_boot(), pid, at: scene.now, count, ..Run::default() };
        return Some(act(Step::RecordRun { container: identity(current), run }, "it was started by somebody else"));
    }
    in_place(scene, current, target, Some(pid))
}

/// Changes that the running process does not notice.
fn in_place(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target, pid: Option<u32>) -> Rung {
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

/// An ended task: its exit is written down, then it is deleted.
fn stopped(current: &ContainerSeen, exit: &Exit) -> Decision {
    let written = current.exit.as_ref().is_some_and(|written| {
        written.pid == exit.pid && current.run.as_ref().is_none_or(|run| written.at >= run.at || run.pid != exit.pid)
    });
    if !written {
        let mut true_exit =
            current.witnessed.clone().filter(|seen| seen.pid == exit.pid).unwrap_or_else(|| exit.clone());
        if let Some(run) = current.run.as_ref().filter(|run| run.pid == exit.pid) {
            true_exit.at = true_exit.at.max(run.at);
        }
        return record_exit(current, true_exit);
    }
    act(Step::DeleteTask { container: identity(current), pid: exit.pid }, "the task has ended")
}

fn record_exit(current: &ContainerSeen, exit: Exit) -> Decision {
    let why = match exit.status {
        ExitStatus::Code(code) => format!("it exited with code {code}"),
        ExitStatus::Unknown => "it is gone, and nobody saw how it ended".to_owned(),
        ExitStatus::Reboot => "the machine went down under it".to_owned(),
    };
    act(Step::RecordExit { container: identity(current), exit }, why)
}

/// No task: never started, or ended, or vanished.
fn after_exit(scene: &Scene<'_, '_>, current: &ContainerSeen, target: &Target) -> Rung {
    let side = scene.runtime.seen();
    let rooted = side.is_some_and(|side| side.snapshots.iter().any(|snapshot| snapshot.key == current.snapshot));
    let create = |why: String| {
        if rooted {
            return Some(act(Step::CreateTask { container: identity(current) }, why));
        }
        Some(Decision::Wait(vec![Blocker::Stuck {
            what: "its snapshot is gone".to_owned(),
            hint: "it is made anew as soon as its file and its image say from what".to_owned(),
        }]))
    };
    let Some(run) = &current.run else {
        return in_place(scene, current, target, None).or_else(|| create("it has not been started yet".to_owned()));
    };
    let written = current.exit.as_ref().filter(|exit| exit.pid == run.pid && exit.at >= run.at);
    let Some(exit) = written else {
        let witnessed = current.witnessed.clone().filter(|exit| exit.pid == run.pid);
        let vanished = || {
            let rebooted = run.boot != scene.picture.runtime_boot();
            let status = if rebooted { ExitStatus::Reboot } else { ExitStatus::Unknown };
            Exit { pid: run.pid, status, at: scene.now }
        };
        let mut exit = witnessed.unwrap_or_else(vanished);
        exit.at = exit.at.max(run.at);
        return Some(record_exit(current, exit));
    };
    if let Some(change) = in_place(scene, current, target, None) {
        return Some(change);
    }
    // it ended because we asked it to, and it is wanted again: its policy has no say
    if current.stopping.is_some_and(|stopping| stopping.at >= run.at) {
        return create("it was stopped, and is wanted again".to_owned());
    }
    let failures = failures_after(run, exit);
    let policy = target.record.spec.restart.unwrap_or(Restart::No);
    if !restarts(policy, exit, failures) {
        return None;
    }
    let spread = slot_hash(&format!("{}\0{}", scene.key, run.count));
    let due = exit.at.after(restart_delay(failures, spread));
    // a clock that went back behind the exit would make the wait endless: then it is due
    if exit.status != ExitStatus::Reboot && exit.at <= scene.now && scene.now < due {
        let what = format!("restart after {failures} short run{}", if failures == 1 { "" } else { "s" });
        return Some(Decision::Wait(vec![Blocker::Until { at: due, what }]));
    }
    create(format!("it ended ({}), and its restart policy says to run it", describe(exit)))
}

fn describe(exit: &Exit) -> String {
    match exit.status {
        ExitStatus::Code(code) => format!("code {code}"),
        ExitStatus::Unknown => "unknown exit".to_owned(),
        ExitStatus::Reboot => "reboot".to_owned(),
    }
}

/// How many runs in a row ended too soon, with this one.
fn failures_after(run: &Run, exit: &Exit) -> u32 {
    if exit.status == ExitStatus::Reboot || exit.at.since(run.at) >= GOOD_RUN {
        0
    } else {
        run.failures.saturating_add(1)
    }
}

/// Whether the policy starts it again. An exit that nobody saw is a failure, never a success.
pub(super) fn restarts(policy: Restart, exit: &Exit, failures: u32) -> bool {
    match policy {
        Restart::Always | Restart::UnlessStopped => true,
        Restart::OnFailure { max } => !exit.status.is_success() && max.is_none_or(|max| failures <= max),
        Restart::No => exit.status == ExitStatus::Reboot,
    }
}
