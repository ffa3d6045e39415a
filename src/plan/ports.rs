//! The port table as it should be: bridges that are there, and published ports of instances that are attached.

use super::Picture;
use super::allocate::seen_addresses;
use crate::model::{
    Blocker, BridgeRules, InstanceKey, InstanceSpec, NetSeen, NetworkKey, Port, Protocol, Published, Ruleset, Sight,
    TableSeen, Target, slot_hash,
};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Where ports without a host port are published.
const FIRST_FREE: u16 = 49_152;
const FREE_PORTS: u16 = 16_384;

/// The table's content; `None` when nothing needs it.
pub(super) fn ruleset(
    picture: &Picture<'_>,
    net: &NetSeen,
    have: Option<&TableSeen>,
) -> Result<Option<Ruleset>, Blocker> {
    let specs = published_specs(picture)?;
    let mut ruleset = Ruleset { bridges: bridges(picture, net, have), ..Ruleset::default() };
    let addresses: BTreeMap<(InstanceKey, NetworkKey), Ipv4Addr> =
        seen_addresses(net).map(|(instance, network, address)| ((instance, network), address)).collect();
    let claimed: BTreeSet<(Protocol, u16)> = specs
        .values()
        .flat_map(|spec| spec.ports.iter().filter_map(|port| Some((port.protocol, port.host?))))
        .collect();
    let mut owners: BTreeMap<Published, (&InstanceKey, u16)> = BTreeMap::new();
    for (key, spec) in &specs {
        if spec.ports.is_empty() {
            continue;
        }
        let Some((network, address)) = serving_address(picture, key, spec, &addresses, have) else {
            continue;
        };
        let own = [Some(IpAddr::V4(address)), six_of(net, key, &network)];
        for port in &spec.ports {
            let of_family = |address: &IpAddr| port.host_ip.is_none_or(|host| host.is_ipv4() == address.is_ipv4());
            let own = own.into_iter().flatten().filter(of_family);
            let targets: BTreeSet<Target> = own.map(|address| Target { address, port: port.container }).collect();
            if targets.is_empty() {
                continue;
            }
            let published = host_port(key, port, &targets, have, &claimed, &ruleset);
            // one service's replicas share a port; another service's claim on it is refused where files are read
            let owner = owners.entry(published.clone()).or_insert((key, port.container));
            if (&owner.0.app, &owner.0.service, owner.1) == (&key.app, &key.service, port.container) {
                if !port.from.is_empty() {
                    ruleset.sources.insert(published.clone(), port.from.clone());
                }
                ruleset.publications.entry(published).or_default().extend(targets);
            }
        }
    }
    if ruleset == Ruleset::default() {
        return Ok(None);
    }
    let (needed, before) = (needs_forwarding(&ruleset), have.map(|have| have.ruleset.forwarding_was_off));
    let before = before.unwrap_or_default();
    ruleset.forwarding_was_off =
        (needed.0 && (before.0 || !net.ip_forward), needed.1 && (before.1 || !net.ip6_forward));
    Ok(Some(ruleset))
}

/// Whether IPv4 and IPv6 have to be forwarded.
pub(super) fn needs_forwarding(ruleset: &Ruleset) -> (bool, bool) {
    let outward = || ruleset.bridges.values().filter(|bridge| !bridge.internal);
    (outward().next().is_some(), outward().any(|bridge| bridge.subnet6.is_some()))
}

/// The IPv6 address of an instance in a network, once it is there.
fn six_of(net: &NetSeen, key: &InstanceKey, network: &NetworkKey) -> Option<IpAddr> {
    let side = net.instances.get(key)?;
    let link = side.links.get(network)?;
    let mut inside = side.netns.iter().flat_map(|netns| netns.interfaces.values());
    let inside = inside.find(|inside| inside.peer_index == link.index)?;
    inside.addresses6.first().map(|address| IpAddr::V6(address.addr()))
}

/// The specs whose ports count: what is wanted, and what may not be removed, as it is recorded.
fn published_specs<'a>(picture: &'a Picture<'_>) -> Result<BTreeMap<InstanceKey, &'a InstanceSpec>, Blocker> {
    let mut specs: BTreeMap<InstanceKey, &InstanceSpec> =
        picture.desired.instances().map(|(key, service)| (key, &service.spec)).collect();
    let all_known = picture.desired.whole && picture.desired.apps.values().all(|app| app.known);
    if all_known {
        return Ok(specs);
    }
    let runtime = match &picture.observed.runtime {
        Sight::Seen(runtime) => runtime,
        Sight::Unseen(blind) => return Err(Blocker::RuntimeUnavailable { why: blind.why.clone() }),
    };
    for (key, side) in &runtime.instances {
        let record = side.containers.iter().filter_map(|container| container.record.as_ref()).next_back();
        if let Some(record) = record.filter(|_| !picture.desired.may_remove(&key.app)) {
            specs.entry(key.clone()).or_insert(&record.spec);
        }
    }
    Ok(specs)
}

