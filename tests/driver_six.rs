//! IPv6 beside IPv4, and ports that are not for everybody, with real packets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod net_lab;

use net_lab::talk::*;
use net_lab::*;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use stead::model::{BridgeRules, Protocol, Published, Ruleset, Step, TableSeen, Target};

/// A node with a client at 2001:db8::2 and 192.0.2.2, and two instances with both families.
struct Town {
    node: Node,
    ruleset: Ruleset,
    web: String,
    peer: String,
}

impl Town {
    async fn new() -> Self {
        let at_once = "sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad'";
        run(&format!("ip netns add outside; ip netns exec outside {at_once}; {at_once}"));
        run("ip link add out0 type veth peer name eth0 netns outside");
        run("ip addr add 192.0.2.1/24 dev out0; ip addr add 2001:db8::1/64 dev out0 nodad; ip link set out0 up");
        run("ip -n outside addr add 192.0.2.2/24 dev eth0; ip -n outside addr add 2001:db8::2/64 dev eth0 nodad");
        run("ip -n outside addr add 192.0.2.3/24 dev eth0; ip -n outside addr add 2001:db8::3/64 dev eth0 nodad");
        run("ip -n outside link set eth0 up; ip -n outside link set lo up");
        run("ip -n outside route add fd00:9::/64 via 2001:db8::1; ip -n outside route add 10.9.0.0/24 via 192.0.2.1");
        let node = Node { six: true, ..Node::new() };
        let lan = network("shop", "default");
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        assert_eq!(bridge.addresses6, ["fd00:9::1/64".parse().unwrap()]);
        let mut names = Vec::new();
        for (name, last) in [("shop/web/1", 2), ("shop/peer/1", 3)] {
            let netns = node.make_instance(&instance(name), &lan, &format!("10.9.0.{last}/24")).await;
            let inside = node.side(&instance(name)).await.netns.unwrap();
            assert_eq!(inside.default_gateway6, Some("fd00:9::1".parse().unwrap()));
            assert_eq!(inside.interfaces["eth0"].addresses6, [format!("fd00:9::{last}/64").parse().unwrap()]);
            serve(Some(&netns.name), "[::]:80", name);
            names.push(netns.name);
        }
        node.done(Step::EnableForwarding { six: false }).await;
        node.done(Step::EnableForwarding { six: true }).await;
        assert_eq!(node.net.look_forwarding().await.seen(), Some(&(true, true)));
        let subnet6 = Some("fd00:9::/64".parse().unwrap());
        let rules = BridgeRules { subnet: address("10.9.0.0/24"), subnet6, internal: false };
        let ruleset = Ruleset { bridges: [(bridge.name, rules)].into(), ..Ruleset::default() };
        Self { node, ruleset, web: names.remove(0), peer: names.remove(0) }
    }

    fn publish(&mut self, host_ip: Option<&str>, port: u16, targets: &[&str]) -> [Published; 2] {
        [Protocol::Tcp, Protocol::Udp].map(|protocol| {
            let published = Published { protocol, host_ip: host_ip.map(|ip| ip.parse().unwrap()), port };
            let targets = targets.iter().map(|ip| Target { address: ip.parse().unwrap(), port: 80 });
            self.ruleset.publications.insert(published.clone(), targets.collect());
            published
        })
    }

    async fn apply(&self) {
        self.node.done(Step::ApplyRuleset { ruleset: Some(self.ruleset.clone()) }).await;
        let seen = self.node.net.look_ports().await.seen().cloned().unwrap();
        assert_eq!(seen, Some(TableSeen { ruleset: self.ruleset.clone(), intact: true }));
    }
}

#[test]
fn a_port_answers_over_both_families() {
    isolated(|| async {
        let mut town = Town::new().await;
        town.publish(None, 8080, &["10.9.0.2", "fd00:9::2"]);
        town.publish(Some("2001:db8::1"), 8081, &["fd00:9::2"]);
        town.publish(None, 8083, &["10.9.0.2", "fd00:9::2", "10.9.0.3", "fd00:9::3"]);
        town.apply().await;
        let (web, peer, here) = (town.web.clone(), town.peer.clone(), Some("shop/web/1".to_owned()));
        for to in ["192.0.2.1:8080", "[2001:db8::1]:8080", "[2001:db8::1]:8081"] {
            assert_eq!(who(Some("outside"), to), here, "another host to {to}");
            assert_eq!(who(None, to), here, "the host to {to}");
            assert_eq!(who(Some(&peer), to), here, "a neighbour to {to}");
            assert_eq!(who(Some(&web), to), here, "itself to {to}");
        }
        assert_eq!(who(Some("outside"), "192.0.2.1:8081"), None, "published on an IPv6 address only");
        assert_eq!(who(Some("outside"), "[fd00:9::2]:80"), None, "what is not published is closed");
        assert_eq!(who(Some(&peer), "[fd00:9::2]:80"), here, "a neighbour, directly");
        let turns: BTreeSet<Option<String>> = (0..2).map(|_| tcp(Some("outside"), "[2001:db8::1]:8083")).collect();
        assert_eq!(turns.len(), 2, "both replicas take their turns: {turns:?}");

        // The way out is masqueraded.
        run("ip -n outside route del fd00:9::/64");
        serve(Some("outside"), "[2001:db8::2]:80", "outside");
        assert_eq!(who(Some(&web), "[2001:db8::2]:80").as_deref(), Some("outside"));
    });
}

