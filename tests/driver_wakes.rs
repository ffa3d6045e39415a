//! What rings on a real kernel, and what does not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod net_lab;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use net_lab::*;
use std::time::Duration;
use stead::drive::Wake;
use stead::model::{Domain, InstanceKey, Key, NetworkKey, Ruleset, Scope, Step};
use tokio::time::timeout;

/// How long a ring may take on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// An instance on a bridge with a table, watched.
struct Watched {
    node: Node,
    web: InstanceKey,
    lan: NetworkKey,
    netns: String,
    link: String,
    bridge: String,
    wakes: BoxStream<'static, Wake>,
}

impl Watched {
    async fn new() -> Self {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await.name;
        let netns = node.make_instance(&web, &lan, "10.9.0.2/24").await.name;
        node.done(Step::ApplyRuleset { ruleset: Some(Ruleset::default()) }).await;
        let wakes = node.net.wakes().boxed();
        assert!(node.net.look_net().await.is_seen(), "the loop looks once it listens");
        let link = node.marks.link(&web, &lan);
        let mut watched = Self { node, web, lan, netns, link, bridge, wakes };
        watched.silence().await;
        watched
    }

    fn instance_scope(&self) -> Scope {
        Scope::Part(Key::Instance(self.web.clone()), Domain::Net)
    }

    fn network_scope(&self) -> Scope {
        Scope::Part(Key::Network(self.lan.clone()), Domain::Net)
    }

    /// Waits until this rings, whatever else does.
    async fn rings(&mut self, scope: Scope, cause: &str) {
        let found = async {
            while let Some(wake) = self.wakes.next().await {
                if wake.scope == scope {
                    return;
                }
            }
        };
        assert!(timeout(SOON, found).await.is_ok(), "nothing rang for {scope:?} after: {cause}");
        self.silence().await;
    }

    /// Lets the last of a burst pass; it has to end, or the node would never be at rest.
    async fn silence(&mut self) {
        let quiet = async { while let Ok(Some(_)) = timeout(Duration::from_millis(100), self.wakes.next()).await {} };
        assert!(timeout(SOON, quiet).await.is_ok(), "it rings without end");
    }

    /// What rings in a while.
    async fn rung(&mut self) -> Vec<Wake> {
        let mut rung = Vec::new();
        while let Ok(Some(wake)) = timeout(Duration::from_millis(200), self.wakes.next()).await {
            rung.push(wake);
        }
        rung
    }
}

#[test]
fn drift_rings_for_the_object_that_it_befell() {
    isolated(|| async {
        let mut watched = Watched::new().await;
        let (link, bridge, netns) = (&watched.link, &watched.bridge, &watched.netns);
        let on_instance = [
            format!("ip -n {netns} addr del 10.9.0.2/24 dev eth0"),
            format!("ip -n {netns} addr add 10.9.0.2/24 dev eth0"),
            format!("ip -n {netns} route add default via 10.9.0.1"),
            format!("ip -n {netns} route del default"),
            format!("ip -n {netns} link set eth0 down"),
            format!("ip -n {netns} link set lo down"),
            format!("ip link set {link} nomaster"),
            format!("ip link set {link} master {bridge}"),
            format!("bridge link set dev {link} hairpin off"),
            // (The kernel tells of an alias or a group only while the link is up.)
            format!("ip link set {link} alias other"),
            format!("ip link set {link} group 0"),
            format!("ip link set {link} group {}", watched.node.marks.link_group()),
            format!("ip link set {link} down"),
            format!("ip link del {link}"),
            format!("umount /run/netns/{netns}; rm /run/netns/{netns}"),
        ];
        let on_network = [
            format!("ip addr flush dev {bridge}"),
            format!("ip link set {bridge} down"),
            format!("ip link del {bridge}"),
        ];
        for line in on_instance {
            run(&line);
            watched.rings(watched.instance_scope(), &line).await;
        }
        for line in on_network {
            run(&line);
            watched.rings(watched.network_scope(), &line).await;
        }
    });
}

