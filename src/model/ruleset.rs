//! The node's nft table as data: what is rendered for a transaction, and what a listing is read back into.

use super::spec::Protocol;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The content of our one table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ruleset {
    /// Our bridges by name: masquerade, forwarding, the guard of the host's loopback.
    pub bridges: BTreeMap<String, BridgeRules>,
    /// Published ports.
    pub publications: BTreeMap<Published, BTreeSet<Target>>,
}

/// What the table says about one bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeRules {
    /// The addresses behind it.
    pub subnet: Ipv4Net,
    /// No way out, and no published ports from outside.
    pub internal: bool,
}

/// A port on the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Published {
    /// The protocol.
    pub protocol: Protocol,
    /// The host address; `None` for all of them.
    pub host_ip: Option<Ipv4Addr>,
    /// The port.
    pub port: u16,
}

/// Where a published port leads. Several targets of one port share its connections evenly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// The instance's address.
    pub address: Ipv4Addr,
    /// The port in the container.
    pub port: u16,
}
