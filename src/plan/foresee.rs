//! What a step leads to when it works: the picture after it. Lets `plan` print every step up to the end, and tests run the
//! planner without a node. Pure; names and times that only the node knows are made up, and marked as such.

use super::Picture;
use crate::model::{
    Blocker, Condition, ContainerSeen, CreateContainer, Decision, Desired, Exit, FilesSeen, Health, HealthSeen,
    ImageSeen, ImageUse, InstanceFile, InstanceKey, InterfaceSeen, Key, LinkSeen, MTU, Marks, NetSeen, NetnsIdentity,
    NetnsSeen, Observed, RuntimeSeen, SnapshotSeen, Step, Stopping, TableSeen, TaskSeen, Timestamp,
};
use crate::model::{Domain, ExitStatus};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The pid of a task that does not exist yet.
const PID: u32 = u32::MAX;

/// Takes the effect of a step that works into the picture.
///
/// `key` is the object that the step was decided for. Signals are taken to end their task at once.
pub fn foresee(picture: &mut Observed, marks: &Marks, key: &Key, step: &Step, now: Timestamp) {
    match step.domain() {
        Domain::Runtime => {
            if let Some(runtime) = picture.runtime.seen_mut() {
                runtime_step(runtime, marks, key, step, now);
            }
        }
        Domain::Net => {
            if let Some(net) = picture.net.seen_mut() {
                net_step(net, marks, key, step);
            }
        }
        Domain::Ports => {
            if let (Step::ApplyRuleset { ruleset }, Some(table)) = (step, picture.ports.seen_mut()) {
                *table = ruleset.clone().map(|ruleset| TableSeen { ruleset, intact: true });
            }
        }
        Domain::Files => {
            if let Some(files) = picture.files.seen_mut() {
                files_step(files, step);
            }
        }
    }
}

/// Every step from a picture to where nothing more can be done, with the object each is for; at most `limit` of them.
pub fn to_the_end(
    desired: &Desired,
    observed: &Observed,
    marks: &Marks,
    now: Timestamp,
    limit: usize,
) -> Vec<(Key, Step, crate::model::Why)> {
    let mut picture = observed.clone();
    let mut steps = Vec::new();
    let holds = super::Holds::new();
    loop {
        let before = steps.len();
        for key in Picture::new(desired, &picture, marks).keys() {
            while let Decision::Do(step, why) =
                super::decide(&Picture::new(desired, &picture, marks), &key, &holds, now)
            {
                foresee(&mut picture, marks, &key, &step, now);
                steps.push((key.clone(), *step, why));
                if steps.len() >= limit {
                    return steps;
                }
            }
        }
        if steps.len() == before && !jobs_end(desired, &mut picture, marks, now) {
            return steps;
        }
    }
}

/// Jobs that others wait for are taken to end well; whether there was one.
fn jobs_end(desired: &Desired, picture: &mut Observed, marks: &Marks, now: Timestamp) -> bool {
    let view = Picture::new(desired, picture, marks);
    let awaited = |blocker: Blocker| match blocker {
        Blocker::On { key: Key::Instance(key), what } if what == Condition::Completed.awaited() => Some(key),
        _ => None,
    };
    let waits = view.keys().into_iter().filter_map(|key| match super::decide(&view, &key, &super::Holds::new(), now) {
        Decision::Wait(blockers) => Some(blockers),
        Decision::Do(..) | Decision::Settled => None,
    });
    let jobs: BTreeSet<InstanceKey> = waits.flatten().filter_map(awaited).collect();
    let sides = picture.runtime.seen_mut().into_iter().flat_map(|all| &mut all.instances);
    let mut any = false;
    for container in sides.filter(|(key, _)| jobs.contains(key)).flat_map(|(_, side)| &mut side.containers) {
        if let TaskSeen::Running { pid, .. } = container.task {
            container.task = TaskSeen::Stopped(Exit { pid, status: ExitStatus::Code(0), at: now });
            any = true;
        }
    }
    any
}

