//! Subnets and addresses without a lease file: kept where they are recorded or seen, else the first free slot from a hash.

use crate::model::Desired;
use crate::model::{
    Attachment, Blocker, InstanceKey, InstanceSpec, Key, Marks, NetSeen, NetworkKey, NetworkSpec, NetworkUse, Observed,
    Record, RuntimeSeen, Sight, Six, slot_hash,
};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Where subnets come from when the file names none: 4,096 networks of 254 addresses, beside what other tools take.
const POOL: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 208, 0, 0), 12);
const POOL_PREFIX: u8 = 24;

/// Which subnet each network has, and which address each instance has there.
#[derive(Debug, Default)]
pub struct Allocation {
    subnets: BTreeMap<NetworkKey, Result<Ipv4Net, Blocker>>,
    gateways: BTreeMap<NetworkKey, Ipv4Addr>,
    internal: BTreeSet<NetworkKey>,
    /// The parts of subnets that addresses are given from.
    ranges: BTreeMap<NetworkKey, Ipv4Net>,
    /// Addresses that are not given.
    reserved: BTreeMap<NetworkKey, BTreeSet<Ipv4Addr>>,
    /// IPv6 subnets with their gateways.
    sixes: BTreeMap<NetworkKey, (Ipv6Net, Ipv6Addr)>,
    /// Where subnets come from.
    pool: Option<Ipv4Net>,
    addresses: BTreeMap<(InstanceKey, NetworkKey), Result<Ipv4Addr, Blocker>>,
}

impl Allocation {
    /// Allocates for everything that is wanted.
    pub fn of(desired: &Desired, observed: &Observed) -> Self {
        let mut allocation = Self { pool: desired.pool, ..Self::default() };
        allocation.place_networks(desired, observed);
        allocation.place_instances(desired, observed);
        allocation
    }

    /// A network's subnet.
    pub fn subnet(&self, key: &NetworkKey) -> Result<Ipv4Net, Blocker> {
        self.subnets.get(key).cloned().unwrap_or_else(|| Err(not_declared(key)))
    }

    /// A network's gateway: the bridge's address.
    pub fn gateway(&self, key: &NetworkKey) -> Option<Ipv4Addr> {
        self.gateways.get(key).copied()
    }

    /// An instance's address in a network.
    pub fn address(&self, instance: &InstanceKey, network: &NetworkKey) -> Result<Ipv4Addr, Blocker> {
        self.addresses.get(&(instance.clone(), network.clone())).cloned().unwrap_or_else(|| Err(not_declared(network)))
    }

    /// The interfaces of a wanted instance, or what stands in the way.
    pub fn attachments(
        &self,
        key: &InstanceKey,
        spec: &InstanceSpec,
        marks: &Marks,
    ) -> Result<Vec<Attachment>, Blocker> {
        let mut gateway_given = false;
        let mut attachments = Vec::with_capacity(spec.networks.len());
        let names = interfaces(spec);
        for (wanted, interface) in spec.networks.iter().zip(names) {
            let network = NetworkKey { app: key.app.clone(), network: wanted.network.clone() };
            let subnet = self.subnet(&network)?;
            let address = self.address(key, &network)?;
            let outward = !self.internal.contains(&network) && !gateway_given;
            gateway_given |= outward;
            attachments.push(Attachment {
                interface,
                six: self.six(&network, wanted.address6, address, subnet, outward),
                address,
                subnet,
                gateway: if outward { self.gateway(&network) } else { None },
                mac: wanted.mac.unwrap_or_else(|| marks.mac(&format!("{key}\0{network}"))),
                network,
            });
        }
        Ok(attachments)
    }

    /// A network's IPv6 subnet and gateway, where it has IPv6.
    pub fn subnet6(&self, key: &NetworkKey) -> Option<(Ipv6Net, Ipv6Addr)> {
        self.sixes.get(key).copied()
    }

