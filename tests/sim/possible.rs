//! What cannot be had on this node, whoever tries: no image, no room for a subnet, a name that somebody else has, or a network
//! whose old subnet is still lived in by one that cannot be made anew.

use super::audit::subnet_fits;
use super::want::archive_path;
use super::world::{Image, World};
use ipnet::Ipv4Net;
use std::collections::BTreeSet;
use stead::model::{Desired, ImageUse, InstanceKey, NetworkKey, Service};

/// What cannot be had.
#[derive(Debug, Default)]
pub struct Impossible {
    pub instances: BTreeSet<InstanceKey>,
    pub networks: BTreeSet<NetworkKey>,
}

impl Impossible {
    /// On this node, for what is wanted.
    pub fn of(world: &World, desired: &Desired) -> Self {
        let mut found = Self::default();
        for (key, _) in desired.networks() {
            if !network_possible(world, desired, &key) {
                found.networks.insert(key);
            }
        }
        for (key, service) in desired.instances() {
            if !image_possible(world, service) || !names_free(world, &key, service) {
                found.instances.insert(key);
            }
        }
        // what is stuck holds its network, and what wants that network is stuck with it
        loop {
            let before = (found.instances.len(), found.networks.len());
            let held = desired.networks().filter(|(key, spec)| found.holds(world, key, spec.subnet));
            let held: Vec<NetworkKey> = held.map(|(key, _)| key).collect();
            found.networks.extend(held);
            let waiting = desired.instances().filter(|(key, service)| found.waits(key, service));
            let waiting: Vec<InstanceKey> = waiting.map(|(key, _)| key).collect();
            found.instances.extend(waiting);
            if before == (found.instances.len(), found.networks.len()) {
                return found;
            }
        }
    }

    fn waits(&self, key: &InstanceKey, service: &Service) -> bool {
        service
            .spec
            .networks
            .iter()
            .any(|at| self.networks.contains(&NetworkKey { app: key.app.clone(), network: at.network.clone() }))
    }

    fn holds(&self, world: &World, network: &NetworkKey, wanted: Option<Ipv4Net>) -> bool {
        self.instances.iter().flat_map(|key| world.containers_of(key)).any(|(_, found)| {
            let lives = found.task.as_ref().is_some_and(|task| task.exit.is_none());
            let attachments = found.record.iter().flat_map(|record| &record.attachments);
            lives && attachments.into_iter().any(|at| at.network == *network && !subnet_fits(wanted, at.subnet))
        })
    }
}

fn image_possible(world: &World, service: &Service) -> bool {
    let want = &service.spec.image;
    let image = world.runtime.images.get(&want.reference);
    let usable = |image: &Image| matches!(image.usable, ImageUse::Ready { .. } | ImageUse::Packed);
    let there = image.is_some_and(usable);
    match &want.archive {
        Some(archive) => {
            let on_disk = world.archives.get(&archive_path()) == Some(&archive.digest);
            on_disk || (there && image.is_some_and(|image| image.digest == archive.digest))
        }
        None => there,
    }
}

fn names_free(world: &World, key: &InstanceKey, service: &Service) -> bool {
    service.spec.networks.iter().all(|at| {
        let network = NetworkKey { app: key.app.clone(), network: at.network.clone() };
        world.link_named(&world.registry.link_name(key, &network)).is_none_or(|link| link.ours)
    })
}

fn network_possible(world: &World, desired: &Desired, key: &NetworkKey) -> bool {
    let name_free = world.link_named(&world.registry.bridge_name(key)).is_none_or(|link| link.ours);
    let subnet = desired.network(key).and_then(|spec| spec.subnet);
    let overlaps = |subnet: Ipv4Net| {
        let over = |(route, _): &(Ipv4Net, String)| route.contains(&subnet) || subnet.contains(route);
        world.net.host_routes.iter().any(over)
    };
    name_free && !subnet.is_some_and(overlaps)
}
