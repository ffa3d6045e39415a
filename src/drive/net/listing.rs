//! A listing of our table read back: what it says, and whether it is whole.

use super::render::{
    BRIDGES, Chain, Element, FAMILIES, FORWARDING, Family, INTERNAL, Set, Table, sources_of, targets_of,
};
use crate::drive::fault::Fault;
use crate::model::{BridgeRules, Protocol, Published, Ruleset, TableSeen, Target};
use ipnet::IpNet;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// What a listing shows of a table, in the words that [`Table`] has too.
#[derive(Debug, PartialEq, Eq, Default)]
struct Listed {
    sets: BTreeMap<String, ListedSet>,
    chains: BTreeMap<String, ListedChain>,
    /// Objects of kinds that our table never has.
    others: usize,
}

/// Types of key and data, and the elements.
#[derive(Debug, PartialEq, Eq, Default)]
struct ListedSet {
    key: String,
    data: Option<String>,
    elements: BTreeMap<String, Element>,
}

#[derive(Debug, PartialEq, Eq, Default)]
struct ListedChain {
    /// Type, hook, priority and policy.
    base: Option<(String, String, i64, String)>,
    comments: Vec<String>,
}

/// Reads what `nft -j list table` printed.
pub(super) fn read(json: &[u8]) -> Result<TableSeen, Fault> {
    let garbled = |why: String| Fault::Garbled { what: "the listing of the nft table".into(), why };
    let document: Value = serde_json::from_slice(json).map_err(|error| garbled(error.to_string()))?;
    let objects = document["nftables"].as_array().ok_or_else(|| garbled("it has no list of objects".into()))?;
    let mut listed = Listed::default();
    for object in objects.iter().filter_map(Value::as_object).flatten() {
        listed.add(object.0, object.1);
    }
    let ruleset = listed.ruleset();
    let intact = listed == Listed::expected(&Table::of(&ruleset));
    Ok(TableSeen { ruleset, intact })
}

impl Listed {
    /// What the listing of a table has to show.
    fn expected(table: &Table) -> Self {
        let set = |set: &Set| ListedSet {
            key: set.key.to_owned(),
            data: set.data.map(str::to_owned),
            elements: set.elements.clone(),
        };
        let chain = |chain: &Chain| ListedChain {
            base: chain.base.map(|(kind, hook, priority)| (kind.into(), hook.into(), priority, "accept".into())),
            comments: chain.rules.iter().map(|rule| rule.comment.clone()).collect(),
        };
        Self {
            sets: table.sets.iter().map(|(name, content)| (name.clone(), set(content))).collect(),
            chains: table.chains.iter().map(|(name, content)| (name.clone(), chain(content))).collect(),
            others: 0,
        }
    }

    fn add(&mut self, kind: &str, object: &Value) {
        let name = text(&object["name"]);
        match kind {
            "metainfo" | "table" => {}
            "set" | "map" => {
                let elements = object["elem"].as_array().into_iter().flatten().map(element).collect();
                let data = object.get("map").map(types);
                self.sets.insert(name, ListedSet { key: types(&object["type"]), data, elements });
            }
            "chain" => {
                let base = object.get("hook").map(|hook| {
                    let priority = object["prio"].as_i64().unwrap_or(i64::MIN);
                    (text(&object["type"]), text(hook), priority, text(&object["policy"]))
                });
                self.chains.entry(name).or_default().base = base;
            }
            // A rule without a comment is not ours; its empty comment is in no expectation.
            "rule" => {
                self.chains.entry(text(&object["chain"])).or_default().comments.push(text(&object["comment"]));
            }
            _ => self.others += 1,
        }
    }

    /// What the elements say. What cannot be read is left out, and shows as a difference afterwards.
    fn ruleset(&self) -> Ruleset {
        let mut ruleset = Ruleset::default();
        for (name, element) in self.elements(BRIDGES) {
            let comment = element.comment.as_deref().unwrap_or_default();
            let (subnet, internal) = match comment.strip_suffix(INTERNAL) {
                Some(subnet) => (subnet, true),
                None => (comment, false),
            };
            let (subnet, six) = subnet.split_once(' ').map_or((subnet, None), |(four, six)| (four, Some(six)));
            if let (Ok(subnet), Ok(subnet6)) = (subnet.parse(), six.map(str::parse).transpose()) {
                let rules = BridgeRules { subnet, subnet6, internal };
                ruleset.bridges.insert(name.trim_matches('"').to_owned(), rules);
            }
        }
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for family in FAMILIES {
                let (targets, sources) = (targets_of(protocol, family), sources_of(protocol, family));
                for (published, target) in self.elements(&targets).filter_map(|(key, _)| target(protocol, family, key))
                {
                    ruleset.publications.entry(published).or_default().insert(target);
                }
                for (published, net) in self.elements(&sources).filter_map(|(key, _)| source(protocol, key)) {
                    ruleset.sources.entry(published).or_default().insert(net);
                }
            }
        }
        let was_off = |family: &str| self.elements(FORWARDING).any(|(key, _)| key == family);
        ruleset.forwarding_was_off = (was_off("4"), was_off("6"));
        ruleset
    }

    fn elements(&self, set: &str) -> impl Iterator<Item = (&String, &Element)> {
        self.sets.get(set).into_iter().flat_map(|set| &set.elements)
    }
}

fn target(protocol: Protocol, family: Family, key: &str) -> Option<(Published, Target)> {
    let mut parts = key.split(" . ");
    let host: IpAddr = parts.next()?.parse().ok()?;
    let port = parts.next()?.parse().ok()?;
    let target = Target { address: parts.next()?.parse().ok()?, port: parts.next()?.parse().ok()? };
    let host_ip = Some(host).filter(|host| *host != family.every());
    Some((Published { protocol, host_ip, port }, target))
}

fn source(protocol: Protocol, key: &str) -> Option<(Published, IpNet)> {
    let mut parts = key.split(" . ");
    let host: Ipv6Addr = parts.next()?.parse().ok()?;
    let port = parts.next()?.parse().ok()?;
    let net = IpNet::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?).ok()?;
    let host_ip = (!host.is_unspecified()).then(|| host.to_ipv4_mapped().map_or(IpAddr::V6(host), IpAddr::V4));
    Some((Published { protocol, host_ip, port }, net))
}

/// One element: a key, or a key with data, each of them bare or wrapped with its comment.
fn element(listed: &Value) -> (String, Element) {
    let (key, data) = match listed.as_array().map(Vec::as_slice) {
        Some([key, data]) => (key, Some(value(data))),
        _ => (listed, None),
    };
    let wrapped = key.get("elem");
    let comment = wrapped.and_then(|wrapped| wrapped.get("comment")).map(text);
    let key = wrapped.map_or(key, |wrapped| &wrapped["val"]);
    (value(key), Element { data, comment })
}

/// A value as a script writes it.
fn value(listed: &Value) -> String {
    if let Some(parts) = listed["concat"].as_array() {
        return parts.iter().map(value).collect::<Vec<_>>().join(" . ");
    }
    if let Some(chain) = listed["goto"]["target"].as_str() {
        return format!("goto {chain}");
    }
    match listed {
        // Only names of interfaces are strings that a script has to quote.
        Value::String(word) if word.parse::<IpAddr>().is_err() => format!("\"{word}\""),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    }
}

/// A type, which a listing shows as one word, as a list, or as a sentence, by its kind and the version.
fn types(listed: &Value) -> String {
    match listed.as_array() {
        Some(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" . "),
        None => text(listed),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
