//! # From a tree in normal form to the model
//!
//! Lowers the merged tree into [`App`](crate::model::App) fields, and refuses what a node does not honour: by name, with
//! its place, why, and what to do instead.
//!
//! Guarantees: nothing is dropped in silence; defaults of ours are not put in (see `model::spec`); all findings are told.
//! Never: reads a value from anywhere but the tree and the files that it names.
//!
//! Tests: `tests/desired_files.rs`, `tests/compose_lower.rs`.

mod archive;
mod grants;
mod image;
mod ipv6;
pub use image::normalise as normalise_reference;
mod lifecycle;
mod limits;
mod modes;
mod mounts;
mod networks;
mod security;
mod service;
mod setup;

use super::finding::Findings;
use super::node::{At, Entry, Node, Value};
use super::table::{Shape, Stand, TOP, Table};
use crate::model::{AppName, NetworkName, NetworkSpec, Place, Protocol, Service, ServiceName, VolumeName};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What an app's file says, in the model's words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// The services.
    pub services: BTreeMap<ServiceName, Service>,
    /// The networks in use.
    pub networks: BTreeMap<NetworkName, NetworkSpec>,
    /// The named volumes.
    pub volumes: BTreeSet<VolumeName>,
    /// What it takes of the node for itself alone.
    pub claims: Vec<Claim>,
}

/// Something that only one app of a node can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// What.
    pub what: Claimed,
    /// Where it is asked for.
    pub place: Place,
    /// The line there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// What can be claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claimed {
    /// A port of the host.
    Port {
        /// Its protocol.
        protocol: Protocol,
        /// The address; every address where not set.
        host_ip: Option<IpAddr>,
        /// The port.
        port: u16,
    },
    /// A subnet.
    Subnet(Ipv4Net),
    /// An IPv6 subnet.
    Subnet6(Ipv6Net),
    /// A bridge's name.
    Bridge(String),
    /// That another service, of any app, comes first. Nobody else is kept from it; a circle of them is.
    Need {
        /// Who needs it.
        from: ServiceName,
        /// Its app.
        app: AppName,
        /// The service.
        service: ServiceName,
    },
}

/// The work on one app.
pub(super) struct Lower<'a> {
    findings: &'a mut Findings,
    /// The app's name, where it can be told.
    app: Option<AppName>,
    /// The services by name.
    services: BTreeSet<String>,
    /// The project directory.
    dir: &'a Path,
    /// The archives that were looked into.
    inputs: &'a mut BTreeSet<PathBuf>,
    tree: &'a Node,
    /// Values that configs and secrets may be taken from.
    env: &'a BTreeMap<String, String>,
    contents: grants::Contents,
    networks: &'a Node,
    volumes: BTreeSet<String>,
    /// Where fixed addresses are asked for, by service and network.
    addresses: BTreeMap<(String, String), At>,
    /// The same for IPv6.
    addresses6: BTreeMap<(String, String), At>,
    /// Networks that a service names.
    named: BTreeSet<String>,
    /// The published ports of the services lowered so far.
    ports: Vec<service::PlacedPort>,
    /// The subnets of the networks in use.
    subnets: Vec<(At, Ipv4Net)>,
    /// The IPv6 subnets.
    subnets6: Vec<(At, Ipv6Net)>,
    /// The names of bridges that the file gives.
    bridges: Vec<(At, String)>,
    /// Who needs whom.
    needed: Vec<lifecycle::PlacedNeed>,
}

