//! A ruleset as a table: sets, maps, chains and rules as data, and as one script for `nft -f -`.
//!
//! The data is the base of two things, the script and what its listing has to look like, so that they cannot differ.
//! The number of rules grows with the bridges only; ports are elements. Everything that a [`Ruleset`] says stands in
//! elements too (`bridges`, `tcp_targets`, `udp_targets`), from where a listing is read back.
//!
//! ```text
//! prerouting ─▶ guard: the bridges do not reach the host's 127.0.0.0/8
//! prerouting, output ─▶ publish: a local address and port becomes an instance's (one target: a map; several: a chain each)
//! forward ─▶ within a bridge; published ports in; outer bridges out; else nothing from or to our bridges
//! postrouting ─▶ masquerade on the way out, on the way back into the same bridge, and from 127.0.0.0/8
//! ```

use crate::model::{Protocol, Published, Ruleset, Target, hex};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// A table as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) sets: BTreeMap<String, Set>,
    pub(super) chains: BTreeMap<String, Chain>,
}

/// A set or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    /// The type of its keys.
    pub(super) key: &'static str,
    /// The type of a map's data.
    pub(super) data: Option<&'static str>,
    /// Keys with data and comment, as nft writes them.
    pub(super) elements: BTreeMap<String, Element>,
}

/// What belongs to a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Element {
    pub(super) data: Option<String>,
    pub(super) comment: Option<String>,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    /// Type, hook and priority of a base chain. Its policy is always accept: what is not ours is not judged.
    pub(super) base: Option<(&'static str, &'static str, i64)>,
    /// Its rules.
    pub(super) rules: Vec<Rule>,
}

/// A rule with its comment, which ends in a digest of the rule: a listing shows comments as they were given, while it
/// shows rules in each nft version's own way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) text: String,
    pub(super) comment: String,
}

/// The set of subnets by bridge.
pub(super) const BRIDGES: &str = "bridges";
/// What a bridge without a way out has behind its subnet in its comment.
pub(super) const INTERNAL: &str = " internal";
/// The set that says that flows of the table before this one have been cut; filled after the transaction.
pub(super) const FLOWS_CUT: &str = "flows_cut";
/// Its one element.
const CUT: &str = "1";
/// The targets set of a protocol.
pub(super) fn targets_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp_targets",
        Protocol::Udp => "udp_targets",
    }
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
const LOOPBACK: &str = "127.0.0.0/8";

impl Table {
    /// The table of a ruleset, as it is when everything about it is done.
    pub(super) fn of(ruleset: &Ruleset) -> Self {
        let mut table = Self { sets: BTreeMap::new(), chains: BTreeMap::new() };
        table.bridge_sets(ruleset);
        PROTOCOLS.into_iter().for_each(|protocol| table.publication_sets(ruleset, protocol));
        table.sets.insert(FLOWS_CUT.into(), Set::of("inet_service", [CUT.to_owned()]));
        table.nat_chains(ruleset);
        table.filter_chains();
        table
    }

    /// The script that puts this table in the place of whatever table of that name there is, in one transaction.
    pub(super) fn script(&self, name: &str) -> String {
        let mut text = format!("{}table inet {name} {{\n", removal(name));
        for (name, set) in &self.sets {
            set.write(name, &mut text);
        }
        for (name, chain) in self.chains.iter().filter(|(_, chain)| chain.base.is_none()) {
            chain.write(name, &mut text);
        }
        for (name, chain) in self.chains.iter().filter(|(_, chain)| chain.base.is_some()) {
            chain.write(name, &mut text);
        }
        text.push_str("}\n");
        text
    }

    fn bridge_sets(&mut self, ruleset: &Ruleset) {
        let mut bridges = Set::of("ifname", []);
        for (name, rules) in &ruleset.bridges {
            let comment = format!("{}{}", rules.subnet, if rules.internal { INTERNAL } else { "" });
            bridges.elements.insert(quoted(name), Element { data: None, comment: Some(comment) });
        }
        let within = ruleset.bridges.keys().map(|name| format!("{0} . {0}", quoted(name)));
        let internal = ruleset.bridges.iter().filter(|(_, rules)| rules.internal).map(|(name, _)| quoted(name));
        self.sets.insert("within".into(), Set::of("ifname . ifname", within));
        self.sets.insert("internal".into(), Set::of("ifname", internal));
        self.sets.insert(BRIDGES.into(), bridges);
    }

