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
    #[serde(with = "list")]
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

/// JSON has no keys but strings: the table of ports is a list there.
mod list {
    use super::{Published, Target};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Serialize, Deserialize)]
    struct Entry<P, T> {
        at: P,
        to: T,
    }

    pub fn serialize<S: Serializer>(
        all: &BTreeMap<Published, BTreeSet<Target>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(|(at, to)| Entry { at, to }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Published, BTreeSet<Target>>, D::Error> {
        let list: Vec<Entry<Published, BTreeSet<Target>>> = Vec::deserialize(deserializer)?;
        Ok(list.into_iter().map(|entry| (entry.at, entry.to)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruleset_is_json_and_comes_back_as_it_was() {
        let at = Published { protocol: Protocol::Tcp, host_ip: None, port: 8080 };
        let to = Target { address: Ipv4Addr::new(10, 0, 0, 2), port: 80 };
        let ruleset = Ruleset { bridges: BTreeMap::new(), publications: [(at, [to].into())].into() };
        let text = serde_json::to_string(&ruleset).expect("JSON");
        assert_eq!(serde_json::from_str::<Ruleset>(&text).expect("a ruleset"), ruleset, "{text}");
    }
}