    /// An instance's IPv6 address in a network, where it has one.
    pub fn address6(&self, instance: &InstanceKey, spec: &InstanceSpec, network: &NetworkKey) -> Option<Ipv6Addr> {
        let wanted = spec.networks.iter().find(|at| at.network == network.network)?;
        let (address, subnet) = (self.address(instance, network).ok()?, self.subnet(network).ok()?);
        self.six(network, wanted.address6, address, subnet, false).map(|six| six.address)
    }

    /// The IPv6 side of an interface: at the same place in its subnet as the IPv4 address is in its own, so that what is
    /// unique there is unique here.
    fn six(
        &self,
        network: &NetworkKey,
        fixed: Option<Ipv6Addr>,
        address: Ipv4Addr,
        subnet: Ipv4Net,
        outward: bool,
    ) -> Option<Six> {
        let (subnet6, gateway) = self.subnet6(network)?;
        let offset = u32::from(address) - u32::from(subnet.network());
        let address = fixed.unwrap_or_else(|| nth6(subnet6, offset));
        Some(Six { address, subnet: subnet6, gateway: outward.then_some(gateway) })
    }

    fn place_networks(&mut self, desired: &Desired, observed: &Observed) {
        let (net, runtime) = (observed.net.seen(), observed.runtime.seen());
        let mut taken: Vec<(NetworkKey, Ipv4Net)> = Vec::new();
        let mut open: Vec<(NetworkKey, &NetworkSpec)> = Vec::new();
        for (key, spec) in desired.networks() {
            if spec.internal {
                self.internal.insert(key.clone());
            }
            self.ranges.extend(spec.range.map(|range| (key.clone(), range)));
            self.reserved.insert(key.clone(), spec.reserved.values().copied().collect());
            if spec.ipv6 {
                let subnet = spec.subnet6.unwrap_or_else(|| local6(&key));
                self.sixes.insert(key.clone(), (subnet, spec.gateway6.unwrap_or_else(|| nth6(subnet, 1))));
            }
            match spec.subnet.or_else(|| kept_subnet(&key, self.pool(), net, runtime)) {
                Some(subnet) => {
                    let placed = check_explicit(&key, subnet, net, &taken);
                    if let Ok(subnet) = &placed {
                        taken.push((key.clone(), *subnet));
                    }
                    self.put_network(key, spec, placed);
                }
                None => open.push((key, spec)),
            }
        }
        let mut avoid: Vec<Ipv4Net> = taken.iter().map(|(_, subnet)| *subnet).collect();
        avoid.extend(net.into_iter().flat_map(seen_subnets));
        avoid.extend(runtime.into_iter().flat_map(recorded).map(|(_, attachment)| attachment.subnet));
        for (key, spec) in open {
            let placed = match (&observed.net, &observed.runtime) {
                (Sight::Seen(_), Sight::Seen(_)) => free_subnet(&key, self.pool(), &avoid),
                _ => Err(blind(observed)),
            };
            avoid.extend(placed.as_ref().ok());
            self.put_network(key, spec, placed);
        }
    }

    fn pool(&self) -> Ipv4Net {
        self.pool.unwrap_or(Ipv4Net::new_assert(POOL.0, POOL.1))
    }

    fn put_network(&mut self, key: NetworkKey, spec: &NetworkSpec, placed: Result<Ipv4Net, Blocker>) {
        if let Ok(subnet) = &placed {
            let gateway = spec.gateway.unwrap_or_else(|| nth(*subnet, 1));
            self.gateways.insert(key.clone(), gateway);
        }
        self.subnets.insert(key, placed);
    }