#[test]
fn a_change_of_the_table_rings_unless_it_is_our_own() {
    isolated(|| async {
        let mut watched = Watched::new().await;
        let ports = || Scope::Part(Key::Publication, Domain::Ports);
        for line in [
            "nft add rule inet stead forward accept",
            "nft add element inet stead tcp_any '{ 99 : 10.9.0.2 . 80 }'",
            "nft delete element inet stead tcp_any '{ 99 }'",
            "nft flush chain inet stead forward",
            "nft delete chain inet stead guard",
            "nft flush ruleset",
            "nft add table inet stead",
        ] {
            run(line);
            watched.rings(ports(), line).await;
        }
        for ruleset in [Some(Ruleset::default()), None, Some(Ruleset::default())] {
            watched.node.done(Step::ApplyRuleset { ruleset }).await;
            assert_eq!(watched.rung().await, [], "an echo of our own step");
        }
        run("nft flush ruleset");
        watched.rings(ports(), "a flush after our own step").await;
    });
}

#[test]
fn what_is_not_ours_does_not_ring_and_looks_do_not_either() {
    isolated(|| async {
        let mut watched = Watched::new().await;
        run("ip netns add foreign; ip link add f0 type veth peer name f1 netns foreign; ip link set f0 up");
        run("ip -n foreign link set f1 up; ip -n foreign addr add 10.7.0.2/24 dev f1; ip addr add 10.7.0.1/24 dev f0");
        run("ip -n foreign route add default via 10.7.0.1; ip route add 10.66.0.0/16 via 10.7.0.2; ip link del f0");
        run(
            "ip link add br9 type bridge; ip link set br9 up; ip link set br9 alias stead:shop/default; ip link del br9",
        );
        run(
            "nft 'add table inet other; add chain inet other c; add rule inet other c accept; delete table inet other'",
        );
        run("nft add table ip other; touch /run/netns/stead-other; rm /run/netns/stead-other; ip netns del foreign");
        assert_eq!(watched.rung().await, []);
        for _ in 0..3 {
            assert!(watched.node.net.look_net().await.is_seen());
            assert!(watched.node.net.look_ports().await.is_seen());
            assert!(watched.node.net.look_instance(&watched.web).await.is_seen());
        }
        assert_eq!(watched.rung().await, [], "a look rang");
    });
}

#[test]
fn a_netns_that_was_made_after_the_last_look_rings_too() {
    isolated(|| async {
        let mut watched = Watched::new().await;
        let (second, lan) = (instance("shop/web/2"), watched.lan.clone());
        let netns = watched.node.make_instance(&second, &lan, "10.9.0.3/24").await.name;
        watched.silence().await;
        run(&format!("ip -n {netns} addr flush dev eth0"));
        watched.rings(Scope::Part(Key::Instance(second), Domain::Net), "an address flushed inside").await;
    });
}

#[test]
fn an_overrun_rings_for_everything_and_listening_goes_on() {
    isolated(|| async {
        let mut watched = Watched::new().await;
        // Far more than fits into the socket's buffer, while nobody reads.
        let flood: String = (0..40_000).map(|n| format!("link set {} alias {n}\n", watched.link)).collect();
        std::fs::write("/run/flood", flood).unwrap();
        run("ip -batch /run/flood");
        watched.rings(Scope::Domain(Domain::Net), "an overrun").await;
        run(&format!("ip link set {} down", watched.link));
        watched.rings(watched.instance_scope(), "an event after the overrun").await;
    });
}

#[test]
fn a_netns_folder_that_comes_later_is_watched_then() {
    isolated(|| async {
        let node = Node::new();
        let mut wakes = node.net.wakes().boxed();
        let web = instance("shop/web/1");
        let netns = node.make_netns(&web).await;
        let opened = async { while wakes.next().await.unwrap().because != "listening again" {} };
        timeout(SOON, opened).await.expect("it is opened");
        node.done(Step::DropNetns { netns }).await;
        let wake = timeout(SOON, wakes.next()).await.expect("it rings").unwrap();
        assert_eq!(wake.because, "netns file changed");
    });
}
