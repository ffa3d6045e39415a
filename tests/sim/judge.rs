//! What one decision on one picture may be, whatever the picture is.

use std::collections::{BTreeMap, BTreeSet};
use stead::model::{
    ContainerIdentity, ContainerSeen, Decision, Desired, Domain, InstanceKey, Key, LinkIdentity, LinkSeen, Marks,
    NetSeen, Observed, Step,
};

/// What is wrong with a decision, in a sentence.
pub type Wrong = Result<(), String>;

fn ensure(good: bool, what: impl FnOnce() -> String) -> Wrong {
    if good { Ok(()) } else { Err(what()) }
}

/// A decision says why: a step has a reason, a wait has a blocker.
pub fn is_explained(key: &Key, decision: &Decision) -> Wrong {
    match decision {
        Decision::Do(step, why) => {
            ensure(!why.text.trim().is_empty(), || format!("{key}: {} without a reason", step.name()))
        }
        Decision::Wait(blockers) => ensure(!blockers.is_empty(), || format!("{key}: waits for nothing")),
        Decision::Settled => Ok(()),
    }
}

/// Nothing is done in a domain that is not seen, and nothing is destroyed or made that depends on one.
pub fn is_blind_safe(desired: &Desired, observed: &Observed, key: &Key, step: &Step) -> Wrong {
    let sees = |domain| match domain {
        Domain::Runtime => observed.runtime.is_seen(),
        Domain::Net => observed.net.is_seen(),
        Domain::Ports => observed.ports.is_seen(),
        Domain::Files => observed.files.is_seen(),
    };
    ensure(sees(step.domain()), || format!("{key}: {} in a domain that is not seen", step.name()))?;
    let needs_tasks = matches!(
        step,
        Step::DropLink { .. }
            | Step::DropNetns { .. }
            | Step::DropFiles { .. }
            | Step::MakeNetns { .. }
            | Step::MakeLink { .. }
    );
    let bridge = matches!(key, Key::Network(_));
    ensure(!needs_tasks || bridge || sees(Domain::Runtime), || {
        format!("{key}: {} while it is not known which tasks live", step.name())
    })?;
    let Key::Instance(instance) = key else {
        return Ok(());
    };
    let side = observed.runtime.seen().and_then(|runtime| runtime.instances.get(instance));
    let lives = |container: &&ContainerSeen| container.task.may_live();
    let last = side.is_none_or(|side| side.containers.iter().filter(lives).count() <= 1);
    let rebuilds = match step {
        Step::CreateContainer(_) | Step::CreateTask { .. } | Step::StartTask { .. } => true,
        // of two that serve, one may go
        Step::StopTask { .. } | Step::KillTask { .. } => last,
        _ => false,
    };
    let wanted = desired.service(instance).is_some();
    ensure(!(wanted && rebuilds) || sees(Domain::Net), || format!("{key}: {} with the network not seen", step.name()))
}

/// A step names only what carries our marks.
pub fn is_ours(marks: &Marks, observed: &Observed, key: &Key, step: &Step) -> Wrong {
    let name = step.name();
    if let Some(container) = container_of(step) {
        ensure(is_seen_container(observed, container), || {
            format!("{key}: {name} on {container:?}, which is not ours")
        })?;
    }
    let net = observed.net.seen();
    if let Some(link) = link_of(step) {
        ensure(net.is_some_and(|net| is_seen_link(net, link)), || {
            format!("{key}: {name} on {link:?}, which is not ours")
        })?;
    }
    match step {
        Step::MakeLink { name, .. } | Step::MakeBridge { name, .. } => {
            let taken = net.is_some_and(|net| net.foreign_links.contains(name));
            ensure(!taken, || format!("{key}: makes {name}, which somebody else has"))
        }
        Step::MakeNetns { name } | Step::AdoptNetns { name, .. } => {
            ensure(name.starts_with(&marks.netns_prefix()), || format!("{key}: netns {name} is not ours"))
        }
        Step::DropNetns { netns } => {
            ensure(netns.name.starts_with(&marks.netns_prefix()), || format!("{key}: netns {netns:?} is not ours"))
        }
        Step::RemoveSnapshot { key: snapshot } => {
            let runtime = observed.runtime.seen();
            let ours = runtime.is_some_and(|all| {
                let mut labelled = all.instances.values().flat_map(|side| &side.snapshots);
                labelled.any(|seen| seen.key == *snapshot)
                    || all.strays.contains(&stead::model::StrayKey::Snapshot(snapshot.clone()))
            });
            ensure(ours, || format!("{key}: snapshot {snapshot} is not ours"))
        }
        _ => Ok(()),
    }
}

