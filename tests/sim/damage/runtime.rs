//! Damage to tasks, containers, snapshots and images.

use super::super::rng::Choices;
use super::super::want::{ARCHIVED, PACKED, READY};
use super::super::world::{Container, Owner, Shim, Snapshot, Task, World};
use super::one_of;
use std::collections::BTreeMap;
use stead::model::{Domain, Exit, ExitStatus, ImageUse, SpecDigest, Timestamp};

/// Containers of ours, by id.
fn ours(world: &World, fits: impl Fn(&Container) -> bool) -> BTreeMap<String, ()> {
    let found = world.runtime.containers.iter().filter(|(_, found)| found.instance.is_some() && fits(found));
    found.map(|(id, _)| (id.clone(), ())).collect()
}

pub(super) fn strike(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    match choices.below(12) {
        0..3 => kill(world, choices),
        3 => remove_task(world, choices),
        4 => remove_container(world, choices),
        5 => another_generation(world, choices),
        6 => spoil_record(world, choices),
        7 => snapshot(world, choices),
        8 => image(world, choices),
        9 => labels(world, choices),
        10 => lease(world, choices),
        _ => limits(world, choices),
    }
}

fn kill(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let live = ours(world, |found| found.task.as_ref().is_some_and(|task| task.exit.is_none()));
    let id = one_of(choices, &live)?;
    let pid = world.container(&id).task.as_ref()?.pid;
    shake(world, &id);
    let code = *choices.pick(&[137, 0, 1, 139]);
    world.process_ends(pid, world.boot, code);
    Some(format!("{id}: its process ends with {code}"))
}

fn remove_task(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let with = ours(world, |found| found.task.is_some());
    let id = one_of(choices, &with)?;
    shake(world, &id);
    world.shim_dies(&id);
    Some(format!("{id}: its shim is killed"))
}

fn remove_container(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let dead = ours(world, |found| found.task.is_none());
    let id = one_of(choices, &dead)?;
    shake(world, &id);
    let container = world.runtime.containers.remove(&id)?;
    world.ring_instance(&container.instance?, "container event");
    Some(format!("{id}: container deleted"))
}

/// A container of the same instance by somebody else: another digest, another id, any task.
fn another_generation(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let from = one_of(choices, &ours(world, |_| true))?;
    let mut copy = world.container(&from).clone();
    let number = choices.below(100);
    let id = format!("{from}-x{number}");
    if world.runtime.containers.contains_key(&id) {
        return None;
    }
    shake(world, &from);
    copy.pristine = false;
    copy.digest = SpecDigest::from_label(&format!("{number:064}"));
    copy.created_at = Timestamp(copy.created_at.0 + 1 + number);
    copy.snapshot = if choices.chance(500) { id.clone() } else { copy.snapshot };
    copy.task = match (choices.below(4), copy.task.take()) {
        (0, Some(task)) => Some(Task { pid: task.pid + 10_000, exit: None, ..task }),
        (1, Some(task)) => {
            let (pid, at) = (task.pid + 20_000, copy.created_at);
            Some(Task { pid, exit: Some(Exit { pid, status: ExitStatus::Code(1), at }), ..task })
        }
        _ => None,
    };
    if copy.snapshot == id {
        let owner = copy.instance.clone().map_or(Owner::Foreign, Owner::Instance);
        world.runtime.snapshots.insert(id.clone(), Snapshot { owner, parent: "chain-old".to_owned() });
    }
    let instance = copy.instance.clone()?;
    if let Some(Exit { pid, status: ExitStatus::Code(code), .. }) =
        copy.task.as_ref().and_then(|task| task.exit.clone())
    {
        world.audit.truth.insert((id.clone(), pid, world.boot), code);
    }
    world.runtime.containers.insert(id.clone(), copy);
    world.ring_instance(&instance, "container event");
    Some(format!("{id}: another container of {instance}"))
}

fn spoil_record(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let id = one_of(choices, &ours(world, |_| true))?;
    shake(world, &id);
    let container = world.runtime.containers.get_mut(&id)?;
    container.pristine = false;
    let what = match choices.below(3) {
        0 => {
            container.record = None;
            "record made unreadable"
        }
        1 => {
            container.digest = SpecDigest::from_label("0badc0de");
            "digest label changed"
        }
        _ => {
            if let Some(at) = container.record.as_mut().and_then(|record| record.attachments.first_mut()) {
                at.address = at.subnet.hosts().last()?;
            }
            "recorded address changed"
        }
    };
    let instance = container.instance.clone()?;
    world.ring_instance(&instance, "container event");
    Some(format!("{id}: {what}"))
}

fn snapshot(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let id = one_of(choices, &ours(world, |found| found.task.is_none()))?;
    shake(world, &id);
    let container = world.container(&id);
    let (key, instance) = (container.snapshot.clone(), container.instance.clone()?);
    let what = if choices.chance(500) {
        world.runtime.snapshots.remove(&key);
        format!("{id}: snapshot removed")
    } else {
        let owner = Owner::Instance(instance.clone());
        world.runtime.snapshots.insert(format!("{id}-left"), Snapshot { owner, parent: "chain-old".to_owned() });
        format!("{id}: a snapshot left over")
    };
    world.ring_instance(&instance, "snapshot event");
    Some(what)
}

fn image(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let reference = *choices.pick(&[ARCHIVED, PACKED, READY]);
    let image = world.runtime.images.get_mut(reference)?;
    let what = match (choices.below(3), reference) {
        (0, ARCHIVED) => {
            world.runtime.images.remove(reference);
            "removed"
        }
        (1, ARCHIVED) => {
            image.usable = ImageUse::Incomplete;
            "content lost"
        }
        _ => {
            image.usable = ImageUse::Packed;
            "unpacked snapshot lost"
        }
    };
    world.ring_image(reference, "image event");
    Some(format!("image {reference}: {what}"))
}

fn labels(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let id = one_of(choices, &ours(world, |_| true))?;
    shake(world, &id);
    let container = world.runtime.containers.get_mut(&id)?;
    container.pristine = false;
    let what = match choices.below(3) {
        0 => {
            container.run = None;
            "run label removed"
        }
        1 => {
            container.exit = None;
            "exit label removed"
        }
        _ => {
            container.attempt += 1;
            "attempt label changed"
        }
    };
    let instance = container.instance.clone()?;
    world.ring_instance(&instance, "container event");
    Some(format!("{id}: {what}"))
}

/// What an import that was cut off leaves.
fn lease(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let reference = *choices.pick(&[ARCHIVED, PACKED]);
    let lease = world.registry.marks.lease(reference);
    world.runtime.leases.insert(lease);
    world.ring_domain(Domain::Runtime, "lease event");
    Some(format!("the lease of an import of {reference}"))
}

/// A record that says less or more than the task was given.
fn limits(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let live = ours(world, |found| found.task.as_ref().is_some_and(|task| task.runs() && task.shim == Shim::Up));
    let id = one_of(choices, &live)?;
    let container = world.runtime.containers.get_mut(&id)?;
    container.stopping = Some(stead::model::Stopping { at: Timestamp(1), ..stead::model::Stopping::default() });
    container.pristine = false;
    let instance = container.instance.clone()?;
    shake(world, &id);
    world.ring_instance(&instance, "container event");
    Some(format!("{id}: a stop mark of long ago"))
}

fn shake(world: &mut World, id: &str) {
    if let Some(instance) = world.runtime.containers.get(id).and_then(|found| found.instance.clone()) {
        world.audit.shake(&instance);
    }
}
