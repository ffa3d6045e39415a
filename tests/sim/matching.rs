//! What it means that the node is as desired, read off the world itself and written apart from the planner.

use super::audit::{attachments_fit, subnet_fits};
use super::possible::Impossible;
use super::world::{Container, Owner, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use stead::model::{Attachment, Desired, InstanceKey, NetworkKey, Published, Restart, Service, Target, VolumeKey};

/// Everything that is not as desired, one sentence each.
pub fn differences(world: &World, desired: &Desired) -> Vec<String> {
    let mut found = Vec::new();
    let impossible = Impossible::of(world, desired);
    for (key, service) in desired.instances() {
        if !impossible.instances.contains(&key) {
            let wrong = instance(world, desired, &impossible, &key, service);
            found.extend(wrong.into_iter().map(|what| format!("{key}: {what}")));
        } else if world.containers_of(&key).count() > 1 {
            found.push(format!("{key}: more than one container"));
        }
    }
    for (key, _) in desired.networks().filter(|(key, _)| !impossible.networks.contains(key)) {
        if let Err(what) = network(world, desired, &key) {
            found.push(format!("network {key}: {what}"));
        }
    }
    for key in desired.volumes() {
        if !world.files.volumes.contains(&key) {
            found.push(format!("volume {key} has no directory"));
        }
    }
    found.extend(ports(world, desired, &impossible));
    found.extend(residue(world, desired, &impossible));
    found
}

fn instance(
    world: &World,
    desired: &Desired,
    impossible: &Impossible,
    key: &InstanceKey,
    service: &Service,
) -> Vec<String> {
    let containers: Vec<_> = world.containers_of(key).collect();
    let [(id, container)] = containers.as_slice() else {
        return vec![format!("{} containers", containers.len())];
    };
    let mut wrong = Vec::new();
    let Some(record) = &container.record else {
        return vec!["its record cannot be read".to_owned()];
    };
    if record.spec != service.spec {
        wrong.push(format!("{id} was made from another spec"));
    }
    if let Some(archive) = service.spec.image.archive.as_ref().filter(|archive| archive.digest != record.image_digest) {
        wrong.push(format!("made from {}, the archive holds {}", record.image_digest, archive.digest));
    }
    if !attachments_fit(desired, key, service, &record.attachments) {
        wrong.push(format!("attachments do not fit: {:?}", record.attachments));
    }
    let snapshots: Vec<_> =
        world.runtime.snapshots.iter().filter(|(_, found)| found.owner == Owner::Instance(key.clone())).collect();
    if snapshots.len() != 1 || *snapshots[0].0 != container.snapshot {
        wrong.push(format!("its snapshots are {:?}", snapshots.iter().map(|(key, _)| key).collect::<Vec<_>>()));
    }
    wrong.extend(task(world, container, service));
    wrong.extend(wiring(world, key, container, &record.attachments));
    wrong.extend(names(world, desired, impossible, key, &record.attachments));
    wrong
}

fn task(world: &World, container: &Container, service: &Service) -> Option<String> {
    let key = container.instance.as_ref()?;
    let behaviour = world.behaviour(key);
    match &container.task {
        Some(task) if task.runs() => {
            let wrong_limits = task.limits != service.spec.limits;
            wrong_limits.then(|| format!("its limits are {:?}", task.limits))
        }
        _ if behaviour.ends.is_some() => None,
        Some(task) => Some(format!("its task does not run: {task:?}")),
        None => {
            let ended =
                container.run.as_ref().zip(container.exit.as_ref()).is_some_and(|(run, exit)| run.pid == exit.pid);
            let stays = match service.spec.restart {
                Some(Restart::Always | Restart::UnlessStopped) => false,
                Some(Restart::OnFailure { max }) => {
                    let success = container.exit.as_ref().is_some_and(|exit| exit.status.is_success());
                    success || max.is_some_and(|max| container.run.as_ref().is_some_and(|run| run.failures >= max))
                }
                Some(Restart::No) | None => true,
            };
            (!(ended && stays)).then(|| "no task".to_owned())
        }
    }
}

fn wiring(world: &World, key: &InstanceKey, container: &Container, attachments: &[Attachment]) -> Vec<String> {
    let Some(inode) = world.net.files.get(&world.registry.netns_name(key)).copied().filter(|inode| *inode != 0) else {
        return vec!["no netns".to_owned()];
    };
    let mut wrong = Vec::new();
    if container.task.as_ref().is_some_and(|task| task.runs() && task.space != inode) {
        wrong.push(format!("its task is in another netns than {inode}"));
    }
    let space = &world.net.spaces[&inode];
    if !space.loopback_up {
        wrong.push("lo is down".to_owned());
    }
    wrong.extend(attachments.iter().filter_map(|at| world.attachment_stands(key, inode, at).err()));
    let gateway = attachments.iter().find_map(|at| at.gateway);
    if gateway.is_some() && space.default_gateway != gateway {
        wrong.push(format!("the default route is {:?}, not {gateway:?}", space.default_gateway));
    }
    for link in world.net.links.values().filter(|link| link.ours && !link.seen.bridge) {
        let Some((owner, network)) = world.registry.link_owner(&link.seen.name) else {
            continue;
        };
        if owner == key && !attachments.iter().any(|at| at.network == *network) {
            wrong.push(format!("a link into {network}, where it is not"));
        }
        if owner == key && link.seen.alias != Some(world.registry.marks.link_alias(key, network)) {
            wrong.push(format!("the alias of {} is {:?}", link.seen.name, link.seen.alias));
        }
    }
    wrong
}

/// Every peer in its networks by its service's name, with the address that the peer is attached with.
fn names(
    world: &World,
    desired: &Desired,
    impossible: &Impossible,
    key: &InstanceKey,
    attachments: &[Attachment],
) -> Vec<String> {
    let Some(files) = world.files.instances.get(key) else {
        return vec!["no files".to_owned()];
    };
    let (Some(hosts), Some(_), Some(_)) = (&files.hosts, &files.resolv_conf, &files.hostname) else {
        return vec!["a file is missing".to_owned()];
    };
    let mut wrong = Vec::new();
    for (peer, _) in desired.instances().filter(|(peer, _)| !impossible.instances.contains(peer)) {
        for at in attachments {
            let Some(address) = address_of(world, &peer, &at.network) else {
                continue;
            };
            let start = format!("{address}\t");
            let line = hosts.lines().find(|line| line.starts_with(&start) && line.contains(peer.service.as_str()));
            if line.is_none() {
                wrong.push(format!("hosts does not say {address} {}", peer.service));
            }
        }
    }
    wrong
}

fn address_of(world: &World, key: &InstanceKey, network: &NetworkKey) -> Option<Ipv4Addr> {
    let (_, container) = world.containers_of(key).next()?;
    let record = container.record.as_ref()?;
    record.attachments.iter().find(|at| at.network == *network).map(|at| at.address)
}

fn network(world: &World, desired: &Desired, key: &NetworkKey) -> Result<(), String> {
    let name = world.registry.bridge_name(key);
    let bridge = world.link_named(&name).ok_or("no bridge")?;
    let spec = desired.network(key).ok_or("not wanted")?;
    let [address] = bridge.seen.addresses.as_slice() else {
        return Err(format!("its addresses are {:?}", bridge.seen.addresses));
    };
    let subnet = address.trunc();
    let gateway = spec.gateway.or(subnet.hosts().next());
    if !subnet_fits(spec.subnet, subnet) || Some(address.addr()) != gateway {
        return Err(format!("its address is {address}"));
    }
    let over = |(route, _): &&(ipnet::Ipv4Net, String)| route.contains(&subnet) || subnet.contains(route);
    if let Some((route, _)) = world.net.host_routes.iter().find(over) {
        return Err(format!("{subnet} overlaps {route}"));
    }
    let others = world.net.links.values().filter(|other| other.seen.bridge && other.seen.name != name);
    let mut others = others.flat_map(|other| &other.seen.addresses);
    if let Some(other) = others.find(|other| other.trunc() == subnet) {
        return Err(format!("another bridge has {other}"));
    }
    if !bridge.seen.up || !bridge.seen.route_localnet {
        return Err("it is not up with route_localnet".to_owned());
    }
    let alias = world.registry.marks.bridge_alias(key);
    if bridge.seen.alias.as_ref() != Some(&alias) { Err("no alias".to_owned()) } else { Ok(()) }
}

/// The address that an instance's published ports lead to: where its default route goes, or else its first network.
fn serving(desired: &Desired, key: &InstanceKey, attachments: &[Attachment]) -> Option<Ipv4Addr> {
    let internal = |at: &&Attachment| desired.network(&at.network).is_some_and(|spec| spec.internal);
    let outward = attachments.iter().find(|at| !internal(at)).or(attachments.first());
    let _ = key;
    outward.map(|at| at.address)
}

fn ports(world: &World, desired: &Desired, impossible: &Impossible) -> Vec<String> {
    let mut wanted: BTreeMap<Published, BTreeSet<Target>> = BTreeMap::new();
    let mut chosen: BTreeSet<Target> = BTreeSet::new();
    let mut may: BTreeSet<Ipv4Addr> = BTreeSet::new();
    for (key, service) in desired.instances() {
        let Some((_, container)) = world.containers_of(&key).next() else {
            continue;
        };
        let attachments = container.record.as_ref().map(|record| record.attachments.as_slice()).unwrap_or_default();
        let Some(address) = serving(desired, &key, attachments) else {
            continue;
        };
        if impossible.instances.contains(&key) {
            may.insert(address);
            continue;
        }
        for port in &service.spec.ports {
            let target = Target { address: address.into(), port: port.container };
            match port.host {
                Some(number) => {
                    let at = Published { protocol: port.protocol, host_ip: port.host_ip, port: number };
                    wanted.entry(at).or_default().insert(target);
                }
                None => {
                    chosen.insert(target);
                }
            }
        }
    }
    let mut wrong = Vec::new();
    let Some(table) = &world.net.table else {
        if !wanted.is_empty() || !chosen.is_empty() {
            wrong.push("no nft table".to_owned());
        }
        return wrong;
    };
    if !table.intact {
        wrong.push("the nft table is not intact".to_owned());
    }
    if table.ruleset.bridges.values().any(|rules| !rules.internal) && !world.net.ip_forward {
        wrong.push("ip_forward is off".to_owned());
    }
    for (published, targets) in &table.ruleset.publications {
        let extra = |target: &&Target| {
            let asked = wanted.get(published).is_some_and(|all| all.contains(target));
            !asked
                && !chosen.contains(target)
                && !matches!(target.address, IpAddr::V4(address) if may.contains(&address))
        };
        if let Some(target) = targets.iter().find(extra) {
            wrong.push(format!("{published:?} leads to {target:?}"));
        }
    }
    let published: BTreeSet<&Target> = table.ruleset.publications.values().flatten().collect();
    wrong.extend(chosen.iter().filter(|target| !published.contains(target)).map(|t| format!("{t:?} is not published")));
    for (published, targets) in &wanted {
        let have = table.ruleset.publications.get(published);
        if !have.is_some_and(|have| targets.is_subset(have)) {
            wrong.push(format!("{published:?} leads to {have:?}, not {targets:?}"));
        }
    }
    wrong
}

/// What is there of ours and belongs to nothing wanted.
fn residue(world: &World, desired: &Desired, impossible: &Impossible) -> Vec<String> {
    let kept = |key: &InstanceKey| desired.service(key).is_some() || !desired.may_remove(&key.app);
    let mut left = Vec::new();
    for (id, container) in &world.runtime.containers {
        if container.instance.as_ref().is_some_and(|key| !kept(key)) {
            left.push(format!("container {id}"));
        }
    }
    for (key, snapshot) in &world.runtime.snapshots {
        match &snapshot.owner {
            Owner::Instance(instance) if !kept(instance) => left.push(format!("snapshot {key}")),
            Owner::Unreadable if everything_known(desired) => left.push(format!("snapshot {key}")),
            _ => {}
        }
    }
    if everything_known(desired) {
        let ours = world.runtime.leases.iter().filter(|id| id.starts_with(&world.registry.marks.lease_prefix()));
        left.extend(ours.map(|id| format!("lease {id}")));
    }
    for name in world.net.files.keys() {
        match world.registry.netns_owner(name) {
            Some(owner) if kept(owner) => {}
            None if !name.starts_with(&world.registry.marks.netns_prefix()) || !everything_known(desired) => {}
            _ => left.push(format!("netns {name}")),
        }
    }
    let held = held_networks(world, impossible);
    for link in world.net.links.values().filter(|link| link.ours) {
        let name = &link.seen.name;
        let keep = match (world.registry.link_owner(name), world.registry.bridge_owner(name)) {
            (Some((owner, _)), _) => kept(owner),
            (None, Some(network)) => {
                desired.network(network).is_some() || !desired.may_remove(&network.app) || held.contains(network)
            }
            (None, None) => !everything_known(desired),
        };
        if !keep {
            left.push(format!("link {name}"));
        }
    }
    left.extend(world.files.instances.keys().filter(|key| !kept(key)).map(|key| format!("files of {key}")));
    left.into_iter().map(|what| format!("left over: {what}")).collect()
}

/// Networks that an older generation is in, which serves on while the wanted one cannot be made.
fn held_networks(world: &World, impossible: &Impossible) -> BTreeSet<NetworkKey> {
    let old = world
        .runtime
        .containers
        .values()
        .filter(|found| found.instance.as_ref().is_some_and(|key| impossible.instances.contains(key)));
    old.filter_map(|found| found.record.as_ref())
        .flat_map(|record| &record.attachments)
        .map(|at| at.network.clone())
        .collect()
}

fn everything_known(desired: &Desired) -> bool {
    desired.whole && desired.apps.values().all(|app| app.known)
}

/// The volumes that must never go: a check for every run.
pub fn lost_volumes(world: &World, before: &BTreeSet<VolumeKey>) -> Vec<VolumeKey> {
    before.difference(&world.files.volumes).cloned().collect()
}