/// The network is not taken from a task that may be alive, and nothing is removed under one.
pub fn spares_the_living(observed: &Observed, key: &Key, step: &Step) -> Wrong {
    let Some(runtime) = observed.runtime.seen() else {
        return Ok(());
    };
    let lives = |key: &InstanceKey| {
        let side = runtime.instances.get(key);
        side.is_some_and(|side| side.containers.iter().any(|container| container.task.may_live()))
    };
    let name = step.name();
    match (key, step) {
        (Key::Instance(instance), Step::DropLink { .. } | Step::DropNetns { .. } | Step::DropFiles { .. }) => {
            ensure(!lives(instance), || format!("{key}: {name} while a task may live"))
        }
        (Key::Network(network), Step::DropLink { .. }) => {
            let net = observed.net.seen();
            let attached = net.into_iter().flat_map(|net| &net.instances);
            let user = attached.filter(|(_, side)| side.links.contains_key(network)).find(|(key, _)| lives(key));
            ensure(user.is_none(), || format!("{key}: {name} under {user:?}"))
        }
        (_, Step::DeleteContainer { container }) => {
            let seen = find_container(observed, container);
            ensure(!seen.is_some_and(|seen| seen.task.may_live()), || format!("{key}: {name} while its task may live"))
        }
        (_, Step::RemoveSnapshot { key: snapshot }) => {
            let mut all = runtime.instances.values().flat_map(|side| &side.containers);
            let user = all.find(|seen| seen.snapshot == *snapshot && seen.task.may_live());
            ensure(user.is_none(), || format!("{key}: {name} under {user:?}"))
        }
        _ => Ok(()),
    }
}

/// A task is started only on a whole network, as far as it is seen.
pub fn starts_when_wired(observed: &Observed, key: &Key, step: &Step) -> Wrong {
    let (Key::Instance(instance), Step::StartTask { container, .. } | Step::CreateTask { container }) = (key, step)
    else {
        return Ok(());
    };
    let (Some(seen), Some(net)) = (find_container(observed, container), observed.net.seen()) else {
        return Err(format!("{key}: {} on what is not seen", step.name()));
    };
    let side = net.instances.get(instance);
    let wired = seen.record.iter().flat_map(|record| &record.attachments).all(|at| {
        let link = side.and_then(|side| side.links.get(&at.network));
        let netns = side.and_then(|side| side.netns.as_ref());
        let inside = netns.and_then(|netns| netns.interfaces.get(&at.interface));
        let has_address =
            inside.is_some_and(|inside| inside.up && inside.addresses.iter().any(|have| have.addr() == at.address));
        link.is_some_and(|link| link.up && link.controller.is_some()) && has_address
    });
    ensure(wired, || format!("{key}: {} before its network is whole", step.name()))
}

fn container_of(step: &Step) -> Option<&ContainerIdentity> {
    match step {
        Step::CreateTask { container }
        | Step::RecordRun { container, .. }
        | Step::StartTask { container, .. }
        | Step::RecordExit { container, .. }
        | Step::StopTask { container, .. }
        | Step::KillTask { container, .. }
        | Step::DeleteTask { container, .. }
        | Step::RevokeStop { container }
        | Step::UpdateRecord { container, .. }
        | Step::DeleteContainer { container } => Some(container),
        _ => None,
    }
}

fn link_of(step: &Step) -> Option<&LinkIdentity> {
    match step {
        Step::SetAlias { link, .. }
        | Step::RenameLink { link, .. }
        | Step::ShapeLink { link, .. }
        | Step::AttachPort { link, .. }
        | Step::DropLink { link }
        | Step::SetBridgeAddress { link, .. }
        | Step::SetRouteLocalnet { link } => Some(link),
        _ => None,
    }
}

fn find_container<'o>(observed: &'o Observed, identity: &ContainerIdentity) -> Option<&'o ContainerSeen> {
    let sides = observed.runtime.seen()?.instances.values();
    sides
        .flat_map(|side| &side.containers)
        .find(|seen| seen.id == identity.id && seen.created_at == identity.created_at)
}

fn is_seen_container(observed: &Observed, identity: &ContainerIdentity) -> bool {
    find_container(observed, identity).is_some()
}

fn is_seen_link(net: &NetSeen, identity: &LinkIdentity) -> bool {
    let is =
        |link: &LinkSeen| link.index == identity.index && link.name == identity.name && link.alias == identity.alias;
    let mut all = net.networks.values().chain(net.stray_links.values());
    all.any(is) || net.instances.values().flat_map(|side| side.links.values()).any(is)
}

/// The objects whose decision differs, but for the rewriting of a hosts file.
pub fn touched(before: &BTreeMap<Key, Decision>, after: &BTreeMap<Key, Decision>) -> BTreeSet<Key> {
    let same = |key: &Key| before.get(key) == after.get(key);
    after.keys().filter(|key| !same(key)).cloned().collect()
}