fn bridges(picture: &Picture<'_>, net: &NetSeen, have: Option<&TableSeen>) -> BTreeMap<String, BridgeRules> {
    let rules = |key: &NetworkKey| {
        let name = picture.bridge_name(key);
        let before = have.and_then(|have| have.ruleset.bridges.get(&name));
        let seen = net.networks.get(key).and_then(|link| link.addresses.first()).map(Ipv4Net::trunc);
        // a bridge that is lost for a moment keeps its rules: it comes back under the same name and address
        let lost =
            || picture.allocation().subnet(key).ok().filter(|subnet| before.is_some_and(|b| b.subnet == *subnet));
        let subnet = seen.or_else(lost)?;
        let seen6 = net.networks.get(key).and_then(|link| link.addresses6.first()).map(Ipv6Net::trunc);
        let subnet6 = seen6.or_else(|| {
            let lost = picture.allocation().subnet6(key).map(|(subnet, _)| subnet);
            lost.filter(|subnet| before.is_some_and(|rules| rules.subnet6 == Some(*subnet)))
        });
        let wanted = picture.desired.network(key);
        let internal = wanted.map_or_else(|| before.is_some_and(|rules| rules.internal), |spec| spec.internal);
        let there = wanted.is_some() || !picture.desired.may_remove(&key.app);
        there.then_some((name, BridgeRules { subnet, subnet6, internal }))
    };
    let mut keys: BTreeSet<NetworkKey> = net.networks.keys().cloned().collect();
    keys.extend(picture.desired.networks().map(|(key, _)| key));
    keys.iter().filter_map(rules).collect()
}

/// The address that published ports lead to: in the network with the default route, or the first one. It has to be
/// there before a port is published; one that is lost for a moment keeps its ports, since it comes back the same.
fn serving_address(
    picture: &Picture<'_>,
    key: &InstanceKey,
    spec: &InstanceSpec,
    addresses: &BTreeMap<(InstanceKey, NetworkKey), Ipv4Addr>,
    have: Option<&TableSeen>,
) -> Option<(NetworkKey, Ipv4Addr)> {
    let network = |at: &crate::model::NetworkUse| NetworkKey { app: key.app.clone(), network: at.network.clone() };
    let internal = |network: &NetworkKey| picture.desired.network(network).is_some_and(|spec| spec.internal);
    let networks: Vec<NetworkKey> = spec.networks.iter().map(network).collect();
    let outward = networks.iter().find(|network| !internal(network)).or(networks.first())?;
    let published = |address: &Ipv4Addr| {
        let mut targets = have.into_iter().flat_map(|have| have.ruleset.publications.values().flatten());
        targets.any(|target| target.address == IpAddr::V4(*address))
    };
    let lost = || picture.allocation().address(key, outward).ok().filter(published);
    let address = addresses.get(&(key.clone(), outward.clone())).copied().or_else(lost)?;
    Some((outward.clone(), address))
}

fn host_port(
    key: &InstanceKey,
    port: &Port,
    own: &BTreeSet<Target>,
    have: Option<&TableSeen>,
    claimed: &BTreeSet<(Protocol, u16)>,
    so_far: &Ruleset,
) -> Published {
    let at = |number: u16| Published { protocol: port.protocol, host_ip: port.host_ip, port: number };
    if let Some(number) = port.host {
        return at(number);
    }
    let free = |published: &Published| {
        !so_far.publications.contains_key(published) && !claimed.contains(&(published.protocol, published.port))
    };
    let kept = have.and_then(|have| {
        let mut all = have.ruleset.publications.iter();
        all.find(|(published, targets)| {
            published.protocol == port.protocol
                && published.host_ip == port.host_ip
                && published.port >= FIRST_FREE
                && targets.iter().all(|target| own.contains(target))
        })
    });
    if let Some((published, _)) = kept.filter(|(published, _)| free(published)) {
        return published.clone();
    }
    let first = slot_hash(&format!("port\0{key}\0{}\0{}", port.container, port.protocol.as_str()));
    let probe = |n: u64| at(FIRST_FREE + ((first.wrapping_add(n)) % u64::from(FREE_PORTS)) as u16);
    (0..u64::from(FREE_PORTS)).map(probe).find(free).unwrap_or_else(|| probe(0))
}