/// Linux has no `route_localnet` for IPv6: a client is refused at once, and goes on to 127.0.0.1.
#[test]
fn a_port_is_refused_on_the_ipv6_loopback_at_once() {
    isolated(|| async {
        let mut town = Town::new().await;
        town.publish(None, 8080, &["10.9.0.2", "fd00:9::2"]);
        town.apply().await;
        let refused = std::net::TcpStream::connect("[::1]:8080").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(who(None, "127.0.0.1:8080").as_deref(), Some("shop/web/1"));
    });
}

#[test]
fn a_udp_flow_over_ipv6_follows_its_publication() {
    isolated(|| async {
        let mut town = Town::new().await;
        town.publish(None, 8080, &["10.9.0.2", "fd00:9::2"]);
        town.apply().await;
        let outside = within("outside", || UdpSocket::bind("[2001:db8::2]:5000").unwrap());
        assert_eq!(ask_udp(&outside, "[2001:db8::1]:8080").as_deref(), Some("shop/web/1"));
        town.publish(None, 8080, &["10.9.0.3", "fd00:9::3"]);
        town.apply().await;
        assert_eq!(ask_udp(&outside, "[2001:db8::1]:8080").as_deref(), Some("shop/peer/1"));
        town.ruleset.publications.clear();
        town.apply().await;
        assert_eq!(ask_udp(&outside, "[2001:db8::1]:8080"), None);
    });
}

#[test]
fn only_who_may_connect_does() {
    isolated(|| async {
        let mut town = Town::new().await;
        for (host_ip, port) in [(None, 8080), (Some("192.0.2.1"), 8081)] {
            let targets: &[&str] = if host_ip.is_none() { &["10.9.0.2", "fd00:9::2"] } else { &["10.9.0.2"] };
            for published in town.publish(host_ip, port, targets) {
                let from = ["192.0.2.3/32", "2001:db8::3/128", "198.51.100.0/24"].map(|net| net.parse().unwrap());
                town.ruleset.sources.insert(published, from.into());
            }
        }
        for published in town.publish(None, 8082, &["10.9.0.2", "fd00:9::2"]) {
            town.ruleset.sources.insert(published, ["2001:db8::3/128".parse().unwrap()].into());
        }
        town.apply().await;
        let by = |from: &str, to: &str| {
            let family = if to.starts_with('[') { "-6" } else { "-4" };
            let (host, port) = to.rsplit_once(':').unwrap();
            let host = host.trim_matches(['[', ']']);
            let line = format!(
                "ip netns exec outside ip {family} route replace {host} dev eth0 src {from}; ip netns exec outside true"
            );
            run(&line);
            let _ = port;
            who(Some("outside"), to)
        };
        let here = Some("shop/web/1".to_owned());
        for to in ["192.0.2.1:8080", "192.0.2.1:8081"] {
            assert_eq!(by("192.0.2.2", to), None, "{to}");
            assert_eq!(by("192.0.2.3", to), here, "{to}");
            assert_eq!(who(None, to), here, "the host itself may");
        }
        assert_eq!(by("2001:db8::2", "[2001:db8::1]:8080"), None);
        assert_eq!(by("2001:db8::3", "[2001:db8::1]:8080"), here);
        assert_eq!(by("192.0.2.3", "192.0.2.1:8082"), None, "nobody by IPv4");
        assert_eq!(by("2001:db8::3", "[2001:db8::1]:8082"), here);
        assert_eq!(who(None, "127.0.0.1:8080"), here);
    });
}

#[test]
fn forwarding_goes_back_to_what_it_was() {
    isolated(|| async {
        let node = Node::new();
        run("echo 1 > /proc/sys/net/ipv6/conf/lo/accept_ra");
        let state = || run("cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding");
        assert_eq!(state(), "0\n0\n");
        for six in [false, true] {
            node.done(Step::EnableForwarding { six }).await;
        }
        assert_eq!(state(), "1\n1\n");
        for six in [false, true] {
            node.done(Step::RestoreForwarding { six }).await;
        }
        assert_eq!(state(), "0\n0\n");
    });
}
