//! Networks: which ones a service is in, and what each of them is.

use super::Lower;
use super::ipv6::is_six;
use crate::desired::finding::nearest;
use crate::desired::node::{At, Entry, Node, Value};
use crate::model::{NetworkName, NetworkSpec, NetworkUse, Service, ServiceName};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// What IPv6 needs of a link, and IPv4 is glad of.
const MTU_LEAST: u32 = 1280;
/// What the kernel takes for a veth.
const MTU_MOST: u32 = 65_535;

impl Lower<'_> {
    /// The networks of a service, the one with the default route first: by priority, those with a way out before those
    /// without, then by name.
    pub(super) fn attachments(&mut self, name: &str, service: &Node, replicas: u32) -> Vec<NetworkUse> {
        let owner = name;
        if service.get("network_mode").is_some() {
            return Vec::new();
        }
        let Some(map) = service.get("networks").and_then(Node::as_map).filter(|map| !map.is_empty()) else {
            return NetworkName::new("default").map(|network| vec![NetworkUse::plain(network)]).unwrap_or_default();
        };
        let mut uses = Vec::new();
        for (name, entry) in map {
            self.named.insert(name.clone());
            if let Some(network) = self.attachment(name, entry) {
                if let Some(node) = entry.node.get("ipv6_address") {
                    self.addresses6.insert((owner.to_owned(), name.clone()), node.at);
                }
                if let Some(node) = entry.node.get("ipv4_address") {
                    self.addresses.insert((owner.to_owned(), name.clone()), node.at);
                }
                let number = |key: &str| match entry.node.get(key).map(|node| &node.value) {
                    Some(Value::Float(value)) => *value,
                    _ => 0.0,
                };
                let internal = self.networks.get(name).and_then(|node| node.get("internal")).and_then(Node::as_bool);
                uses.push((internal == Some(true), -number("gw_priority"), -number("priority"), network));
            }
        }
        uses.sort_by(|a, b| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)).then(a.3.network.cmp(&b.3.network))
        });
        let mut uses: Vec<NetworkUse> = uses.into_iter().map(|(.., network)| network).collect();
        // a MAC of the service as a whole is that of its first interface
        if let (Some(node), Some(first)) = (service.get("mac_address"), uses.first_mut()) {
            first.mac = first.mac.or_else(|| self.mac(node));
        }
        self.apart(service, &uses, replicas);
        uses
    }

    fn attachment(&mut self, name: &str, entry: &Entry) -> Option<NetworkUse> {
        let declared = self.networks.get(name);
        if declared.is_none() && name != "default" {
            let known = self.networks.as_map().into_iter().flatten().map(|(name, _)| name.as_str());
            let near = nearest(name, known).map(|near| format!("did you mean `{near}`?"));
            let hint = near.unwrap_or_else(|| format!("declare it at the top level: networks: {{{name}: {{}}}}"));
            self.findings.error(entry.at, format!("the network `{name}` is used but never declared")).hint(hint);
            return None;
        }
        let mut network = NetworkUse::plain(NetworkName::new(name).ok()?);
        for alias in entry.node.get("aliases").and_then(Node::as_seq).into_iter().flatten() {
            network.aliases.extend(self.host_name(alias));
        }
        network.mac = entry.node.get("mac_address").and_then(|node| self.mac(node));
        network.interface = entry.node.get("interface_name").and_then(|node| self.interface(node));
        network.address6 = entry.node.get("ipv6_address").and_then(|node| self.address6(node, declared));
        network.address = entry.node.get("ipv4_address").and_then(|node| self.address(node, declared));
        Some(network)
    }

    fn address(&mut self, node: &Node, network: Option<&Node>) -> Option<Ipv4Addr> {
        let text = node.as_text()?;
        let Ok(address) = text.parse::<Ipv4Addr>() else {
            self.findings.error(node.at, format!("\"{text}\" is not an IPv4 address"));
            return None;
        };
        let subnet = network.and_then(|network| Some(ipam(network)?.get("subnet")?.as_text()?.parse::<Ipv4Net>()));
        match subnet {
            None => {
                let message = "a fixed address needs a network with a subnet of its own";
                self.findings.error(node.at, message).hint("give the network `ipam: {config: [{subnet: ...}]}`");
            }
            Some(Ok(subnet)) if !subnet.contains(&address) => {
                self.findings.error(node.at, format!("the address {address} lies outside the subnet {subnet}"));
            }
            // A subnet that cannot be read is told at its own place.
            Some(_) => {}
        }
        Some(address)
    }

    /// A name that others can resolve.
    pub(super) fn host_name(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text()?;
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
                && !label.starts_with('-')
        };
        if text.len() <= 253 && text.split('.').all(label) {
            return Some(text.to_owned());
        }
        let message = format!("\"{text}\" is not a host name");
        self.findings.error(node.at, message).hint("letters, digits, dashes and dots");
        None
    }

    /// What the networks in use are. A `default` network is there only when a service uses it.
    pub(super) fn used_networks(
        &mut self,
        services: &BTreeMap<ServiceName, Service>,
    ) -> BTreeMap<NetworkName, NetworkSpec> {
        let used: BTreeSet<&NetworkName> =
            services.values().flat_map(|service| &service.spec.networks).map(|network| &network.network).collect();
        let mut specs = BTreeMap::new();
        for (name, entry) in self.networks.as_map().into_iter().flatten() {
            let spec = self.network(&entry.node);
            match NetworkName::new(name.as_str()) {
                Ok(name) if used.contains(&name) => {
                    if let (Some(subnet), Some(node)) =
                        (spec.subnet, ipam(&entry.node).and_then(|node| node.get("subnet")))
                    {
                        self.subnets.push((node.at, subnet));
                    }
                    let six = |node: &Node| {
                        node.get("ipam")?.get("config")?.as_seq()?.iter().find(|c| is_six(c)).map(|c| c.at)
                    };
                    self.subnets6.extend(spec.subnet6.map(|subnet| (six(&entry.node).unwrap_or(entry.at), subnet)));
                    self.bridges.extend(spec.bridge.clone().map(|name| (entry.at, name)));
                    specs.insert(name, spec);
                }
                // Named by a service that could not be lowered: that has been told.
                Ok(name) if self.named.contains(name.as_str()) => {}
                Ok(_) => {
                    self.findings.remark(entry.at, format!("no service uses the network `{name}`, so it is not made"));
                }
                Err(error) => {
                    self.findings.error(entry.at, error.to_string());
                }
            }
        }
        for name in used {
            specs.entry(name.clone()).or_default();
        }
        self.fixed_addresses(services, &specs);
        self.fixed_addresses6(services, &specs);
        specs
    }

    fn network(&mut self, node: &Node) -> NetworkSpec {
        let mut spec = NetworkSpec { internal: truth(node, "internal"), ..NetworkSpec::default() };
        let drivers =
            [(node.get("driver"), "bridge"), (node.get("ipam").and_then(|ipam| ipam.get("driver")), "default")];
        for (driver, known) in drivers {
            if let Some((at, name)) = driver.and_then(|node| Some((node.at, node.as_text()?)))
                && name != known
            {
                let message = format!("there is no network driver `{name}` on a node");
                self.findings.refuse(at, message).hint(format!("leave it out, or write `{known}`"));
            }
        }
        spec.ipv6 = truth(node, "enable_ipv6");
        if let Some(four) = node.get("enable_ipv4").filter(|node| node.as_bool() == Some(false)) {
            self.findings
                .refuse(four.at, "a network has IPv4 here, with or without IPv6")
                .hint("leave `enable_ipv4` out");
        }
        let configs = node.get("ipam").and_then(|ipam| ipam.get("config")).and_then(Node::as_seq).unwrap_or_default();
        for family in [false, true] {
            if let Some(second) = configs.iter().filter(|config| is_six(config) == family).nth(1) {
                let message = "a network has one subnet of each family here";
                self.findings.refuse(second.at, message).hint("keep one entry of `ipam.config`");
            }
        }
        if let Some(config) = configs.iter().find(|config| is_six(config)) {
            self.six(node, config, &mut spec);
        }
        if let Some(config) = configs.iter().find(|config| !is_six(config)) {
            spec.subnet = config.get("subnet").and_then(|node| self.subnet(node));
            spec.gateway = config.get("gateway").and_then(|node| self.gateway(node, spec.subnet));
            spec.range = config.get("ip_range").and_then(|node| self.range(node, spec.subnet));
            for (name, entry) in config.get("aux_addresses").and_then(Node::as_map).into_iter().flatten() {
                let address = self.reserved(&entry.node, spec.subnet);
                spec.reserved.extend(address.map(|address| (name.clone(), address)));
            }
        }
        self.bridge_options(node, &mut spec);
        spec
    }

    fn subnet(&mut self, node: &Node) -> Option<Ipv4Net> {
        let text = node.as_text()?;
        let Ok(subnet) = text.parse::<Ipv4Net>() else {
            self.findings.error(node.at, format!("\"{text}\" is not a subnet")).hint("write it like 10.9.0.0/24");
            return None;
        };
        if subnet.prefix_len() > 29 || subnet.prefix_len() < 8 {
            let message = format!("a /{} subnet is no use for containers", subnet.prefix_len());
            self.findings.refuse(node.at, message).hint("take one between /8 and /29");
            return None;
        }
        if subnet.addr() != subnet.network() {
            let message = format!("{text} has bits set beyond its prefix");
            self.findings.error(node.at, message).hint(format!("write {}", subnet.trunc()));
        }
        Some(subnet.trunc())
    }

    /// The part of a subnet that addresses are given from.
    fn range(&mut self, node: &Node, subnet: Option<Ipv4Net>) -> Option<Ipv4Net> {
        let text = node.as_text()?;
        let Ok(range) = text.parse::<Ipv4Net>() else {
            self.findings.error(node.at, format!("\"{text}\" is not a range")).hint("write it like 10.9.0.64/26");
            return None;
        };
        match subnet {
            None => {
                self.findings.error(node.at, "an `ip_range` needs a subnet").hint("give `subnet` beside it");
            }
            Some(subnet) if !subnet.contains(&range) => {
                self.findings.error(node.at, format!("the range {range} lies outside the subnet {subnet}"));
            }
            Some(_) => return Some(range.trunc()),
        }
        None
    }

    /// An address that somebody else has.
    fn reserved(&mut self, node: &Node, subnet: Option<Ipv4Net>) -> Option<Ipv4Addr> {
        let text = node.as_text()?;
        let address = text.parse::<Ipv4Addr>().ok();
        if !address.zip(subnet).is_some_and(|(address, subnet)| subnet.contains(&address)) {
            let message = format!("\"{text}\" is not an address of the subnet beside it");
            self.findings.error(node.at, message).hint("`aux_addresses` are addresses of `subnet`");
            return None;
        }
        address
    }

    /// `driver_opts` of a bridge: its name and its largest packet.
    fn bridge_options(&mut self, node: &Node, spec: &mut NetworkSpec) {
        for (name, entry) in node.get("driver_opts").and_then(Node::as_map).into_iter().flatten() {
            let value = &entry.node;
            match name.as_str() {
                "com.docker.network.driver.mtu" | "mtu" => {
                    let text = value.as_text().unwrap_or_default();
                    match text.parse::<u32>().ok().filter(|mtu| (MTU_LEAST..=MTU_MOST).contains(mtu)) {
                        Some(mtu) => spec.mtu = Some(mtu),
                        None => {
                            let message = format!("\"{text}\" is not a largest packet for a bridge");
                            self.findings.error(value.at, message).hint(format!("it is {MTU_LEAST} to {MTU_MOST}"));
                        }
                    }
                }
                "com.docker.network.bridge.name" => spec.bridge = self.interface(value),
                _ => {
                    let message = format!("`{name}` is not honoured here: a bridge is made one way");
                    let instead =
                        "leave it out; `com.docker.network.driver.mtu` and `com.docker.network.bridge.name` are taken";
                    self.findings.refuse(entry.at, message).hint(instead);
                }
            }
        }
    }

    fn gateway(&mut self, node: &Node, subnet: Option<Ipv4Net>) -> Option<Ipv4Addr> {
        let text = node.as_text()?;
        let Ok(gateway) = text.parse::<Ipv4Addr>() else {
            self.findings.error(node.at, format!("\"{text}\" is not an IPv4 address"));
            return None;
        };
        match subnet {
            None => {
                self.findings.error(node.at, "a gateway needs a subnet").hint("give `subnet` beside it");
            }
            Some(net) if !net.contains(&gateway) || gateway == net.network() || gateway == net.broadcast() => {
                self.findings.error(node.at, format!("the gateway {gateway} is not an address of {net}"));
            }
            Some(_) => return Some(gateway),
        }
        None
    }

    /// Two services cannot ask for one address, nor a service for its network's gateway, nor several replicas for one.
    fn fixed_addresses(
        &mut self,
        services: &BTreeMap<ServiceName, Service>,
        specs: &BTreeMap<NetworkName, NetworkSpec>,
    ) {
        let mut taken: BTreeMap<(&NetworkName, Ipv4Addr), (&ServiceName, At)> = BTreeMap::new();
        for (name, service) in services {
            for network in &service.spec.networks {
                let Some(address) = network.address else { continue };
                let at = self.place_of_address(name, &network.network);
                if service.replicas > 1 {
                    let message = format!("one fixed address cannot be given to {} replicas", service.replicas);
                    self.findings.error(at, message);
                }
                let gateway = specs
                    .get(&network.network)
                    .and_then(|spec| spec.gateway.or_else(|| spec.subnet.and_then(|subnet| subnet.hosts().next())));
                if gateway == Some(address) {
                    self.findings.error(at, format!("{address} is the network's gateway"));
                }
                match taken.get(&(&network.network, address)) {
                    Some((other, first)) => {
                        let message = format!("the address {address} is asked for by the service `{other}` too");
                        self.findings.error(at, message).note(*first, "asked for here first");
                    }
                    None => {
                        taken.insert((&network.network, address), (name, at));
                    }
                }
            }
        }
    }

    fn place_of_address(&self, service: &ServiceName, network: &NetworkName) -> At {
        self.addresses.get(&(service.to_string(), network.to_string())).copied().unwrap_or_default()
    }
}

fn ipam(network: &Node) -> Option<&Node> {
    network.get("ipam")?.get("config")?.as_seq()?.iter().find(|config| !is_six(config))
}

fn truth(node: &Node, key: &str) -> bool {
    node.get(key).and_then(Node::as_bool) == Some(true)
}
