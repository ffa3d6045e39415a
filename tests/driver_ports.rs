//! The nft table against the real kernel: who reaches what, and what a listing tells.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod net_lab;

use net_lab::talk::*;
use net_lab::*;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use stead::model::{
    BridgeRules, CauseKind, InstanceKey, NetworkKey, Outcome, Protocol, Published, Ruleset, Step, TableSeen, Target,
};

/// A node with an outside host at 192.0.2.2 (the node is 192.0.2.1) in the netns `outside`.
struct Town {
    node: Node,
    ruleset: Ruleset,
    places: BTreeMap<InstanceKey, String>,
}

impl Town {
    fn new() -> Self {
        run("ip netns add outside; ip link add out0 type veth peer name eth0 netns outside");
        run("ip addr add 192.0.2.1/24 dev out0; ip addr add 192.0.2.9/24 dev out0; ip link set out0 up");
        run(
            "ip -n outside addr add 192.0.2.2/24 dev eth0; ip -n outside link set eth0 up; ip -n outside link set lo up",
        );
        run("ip -n outside route add 10.0.0.0/8 via 192.0.2.1; echo 1 > /proc/sys/net/ipv4/ip_forward");
        Self { node: Node::new(), ruleset: Ruleset::default(), places: BTreeMap::new() }
    }

    async fn network(&mut self, key: &NetworkKey, at: &str, internal: bool) {
        let bridge = self.node.make_bridge(key, at).await;
        let rules = BridgeRules { subnet: address(at).trunc(), subnet6: None, internal };
        self.ruleset.bridges.insert(bridge.name, rules);
    }

    /// An instance whose TCP and UDP port 80 answer with its name.
    async fn instance(&mut self, name: &str, network: &NetworkKey, at: &str) -> String {
        let key = instance(name);
        let netns = self.node.make_instance(&key, network, at).await.name;
        serve(Some(&netns), "0.0.0.0:80", name);
        self.places.insert(key, netns.clone());
        netns
    }

    fn publish(&mut self, host_ip: Option<&str>, port: u16, targets: &[&str]) {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let published = Published { protocol, host_ip: host_ip.map(|ip| ip.parse().unwrap()), port };
            let targets = targets.iter().map(|ip| Target { address: ip.parse().unwrap(), port: 80 });
            self.ruleset.publications.insert(published, targets.collect());
        }
    }

    async fn apply(&self) {
        self.node.done(Step::ApplyRuleset { ruleset: Some(self.ruleset.clone()) }).await;
        let seen = self.seen().await.expect("there is a table");
        assert_eq!(seen, TableSeen { ruleset: self.ruleset.clone(), intact: true });
    }

    async fn seen(&self) -> Option<TableSeen> {
        self.node.net.look_ports().await.seen().cloned().expect("the table can be looked at")
    }
}

#[test]
fn a_published_port_answers_from_everywhere() {
    isolated(|| async {
        let mut town = Town::new();
        let (front, back) = (network("shop", "front"), network("shop", "back"));
        town.network(&front, "10.9.0.1/24", false).await;
        town.network(&back, "10.9.1.1/24", false).await;
        let web = town.instance("shop/web/1", &front, "10.9.0.2/24").await;
        let peer = town.instance("shop/peer/1", &front, "10.9.0.3/24").await;
        let other = town.instance("shop/other/1", &back, "10.9.1.2/24").await;
        town.publish(None, 8080, &["10.9.0.2"]);
        town.apply().await;
        let here = Some("shop/web/1".to_owned());
        for nf_call in bridge_calls() {
            run(&nf_call);
            assert_eq!(who(Some("outside"), "192.0.2.1:8080"), here, "another host");
            assert_eq!(who(None, "192.0.2.1:8080"), here, "the host by its own address");
            assert_eq!(who(None, "10.9.0.1:8080"), here, "the host by its bridge's address");
            assert_eq!(who(None, "127.0.0.1:8080"), here, "the host by 127.0.0.1");
            assert_eq!(who(Some(&peer), "192.0.2.1:8080"), here, "a neighbour");
            assert_eq!(who(Some(&peer), "10.9.0.1:8080"), here, "a neighbour by the gateway");
            assert_eq!(who(Some(&web), "192.0.2.1:8080"), here, "itself");
            assert_eq!(who(Some(&other), "192.0.2.1:8080"), here, "an instance of another network");
            assert_eq!(who(Some(&peer), "10.9.0.2:80"), here, "a neighbour, directly");
            assert_eq!(who(Some(&other), "10.9.0.2:80"), None, "networks are apart");
            assert_eq!(who(Some("outside"), "10.9.0.2:80"), None, "what is not published is closed");
        }
    });
}

