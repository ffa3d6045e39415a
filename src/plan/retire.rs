//! What has to go: older generations, leftovers of cut-off steps, instances that are not wanted any more.
//!
//! The order is fixed: task, snapshot, container, then (only for an instance that goes as a whole, and only when no task
//! may be alive) links, netns, files. The snapshot goes before the record that names it, so that a snapshot without a
//! record is always a fresh one, made for a container that is still to come.

use super::instance::{Rung, Scene, act, identity};
use super::target::Target;
use super::wire;
use crate::model::{Blocker, ContainerSeen, Decision, RuntimeSide, Sight, SnapshotSeen, Step, TaskSeen, Timestamp};
use std::time::Duration;

/// The grace between the stop signal and SIGKILL where the file says nothing.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How long after SIGKILL, or after a task that does not answer, the next attempt comes.
const KILL_AGAIN: Duration = Duration::from_secs(2);

/// Takes an instance down to nothing.
pub(super) fn everything(scene: &Scene<'_, '_>, runtime: &RuntimeSide) -> Decision {
    let begins = |container: &ContainerSeen| {
        matches!(container.task, TaskSeen::Running { .. }) && container.stopping.is_none_or(|stopping| stopping.revoked)
    };
    if runtime.containers.iter().any(begins) {
        let first = scene.picture.leaving().first(scene.picture, scene.key, scene.now);
        if !first.is_empty() {
            return Decision::Wait(first);
        }
    }
    let container = runtime.containers.first().map(|container| container_away(scene, runtime, container, None));
    container
        .or_else(|| runtime.snapshots.first().map(snapshot_away))
        .or_else(|| wire::away(scene))
        .or_else(|| files_away(scene))
        .unwrap_or(Decision::Settled)
}

/// Takes away what is not of the current generation.
pub(super) fn others(
    scene: &Scene<'_, '_>,
    runtime: &RuntimeSide,
    current: Option<&ContainerSeen>,
    target: &Target,
) -> Rung {
    // a recorded generation is only kept going: what else there is goes when it is known what is wanted
    if target.recorded {
        return None;
    }
    // without its snapshot a container cannot run again: it is made anew when it has ended, if there is more than its own
    // record to make it from
    let whole = |container: &ContainerSeen| {
        container.task != TaskSeen::None || runtime.snapshots.iter().any(|snapshot| snapshot.key == container.snapshot)
    };
    let is_current =
        |container: &ContainerSeen| current.is_some_and(|current| current.id == container.id) && whole(container);
    // a wedged record blocks its id: it goes once the next attempt has taken another one
    let waits_for_next = |container: &ContainerSeen| {
        container.wedged && container.digest == target.digest && current.is_none() && !container.task.may_live()
    };
    let mut old = runtime.containers.iter().filter(|c| !is_current(c) && !waits_for_next(c));
    if let Some(old) = old.next() {
        return Some(container_away(scene, runtime, old, Some(target)));
    }
    let next = target.next_id(scene.picture.marks, scene.key, runtime).0;
    let parent = target.chain_id(scene.picture);
    let useful = |snapshot: &SnapshotSeen| {
        let used = runtime.containers.iter().any(|container| container.snapshot == snapshot.key);
        let next = current.is_none() && snapshot.key == next && parent.as_ref() == Some(&snapshot.parent);
        used || next
    };
    runtime.snapshots.iter().find(|snapshot| !useful(snapshot)).map(snapshot_away)
}

fn snapshot_away(snapshot: &SnapshotSeen) -> Decision {
    act(Step::RemoveSnapshot { key: snapshot.key.clone() }, "no container uses the snapshot")
}