    fn publication_sets(&mut self, ruleset: &Ruleset, protocol: Protocol) {
        const ANY: &str = "inet_service";
        const AT: &str = "ipv4_addr . inet_service";
        const TO: &str = "ipv4_addr . inet_service";
        let word = protocol.as_str();
        let (mut any, mut any_spread) = (Set::map(ANY, TO), Set::map(ANY, "verdict"));
        let (mut at, mut at_spread) = (Set::map(AT, TO), Set::map(AT, "verdict"));
        let mut targets = Set::of("ipv4_addr . inet_service . ipv4_addr . inet_service", []);
        for (published, to) in ruleset.publications.iter().filter(|(published, _)| published.protocol == protocol) {
            let host = published.host_ip.unwrap_or(Ipv4Addr::UNSPECIFIED);
            let lines = to.iter().map(|to| format!("{host} . {} . {}", published.port, pair(to)));
            targets.elements.extend(lines.map(|line| (line, Element::default())));
            let data = match to.iter().collect::<Vec<_>>().as_slice() {
                [] => continue,
                [one] => pair(one),
                _ => format!("goto {}", self.spread(published, to)),
            };
            let (map, key) = match (published.host_ip, to.len()) {
                (None, 1) => (&mut any, published.port.to_string()),
                (None, _) => (&mut any_spread, published.port.to_string()),
                (Some(ip), 1) => (&mut at, format!("{ip} . {}", published.port)),
                (Some(ip), _) => (&mut at_spread, format!("{ip} . {}", published.port)),
            };
            map.elements.insert(key, Element { data: Some(data), comment: None });
        }
        self.sets.insert(targets_of(protocol).into(), targets);
        let maps = [("any", any), ("any_spread", any_spread), ("at", at), ("at_spread", at_spread)];
        self.sets.extend(maps.map(|(name, map)| (format!("{word}_{name}"), map)));
    }

    /// A chain that shares the connections of one port evenly among its targets.
    fn spread(&mut self, published: &Published, to: &BTreeSet<Target>) -> String {
        let word = published.protocol.as_str();
        let name = match published.host_ip {
            None => format!("spread_{word}_{}", published.port),
            Some(ip) => format!("spread_{word}_{ip}_{}", published.port),
        };
        let turns: Vec<String> =
            to.iter().enumerate().map(|(turn, target)| format!("{turn} : {}", pair(target))).collect();
        let (count, turns) = (to.len(), turns.join(", "));
        let text = format!("meta l4proto {word} dnat ip to numgen inc mod {count} map {{ {turns} }}");
        self.chains.insert(name.clone(), Chain::new(None, vec![rule(text, "one target after another")]));
        name
    }

    fn nat_chains(&mut self, ruleset: &Ruleset) {
        let publish = PROTOCOLS.into_iter().flat_map(|protocol| {
            let word = protocol.as_str();
            [
                rule(format!("dnat ip to ip daddr . {word} dport map @{word}_at"), "published on one address"),
                rule(format!("dnat ip to {word} dport map @{word}_any"), "published on every address"),
                rule(format!("ip daddr . {word} dport vmap @{word}_at_spread"), "the same, with several targets"),
                rule(format!("{word} dport vmap @{word}_any_spread"), "the same, with several targets"),
            ]
        });
        self.chains.insert("publish".into(), Chain::new(None, publish.collect()));
        let to_publish = || rule("fib daddr type local jump publish".into(), "published ports");
        // A packet from outside to 127.0.0.1 would be made one to an instance before the kernel sees that it is bogus.
        let not_loopback = rule(format!("ip daddr {LOOPBACK} return"), "127.0.0.1 is for the host itself");
        let prerouting = vec![not_loopback, to_publish()];
        self.chains.insert("prerouting".into(), Chain::new(Some(("nat", "prerouting", -100)), prerouting));
        self.chains.insert("output".into(), Chain::new(Some(("nat", "output", -100)), vec![to_publish()]));

        let mut postrouting = Vec::new();
        for (name, rules) in &ruleset.bridges {
            let (subnet, bridge) = (rules.subnet, quoted(name));
            if !rules.internal {
                let text = format!("ip saddr {subnet} oifname != @{BRIDGES} masquerade");
                postrouting.push(rule(text, "the way out"));
            }
            let text = format!("oifname {bridge} ip saddr {subnet} ct status dnat masquerade");
            postrouting.push(rule(text, "a published port of the same network"));
        }
        let text = format!("oifname @{BRIDGES} ip saddr {LOOPBACK} masquerade");
        postrouting.push(rule(text, "published ports from 127.0.0.1"));
        self.chains.insert("postrouting".into(), Chain::new(Some(("nat", "postrouting", 100)), postrouting));
    }