/// Bridged frames go through the tables or not, by a setting of the host that is not ours.
fn bridge_calls() -> Vec<String> {
    let path = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    if !std::path::Path::new(path).exists() {
        return vec!["true".into()];
    }
    ["0", "1"].map(|value| format!("echo {value} > {path}")).into()
}

#[test]
fn the_way_out_and_the_way_in_are_as_the_network_says() {
    isolated(|| async {
        let mut town = Town::new();
        let (lan, vault) = (network("shop", "default"), network("shop", "vault"));
        town.network(&lan, "10.9.0.1/24", false).await;
        town.network(&vault, "10.9.1.1/24", true).await;
        let web = town.instance("shop/web/1", &lan, "10.9.0.2/24").await;
        let safe = town.instance("shop/safe/1", &vault, "10.9.1.2/24").await;
        let twin = town.instance("shop/twin/1", &vault, "10.9.1.3/24").await;
        serve(Some("outside"), "192.0.2.2:80", "outside");
        // Without masquerade no answer would find its way back.
        run("ip -n outside route del 10.0.0.0/8");
        town.publish(None, 8080, &["10.9.1.2"]);
        town.publish(Some("127.0.0.1"), 8081, &["10.9.0.2"]);
        town.publish(Some("192.0.2.9"), 8082, &["10.9.0.2"]);
        town.apply().await;

        assert_eq!(who(Some(&web), "192.0.2.2:80").as_deref(), Some("outside"));
        assert_eq!(who(Some(&safe), "192.0.2.2:80"), None, "no way out");
        assert_eq!(who(Some(&safe), "10.9.0.2:80"), None, "not into another network either");
        assert_eq!(who(Some(&safe), "192.0.2.9:8082"), None, "nor by a published port");
        assert_eq!(who(Some(&twin), "10.9.1.2:80").as_deref(), Some("shop/safe/1"));
        assert_eq!(who(Some(&twin), "10.9.1.1:8080").as_deref(), Some("shop/safe/1"));
        assert_eq!(who(Some("outside"), "192.0.2.1:8080"), None, "no way in");
        assert_eq!(who(None, "127.0.0.1:8080").as_deref(), Some("shop/safe/1"), "but for the host itself");

        assert_eq!(who(None, "127.0.0.1:8081").as_deref(), Some("shop/web/1"));
        assert_eq!(who(Some("outside"), "192.0.2.1:8081"), None);
        assert_eq!(who(Some("outside"), "192.0.2.9:8082").as_deref(), Some("shop/web/1"));
        assert_eq!(who(Some("outside"), "192.0.2.1:8082"), None, "published on the other address only");
        assert_eq!(who(None, "192.0.2.9:8082").as_deref(), Some("shop/web/1"));
    });
}

/// Lets a place send packets for 127.0.0.1 to its gateway, as an attacker would.
fn reach_for_the_gateways_loopback(netns: &str, gateway: &str) {
    run(&format!("ip -n {netns} route add 127.0.0.1/32 via {gateway} table 77"));
    run(&format!("ip -n {netns} rule add to 127.0.0.1 lookup 77 pref 0"));
    run(&format!("ip -n {netns} rule add pref 100 lookup local; ip -n {netns} rule del pref 0 lookup local"));
    run(&format!("ip netns exec {netns} sh -c 'echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet'"));
}

#[test]
fn what_is_at_the_hosts_loopback_stays_its_own() {
    isolated(|| async {
        let mut town = Town::new();
        let lan = network("shop", "default");
        town.network(&lan, "10.9.0.1/24", false).await;
        let web = town.instance("shop/web/1", &lan, "10.9.0.2/24").await;
        serve(None, "127.0.0.1:9000", "host only");
        serve(None, "192.0.2.1:9001", "host");
        town.publish(Some("127.0.0.1"), 8081, &["10.9.0.2"]);
        town.publish(None, 8082, &["10.9.0.2"]);
        town.apply().await;
        reach_for_the_gateways_loopback(&web, "10.9.0.1");
        reach_for_the_gateways_loopback("outside", "192.0.2.1");
        let (web, outside) = (Some(web.as_str()), Some("outside"));

        // The bridges have route_localnet; without the guard the host's loopback would be open to instances.
        assert_eq!(who(web, "127.0.0.1:9000"), None);
        assert_eq!(who(web, "192.0.2.1:9001").as_deref(), Some("host"));
        run("nft flush chain inet stead guard");
        assert_eq!(tcp(web, "127.0.0.1:9000").as_deref(), Some("host only"), "the probe can tell");

        town.apply().await;
        assert_eq!(who(None, "127.0.0.1:8081").as_deref(), Some("shop/web/1"));
        for port in [8081, 8082] {
            assert_eq!(who(outside, &format!("127.0.0.1:{port}")), None, "published for the host's own use");
        }
        run("nft flush chain inet stead prerouting");
        run("nft add rule inet stead prerouting fib daddr type local jump publish");
        assert_eq!(tcp(outside, "127.0.0.1:8081").as_deref(), Some("shop/web/1"), "the probe can tell");
    });
}