fn container_away(
    scene: &Scene<'_, '_>,
    runtime: &RuntimeSide,
    container: &ContainerSeen,
    by: Option<&Target>,
) -> Decision {
    let shared =
        runtime.containers.iter().any(|other| other.id != container.id && other.snapshot == container.snapshot);
    let has_snapshot = !shared && runtime.snapshots.iter().any(|snapshot| snapshot.key == container.snapshot);
    let why = || match by {
        Some(_) => "an older generation".to_owned(),
        None => format!("{} is not wanted any more", scene.key),
    };
    match &container.task {
        TaskSeen::None if has_snapshot => {
            act(Step::RemoveSnapshot { key: container.snapshot.clone() }, format!("snapshot of {}", why()))
        }
        TaskSeen::None => act(Step::DeleteContainer { container: identity(container) }, why()),
        TaskSeen::Created { pid } => act(Step::DeleteTask { container: identity(container), pid: *pid }, why()),
        TaskSeen::Stopped(exit) => act(Step::DeleteTask { container: identity(container), pid: exit.pid }, why()),
        TaskSeen::Running { pid, start_ticks } => stop(scene, container, (*pid, *start_ticks), why(), by, false),
        TaskSeen::Unknown { .. } => act(
            Step::KillTask { container: identity(container), pid: None },
            format!("{}; its task does not answer", why()),
        ),
    }
}

/// The stop signal, the grace, then SIGKILL.
pub(super) fn stop(
    scene: &Scene<'_, '_>,
    container: &ContainerSeen,
    (pid, start_ticks): (u32, u64),
    why: String,
    by: Option<&Target>,
    unhealthy: bool,
) -> Decision {
    let spec = by.map(|target| &target.record.spec).filter(|_| container.record.is_none());
    let spec = spec.or(container.record.as_ref().map(|record| &record.spec));
    let Some(stopping) = container.stopping.filter(|stopping| !stopping.revoked) else {
        let signal = spec.and_then(|spec| spec.stop_signal.clone()).or_else(|| image_signal(scene, container));
        return Decision::Do(
            Box::new(Step::StopTask {
                container: identity(container),
                pid,
                start_ticks,
                signal: signal.unwrap_or_else(|| "SIGTERM".to_owned()),
                at: scene.now,
                unhealthy,
            }),
            super::change::why_replaced(why, container, by),
        );
    };
    let grace = spec.and_then(|spec| spec.stop_grace_ms).map_or(STOP_GRACE, Duration::from_millis);
    let deadline = grace_end(stopping.at, grace, scene.now);
    if scene.now < deadline {
        return Decision::Wait(vec![Blocker::Until { at: deadline, what: "its stop grace ends".to_owned() }]);
    }
    // a killed task that is still there is in the kernel's hands: asked again now and then, nobody else waits for it
    let since_deadline = scene.now.since(deadline);
    let step = Step::KillTask { container: identity(container), pid: Some(pid) };
    if since_deadline < KILL_AGAIN {
        return act(step, format!("it did not end within its stop grace of {} s", grace.as_secs_f64()));
    }
    act(step, "it does not end even though it was killed")
}

/// When the grace ends. A clock that went back behind the mark would stretch it without end: then it counts from now.
fn grace_end(stopping: Timestamp, grace: Duration, now: Timestamp) -> Timestamp {
    if stopping > now { now } else { stopping.after(grace) }
}

fn image_signal(scene: &Scene<'_, '_>, container: &ContainerSeen) -> Option<String> {
    let images = &scene.picture.observed.runtime.seen()?.images;
    match &images.get(&container.record.as_ref()?.spec.image.reference)?.usable {
        crate::model::ImageUse::Ready { stop_signal, .. } => stop_signal.clone(),
        _ => None,
    }
}

fn files_away(scene: &Scene<'_, '_>) -> Rung {
    match &scene.files {
        Sight::Seen(None) => None,
        Sight::Seen(Some(_)) => {
            Some(act(Step::DropFiles { instance: scene.key.clone() }, "nothing of the instance is left"))
        }
        Sight::Unseen(blind) => {
            Some(Decision::Wait(vec![Blocker::Blind { what: "files".to_owned(), why: blind.why.clone() }]))
        }
    }
}