    fn place_instances(&mut self, desired: &Desired, observed: &Observed) {
        let mut taken: BTreeMap<NetworkKey, BTreeMap<Ipv4Addr, InstanceKey>> = BTreeMap::new();
        let runtime = observed.runtime.seen();
        // what is held by anything that is there, wanted or not, is not given to another
        let mut held: BTreeMap<(InstanceKey, NetworkKey), Ipv4Addr> = BTreeMap::new();
        for (instance, network, address) in observed.net.seen().into_iter().flat_map(seen_addresses) {
            held.insert((instance, network), address);
        }
        for (instance, attachment) in runtime.into_iter().flat_map(recorded) {
            held.insert((instance, attachment.network.clone()), attachment.address);
        }
        let wanted: Vec<_> = desired
            .instances()
            .flat_map(|(instance, service)| service.spec.networks.iter().map(move |at| (instance.clone(), at)))
            .collect();
        for (instance, at) in &wanted {
            if let Some(address) = at.address {
                let network = NetworkKey { app: instance.app.clone(), network: at.network.clone() };
                taken.entry(network).or_default().entry(address).or_insert_with(|| instance.clone());
            }
        }
        self.reserve_sixes(&wanted, &mut taken);
        for ((instance, network), address) in &held {
            taken.entry(network.clone()).or_default().entry(*address).or_insert_with(|| instance.clone());
        }
        let lists_whole = observed.net.is_seen() && observed.runtime.is_seen();
        for (instance, at) in wanted {
            let network = NetworkKey { app: instance.app.clone(), network: at.network.clone() };
            let place = (instance.clone(), network.clone());
            let taken = taken.entry(network.clone()).or_default();
            let placed =
                self.place(&instance, &network, at.address, held.get(&place).copied(), taken, lists_whole, observed);
            if let Ok(address) = &placed {
                taken.insert(*address, instance);
            }
            self.addresses.insert(place, placed);
        }
    }

    /// A fixed IPv6 address, and an IPv6 gateway, take the place in the IPv4 subnet that would lead to them.
    fn reserve_sixes(
        &mut self,
        wanted: &[(InstanceKey, &NetworkUse)],
        taken: &mut BTreeMap<NetworkKey, BTreeMap<Ipv4Addr, InstanceKey>>,
    ) {
        for (network, (subnet6, gateway)) in &self.sixes {
            let Ok(subnet) = self.subnet(network) else { continue };
            let place = place4(subnet, *subnet6, *gateway).filter(|place| Some(*place) != self.gateway(network));
            self.reserved.entry(network.clone()).or_default().extend(place);
        }
        for (instance, at) in wanted {
            let network = NetworkKey { app: instance.app.clone(), network: at.network.clone() };
            let (Some(fixed), Ok(subnet)) = (at.address6, self.subnet(&network)) else { continue };
            let place = self.subnet6(&network).and_then(|(subnet6, _)| place4(subnet, subnet6, fixed));
            if let Some(place) = place {
                taken.entry(network).or_default().entry(place).or_insert_with(|| instance.clone());
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call site; a struct would only name the same seven things again"
    )]
    fn place(
        &self,
        instance: &InstanceKey,
        network: &NetworkKey,
        fixed: Option<Ipv4Addr>,
        held: Option<Ipv4Addr>,
        taken: &BTreeMap<Ipv4Addr, InstanceKey>,
        lists_whole: bool,
        observed: &Observed,
    ) -> Result<Ipv4Addr, Blocker> {
        let subnet = self.subnet(network)?;
        let gateway = self.gateway(network);
        let free = |address: &Ipv4Addr| taken.get(address).is_none_or(|by| by == instance) && Some(*address) != gateway;
        if let Some(address) = fixed {
            return if free(&address) {
                Ok(address)
            } else {
                Err(address_taken(address, network, taken.get(&address)))
            };
        }
        if let Some(address) = held.filter(|address| usable(subnet, address) && free(address)) {
            return Ok(address);
        }
        if !lists_whole {
            return Err(blind(observed));
        }
        let range = self.ranges.get(network).copied().unwrap_or(subnet);
        let reserved = self.reserved.get(network);
        let given = |address: &Ipv4Addr| {
            usable(subnet, address) && range.contains(address) && !reserved.is_some_and(|all| all.contains(address))
        };
        let size = 1u64 << (32 - range.prefix_len());
        // neither the first nor the last address of a subnet is anybody's; both ends of a range inside it may be
        let (begin, slots) = if range == subnet { (1, size.saturating_sub(2).max(1)) } else { (0, size) };
        let first = slot_hash(&format!("{instance}\0{network}")) % slots;
        // more probes than there can be takers find a free slot if there is one
        let unavailable = taken.len() + reserved.map_or(0, BTreeSet::len);
        let probes = slots.min(unavailable as u64 + 4);
        (0..probes)
            .map(|probe| nth(range, ((first + probe) % slots) as u32 + begin))
            .find(|address| given(address) && free(address))
            .ok_or_else(|| Blocker::Stuck {
                what: format!("no free address in {range} for network {network}"),
                hint: "give the network a larger subnet under `ipam`, or run fewer instances in it".to_owned(),
            })
    }
}

fn address_taken(address: Ipv4Addr, network: &NetworkKey, by: Option<&InstanceKey>) -> Blocker {
    match by {
        Some(by) => Blocker::On { key: Key::Instance(by.clone()), what: format!("holds address {address}") },
        None => Blocker::Stuck {
            what: format!("address {address} is the gateway of network {network}"),
            hint: "choose another `ipv4_address`, or another `gateway`".to_owned(),
        },
    }
}

fn not_declared(key: &NetworkKey) -> Blocker {
    Blocker::Stuck {
        what: format!("network {key} is not declared"),
        hint: "declare it under the top-level `networks`".to_owned(),
    }
}

fn blind(observed: &Observed) -> Blocker {
    match (&observed.net, &observed.runtime) {
        (Sight::Unseen(blind), _) => Blocker::Blind { what: "the network".to_owned(), why: blind.why.clone() },
        (_, Sight::Unseen(blind)) => Blocker::RuntimeUnavailable { why: blind.why.clone() },
        _ => Blocker::Blind { what: "the node".to_owned(), why: "no whole list yet".to_owned() },
    }
}

/// The n-th address of a subnet.
fn nth(subnet: Ipv4Net, n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(subnet.network()).saturating_add(n))
}