#[test]
fn several_targets_take_turns() {
    isolated(|| async {
        let mut town = Town::new();
        let lan = network("shop", "default");
        town.network(&lan, "10.9.0.1/24", false).await;
        for n in 1..=3 {
            town.instance(&format!("shop/web/{n}"), &lan, &format!("10.9.0.{}/24", n + 1)).await;
        }
        town.publish(None, 8080, &["10.9.0.2", "10.9.0.3", "10.9.0.4"]);
        town.publish(Some("192.0.2.9"), 8081, &["10.9.0.2", "10.9.0.3"]);
        town.apply().await;
        for ask in [tcp, udp] {
            let mut counts = BTreeMap::new();
            for _ in 0..9 {
                *counts.entry(ask(Some("outside"), "192.0.2.1:8080").unwrap()).or_insert(0) += 1;
            }
            assert_eq!(counts.values().copied().collect::<Vec<_>>(), [3, 3, 3]);
            let both = [0, 1].map(|_| ask(Some("outside"), "192.0.2.9:8081").unwrap());
            assert_ne!(both[0], both[1]);
        }
    });
}

#[test]
fn a_udp_flow_follows_its_publication() {
    isolated(|| async {
        let mut town = Town::new();
        let lan = network("shop", "default");
        town.network(&lan, "10.9.0.1/24", false).await;
        town.instance("shop/old/1", &lan, "10.9.0.2/24").await;
        town.instance("shop/new/1", &lan, "10.9.0.3/24").await;
        town.apply().await;
        let outside = within("outside", || UdpSocket::bind("192.0.2.2:5000").unwrap());
        let elsewhere = within("outside", || UdpSocket::bind("192.0.2.2:8080").unwrap());
        assert_eq!(ask_udp(&outside, "192.0.2.1:8080"), None, "nothing is published yet");
        town.publish(None, 8080, &["10.9.0.2"]);
        town.apply().await;
        assert_eq!(ask_udp(&outside, "192.0.2.1:8080").as_deref(), Some("shop/old/1"));

        // A flow of an instance to a port of that number elsewhere is none of ours to cut.
        let web = town.places[&instance("shop/old/1")].clone();
        let talker = within(&web, || UdpSocket::bind("10.9.0.2:6000").unwrap());
        talker.send_to(b"?", "192.0.2.2:8080").unwrap();
        let mut buffer = [0; 8];
        elsewhere.set_read_timeout(Some(PATIENCE)).unwrap();
        let (_, back) = elsewhere.recv_from(&mut buffer).unwrap();

        town.publish(None, 8080, &["10.9.0.3"]);
        town.apply().await;
        assert_eq!(ask_udp(&outside, "192.0.2.1:8080").as_deref(), Some("shop/new/1"));
        elsewhere.send_to(b"!", back).unwrap();
        talker.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(talker.recv(&mut buffer).is_ok(), "the other flow was cut");

        town.ruleset.publications.clear();
        town.apply().await;
        assert_eq!(ask_udp(&outside, "192.0.2.1:8080"), None, "it is not published any more");
    });
}