fn runtime_step(all: &mut RuntimeSeen, marks: &Marks, key: &Key, step: &Step, now: Timestamp) {
    match step {
        Step::ImportImage { reference, archive } => image_ready(all, reference, &archive.digest),
        Step::UnpackImage { reference } => {
            let digest = all.images.get(reference).map(|image| image.digest.clone()).unwrap_or_default();
            image_ready(all, reference, &digest);
        }
        Step::DropLease { id } => {
            for (reference, image) in &mut all.images {
                image.lease &= marks.lease(reference) != *id;
            }
            all.strays.retain(|stray| *stray != crate::model::StrayKey::Lease(id.clone()));
        }
        Step::EndShim { pid, .. } => {
            let ended = |stray: &crate::model::StrayKey| matches!(stray, crate::model::StrayKey::Shim { pid: shim, .. } if shim == pid);
            all.strays.retain(|stray| !ended(stray));
        }
        Step::PrepareSnapshot { instance, key, parent } => {
            let side = all.instances.entry(instance.clone()).or_default();
            side.snapshots.push(SnapshotSeen { key: key.clone(), parent: parent.clone() });
        }
        Step::RemoveSnapshot { key } => {
            all.strays.remove(&crate::model::StrayKey::Snapshot(key.clone()));
            for side in all.instances.values_mut() {
                side.snapshots.retain(|snapshot| snapshot.key != *key);
            }
        }
        Step::CreateContainer(create) => {
            let side = all.instances.entry(create.instance.clone()).or_default();
            side.containers.push(made(create, now));
        }
        Step::DeleteContainer { container } => {
            for side in all.instances.values_mut() {
                side.containers.retain(|have| have.id != container.id);
            }
        }
        _ => task_step(all, key, step, now),
    }
    all.instances.retain(|_, side| !side.containers.is_empty() || !side.snapshots.is_empty());
}

fn image_ready(all: &mut RuntimeSeen, reference: &str, digest: &str) {
    let usable = ImageUse::Ready { chain_id: format!("chain of {digest}"), stop_signal: None };
    all.images.insert(reference.to_owned(), ImageSeen { digest: digest.to_owned(), usable, lease: false });
}

fn made(create: &CreateContainer, now: Timestamp) -> ContainerSeen {
    ContainerSeen {
        id: create.id.clone(),
        created_at: now,
        digest: create.digest.clone(),
        attempt: create.attempt,
        record: Some(create.record.clone()),
        snapshot: create.snapshot.clone(),
        run: None,
        exit: None,
        witnessed: None,
        stopping: None,
        wedged: false,
        clamped: Vec::new(),
        task: TaskSeen::None,
        health: None,
    }
}

fn task_step(all: &mut RuntimeSeen, key: &Key, step: &Step, now: Timestamp) {
    let Key::Instance(instance) = key else {
        return;
    };
    let (Step::CreateTask { container }
    | Step::RecordRun { container, .. }
    | Step::StartTask { container, .. }
    | Step::RecordExit { container, .. }
    | Step::StopTask { container, .. }
    | Step::KillTask { container, .. }
    | Step::DeleteTask { container, .. }
    | Step::RevokeStop { container }
    | Step::UpdateRecord { container, .. }) = step
    else {
        return;
    };
    let side = all.instances.get_mut(instance);
    let Some(have) = side.and_then(|side| side.containers.iter_mut().find(|have| have.id == container.id)) else {
        return;
    };
    match step {
        Step::CreateTask { .. } => have.task = TaskSeen::Created { pid: PID },
        Step::RecordRun { run, .. } => {
            have.run = Some(run.clone());
            have.stopping = None;
        }
        Step::StartTask { pid, .. } => {
            have.task = TaskSeen::Running { pid: *pid, start_ticks: 0 };
            let checked = have.record.as_ref().is_some_and(|record| record.spec.health.is_some());
            have.health = checked.then(|| HealthSeen { health: Health::Healthy, since: now, said: String::new() });
        }
        Step::RecordExit { exit, .. } => {
            have.exit = Some(exit.clone());
            have.witnessed = None;
        }
        Step::StopTask { at, pid, unhealthy, .. } => {
            have.stopping = Some(Stopping { at: *at, revoked: false, unhealthy: *unhealthy });
            have.task = TaskSeen::Stopped(Exit { pid: *pid, status: ExitStatus::Code(143), at: now });
        }
        Step::KillTask { pid, .. } => {
            let pid = pid.unwrap_or_default();
            have.task = TaskSeen::Stopped(Exit { pid, status: ExitStatus::Code(137), at: now });
        }
        Step::DeleteTask { .. } => have.task = TaskSeen::None,
        Step::RevokeStop { .. } => have.stopping = have.stopping.map(|stop| Stopping { revoked: true, ..stop }),
        Step::UpdateRecord { record, .. } => have.record = Some((**record).clone()),
        _ => {}
    }
}

