//! A ruleset as a table: sets, maps, chains and rules as data, and as one script for `nft -f -`.
//!
//! The data is the base of two things, the script and what its listing has to look like, so that they cannot differ.
//! The number of rules grows with the bridges only; ports are elements. Everything that a [`Ruleset`] says stands in
//! elements too (`bridges`, `tcp_targets`, `udp_targets`), from where a listing is read back.
//!
//! ```text
//! prerouting ─▶ guard: the bridges do not reach the host's 127.0.0.0/8
//! prerouting, output ─▶ publish: a local address and port becomes an instance's (one target that everybody may reach: a
//!     map; else a chain)
//! forward ─▶ within a bridge; published ports in; outer bridges out; else nothing from or to our bridges
//! postrouting ─▶ masquerade on the way out, on the way back into the same bridge, and from 127.0.0.0/8
//! ```

use crate::model::{Protocol, Published, Ruleset, Target, hex};
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

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
/// The set that says which kinds of forwarding were off before.
pub(super) const FORWARDING: &str = "forwarding_was_off";
/// The targets set of a protocol and a family.
pub(super) fn targets_of(protocol: Protocol, family: Family) -> String {
    format!("{}{}_targets", protocol.as_str(), family.suffix())
}

/// The set of who may connect, of a protocol and a family of those.
pub(super) fn sources_of(protocol: Protocol, family: Family) -> String {
    format!("{}{}_sources", protocol.as_str(), family.suffix())
}

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Four,
    Six,
}

pub(super) const FAMILIES: [Family; 2] = [Family::Four, Family::Six];

impl Family {
    /// The family of an address.
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Four } else { Self::Six }
    }

    /// The bare address that stands for all of them.
    pub(super) fn every(self) -> IpAddr {
        match self {
            Self::Four => IpAddr::from([0; 4]),
            Self::Six => IpAddr::from([0; 16]),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Four => "",
            Self::Six => "6",
        }
    }

    /// What nft calls it in rules.
    fn word(self) -> &'static str {
        match self {
            Self::Four => "ip",
            Self::Six => "ip6",
        }
    }

    /// Its name where a rule asks for it; nft does not add that to a `dnat` by itself when the target comes from a map.
    fn protocol(self) -> &'static str {
        match self {
            Self::Four => "ipv4",
            Self::Six => "ipv6",
        }
    }

    /// The types of a set of (address, port), of one of twice that, and of one of (any address, port, network).
    fn pair_type(self) -> &'static str {
        match self {
            Self::Four => "ipv4_addr . inet_service",
            Self::Six => "ipv6_addr . inet_service",
        }
    }

    fn targets_type(self) -> &'static str {
        match self {
            Self::Four => "ipv4_addr . inet_service . ipv4_addr . inet_service",
            Self::Six => "ipv6_addr . inet_service . ipv6_addr . inet_service",
        }
    }

    fn sources_type(self) -> &'static str {
        match self {
            Self::Four => "ipv6_addr . inet_service . ipv4_addr . inet_service",
            Self::Six => "ipv6_addr . inet_service . ipv6_addr . inet_service",
        }
    }
}