/// Lowers a tree.
pub fn lower(
    tree: &Node,
    (name, dir): (&str, &Path),
    env: &BTreeMap<String, String>,
    findings: &mut Findings,
    inputs: &mut BTreeSet<PathBuf>,
) -> Content {
    refuse(Shape::Table(&TOP), tree, findings);
    let nothing = Node::map(At::default(), [] as [(String, Node); 0]);
    let volumes = tree.get("volumes").and_then(Node::as_map);
    let services = tree.get("services").and_then(Node::as_map);
    let mut lower = Lower {
        findings,
        app: AppName::new(name).ok(),
        services: services.into_iter().flat_map(|map| map.keys().cloned()).collect(),
        dir,
        inputs,
        tree,
        env,
        contents: BTreeMap::new(),
        networks: tree.get("networks").unwrap_or(&nothing),
        volumes: volumes.map(|map| map.keys().cloned().collect()).unwrap_or_default(),
        addresses: BTreeMap::new(),
        addresses6: BTreeMap::new(),
        named: BTreeSet::new(),
        ports: Vec::new(),
        subnets: Vec::new(),
        subnets6: Vec::new(),
        bridges: Vec::new(),
        needed: Vec::new(),
    };
    let mut content = Content { volumes: lower.declared_volumes(tree), ..Content::default() };
    // A file that could not be read, or whose services could not, has been told of already.
    let untold = !lower.findings.any_error();
    if services.is_none_or(|services| services.is_empty()) && untold {
        let at = tree.as_map().and_then(|map| map.get("services")).map_or(first_line(tree), |entry| entry.at);
        lower.findings.error(at, "there is no service in the file, so there is nothing to run");
    }
    for (name, entry) in services.into_iter().flatten() {
        if let (Some(key), Some(service)) = (lower.service_name(name, entry), lower.service(name, entry)) {
            content.services.insert(key, service);
        }
    }
    lower.shared_networks(services.into_iter().flatten(), &content.services);
    content.networks = lower.used_networks(&content.services);
    lower.needs_can_hold(&content.services);
    lower.one_of_a_kind(services.into_iter().flatten(), &content.services);
    lower.same_ports();
    lower.same_subnets();
    lower.same_subnets6();
    lower.same_bridges();
    content.claims = lower.claims();
    content
}

/// The beginning of the file that a tree is from.
fn first_line(tree: &Node) -> At {
    At { line: 1, column: 1, ..tree.at }
}

