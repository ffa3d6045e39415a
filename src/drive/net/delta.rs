//! What makes one table into another: the elements and chains that differ, in one transaction. One instance more on a
//! node with hundreds is a few elements, not the whole table again.

use super::render::{Chain, Element, FLOWS_CUT, Set, Table};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The script; `None` when only the whole table will do, since its shape is another one.
pub(super) fn script(name: &str, old: &Table, new: &Table) -> Option<String> {
    let mut text = format!("flush set inet {name} {FLOWS_CUT}\n");
    chains(name, old, new, &mut text)?;
    if !old.sets.keys().eq(new.sets.keys()) {
        return None;
    }
    for ((set, before), after) in old.sets.iter().zip(new.sets.values()) {
        if before.key != after.key || before.data != after.data {
            return None;
        }
        if set != FLOWS_CUT {
            elements(&format!("inet {name} {set}"), before, after, &mut text);
        }
    }
    for (chain, _) in old.chains.iter().filter(|(chain, _)| !new.chains.contains_key(*chain)) {
        let _ = writeln!(text, "flush chain inet {name} {chain}\ndelete chain inet {name} {chain}");
    }
    Some(text)
}

/// Chains that are new or say something else. Base chains are the same in every table.
fn chains(name: &str, old: &Table, new: &Table, text: &mut String) -> Option<()> {
    let bases = |table: &Table| -> BTreeMap<String, (&'static str, &'static str, i64)> {
        table.chains.iter().filter_map(|(name, chain)| Some((name.clone(), chain.base?))).collect()
    };
    if bases(old) != bases(new) {
        return None;
    }
    let changed = |(chain, after): &(&String, &Chain)| old.chains.get(*chain) != Some(*after);
    // All of them are there before a rule or an element leads to one.
    for (chain, _) in new.chains.iter().filter(|(chain, _)| !old.chains.contains_key(*chain)) {
        let _ = writeln!(text, "add chain inet {name} {chain}");
    }
    for (chain, after) in new.chains.iter().filter(changed) {
        let _ = writeln!(text, "flush chain inet {name} {chain}");
        for rule in &after.rules {
            let _ = writeln!(text, "add rule inet {name} {chain} {}", rule.written());
        }
    }
    Some(())
}

/// Elements that go, then those that come: one that changes does both.
fn elements(set: &str, old: &Set, new: &Set, text: &mut String) {
    let differs = |(key, element): &(&String, &Element), in_other: &Set| in_other.elements.get(*key) != Some(*element);
    let gone: Vec<&str> =
        old.elements.iter().filter(|entry| differs(entry, new)).map(|(key, _)| key.as_str()).collect();
    let fresh: Vec<String> =
        new.elements.iter().filter(|entry| differs(entry, old)).map(|(key, element)| element.written(key)).collect();
    if !gone.is_empty() {
        let _ = writeln!(text, "delete element {set} {{ {} }}", gone.join(", "));
    }
    if !fresh.is_empty() {
        let _ = writeln!(text, "add element {set} {{ {} }}", fresh.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BridgeRules, Protocol, Published, Ruleset, Target};

    fn node(instances: u8) -> Table {
        let rules = BridgeRules { subnet: "10.9.0.0/24".parse().expect("a subnet"), subnet6: None, internal: false };
        let publications = (0..instances).map(|n| {
            let at = Published { protocol: Protocol::Tcp, host_ip: None, port: 8000 + u16::from(n) };
            (at, [Target { address: [10, 9, 0, n + 2].into(), port: 80 }].into())
        });
        let bridges = [("st0".to_owned(), rules)].into();
        Table::of(&Ruleset { bridges, publications: publications.collect(), ..Ruleset::default() })
    }

    #[test]
    fn one_instance_more_is_as_many_lines_on_a_large_node_as_on_a_small_one() {
        let lines = |n: u8| script("stead", &node(n), &node(n + 1)).expect("a delta").lines().count();
        assert_eq!(lines(1), lines(200));
        insta::assert_snapshot!(script("stead", &node(2), &node(3)).expect("a delta"), @r"
        flush set inet stead flows_cut
        add element inet stead tcp_any { 8002 : 10.9.0.4 . 80 }
        add element inet stead tcp_targets { 0.0.0.0 . 8002 . 10.9.0.4 . 80 }
        ");
    }
}
