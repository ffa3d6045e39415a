//! The node's nft table as data: what is rendered for a transaction, and what a listing is read back into.

use super::spec::Protocol;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The content of our one table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ruleset {
    /// Our bridges by name: masquerade, forwarding, the guard of the host's loopback.
    pub bridges: BTreeMap<String, BridgeRules>,
    /// Published ports.
    #[serde(with = "list")]
    pub publications: BTreeMap<Published, BTreeSet<Target>>,
    /// Who may connect to a published port, where not everybody may.
    #[serde(default, with = "list", skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<Published, BTreeSet<IpNet>>,
    /// Whether IPv4 and IPv6 forwarding were off before the first need of ours.
    #[serde(default)]
    pub forwarding_was_off: (bool, bool),
}

/// What the table says about one bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeRules {
    /// The addresses behind it.
    pub subnet: Ipv4Net,
    /// The IPv6 addresses behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet6: Option<Ipv6Net>,
    /// No way out, and no published ports from outside.
    pub internal: bool,
}

/// A port on the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Published {
    /// The protocol.
    pub protocol: Protocol,
    /// The host address; `None` for all of them.
    pub host_ip: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// Where a published port leads. Several targets of one port share its connections evenly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// The instance's address.
    pub address: IpAddr,
    /// The port in the container.
    pub port: u16,
}

/// JSON has no keys but strings: the table of ports is a list there.
mod list {
    use super::Published;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Serialize, Deserialize)]
    struct Entry<P, T> {
        at: P,
        to: T,
    }

    pub fn serialize<T: Serialize, S: Serializer>(
        all: &BTreeMap<Published, BTreeSet<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(|(at, to)| Entry { at, to }))
    }

    pub fn deserialize<'de, T: Deserialize<'de> + Ord, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Published, BTreeSet<T>>, D::Error> {
        let list: Vec<Entry<Published, BTreeSet<T>>> = Vec::deserialize(deserializer)?;
        Ok(list.into_iter().map(|entry| (entry.at, entry.to)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruleset_is_json_and_comes_back_as_it_was() {
        let at = Published { protocol: Protocol::Tcp, host_ip: None, port: 8080 };
        let to = Target { address: IpAddr::from([10, 0, 0, 2]), port: 80 };
        let ruleset = Ruleset { publications: [(at, [to].into())].into(), ..Ruleset::default() };
        let text = serde_json::to_string(&ruleset).expect("JSON");
        assert_eq!(serde_json::from_str::<Ruleset>(&text).expect("a ruleset"), ruleset, "{text}");
    }
}
