//! Damage to links, addresses, routes, netns, sysctls and the port table.

use super::super::rng::Choices;
use super::super::world::{Link, Space, World};
use super::one_of;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use stead::model::{Domain, InstanceKey, InterfaceSeen, LinkSeen, Ruleset, TableSeen};

impl World {
    /// Adds a link by somebody else, or of our group.
    pub fn add_link(&mut self, name: &str, ours: bool, bridge: bool) {
        if self.link_named(name).is_some() {
            return;
        }
        let index = self.net.links.keys().next_back().copied().unwrap_or(2) + 100;
        let seen = LinkSeen {
            index,
            name: name.to_owned(),
            alias: None,
            bridge,
            up: true,
            controller: None,
            hairpin: false,
            mac: [2, 0, 0, 0, 0, 9],
            mtu: 1500,
            addresses: Vec::new(),
            addresses6: Vec::new(),
            route_localnet: false,
        };
        self.net.links.insert(index, Link { seen, ours, peer: None });
        self.ring_link(index, "link event");
    }

    /// Adds a netns file with a namespace.
    pub fn add_netns(&mut self, name: &str) {
        if self.net.files.contains_key(name) {
            return;
        }
        let inode = self.net.spaces.keys().next_back().copied().unwrap_or(4_026_531_000) + 1000;
        self.net.spaces.insert(inode, Space::default());
        self.net.files.insert(name.to_owned(), inode);
        self.ring_domain(Domain::Net, "netns event");
    }
}

/// Our links of one kind.
fn links(world: &World, bridge: bool) -> BTreeMap<u32, String> {
    let ours = world.net.links.iter().filter(|(_, link)| link.ours && link.seen.bridge == bridge);
    ours.map(|(index, link)| (*index, link.seen.name.clone())).collect()
}

pub(super) fn strike(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    match choices.below(10) {
        0..3 => strike_veth(world, choices),
        3..5 => strike_bridge(world, choices),
        5..8 => strike_inside(world, choices),
        8 => strike_netns(world, choices),
        _ => {
            world.net.ip_forward = false;
            world.ring_domain(Domain::Net, "sysctl");
            Some("ip_forward off".to_owned())
        }
    }
}

fn strike_veth(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let links = links(world, false);
    let index = one_of(choices, &links)?;
    if let Some((owner, _)) = world.registry.link_owner(&links[&index]).cloned() {
        world.audit.shake(&owner);
    }
    let link = world.net.links.get_mut(&index)?;
    let what = match choices.below(6) {
        0 => {
            link.seen.controller = None;
            link.seen.hairpin = false;
            "taken from its bridge"
        }
        1 => {
            link.seen.up = false;
            "set down"
        }
        2 => {
            link.seen.hairpin = false;
            "hairpin off"
        }
        3 => {
            link.seen.alias = choices.chance(500).then(|| "stead:other/thing/1/default".to_owned());
            "alias changed"
        }
        _ => {
            world.remove_link(index);
            return Some(format!("link {} deleted", links[&index]));
        }
    };
    world.ring_link(index, "link event");
    Some(format!("link {}: {what}", links[&index]))
}

fn strike_bridge(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let links = links(world, true);
    let index = one_of(choices, &links)?;
    shake_all(world);
    let link = world.net.links.get_mut(&index)?;
    let what = match choices.below(7) {
        0 => {
            link.seen.addresses.clear();
            "address removed"
        }
        1 => {
            link.seen.addresses.push("10.99.0.1/24".parse().ok()?);
            "address added"
        }
        2 => {
            link.seen.up = false;
            "set down"
        }
        3 => {
            link.seen.route_localnet = false;
            "route_localnet off"
        }
        4 => {
            link.seen.alias = None;
            "alias removed"
        }
        _ => {
            world.remove_link(index);
            return Some(format!("bridge {} deleted", links[&index]));
        }
    };
    world.ring_link(index, "link event");
    Some(format!("bridge {}: {what}", links[&index]))
}

/// Whoever looks for whole networks from now on has to know that somebody was there.
fn shake_all(world: &mut World) {
    let keys: Vec<InstanceKey> = world.runtime.containers.values().filter_map(|found| found.instance.clone()).collect();
    keys.iter().for_each(|key| world.audit.shake(key));
}

/// The owner of a namespace by its file.
fn owned(world: &World) -> BTreeMap<u64, (String, InstanceKey)> {
    let named = world.net.files.iter().filter(|(_, inode)| **inode != 0);
    named
        .filter_map(|(name, inode)| Some((*inode, (name.clone(), world.registry.netns_owner(name)?.clone()))))
        .collect()
}

fn strike_inside(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let owned = owned(world);
    let inode = one_of(choices, &owned)?;
    let (name, owner) = owned[&inode].clone();
    world.audit.shake(&owner);
    let interface = one_of(choices, &world.net.spaces.get(&inode)?.interfaces);
    let space = world.net.spaces.get_mut(&inode)?;
    let what = match (choices.below(7), interface) {
        (0, _) => {
            space.loopback_up = false;
            "lo down".to_owned()
        }
        (1, _) => {
            space.default_gateway = None;
            "default route removed".to_owned()
        }
        (2, _) => {
            space.default_gateway = Some(Ipv4Addr::new(10, 99, 0, 1));
            "default route changed".to_owned()
        }
        (3, Some(interface)) => {
            space.interfaces.get_mut(&interface)?.up = false;
            space.default_gateway = None;
            format!("{interface} down")
        }
        (4, Some(interface)) => {
            space.interfaces.get_mut(&interface)?.addresses.push("10.99.0.7/24".parse().ok()?);
            format!("an address added to {interface}")
        }
        (5, Some(interface)) => {
            space.interfaces.get_mut(&interface)?.addresses = vec!["10.99.0.8/24".parse().ok()?];
            space.default_gateway = None;
            format!("another address on {interface}")
        }
        _ => {
            let index = 900 + choices.below(9) as u32;
            let extra = InterfaceSeen {
                index,
                peer_index: 0,
                up: true,
                mac: [2; 6],
                mtu: 1500,
                addresses: vec![],
                addresses6: vec![],
            };
            space.interfaces.insert("tun0".to_owned(), extra);
            "an interface of its own".to_owned()
        }
    };
    world.ring_netns(&name, "link event inside");
    Some(format!("{owner}: {what}"))
}

fn strike_netns(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let owned = owned(world);
    let inode = one_of(choices, &owned)?;
    let (name, owner) = owned[&inode].clone();
    world.audit.shake(&owner);
    let what = if choices.chance(500) {
        world.net.files.insert(name.clone(), 0);
        "unmounted"
    } else {
        world.net.files.remove(&name);
        "removed"
    };
    world.collect_spaces();
    world.ring_netns(&name, "netns event");
    Some(format!("{owner}: netns file {what}"))
}

pub(super) fn strike_ports(world: &mut World, choices: &mut impl Choices) -> Option<String> {
    let table = world.net.table.as_mut()?;
    let what = match choices.below(5) {
        0 => {
            table.intact = false;
            "a rule changed"
        }
        1 => {
            table.ruleset.publications.pop_first();
            "an element removed"
        }
        2 => {
            table.ruleset.bridges.pop_first();
            "a bridge's rules removed"
        }
        3 => {
            *table = TableSeen { ruleset: Ruleset::default(), intact: true };
            "emptied"
        }
        _ => {
            world.net.table = None;
            "flushed"
        }
    };
    world.ring_ports("nft event");
    Some(format!("nft table: {what}"))
}
