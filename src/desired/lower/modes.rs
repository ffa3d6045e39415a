//! Whose network a service has, and what its instances are told of names.

use super::Lower;
use crate::desired::node::{Entry, Node};
use crate::model::{HostAddress, Names, NetworkMode, NetworkUse, Service, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The longest name that the kernel takes for an interface.
const INTERFACE: usize = 15;

impl Lower<'_> {
    /// `network_mode`; nothing for a network of its own.
    pub(super) fn network_mode(&mut self, service: &Node) -> Option<NetworkMode> {
        let node = service.get("network_mode")?;
        let text = node.as_text()?;
        let mode = match text.split_once(':') {
            None if text == "none" => NetworkMode::None,
            None if text == "host" => NetworkMode::Host,
            Some(("service", name)) => NetworkMode::Service(ServiceName::new(name).ok()?),
            Some(("container", _)) => {
                let message = "a container of its own choosing cannot be shared with: containers come and go";
                self.findings
                    .refuse(node.at, message)
                    .hint("write `network_mode: service:NAME`, a service of this file");
                return None;
            }
            _ => {
                let message = format!("there is no network mode `{text}` on a node");
                self.findings.refuse(node.at, message).hint("none, host, or service:NAME; else use `networks`");
                return None;
            }
        };
        if let Some(ports) = service.get("ports").filter(|ports| ports.as_seq().is_some_and(|all| !all.is_empty())) {
            let (why, instead) = match &mode {
                NetworkMode::None => ("without a network no port can be published", "leave `network_mode` out"),
                NetworkMode::Host => ("in the host's network ports are open already", "leave `ports` out"),
                NetworkMode::Service(_) => ("ports belong to the service that has the network", "publish them there"),
            };
            self.findings.refuse(ports.at, why).note(node.at, "its network is said here").hint(instead);
        }
        Some(mode)
    }

    /// A service whose network others have has one of its own, with as many instances as they have.
    pub(super) fn shared_networks<'n>(
        &mut self,
        nodes: impl Iterator<Item = (&'n String, &'n Entry)>,
        services: &BTreeMap<ServiceName, Service>,
    ) {
        for (name, entry) in nodes {
            let Some(node) = entry.node.get("network_mode") else { continue };
            let Some(service) = ServiceName::new(name.as_str()).ok().and_then(|name| services.get(&name)) else {
                continue;
            };
            let Some(NetworkMode::Service(of)) = &service.spec.network_mode else { continue };
            let Some(owner) = services.get(of) else { continue };
            if owner.spec.network_mode.as_ref().is_some_and(|mode| *mode != NetworkMode::None) {
                let message = format!("the service `{of}` has no network of its own to share");
                self.findings.refuse(node.at, message).hint(format!("write the same `network_mode` as `{of}` has"));
            } else if owner.replicas < service.replicas {
                let message =
                    format!("{} instances cannot share the networks of {} of `{of}`", service.replicas, owner.replicas);
                self.findings.refuse(node.at, message).hint("each shares with the one of its number: run as many");
            }
        }
    }

    /// `dns`, `dns_search`, `dns_opt` and `extra_hosts`.
    pub(super) fn names(&mut self, service: &Node) -> Names {
        let words = |key: &str| -> Vec<String> {
            let items = service.get(key).and_then(Node::as_seq).unwrap_or_default();
            items.iter().filter_map(Node::as_text).map(str::to_owned).collect()
        };
        let mut names = Names { search: words("dns_search"), options: words("dns_opt"), ..Names::default() };
        for node in service.get("dns").and_then(Node::as_seq).into_iter().flatten() {
            names.servers.extend(self.ip(node));
        }
        for key in ["dns_search", "dns_opt"] {
            for node in service.get(key).and_then(Node::as_seq).into_iter().flatten() {
                let text = node.as_text().unwrap_or_default();
                if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
                    self.findings.error(node.at, format!("\"{text}\" is not one word for `{key}`"));
                }
            }
        }
        let alone = service.get_text("network_mode") == Some("none");
        for (host, entry) in service.get("extra_hosts").and_then(Node::as_map).into_iter().flatten() {
            let name = Node::text(entry.at, host.as_str());
            let Some(name) = self.host_name(&name) else { continue };
            let mut addresses = Vec::new();
            for node in entry.node.as_seq().unwrap_or_default() {
                if node.as_text() != Some("host-gateway") {
                    addresses.extend(self.ip(node).map(HostAddress::At));
                } else if alone {
                    self.findings.refuse(node.at, "without a network there is no way to the host").hint("leave it out");
                } else {
                    addresses.push(HostAddress::HostGateway);
                }
            }
            names.hosts.insert(name, addresses);
        }
        names
    }

    fn ip(&mut self, node: &Node) -> Option<IpAddr> {
        let text = node.as_text()?;
        let address = text.parse().ok();
        if address.is_none() {
            self.findings.error(node.at, format!("\"{text}\" is not an IP address"));
        }
        address
    }

    /// A MAC that one interface can have.
    pub(super) fn mac(&mut self, node: &Node) -> Option<[u8; 6]> {
        let text = node.as_text()?;
        let parts: Vec<Option<u8>> =
            text.split([':', '-']).map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2)).collect();
        let bytes: Option<Vec<u8>> = parts.into_iter().collect();
        match bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()) {
            Some(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Some(mac),
            Some(_) => {
                let message = format!("\"{text}\" is no address of one interface");
                self.findings
                    .error(node.at, message)
                    .hint("the first byte of such a one is even, as in 02:00:00:00:00:01");
                None
            }
            None => {
                self.findings
                    .error(node.at, format!("\"{text}\" is not a MAC"))
                    .hint("write it like 02:42:ac:11:00:02");
                None
            }
        }
    }

    /// A name that the kernel takes for an interface.
    pub(super) fn interface(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text()?;
        let good = (1..=INTERFACE).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
            && !matches!(text, "." | ".." | "lo" | "all" | "default");
        if !good {
            let message = format!("\"{text}\" is not a name for an interface");
            self.findings.error(node.at, message).hint("1 to 15 letters, digits, dots, dashes and underscores");
        }
        good.then(|| text.to_owned())
    }

    /// One interface has one name and one MAC, of its own.
    pub(super) fn apart(&mut self, service: &Node, uses: &[NetworkUse], replicas: u32) {
        let (mut names, mut macs) = (BTreeSet::new(), BTreeSet::new());
        let at = service.get("networks").map_or(service.at, |node| node.at);
        for network in uses {
            if network.interface.as_ref().is_some_and(|name| !names.insert(name)) {
                let message =
                    format!("two interfaces are named `{}`", network.interface.as_deref().unwrap_or_default());
                self.findings.error(at, message);
            }
            let Some(mac) = &network.mac else { continue };
            if !macs.insert(mac) {
                self.findings.error(at, "two interfaces have one MAC");
            }
            if replicas > 1 {
                self.findings.error(at, format!("one MAC cannot be given to {replicas} replicas"));
            }
        }
    }
}