impl Lower<'_> {
    fn service_name(&mut self, name: &str, entry: &Entry) -> Option<ServiceName> {
        match ServiceName::new(name) {
            Ok(name) => Some(name),
            Err(error) => {
                self.findings.error(entry.at, error.to_string());
                None
            }
        }
    }

    fn declared_volumes(&mut self, tree: &Node) -> BTreeSet<VolumeName> {
        let mut names = BTreeSet::new();
        for (name, entry) in tree.get("volumes").and_then(Node::as_map).into_iter().flatten() {
            match VolumeName::new(name.as_str()) {
                Ok(name) => {
                    names.insert(name);
                }
                Err(error) => {
                    self.findings.error(entry.at, error.to_string());
                }
            }
            if let Some(driver) = entry.node.get("driver").filter(|node| node.as_text() != Some("local")) {
                let message = format!("there is no volume driver `{}` on a node", driver.as_text().unwrap_or_default());
                self.findings.refuse(driver.at, message).hint("leave the driver out: a volume is a directory");
            }
        }
        names
    }

    /// No host port can be published twice.
    fn same_ports(&mut self) {
        type Takers = Vec<(At, Option<IpAddr>)>;
        let mut taken: BTreeMap<(Protocol, u16), Takers> = BTreeMap::new();
        for (at, port) in &self.ports {
            let Some(host) = port.host else { continue };
            let others = taken.entry((port.protocol, host)).or_default();
            let clash = others.iter().find(|(_, ip)| ip.is_none() || port.host_ip.is_none() || *ip == port.host_ip);
            if let Some((first, _)) = clash {
                let message = format!("the host port {host}/{} is published twice", port.protocol.as_str());
                let complaint = self.findings.refuse(*at, message);
                complaint.note(*first, "published here first").hint("give one of them another host port");
            }
            others.push((*at, port.host_ip));
        }
    }

    /// No two networks of one app can have overlapping subnets.
    fn same_subnets(&mut self) {
        for (index, (at, subnet)) in self.subnets.iter().enumerate() {
            let overlap = |other: &&(At, Ipv4Net)| other.1.contains(subnet) || subnet.contains(&other.1);
            if let Some((first, other)) = self.subnets[..index].iter().find(overlap) {
                let complaint = self.findings.refuse(*at, format!("the subnet {subnet} overlaps {other}"));
                complaint.note(*first, "the other one is here");
            }
        }
    }

    /// No two networks of one app can have one bridge.
    fn same_bridges(&mut self) {
        let mut taken: BTreeMap<&str, At> = BTreeMap::new();
        for (at, name) in &self.bridges {
            match taken.get(name.as_str()) {
                Some(first) => {
                    let complaint = self.findings.refuse(*at, format!("two networks name the bridge `{name}`"));
                    complaint.note(*first, "the other one is here");
                }
                None => drop(taken.insert(name, *at)),
            }
        }
    }

    /// What this app takes of the node for itself alone.
    fn claims(&self) -> Vec<Claim> {
        let claim = |at: At, what: Claimed| Claim {
            what,
            place: self.findings.files.place(at),
            line: self.findings.files.line(at),
        };
        let ports = self.ports.iter().filter_map(|(at, port)| {
            let (protocol, host_ip, port) = (port.protocol, port.host_ip, port.host?);
            Some(claim(*at, Claimed::Port { protocol, host_ip, port }))
        });
        let subnets = self.subnets.iter().map(|(at, subnet)| claim(*at, Claimed::Subnet(*subnet)));
        let bridges = self.bridges.iter().map(|(at, name)| claim(*at, Claimed::Bridge(name.clone())));
        let needs = self.needed.iter().map(|(at, from, need)| {
            let (from, app, service) = (from.clone(), need.app.clone(), need.service.clone());
            claim(*at, Claimed::Need { from, app, service })
        });
        let subnets6 = self.subnets6.iter().map(|(at, subnet)| claim(*at, Claimed::Subnet6(*subnet)));
        ports.chain(subnets).chain(subnets6).chain(bridges).chain(needs).collect()
    }

    /// Faults between services: one container name, one host port, one address, each asked for twice.
    fn one_of_a_kind<'n>(
        &mut self,
        services: impl Iterator<Item = (&'n String, &'n Entry)>,
        lowered: &BTreeMap<ServiceName, Service>,
    ) {
        let mut names: BTreeMap<&str, At> = BTreeMap::new();
        for (name, entry) in services {
            let Some(node) = entry.node.get("container_name") else { continue };
            let Some(text) = node.as_text() else { continue };
            if let Some(first) = names.get(text) {
                let message = format!("the container name `{text}` is taken by another service");
                self.findings.refuse(node.at, message).note(*first, "first given here");
            }
            names.entry(text).or_insert(node.at);
            let replicas =
                ServiceName::new(name.as_str()).ok().and_then(|name| lowered.get(&name)).map_or(1, |s| s.replicas);
            if replicas > 1 {
                let message = format!("`container_name` is for one container, and this service has {replicas}");
                self.findings.error(node.at, message).hint("leave the name out, or run one replica");
            }
        }
    }
}

/// Refuses, by the table, what is in a tree and not honoured; says what has no meaning.
fn refuse(shape: Shape, node: &Node, findings: &mut Findings) {
    let Some(table) = shape.keys() else { return };
    match (shape, &node.value) {
        (Shape::Table(_) | Shape::TableOrNull(_) | Shape::Build | Shape::Extends, _) => {
            refuse_keys(table, node, findings)
        }
        (_, Value::Seq(items)) => items.iter().for_each(|node| refuse_keys(table, node, findings)),
        (_, Value::Map(map)) => map.values().for_each(|entry| refuse_keys(table, &entry.node, findings)),
        _ => {}
    }
}

fn refuse_keys(table: &'static Table, node: &Node, findings: &mut Findings) {
    for (name, entry) in node.as_map().into_iter().flatten() {
        let Some(key) = table.key(name) else { continue };
        match key.stand {
            Stand::Refused(why, instead) => {
                findings.refuse(entry.at, format!("`{name}` is not honoured here: {why}")).hint(instead);
            }
            Stand::Meaningless(why) => {
                findings.remark(entry.at, format!("`{name}` has no meaning on a node: {why}"));
            }
            Stand::Honoured => refuse(key.shape, &entry.node, findings),
        }
    }
}
