//! Looks: one dump of links, addresses and routes of the host, then the inside of each netns, on one thread. A look at
//! one object asks for its own links only.

use super::links::{Wanted, find};
use super::netns::{Folder, enter};
use super::owners::{Owner, Owners};
use super::read::{self, Address, Link, Route};
use super::sysctl;
use super::wakes::Index;
use super::wire::Wire;
use crate::drive::fault::Fault;
use crate::model::{
    InstanceKey, InterfaceSeen, Key, LinkSeen, Marks, NetSeen, NetSide, NetnsSeen, NetworkKey, StrayKey, StraySeen,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The addresses of all links.
pub(super) const ALL: u32 = 0;

/// The host's links, told apart.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) instances: BTreeMap<InstanceKey, BTreeMap<NetworkKey, LinkSeen>>,
    pub(super) networks: BTreeMap<NetworkKey, LinkSeen>,
    pub(super) stray_links: BTreeMap<String, LinkSeen>,
    foreign: BTreeSet<String>,
    foreign_bridges: bool,
    /// Whose each of our links is: for the wake-ups.
    pub(super) index: Index,
    names: BTreeMap<u32, String>,
    ours: BTreeSet<u32>,
}

/// What a single link is asked for by: the name that it was made with, or the number that it had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Handle {
    Name(String),
    Number(u32),
}

/// What a look needs to know.
#[derive(Debug, Clone)]
pub(super) struct Lens {
    pub(super) marks: Marks,
    pub(super) owners: std::sync::Arc<Owners>,
    pub(super) folder: Folder,
    /// The links that were the object's own a moment ago, should they have lost their names since.
    pub(super) before: Vec<u32>,
}

impl Lens {
    /// Looks at all of the host's links and tells them apart.
    pub(super) fn host(&self, wire: &mut Wire) -> Result<Host, Fault> {
        let addresses = addresses(wire, ALL)?;
        let mut host = Host::default();
        for link in links(wire)? {
            host.names.insert(link.index, link.name.clone());
            if link.group != self.marks.link_group() {
                host.foreign_bridges |= link.kind == "bridge";
                host.foreign.insert(link.name);
                continue;
            }
            host.take(self, link, &addresses);
        }
        Ok(host)
    }

    /// Looks at an object's own links, and at no other: each step is followed by a look, and a node has many links.
    fn own(&self, wire: &mut Wire, key: &Key, host: &mut Host) -> Result<(), Fault> {
        let names = self.owners.links_of(key).map(|name| Handle::Name(name.to_owned()));
        let handles: Vec<Handle> = names.chain(self.before.iter().copied().map(Handle::Number)).collect();
        handles.into_iter().try_for_each(|handle| self.one(wire, &handle, host))
    }

    /// Looks at one link.
    fn one(&self, wire: &mut Wire, handle: &Handle, host: &mut Host) -> Result<(), Fault> {
        let wanted = match handle {
            Handle::Name(name) => Wanted::Name(name),
            Handle::Number(number) => Wanted::Index(*number),
        };
        let ours = find(wire, wanted)?.filter(|link| link.group == self.marks.link_group());
        if let Some(link) = ours.filter(|link| !host.ours.contains(&link.index)) {
            let addresses = addresses(wire, link.index)?;
            host.take(self, link, &addresses);
        }
        Ok(())
    }

    /// Looks at everything. The calling thread ends up in some netns.
    pub(super) fn whole(&self) -> Result<(NetSeen, Host), Fault> {
        let mut wire = Wire::route()?;
        let mut host = self.host(&mut wire)?;
        let mut net = NetSeen {
            host_routes: host.routes(routes(&mut wire)?),
            ip_forward: sysctl::ip_forward()?,
            ip6_forward: sysctl::ip6_forward()?,
            foreign_bridges: host.foreign_bridges,
            networks: std::mem::take(&mut host.networks),
            stray_links: std::mem::take(&mut host.stray_links),
            foreign_links: std::mem::take(&mut host.foreign),
            ..NetSeen::default()
        };
        drop(wire);
        for (key, links) in &host.instances {
            net.instances.insert(key.clone(), NetSide { netns: None, links: links.clone() });
        }
        // An alias tells of an instance that nothing else knows; its netns is then no stray.
        let by_alias: BTreeMap<String, InstanceKey> =
            host.instances.keys().map(|key| (self.marks.netns(key), key.clone())).collect();
        for name in self.folder.ours(&self.marks)? {
            let Some((inode, netns)) = self.netns(&name)? else { continue };
            match self.owners.netns(&name).or_else(|| by_alias.get(&name)) {
                Some(key) => net.instances.entry(key.clone()).or_default().netns = Some(netns),
                None => drop(net.stray_netns.insert(name, inode)),
            }
        }
        let links = net.stray_links.keys().cloned().map(StrayKey::Link);
        net.strays = links.chain(net.stray_netns.keys().cloned().map(StrayKey::Netns)).collect();
        Ok((net, host))
    }