/// The n-th address of an IPv6 subnet.
fn nth6(subnet: Ipv6Net, n: u32) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(subnet.network()).saturating_add(n.into()))
}

/// The address in an IPv4 subnet at the place that an IPv6 address has in its own; `None` for one far out.
fn place4(subnet: Ipv4Net, subnet6: Ipv6Net, address: Ipv6Addr) -> Option<Ipv4Addr> {
    let offset = u128::from(address).checked_sub(u128::from(subnet6.network()))?;
    let place = nth(subnet, u32::try_from(offset).ok()?);
    subnet.contains(&place).then_some(place)
}

/// A unique local subnet (RFC 4193) from the network's name: the same on every node, since nothing is routed between
/// nodes.
fn local6(key: &NetworkKey) -> Ipv6Net {
    const PREFIX: u8 = 64;
    let hash = u128::from(slot_hash(&format!("subnet6\0{key}"))) >> 8;
    let network = (0xfd_u128 << 120) | (hash << 64);
    Ipv6Net::new_assert(Ipv6Addr::from(network), PREFIX)
}

fn usable(subnet: Ipv4Net, address: &Ipv4Addr) -> bool {
    subnet.contains(address) && *address != subnet.network() && *address != subnet.broadcast()
}

fn overlap(a: &Ipv4Net, b: &Ipv4Net) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// What interfaces are called inside: as the file says, the others by number past those names.
fn interfaces(spec: &InstanceSpec) -> Vec<String> {
    let said: BTreeSet<&str> = spec.networks.iter().filter_map(|at| at.interface.as_deref()).collect();
    let mut free = (0..).map(|n| format!("eth{n}")).filter(|name| !said.contains(name.as_str()));
    let mut name = |at: &crate::model::NetworkUse| at.interface.clone().or_else(|| free.next()).unwrap_or_default();
    spec.networks.iter().map(&mut name).collect()
}

