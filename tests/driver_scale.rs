//! How looks and changes grow with a node: twenty networks, twenty-five instances and ten times as many. The figures are printed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "a real clock measures")]

mod net_lab;

use net_lab::*;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stead::model::{BridgeRules, NetworkKey, Protocol, Published, Ruleset, Step, Target};

const NETWORKS: usize = 20;

/// Fills a node up to this many instances, each with a published port.
async fn fill(node: &Node, lans: &[NetworkKey], ruleset: &mut Ruleset, from: usize, to: usize) {
    for n in from..to {
        let (lan, last) = (n % NETWORKS, 2 + n / NETWORKS);
        let key = instance(&format!("shop/web-{n}/1"));
        node.make_instance(&key, &lans[lan], &format!("10.9.{lan}.{last}/24")).await;
        let at = Published { protocol: Protocol::Tcp, host_ip: None, port: 10_000 + u16::try_from(n).unwrap() };
        let address = format!("10.9.{lan}.{last}").parse().unwrap();
        ruleset.publications.insert(at, [Target { address, port: 80 }].into());
    }
}

/// The least time of some whole looks: what is above it is the machine's.
async fn look(node: &Node, instances: usize) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        let seen = node.net.look_net().await.seen().cloned().unwrap();
        least = least.min(began.elapsed());
        assert_eq!((seen.instances.len(), seen.networks.len()), (instances, NETWORKS));
    }
    least
}

#[test]
fn a_look_grows_with_the_node_and_a_change_with_what_changes() {
    isolated(|| async {
        let node = Node::new();
        let mut ruleset = Ruleset::default();
        let mut lans = Vec::new();
        for n in 0..NETWORKS {
            let lan = network("shop", &format!("lan-{n}"));
            let bridge = node.make_bridge(&lan, &format!("10.9.{n}.1/24")).await;
            let rules = BridgeRules { subnet: address(&format!("10.9.{n}.0/24")), subnet6: None, internal: false };
            ruleset.bridges.insert(bridge.name, rules);
            lans.push(lan);
        }
        let mut looks = Vec::new();
        for (from, to) in [(0, 25), (25, 250)] {
            fill(&node, &lans, &mut ruleset, from, to).await;
            node.done(Step::ApplyRuleset { ruleset: Some(ruleset.clone()) }).await;
            let writes = node.counters.net_writes.load(Ordering::Relaxed);
            looks.push(look(&node, to).await);
            assert_eq!(node.counters.net_writes.load(Ordering::Relaxed), writes, "a look writes nothing");
            let began = Instant::now();
            let at = Published { protocol: Protocol::Tcp, host_ip: None, port: 9000 };
            ruleset.publications.insert(at, [Target { address: [10, 9, 0, 2].into(), port: 80 }].into());
            node.done(Step::ApplyRuleset { ruleset: Some(ruleset.clone()) }).await;
            println!("{to} instances: look {:?}, one port more {:?}", looks[looks.len() - 1], began.elapsed());
            ruleset.publications.pop_first();
        }
        // Ten times the instances may cost ten times as much, with room for the machine; not a hundred times.
        assert!(looks[1] < looks[0] * 30, "a look is not linear: {looks:?}");
    });
}