    fn filter_chains(&mut self) {
        // The bridges have route_localnet, which opens what the host listens on at 127.0.0.1; this closes it again.
        let guard = vec![
            rule(format!("iifname @{BRIDGES} ip daddr {LOOPBACK} drop"), "the host's loopback is its own"),
            rule(format!("iifname @{BRIDGES} ip saddr {LOOPBACK} drop"), "the host's loopback is its own"),
        ];
        self.chains.insert("guard".into(), Chain::new(Some(("filter", "prerouting", -300)), guard));
        let forward = [
            ("ct state established,related accept".to_owned(), "what was let through before"),
            ("iifname . oifname @within accept".to_owned(), "within a network"),
            ("iifname @internal drop".to_owned(), "an internal network has no way out"),
            ("oifname @internal drop".to_owned(), "an internal network has no way in"),
            (format!("oifname @{BRIDGES} ct status dnat accept"), "published ports"),
            (format!("iifname @{BRIDGES} oifname != @{BRIDGES} accept"), "the way out"),
            (format!("iifname @{BRIDGES} drop"), "networks are apart"),
            (format!("oifname @{BRIDGES} drop"), "what is not published is closed"),
        ];
        let forward = forward.into_iter().map(|(text, why)| rule(text, why)).collect();
        self.chains.insert("forward".into(), Chain::new(Some(("filter", "forward", 0)), forward));
    }
}

/// The script that removes a table, whether it is there or not.
pub(super) fn removal(name: &str) -> String {
    format!("add table inet {name}\ndelete table inet {name}\n")
}

/// The script that says that the flows have been cut.
pub(super) fn flows_cut(name: &str) -> String {
    format!("add element inet {name} {FLOWS_CUT} {{ {CUT} }}\n")
}

impl Set {
    fn of(key: &'static str, keys: impl IntoIterator<Item = String>) -> Self {
        Self { key, data: None, elements: keys.into_iter().map(|key| (key, Element::default())).collect() }
    }

    fn map(key: &'static str, data: &'static str) -> Self {
        Self { key, data: Some(data), elements: BTreeMap::new() }
    }

    fn write(&self, name: &str, text: &mut String) {
        let (word, data) = match self.data {
            None => ("set", String::new()),
            Some(data) => ("map", format!(" : {data}")),
        };
        let _ = writeln!(text, "  {word} {name} {{\n    type {}{data}", self.key);
        // The flows are cut once the table is in force.
        if !self.elements.is_empty() && name != FLOWS_CUT {
            let elements: Vec<String> = self.elements.iter().map(|(key, element)| element.written(key)).collect();
            let _ = writeln!(text, "    elements = {{ {} }}", elements.join(",\n      "));
        }
        text.push_str("  }\n");
    }
}

impl Element {
    fn written(&self, key: &str) -> String {
        let comment = self.comment.as_ref().map(|comment| format!(" comment {}", quoted(comment)));
        let data = self.data.as_ref().map(|data| format!(" : {data}"));
        format!("{key}{}{}", comment.unwrap_or_default(), data.unwrap_or_default())
    }
}

impl Chain {
    fn new(base: Option<(&'static str, &'static str, i64)>, rules: Vec<Rule>) -> Self {
        Self { base, rules }
    }

    fn write(&self, name: &str, text: &mut String) {
        let _ = writeln!(text, "  chain {name} {{");
        if let Some((kind, hook, priority)) = self.base {
            let _ = writeln!(text, "    type {kind} hook {hook} priority {priority}\n    policy accept");
        }
        for Rule { text: rule, comment } in &self.rules {
            let _ = writeln!(text, "    {rule} comment {}", quoted(comment));
        }
        text.push_str("  }\n");
    }
}

fn rule(text: String, why: &str) -> Rule {
    const DIGEST: usize = 5;
    let digest = hex(&Sha256::digest(&text)[..DIGEST]);
    Rule { comment: format!("{why} #{digest}"), text }
}

fn pair(target: &Target) -> String {
    format!("{} . {}", target.address, target.port)
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BridgeRules;

    #[test]
    fn the_script_of_a_small_node() {
        let bridge = |subnet: &str, internal| BridgeRules { subnet: subnet.parse().expect("a subnet"), internal };
        let target = |address: &str| Target { address: address.parse().expect("an address"), port: 80 };
        let published = |protocol, host_ip, port| Published { protocol, host_ip, port };
        let loopback = Some(Ipv4Addr::LOCALHOST);
        let ruleset = Ruleset {
            bridges: BTreeMap::from([
                ("st0".into(), bridge("10.9.0.0/24", false)),
                ("st1".into(), bridge("10.9.1.0/24", true)),
            ]),
            publications: BTreeMap::from([
                (published(Protocol::Tcp, None, 8080), BTreeSet::from([target("10.9.0.2")])),
                (published(Protocol::Tcp, None, 8081), BTreeSet::from([target("10.9.0.2"), target("10.9.0.3")])),
                (published(Protocol::Udp, loopback, 53), BTreeSet::from([target("10.9.0.2")])),
            ]),
        };
        insta::assert_snapshot!(Table::of(&ruleset).script("stead"));
    }
}