/// The subnet that a network has on its bridge, or had when its instances were made, if it came from the pool.
fn kept_subnet(
    key: &NetworkKey,
    pool: Ipv4Net,
    net: Option<&NetSeen>,
    runtime: Option<&RuntimeSeen>,
) -> Option<Ipv4Net> {
    let from_pool = |subnet: &Ipv4Net| subnet.prefix_len() == POOL_PREFIX && pool.contains(subnet);
    let recorded =
        || runtime.into_iter().flat_map(recorded).map(|(_, at)| at).find(|at| at.network == *key).map(|at| at.subnet);
    let bridge = net.and_then(|net| net.networks.get(key));
    bridge
        .and_then(|bridge| bridge.addresses.first().map(Ipv4Net::trunc))
        .filter(from_pool)
        .or_else(|| recorded().filter(from_pool))
}

fn check_explicit(
    key: &NetworkKey,
    subnet: Ipv4Net,
    net: Option<&NetSeen>,
    taken: &[(NetworkKey, Ipv4Net)],
) -> Result<Ipv4Net, Blocker> {
    if let Some((other, at)) = taken.iter().find(|(_, at)| overlap(at, &subnet)) {
        return Err(Blocker::Stuck {
            what: format!("subnet {subnet} of network {key} overlaps {at} of network {other}"),
            hint: "choose another subnet under `ipam`".to_owned(),
        });
    }
    let has_it = |net: &NetSeen| net.networks.get(key).is_some_and(|b| b.addresses.iter().any(|a| a.trunc() == subnet));
    let route =
        net.filter(|net| !has_it(net)).and_then(|net| net.host_routes.iter().find(|(to, _)| overlap(to, &subnet)));
    match route {
        Some((to, via)) => Err(Blocker::Stuck {
            what: format!("subnet {subnet} of network {key} overlaps the host's route to {to} by {via}"),
            hint: "choose another subnet under `ipam`, or remove the route".to_owned(),
        }),
        None => Ok(subnet),
    }
}

fn free_subnet(key: &NetworkKey, pool: Ipv4Net, avoid: &[Ipv4Net]) -> Result<Ipv4Net, Blocker> {
    let count = 1u64 << POOL_PREFIX.saturating_sub(pool.prefix_len());
    let first = slot_hash(&format!("subnet\0{key}")) % count;
    (0..count)
        .map(|probe| {
            let index = ((first + probe) % count) as u32;
            Ipv4Net::new_assert(nth(pool, index << (32 - POOL_PREFIX)), POOL_PREFIX)
        })
        .find(|subnet| !avoid.iter().any(|at| overlap(at, subnet)))
        .ok_or_else(|| Blocker::Stuck {
            what: format!("no free subnet for network {key} in {pool}"),
            hint: "name a subnet under `ipam`, or give the agent another range: --pool CIDR".to_owned(),
        })
}

fn seen_subnets(net: &NetSeen) -> impl Iterator<Item = Ipv4Net> {
    let bridges = net.networks.values().flat_map(|bridge| bridge.addresses.iter().map(Ipv4Net::trunc));
    bridges.chain(net.host_routes.iter().map(|(to, _)| *to))
}

/// Every address inside a netns of ours, with the network that its link belongs to.
pub(super) fn seen_addresses(net: &NetSeen) -> impl Iterator<Item = (InstanceKey, NetworkKey, Ipv4Addr)> {
    net.instances.iter().flat_map(|(instance, side)| {
        side.links.iter().flat_map(move |(network, link)| {
            let inside = side.netns.iter().flat_map(|netns| netns.interfaces.values());
            inside
                .filter(move |interface| interface.peer_index == link.index)
                .flat_map(|interface| interface.addresses.iter())
                .map(move |address| (instance.clone(), network.clone(), address.addr()))
        })
    })
}

/// Every attachment on a container record of ours.
fn recorded(runtime: &RuntimeSeen) -> impl Iterator<Item = (InstanceKey, &Attachment)> {
    runtime.instances.iter().flat_map(|(instance, side)| {
        let records = side.containers.iter().filter_map(|container| container.record.as_ref());
        records.flat_map(|Record { attachments, .. }| attachments).map(move |at| (instance.clone(), at))
    })
}
