//! Damage: what other people, other programs and bad luck do to a node, one thing at a time. Nothing here asks whether it
//! is allowed: the loop has to live with all of it.

mod network;
pub mod picture;
mod runtime;

use super::rng::Choices;
use super::world::World;
use ipnet::Ipv4Net;
use stead::model::{Domain, InstanceKey};

/// Kinds of damage, as far as a run can switch them on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Links, addresses, routes, netns, sysctls.
    Network,
    /// The nft table.
    Ports,
    /// Tasks, containers, snapshots, images, leases.
    Runtime,
    /// Instance files.
    Files,
    /// Things of ours without an owner.
    Stray,
    /// Things that are not ours, some with names like ours.
    Foreign,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Network, Self::Ports, Self::Runtime, Self::Files, Self::Stray, Self::Foreign];
}

/// Does one damage of a kind, and says what it was; nothing when there is nothing to damage.
pub fn strike(world: &mut World, choices: &mut impl Choices, kind: Kind) -> Option<String> {
    match kind {
        Kind::Network => network::strike(world, choices),
        Kind::Ports => network::strike_ports(world, choices),
        Kind::Runtime => runtime::strike(world, choices),
        Kind::Files => strike_files(world, choices),
        Kind::Stray => stray(world, choices),
        Kind::Foreign => foreign(world, choices),
    }
}

/// One of a map's keys.
fn one_of<K: Clone, V>(choices: &mut impl Choices, map: &std::collections::BTreeMap<K, V>) -> Option<K> {
    let at = choices.below(map.len() as u64) as usize;
    map.keys().nth(at).cloned()
}

fn strike_files(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let key: InstanceKey = one_of(choices, &world.files.instances)?;
    let files = world.files.instances.get_mut(&key)?;
    let what = match choices.below(4) {
        0 => {
            files.hosts = Some("127.0.0.1\tsomebody\n".to_owned());
            "hosts changed"
        }
        1 => {
            files.hosts = None;
            "hosts removed"
        }
        2 => {
            files.resolv_conf = None;
            "resolv.conf removed"
        }
        _ => {
            world.files.instances.remove(&key);
            "files removed"
        }
    };
    world.audit.shake(&key);
    world.ring_domain(Domain::Files, "file event");
    Some(format!("{key}: {what}"))
}

/// Something with our marks that leads nowhere.
fn stray(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let number = choices.below(4);
    let what = match choices.below(4) {
        0 => {
            world.add_link(&format!("st00000000000{number}"), true, false);
            "a link of our group"
        }
        1 => {
            world.add_netns(&format!("stead-000000000000000{number}"));
            "a netns of our prefix"
        }
        2 => {
            world.runtime.leases.insert(format!("stead-000000000000000{number}"));
            world.ring_domain(Domain::Runtime, "lease event");
            "a lease of our prefix"
        }
        _ => {
            let snapshot =
                super::world::Snapshot { owner: super::world::Owner::Unreadable, parent: "chain-x".to_owned() };
            world.runtime.snapshots.insert(format!("unreadable-{number}"), snapshot);
            world.ring_domain(Domain::Runtime, "snapshot event");
            "a snapshot with our labels"
        }
    };
    Some(format!("stray: {what}"))
}

/// Something that is not ours.
fn foreign(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let number = choices.below(4);
    match choices.below(5) {
        0 => {
            world.add_link(&format!("stdeadbeef000{number}"), false, choices.chance(500));
            Some("foreign: a link with a name like ours".to_owned())
        }
        1 => {
            world.add_netns(&format!("steadfast-{number}"));
            Some("foreign: a netns with a name like ours".to_owned())
        }
        2 => {
            world.runtime.leases.insert(format!("somebody-{number}"));
            Some("foreign: a lease".to_owned())
        }
        3 => {
            let snapshot = super::world::Snapshot { owner: super::world::Owner::Foreign, parent: "chain-x".to_owned() };
            world.runtime.snapshots.insert(format!("shop-web-1-{number}"), snapshot);
            Some("foreign: a snapshot with a name like ours".to_owned())
        }
        _ => {
            let route: Ipv4Net = format!("10.{}.0.0/16", 208 + number * 3).parse().ok()?;
            // the kernel takes no route over a subnet that a bridge has for the same prefix: only free ones are taken
            let used = world.net.links.values().flat_map(|link| &link.seen.addresses).any(|at| route.contains(at));
            if used || world.net.host_routes.iter().any(|(at, _)| *at == route) {
                return None;
            }
            world.net.host_routes.push((route, "vpn0".to_owned()));
            world.ring_domain(Domain::Net, "route event");
            Some(format!("foreign: a route to {route}"))
        }
    }
}