/// An address of either family as one of IPv6, for sets that hold both; `::` for every address.
pub(super) fn as_six(address: Option<IpAddr>) -> Ipv6Addr {
    match address {
        None => Ipv6Addr::UNSPECIFIED,
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
        Some(IpAddr::V6(address)) => address,
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
        let was_off = [(ruleset.forwarding_was_off.0, "4"), (ruleset.forwarding_was_off.1, "6")];
        let was_off = was_off.into_iter().filter(|(off, _)| *off).map(|(_, family)| family.to_owned());
        table.sets.insert(FORWARDING.into(), Set::of("inet_service", was_off));
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
            let six = rules.subnet6.map(|subnet| format!(" {subnet}")).unwrap_or_default();
            let comment = format!("{}{six}{}", rules.subnet, if rules.internal { INTERNAL } else { "" });
            bridges.elements.insert(quoted(name), Element { data: None, comment: Some(comment) });
        }
        let within = ruleset.bridges.keys().map(|name| format!("{0} . {0}", quoted(name)));
        let internal = ruleset.bridges.iter().filter(|(_, rules)| rules.internal).map(|(name, _)| quoted(name));
        self.sets.insert("within".into(), Set::of("ifname . ifname", within));
        self.sets.insert("internal".into(), Set::of("ifname", internal));
        self.sets.insert(BRIDGES.into(), bridges);
    }

    fn publication_sets(&mut self, ruleset: &Ruleset, protocol: Protocol) {
        let word = protocol.as_str();
        let mut any_spread = Set::map("inet_service", "verdict");
        let mut spreads: BTreeMap<Published, String> = BTreeMap::new();
        let published = || ruleset.publications.iter().filter(|(published, _)| published.protocol == protocol);
        for (at, to) in published() {
            let sources = ruleset.sources.get(at).filter(|sources| !sources.is_empty());
            let several =
                FAMILIES.iter().any(|family| to.iter().filter(|to| Family::of(to.address) == *family).count() > 1);
            if several || sources.is_some() {
                let verdict = format!("goto {}", self.spread(at, to, sources));
                if at.host_ip.is_none() {
                    let element = Element { data: Some(verdict.clone()), comment: None };
                    any_spread.elements.insert(at.port.to_string(), element);
                }
                spreads.insert(at.clone(), verdict);
            }
        }
        self.sets.insert(format!("{word}_any_spread"), any_spread);
        for family in FAMILIES {
            let pair_type = family.pair_type();
            let (mut any, mut at_one) = (Set::map("inet_service", pair_type), Set::map(pair_type, pair_type));
            let (mut at_spread, mut targets) = (Set::map(pair_type, "verdict"), Set::of(family.targets_type(), []));
            for (at, to) in published() {
                let host = at.host_ip.unwrap_or(family.every());
                let own = to.iter().filter(|to| Family::of(to.address) == family);
                for to in own {
                    targets.elements.insert(format!("{host} . {} . {}", at.port, pair(to)), Element::default());
                    let (map, key, data) = match (at.host_ip, spreads.get(at)) {
                        (None, Some(_)) => continue,
                        (None, None) => (&mut any, at.port.to_string(), pair(to)),
                        (Some(ip), None) => (&mut at_one, format!("{ip} . {}", at.port), pair(to)),
                        (Some(ip), Some(spread)) => (&mut at_spread, format!("{ip} . {}", at.port), spread.clone()),
                    };
                    map.elements.insert(key, Element { data: Some(data), comment: None });
                }
            }
            let word = format!("{word}{}", family.suffix());
            self.sets.insert(targets_of(protocol, family), targets);
            self.sets.insert(sources_of(protocol, family), sources_set(ruleset, protocol, family));
            let maps = [("any", any), ("at", at_one), ("at_spread", at_spread)];
            self.sets.extend(maps.map(|(name, map)| (format!("{word}_{name}"), map)));
        }
    }

    /// A chain that shares the connections of one port evenly among its targets, and lets in who may connect.
    fn spread(&mut self, published: &Published, to: &BTreeSet<Target>, sources: Option<&BTreeSet<IpNet>>) -> String {
        let word = published.protocol.as_str();
        let name = match published.host_ip {
            None => format!("spread_{word}_{}", published.port),
            Some(ip) => format!("spread_{word}_{}_{}", ip.to_string().replace(':', "_"), published.port),
        };
        let mut rules = Vec::new();
        for family in FAMILIES {
            let turns: Vec<&Target> = to.iter().filter(|to| Family::of(to.address) == family).collect();
            if turns.is_empty() {
                continue;
            }
            let ip = family.word();
            if let Some(sources) = sources {
                let own = sources.iter().filter(|net| Family::of(net.addr()) == family);
                let own: Vec<String> = own.map(ToString::to_string).collect();
                let outside = match own.as_slice() {
                    [] => format!("meta nfproto {}", family.protocol()),
                    nets => format!("{ip} saddr != {{ {} }}", nets.join(", ")),
                };
                rules.push(rule(format!("{outside} fib saddr type != local return"), "who may connect"));
            }
            let count = turns.len();
            let turns = turns.iter().enumerate().map(|(turn, target)| format!("{turn} : {}", pair(target)));
            let turns = turns.collect::<Vec<_>>().join(", ");
            let own = family.protocol();
            let text =
                format!("meta nfproto {own} meta l4proto {word} dnat {ip} to numgen inc mod {count} map {{ {turns} }}");
            rules.push(rule(text, "one target after another"));
        }
        self.chains.insert(name.clone(), Chain::new(None, rules));
        name
    }

    fn nat_chains(&mut self, ruleset: &Ruleset) {
        let mut publish = Vec::new();
        for protocol in PROTOCOLS {
            let word = protocol.as_str();
            for family in FAMILIES {
                let (ip, maps) = (family.word(), format!("{word}{}", family.suffix()));
                let own = format!("meta nfproto {}", family.protocol());
                let at = format!("{own} dnat {ip} to {ip} daddr . {word} dport map @{maps}_at");
                publish.push(rule(at, "published on one address"));
                let any = format!("{own} dnat {ip} to {word} dport map @{maps}_any");
                publish.push(rule(any, "published on every address"));
                let spread = format!("{own} {ip} daddr . {word} dport vmap @{maps}_at_spread");
                publish.push(rule(spread, "the same, with several targets, or not for everybody"));
            }
            let spread = format!("{word} dport vmap @{word}_any_spread");
            publish.push(rule(spread, "the same, with several targets, or not for everybody"));
        }
        self.chains.insert("publish".into(), Chain::new(None, publish));
        let to_publish = || rule("fib daddr type local jump publish".into(), "published ports");
        // A packet from outside to 127.0.0.1 would be made one to an instance before the kernel sees that it is bogus.
        let not_loopback = |text: String| rule(text, "the loopback is for the host itself");
        let four = not_loopback(format!("ip daddr {LOOPBACK} return"));
        let prerouting = vec![four, not_loopback("ip6 daddr ::1 return".into()), to_publish()];
        self.chains.insert("prerouting".into(), Chain::new(Some(("nat", "prerouting", -100)), prerouting));
        // Linux carries connections from 127.0.0.1 to other interfaces, not from ::1: refused at once, a client goes on to
        // the former.
        let output = vec![not_loopback("ip6 daddr ::1 return".into()), to_publish()];
        self.chains.insert("output".into(), Chain::new(Some(("nat", "output", -100)), output));
        let postrouting = postrouting(ruleset);
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

fn sources_set(ruleset: &Ruleset, protocol: Protocol, family: Family) -> Set {
    let of_protocol = ruleset.sources.iter().filter(|(at, _)| at.protocol == protocol);
    let all = of_protocol.flat_map(|(at, nets)| nets.iter().map(move |net| (at, net)));
    let own = all.filter(|(_, net)| Family::of(net.addr()) == family);
    let line = |(at, net): (&Published, &IpNet)| {
        format!("{} . {} . {} . {}", as_six(at.host_ip), at.port, net.addr(), net.prefix_len())
    };
    Set::of(family.sources_type(), own.map(line))
}

fn postrouting(ruleset: &Ruleset) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (name, bridge) in &ruleset.bridges {
        let six = bridge.subnet6.map(|subnet| ("ip6", subnet.to_string()));
        for (ip, subnet) in [Some(("ip", bridge.subnet.to_string())), six].into_iter().flatten() {
            if !bridge.internal {
                let text = format!("{ip} saddr {subnet} oifname != @{BRIDGES} masquerade");
                rules.push(rule(text, "the way out"));
            }
            let text = format!("oifname {} {ip} saddr {subnet} ct status dnat masquerade", quoted(name));
            rules.push(rule(text, "a published port of the same network"));
        }
    }
    let text = format!("oifname @{BRIDGES} ip saddr {LOOPBACK} masquerade");
    rules.push(rule(text, "published ports from 127.0.0.1"));
    rules
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
    pub(super) fn written(&self, key: &str) -> String {
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
        for rule in &self.rules {
            let _ = writeln!(text, "    {}", rule.written());
        }
        text.push_str("  }\n");
    }
}