    /// Looks at one instance. The calling thread may end up in its netns.
    pub(super) fn instance(&self, key: &InstanceKey) -> Result<(Option<NetSide>, Host), Fault> {
        let (mut wire, mut host) = (Wire::route()?, Host::default());
        self.own(&mut wire, &Key::Instance(key.clone()), &mut host)?;
        let netns = self.netns(&self.marks.netns(key))?.map(|(_, netns)| netns);
        // a link of another name is still led to by its other end (the socket stays the host's, wherever the thread is)
        for interface in netns.iter().flat_map(|netns| netns.interfaces.values()).filter(|one| one.peer_index != 0) {
            self.one(&mut wire, &Handle::Number(interface.peer_index), &mut host)?;
        }
        let links = host.instances.remove(key).unwrap_or_default();
        let nothing = netns.is_none() && links.is_empty();
        Ok(((!nothing).then_some(NetSide { netns, links }), host))
    }

    /// Looks at one network's bridge.
    pub(super) fn network(&self, key: &NetworkKey) -> Result<(Option<LinkSeen>, Host), Fault> {
        let mut host = Host::default();
        self.own(&mut Wire::route()?, &Key::Network(key.clone()), &mut host)?;
        Ok((host.networks.remove(key), host))
    }

    /// Looks at a stray.
    pub(super) fn stray(&self, key: &StrayKey) -> Result<StraySeen, Fault> {
        Ok(match key {
            StrayKey::Link(name) => {
                let (mut wire, mut host) = (Wire::route()?, Host::default());
                self.one(&mut wire, &Handle::Name(name.clone()), &mut host)?;
                // whoever has an owner is a stray only beside a link that has the owner's name
                for owner in host.index.owners() {
                    self.own(&mut wire, &owner.key(), &mut host)?;
                }
                host.stray_links.remove(name).map_or(StraySeen::Gone, StraySeen::Link)
            }
            StrayKey::Netns(name) => {
                let host = self.host(&mut Wire::route()?)?;
                let owned = self.owners.netns(name).is_some()
                    || host.instances.keys().any(|instance| self.marks.netns(instance) == *name);
                match self.folder.open(name)? {
                    Some((inode, _)) if !owned => StraySeen::Netns(inode),
                    _ => StraySeen::Gone,
                }
            }
            StrayKey::Snapshot(_) | StrayKey::Lease(_) | StrayKey::Shim { .. } => StraySeen::Gone,
        })
    }

    /// Looks into a netns; `None` when there is no file of that name.
    fn netns(&self, name: &str) -> Result<Option<(u64, NetnsSeen)>, Fault> {
        let Some((inode, fd)) = self.folder.open(name)? else { return Ok(None) };
        let Some(fd) = fd.filter(|_| inode != 0) else { return Ok(Some((0, empty(0)))) };
        enter(&fd)?;
        Ok(Some((inode, inside(inode)?)))
    }
}

impl Host {
    /// Takes in a link of ours.
    fn take(&mut self, lens: &Lens, link: Link, addresses: &[Address]) {
        let owner = Owner::of(&lens.marks, &lens.owners, &link);
        self.ours.insert(link.index);
        self.index.add(link.index, owner.clone(), link.peer_nsid);
        self.place(&lens.marks, owner, seen(link, addresses));
    }

    /// Puts a link of ours to its owner. Of two that claim one place, the one with the right name has it.
    fn place(&mut self, marks: &Marks, owner: Option<Owner>, link: LinkSeen) {
        let Some(owner) = owner else {
            self.stray_links.insert(link.name.clone(), link);
            return;
        };
        let right_name = owner.link_name(marks);
        let loser = match owner {
            Owner::Network(network) => put(&mut self.networks, network, link, &right_name),
            Owner::Instance(instance, network) => {
                put(self.instances.entry(instance).or_default(), network, link, &right_name)
            }
        };
        if let Some(loser) = loser {
            self.stray_links.insert(loser.name.clone(), loser);
        }
    }

    /// What the host routes elsewhere than to our bridges.
    fn routes(&self, routes: Vec<Route>) -> Vec<(Ipv4Net, String)> {
        const HALF_DEFAULT: u8 = 1;
        let elsewhere = routes.into_iter().filter(|route| {
            let kept = matches!(
                route.kind,
                libc::RTN_UNICAST | libc::RTN_LOCAL | libc::RTN_BLACKHOLE | libc::RTN_UNREACHABLE | libc::RTN_PROHIBIT
            );
            kept && route.destination.prefix_len() > HALF_DEFAULT
                && !route.destination.addr().is_loopback()
                && !route.interface.is_some_and(|index| self.ours.contains(&index))
        });
        let named = elsewhere.filter_map(|route| {
            let IpNet::V4(destination) = route.destination else { return None };
            let interface = route.interface.and_then(|index| self.names.get(&index).cloned());
            Some((destination, interface.unwrap_or_else(|| "nowhere".to_owned())))
        });
        let unique: BTreeSet<(Ipv4Net, String)> = named.collect();
        unique.into_iter().collect()
    }
}