fn net_step(all: &mut NetSeen, marks: &Marks, key: &Key, step: &Step) {
    match (step, key) {
        (Step::MakeNetns { .. } | Step::AdoptNetns { .. }, Key::Instance(instance)) => {
            let side = all.instances.entry(instance.clone()).or_default();
            let loopback_up = matches!(step, Step::AdoptNetns { .. });
            let inode = u64::from(PID);
            let interfaces = Default::default();
            let (default_gateway, default_gateway6) = (None, None);
            side.netns = Some(NetnsSeen { inode, loopback_up, interfaces, default_gateway, default_gateway6 });
        }
        (Step::MakeLink { name, interface, mac, mtu, bridge, .. }, Key::Instance(instance)) => {
            let network = all.networks.iter().find(|(_, link)| link.index == bridge.1).map(|(key, _)| key.clone());
            let index = next_index(all);
            let side = all.instances.entry(instance.clone()).or_default();
            let mut link = link(index, name, *mac, false);
            // hairpin is a setting of a port, so it comes in a step of its own
            (link.controller, link.mtu) = (Some(bridge.1), *mtu);
            let (mac, mtu, addresses, addresses6) = (*mac, *mtu, Vec::new(), Vec::new());
            let inside = InterfaceSeen { index: 2, peer_index: index, up: false, mac, mtu, addresses, addresses6 };
            if let (Some(network), Some(netns)) = (network, &mut side.netns) {
                netns.interfaces.insert(interface.clone(), inside);
                side.links.insert(network, link);
            }
        }
        (Step::MakeBridge { name, mac, network }, _) => {
            let index = next_index(all);
            all.networks.insert(network.clone(), link(index, name, *mac, true));
        }
        (Step::DropLink { link }, _) => drop_link(all, &link.name),
        (Step::DropNetns { netns: NetnsIdentity { name, .. } }, _) => {
            all.strays.remove(&crate::model::StrayKey::Netns(name.clone()));
            all.stray_netns.remove(name);
            all.instances.retain(|instance, side| {
                if marks.netns(instance) == *name {
                    side.netns = None;
                }
                side.netns.is_some() || !side.links.is_empty()
            });
        }
        (Step::EnableForwarding { six }, _) => *forwarding(all, *six) = true,
        (Step::RestoreForwarding { six }, _) => *forwarding(all, *six) = false,
        _ => link_step(all, key, step),
    }
}

fn forwarding(all: &mut NetSeen, six: bool) -> &mut bool {
    if six { &mut all.ip6_forward } else { &mut all.ip_forward }
}

fn link(index: u32, name: &str, mac: [u8; 6], bridge: bool) -> LinkSeen {
    LinkSeen {
        index,
        name: name.to_owned(),
        alias: None,
        bridge,
        up: true,
        controller: None,
        hairpin: false,
        mac,
        mtu: MTU,
        addresses: Vec::new(),
        addresses6: Vec::new(),
        route_localnet: false,
    }
}

fn next_index(all: &NetSeen) -> u32 {
    let ports = all.instances.values().flat_map(|side| side.links.values());
    all.networks.values().chain(ports).map(|link| link.index).max().unwrap_or(1) + 1
}