impl Rule {
    /// As a script writes it.
    pub(super) fn written(&self) -> String {
        format!("{} comment {}", self.text, quoted(&self.comment))
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
        let subnet6 = Some("fd00:9::/64".parse().expect("a subnet"));
        let bridge = |subnet: &str, internal: bool| BridgeRules {
            subnet: subnet.parse().expect("a subnet"),
            subnet6: subnet6.filter(|_| !internal),
            internal,
        };
        let target = |address: &str| Target { address: address.parse().expect("an address"), port: 80 };
        let published = |protocol, host_ip, port| Published { protocol, host_ip, port };
        let loopback = Some(IpAddr::from([127, 0, 0, 1]));
        let six = |address: &str| Some(address.parse().expect("an address"));
        let ruleset = Ruleset {
            bridges: BTreeMap::from([
                ("st0".into(), bridge("10.9.0.0/24", false)),
                ("st1".into(), bridge("10.9.1.0/24", true)),
            ]),
            publications: BTreeMap::from([
                (published(Protocol::Tcp, None, 8080), BTreeSet::from([target("10.9.0.2")])),
                (published(Protocol::Tcp, None, 8081), BTreeSet::from([target("10.9.0.2"), target("10.9.0.3")])),
                (published(Protocol::Udp, loopback, 53), BTreeSet::from([target("10.9.0.2")])),
                (published(Protocol::Tcp, None, 8082), BTreeSet::from([target("10.9.0.2"), target("fd00:9::2")])),
                (published(Protocol::Tcp, six("2001:db8::1"), 8083), BTreeSet::from([target("fd00:9::2")])),
                (published(Protocol::Tcp, six("2001:db8::1"), 8084), BTreeSet::from([target("fd00:9::2")])),
            ]),
            sources: BTreeMap::from([(
                published(Protocol::Tcp, six("2001:db8::1"), 8084),
                BTreeSet::from(["2001:db8:1::/48".parse().expect("a network"), "192.0.2.0/24".parse().expect("one")]),
            )]),
            forwarding_was_off: (true, false),
        };
        insta::assert_snapshot!(Table::of(&ruleset).script("stead"));
    }
}