#[test]
fn whatever_is_not_as_it_was_made_shows() {
    isolated(|| async {
        let mut town = Town::new();
        let (lan, vault) = (network("shop", "default"), network("shop", "vault"));
        town.network(&lan, "10.9.0.1/24", false).await;
        town.network(&vault, "10.9.1.1/24", true).await;
        town.publish(None, 8080, &["10.9.0.2"]);
        town.publish(None, 8081, &["10.9.0.2", "10.9.0.3"]);
        town.publish(Some("192.0.2.9"), 8082, &["10.9.0.2"]);
        town.publish(Some("192.0.2.9"), 8083, &["10.9.0.2", "10.9.0.3"]);
        assert_eq!(town.seen().await, None);
        town.apply().await;
        let first_rule = |chain: &str| {
            format!("$(nft -a list chain inet stead {chain} | sed -n 's/.* handle \\([0-9]*\\)$/\\1/p' | sed -n 2p)")
        };
        let damage = [
            format!("nft delete rule inet stead forward handle {}", first_rule("forward")),
            format!("nft delete rule inet stead publish handle {}", first_rule("publish")),
            format!("nft replace rule inet stead forward handle {} accept", first_rule("forward")),
            "nft insert rule inet stead forward accept".to_owned(),
            "nft add rule inet stead output accept comment mine".to_owned(),
            "nft add chain inet stead mine".to_owned(),
            "nft 'add chain inet stead mine { type filter hook input priority 0 ; }'".to_owned(),
            "nft 'chain inet stead forward { policy drop ; }'".to_owned(),
            "nft delete chain inet stead guard".to_owned(),
            "nft flush chain inet stead postrouting".to_owned(),
            "nft add element inet stead tcp_any '{ 9999 : 10.9.0.2 . 80 }'".to_owned(),
            "nft delete element inet stead tcp_any '{ 8080 }'".to_owned(),
            "nft delete element inet stead tcp_targets '{ 0.0.0.0 . 8080 . 10.9.0.2 . 80 }'".to_owned(),
            "nft flush set inet stead bridges".to_owned(),
            "nft flush set inet stead within".to_owned(),
            "nft delete element inet stead flows_cut '{ 1 }'".to_owned(),
            "nft add set inet stead mine '{ type ipv4_addr ; }'".to_owned(),
            "nft add counter inet stead mine".to_owned(),
            "nft add table inet stead '{ flags dormant ; }'".to_owned(),
        ];
        for line in damage {
            run(&line);
            let seen = town.seen().await.unwrap();
            assert!(!(seen.intact && seen.ruleset == town.ruleset), "not seen: {line}");
            town.apply().await;
        }
        for line in ["nft flush ruleset", "nft delete table inet stead"] {
            run(line);
            assert_eq!(town.seen().await, None);
            town.apply().await;
        }
        run("nft flush table inet stead");
        assert!(!town.seen().await.unwrap().intact);
    });
}

#[test]
fn the_table_is_ours_alone_and_goes_alone() {
    isolated(|| async {
        let mut town = Town::new();
        let lan = network("shop", "default");
        town.network(&lan, "10.9.0.1/24", false).await;
        run(
            "nft 'add table inet stead-2; add table ip stead; add table inet filter; add chain inet filter forward { type filter hook forward priority 0 ; }'",
        );
        let foreign = || run("nft list table inet stead-2; nft list table ip stead; nft list table inet filter");
        let before = foreign();
        town.apply().await;
        town.node.done(Step::ApplyRuleset { ruleset: None }).await;
        assert_eq!(town.seen().await, None);
        assert_eq!(town.node.net.perform(Step::ApplyRuleset { ruleset: None }).await, Outcome::Already);
        assert_eq!(foreign(), before);
    });
}

#[test]
fn replacing_the_table_costs_nobody_a_connection() {
    isolated(|| async {
        let mut town = Town::new();
        let lan = network("shop", "default");
        town.network(&lan, "10.9.0.1/24", false).await;
        town.instance("shop/web/1", &lan, "10.9.0.2/24").await;
        town.publish(None, 8080, &["10.9.0.2"]);
        town.apply().await;
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stop = done.clone();
        let client = std::thread::spawn(move || {
            let mut asked = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(tcp(Some("outside"), "192.0.2.1:8080").as_deref(), Some("shop/web/1"));
                asked += 1;
            }
            asked
        });
        for port in 9000..9030 {
            town.publish(None, port, &["10.9.0.2"]);
            town.apply().await;
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(client.join().unwrap() > 30);
    });
}

#[test]
fn what_nft_says_is_passed_on_and_a_missing_one_is_named() {
    isolated(|| async {
        let node = Node::new();
        let apply = || node.net.perform(Step::ApplyRuleset { ruleset: Some(Ruleset::default()) });
        std::fs::write("/run/nft", "#!/bin/sh\necho 'no luck today' >&2\nexit 1\n").unwrap();
        run("chmod +x /run/nft; mount --bind /run/nft /usr/sbin/nft");
        let Outcome::Refused(cause) = apply().await else { panic!("it cannot have worked") };
        assert_eq!((cause.kind, cause.message.as_str()), (CauseKind::Failed, "nft: no luck today"));
        std::fs::write("/run/nft", "#!/bin/sh\nkill -SEGV $$\n").unwrap();
        let Outcome::Refused(cause) = apply().await else { panic!("it cannot have worked") };
        assert!(cause.message.contains("signal: 11"), "{cause:?}");
        run("umount /usr/sbin/nft; nft add table inet stead; mount -t tmpfs none /usr/sbin");
        let Outcome::Refused(cause) = apply().await else { panic!("it cannot have worked") };
        assert_eq!((cause.kind, cause.message.as_str()), (CauseKind::Missing, "nft is not installed"));
        assert!(cause.hint.is_some());
        assert!(!node.net.look_ports().await.is_seen(), "a table that cannot be listed is not an absent one");
    });
}