fn drop_link(all: &mut NetSeen, name: &str) {
    all.strays.remove(&crate::model::StrayKey::Link(name.to_owned()));
    all.stray_links.remove(name);
    all.networks.retain(|_, link| link.name != name);
    for side in all.instances.values_mut() {
        let gone: Vec<u32> = side.links.values().filter(|link| link.name == name).map(|link| link.index).collect();
        side.links.retain(|_, link| link.name != name);
        if let Some(netns) = &mut side.netns {
            netns.interfaces.retain(|_, interface| !gone.contains(&interface.peer_index));
        }
    }
    all.instances.retain(|_, side| side.netns.is_some() || !side.links.is_empty());
}

fn link_step(all: &mut NetSeen, key: &Key, step: &Step) {
    let name = match step {
        Step::SetAlias { link, .. }
        | Step::RenameLink { link, .. }
        | Step::ShapeLink { link, .. }
        | Step::AttachPort { link, .. }
        | Step::SetBridgeAddress { link, .. }
        | Step::SetRouteLocalnet { link } => Some(&link.name),
        _ => None,
    };
    let ports = all.instances.values_mut().flat_map(|side| side.links.values_mut());
    if let Some(link) = all.networks.values_mut().chain(ports).find(|link| Some(&link.name) == name) {
        match step {
            Step::SetAlias { alias, .. } => link.alias = Some(alias.clone()),
            Step::RenameLink { name, .. } => link.name.clone_from(name),
            Step::ShapeLink { mtu, mac, .. } => (link.mtu, link.mac) = (*mtu, mac.unwrap_or(link.mac)),
            Step::AttachPort { bridge, .. } => (link.controller, link.up, link.hairpin) = (Some(*bridge), true, true),
            Step::SetBridgeAddress { address, six, .. } => {
                (link.addresses, link.addresses6, link.up) = (vec![*address], six.iter().copied().collect(), true);
            }
            Step::SetRouteLocalnet { .. } => link.route_localnet = true,
            _ => {}
        }
        return;
    }
    let Key::Instance(instance) = key else {
        return;
    };
    let Some(netns) = all.instances.get_mut(instance).and_then(|side| side.netns.as_mut()) else {
        return;
    };
    match step {
        Step::LoopbackUp { .. } => netns.loopback_up = true,
        Step::SetAddress { interface, address, six, .. } => {
            if let Some(inside) = netns.interfaces.get_mut(interface) {
                (inside.addresses, inside.up) = (vec![*address], true);
                inside.addresses6 = six.iter().copied().collect();
            }
        }
        Step::ShapeInterface { interface, mtu, mac, .. } => {
            if let Some(inside) = netns.interfaces.get_mut(interface) {
                (inside.mtu, inside.mac) = (*mtu, *mac);
            }
        }
        Step::SetDefaultRoute { gateway: IpAddr::V4(gateway), .. } => netns.default_gateway = Some(*gateway),
        Step::SetDefaultRoute { gateway: IpAddr::V6(gateway), .. } => netns.default_gateway6 = Some(*gateway),
        _ => {}
    }
}

fn files_step(all: &mut FilesSeen, step: &Step) {
    match step {
        Step::WriteFile { instance, file, content } => {
            let files = all.instances.entry(instance.clone()).or_default();
            let place = match file {
                InstanceFile::Hosts => &mut files.hosts,
                InstanceFile::ResolvConf => &mut files.resolv_conf,
                InstanceFile::Hostname => &mut files.hostname,
            };
            *place = Some(content.clone());
        }
        Step::SetGrants { instance, write, remove } => {
            let files = all.instances.entry(instance.clone()).or_default();
            files.grants.retain(|name| !remove.contains(name));
            files.grants.extend(write.iter().map(|file| file.name.clone()));
        }
        Step::DropFiles { instance } => {
            all.instances.remove(instance);
        }
        Step::MakeVolume { volume } => {
            all.volumes.insert(volume.clone());
        }
        _ => {}
    }
}