/// Puts a link into its place, and hands back the one that has none.
fn put(
    links: &mut BTreeMap<NetworkKey, LinkSeen>,
    network: NetworkKey,
    link: LinkSeen,
    right_name: &str,
) -> Option<LinkSeen> {
    let taken = links.get(&network).is_some_and(|there| there.name == right_name);
    if taken { Some(link) } else { links.insert(network, link) }
}

/// A netns with nothing in it.
fn empty(inode: u64) -> NetnsSeen {
    let interfaces = BTreeMap::new();
    NetnsSeen { inode, loopback_up: false, interfaces, default_gateway: None, default_gateway6: None }
}

/// The inside of the netns that the calling thread is in.
fn inside(inode: u64) -> Result<NetnsSeen, Fault> {
    let mut wire = Wire::route()?;
    let addresses = addresses(&mut wire, ALL)?;
    let mut seen = empty(inode);
    let routes = routes(&mut wire)?;
    if let Some(IpAddr::V4(gateway)) = default_gateway(&routes, false) {
        seen.default_gateway = Some(gateway);
    }
    if let Some(IpAddr::V6(gateway)) = default_gateway(&routes, true) {
        seen.default_gateway6 = Some(gateway);
    }
    for link in links(&mut wire)? {
        if link.name == "lo" {
            seen.loopback_up = link.up;
            continue;
        }
        let interface = InterfaceSeen {
            index: link.index,
            // Without a namespace id the other end is in this netns, and its index says nothing about the host.
            peer_index: link.peer_nsid.map_or(0, |_| link.peer),
            up: link.up,
            mac: link.mac,
            mtu: link.mtu,
            addresses: of_link(&addresses, link.index),
            addresses6: six_of_link(&addresses, link.index),
        };
        seen.interfaces.insert(link.name, interface);
    }
    Ok(seen)
}

/// Of several default routes, the one with the lowest metric is used.
fn default_gateway(routes: &[Route], six: bool) -> Option<IpAddr> {
    let main = u32::from(libc::RT_TABLE_MAIN);
    let defaults = routes
        .iter()
        .filter(|route| route.destination.prefix_len() == 0 && route.destination.addr().is_ipv6() == six)
        .filter(|route| route.table == main && route.kind == libc::RTN_UNICAST);
    defaults.min_by_key(|route| route.metric)?.gateway
}

fn seen(link: Link, addresses: &[Address]) -> LinkSeen {
    let bridge = link.kind == "bridge";
    LinkSeen {
        index: link.index,
        alias: link.alias,
        bridge,
        up: link.up,
        controller: link.controller,
        hairpin: link.hairpin,
        mac: link.mac,
        mtu: link.mtu,
        addresses: of_link(addresses, link.index),
        addresses6: six_of_link(addresses, link.index),
        route_localnet: bridge && link.route_localnet,
        name: link.name,
    }
}

fn of_link(addresses: &[Address], index: u32) -> Vec<Ipv4Net> {
    let own = addresses.iter().filter(|address| address.index == index);
    own.filter_map(|address| if let IpNet::V4(net) = address.address { Some(net) } else { None }).collect()
}

fn six_of_link(addresses: &[Address], index: u32) -> Vec<Ipv6Net> {
    let own = addresses.iter().filter(|address| address.index == index);
    own.filter_map(|address| if let IpNet::V6(net) = address.address { Some(net) } else { None }).collect()
}

/// All links of the calling thread's netns.
pub(super) fn links(wire: &mut Wire) -> Result<Vec<Link>, Fault> {
    let question = || {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        RouteNetlinkMessage::GetLink(message)
    };
    wire.dump(question, "list links", |kind, body| (kind == libc::RTM_NEWLINK).then(|| read::link(body)).flatten())
}

/// The addresses of one link of the calling thread's netns, or of all for 0. (A kernel before 4.20 lists all.)
pub(super) fn addresses(wire: &mut Wire, index: u32) -> Result<Vec<Address>, Fault> {
    let question = || {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Unspec;
        message.header.index = index;
        RouteNetlinkMessage::GetAddress(message)
    };
    wire.dump(question, "list addresses", |kind, body| {
        (kind == libc::RTM_NEWADDR).then(|| read::address(body)).flatten()
    })
}

fn routes(wire: &mut Wire) -> Result<Vec<Route>, Fault> {
    let question = || {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Unspec;
        RouteNetlinkMessage::GetRoute(message)
    };
    wire.dump(question, "list routes", |kind, body| (kind == libc::RTM_NEWROUTE).then(|| read::route(body)).flatten())
}
