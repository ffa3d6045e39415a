//! The IPv6 side of networks.

use super::Lower;
use crate::desired::node::{At, Node};
use crate::model::{NetworkName, NetworkSpec, Service, ServiceName};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// The longest prefix: an instance has its place in the IPv4 subnet in the IPv6 one too.
const LONGEST: u8 = 112;

/// The entries of `ipam.config`, told apart by the family of their subnets; an entry without one is of IPv4.
pub(super) fn is_six(config: &Node) -> bool {
    let text = |key: &str| config.get(key).and_then(Node::as_text).unwrap_or_default().to_owned();
    text("subnet").parse::<Ipv6Net>().is_ok() || text("gateway").parse::<Ipv6Addr>().is_ok()
}

impl Lower<'_> {
    /// What an IPv6 entry of `ipam.config` says.
    pub(super) fn six(&mut self, network: &Node, config: &Node, spec: &mut NetworkSpec) {
        if !spec.ipv6 {
            let complaint = self.findings.refuse(config.at, "an IPv6 subnet needs a network with IPv6");
            complaint.hint("write `enable_ipv6: true` on the network");
        }
        for key in ["ip_range", "aux_addresses"] {
            if let Some(node) = config.get(key) {
                let message = format!("`{key}` is not honoured for IPv6: addresses follow the IPv4 ones");
                self.findings.refuse(node.at, message).hint("give it with the IPv4 subnet");
            }
        }
        spec.subnet6 = config.get("subnet").and_then(|node| self.subnet6(node));
        if let (Some(six), Some(four)) = (spec.subnet6, four_of(network))
            && u32::from(128 - six.prefix_len()) < u32::from(32 - four.prefix_len())
        {
            let message = format!("{six} has fewer addresses than {four}, and an instance has the same place in both");
            self.findings.refuse(config.at, message).hint("take a larger IPv6 subnet, a /64 as a rule");
        }
        let Some(node) = config.get("gateway") else { return };
        match (node.as_text().and_then(|text| text.parse::<Ipv6Addr>().ok()), spec.subnet6) {
            (Some(gateway), Some(subnet)) if subnet.contains(&gateway) && gateway != subnet.network() => {
                spec.gateway6 = Some(gateway);
            }
            _ => {
                let message = format!("\"{}\" is not an address of the subnet", node.as_text().unwrap_or_default());
                self.findings.error(node.at, message).hint("give an IPv6 address of the `subnet` beside it");
            }
        }
    }

    fn subnet6(&mut self, node: &Node) -> Option<Ipv6Net> {
        let text = node.as_text()?;
        let subnet: Ipv6Net = text.parse().ok()?;
        if !(8..=LONGEST).contains(&subnet.prefix_len()) {
            let message = format!("a /{} IPv6 subnet is no use for containers", subnet.prefix_len());
            self.findings.refuse(node.at, message).hint(format!("take one between /8 and /{LONGEST}, a /64 as a rule"));
            return None;
        }
        if subnet.addr() != subnet.network() {
            let message = format!("{text} has bits set beyond its prefix");
            self.findings.error(node.at, message).hint(format!("write {}", subnet.trunc()));
        }
        Some(subnet.trunc())
    }

    /// A fixed IPv6 address.
    pub(super) fn address6(&mut self, node: &Node, network: Option<&Node>) -> Option<Ipv6Addr> {
        let text = node.as_text()?;
        let Ok(address) = text.parse::<Ipv6Addr>() else {
            self.findings.error(node.at, format!("\"{text}\" is not an IPv6 address"));
            return None;
        };
        let configs = network.and_then(|network| network.get("ipam")?.get("config")?.as_seq()).unwrap_or_default();
        let subnet = configs.iter().find_map(|config| config.get("subnet")?.as_text()?.parse::<Ipv6Net>().ok());
        match subnet {
            None => {
                let message = "a fixed IPv6 address needs a network with an IPv6 subnet of its own";
                let hint = "give the network `enable_ipv6: true` and `ipam: {config: [{subnet: ...}]}`";
                self.findings.error(node.at, message).hint(hint);
            }
            Some(subnet) if !subnet.contains(&address) => {
                self.findings.error(node.at, format!("the address {address} lies outside the subnet {subnet}"));
            }
            Some(_) => return Some(address),
        }
        None
    }

    /// Two services cannot ask for one IPv6 address, nor a service for its network's gateway, nor several replicas for
    /// one.
    pub(super) fn fixed_addresses6(
        &mut self,
        services: &BTreeMap<ServiceName, Service>,
        specs: &BTreeMap<NetworkName, NetworkSpec>,
    ) {
        let mut taken: BTreeMap<(&NetworkName, Ipv6Addr), (&ServiceName, At)> = BTreeMap::new();
        for (name, service) in services {
            for network in &service.spec.networks {
                let Some(address) = network.address6 else { continue };
                let at = self.place_of_address6(name, &network.network);
                if service.replicas > 1 {
                    let message = format!("one fixed address cannot be given to {} replicas", service.replicas);
                    self.findings.error(at, message);
                }
                let spec = specs.get(&network.network);
                let first = |subnet: Ipv6Net| Ipv6Addr::from(u128::from(subnet.network()) + 1);
                if spec.and_then(|spec| spec.gateway6.or_else(|| spec.subnet6.map(first))) == Some(address) {
                    self.findings.error(at, format!("{address} is the network's gateway"));
                }
                if let Some((other, first)) = taken.get(&(&network.network, address)) {
                    let message = format!("the address {address} is asked for by the service `{other}` too");
                    self.findings.error(at, message).note(*first, "asked for here first");
                }
                taken.entry((&network.network, address)).or_insert((name, at));
            }
        }
    }

    fn place_of_address6(&self, service: &ServiceName, network: &NetworkName) -> At {
        self.addresses6.get(&(service.to_string(), network.to_string())).copied().unwrap_or_default()
    }

    /// No two networks of one app can have overlapping IPv6 subnets.
    pub(super) fn same_subnets6(&mut self) {
        for (index, (at, subnet)) in self.subnets6.iter().enumerate() {
            let overlap = |other: &&(At, Ipv6Net)| other.1.contains(subnet) || subnet.contains(&other.1);
            if let Some((first, other)) = self.subnets6[..index].iter().find(overlap) {
                let complaint = self.findings.refuse(*at, format!("the subnet {subnet} overlaps {other}"));
                complaint.note(*first, "the other one is here");
            }
        }
    }
}

fn four_of(network: &Node) -> Option<Ipv4Net> {
    let configs = network.get("ipam")?.get("config")?.as_seq()?;
    configs.iter().find_map(|config| config.get("subnet")?.as_text()?.parse().ok())
}
