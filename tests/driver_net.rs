//! The network driver against the real kernel: each test in a network and mount namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod net_lab;

use ipnet::Ipv4Net;
use net_lab::*;
use std::collections::BTreeSet;
use stead::model::{CauseKind, LinkIdentity, LinkSeen, NetnsIdentity, Outcome, Step, StrayKey, StraySeen};

#[test]
fn an_instance_is_seen_as_it_was_made_and_goes_without_a_trace() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        assert!(bridge.bridge && bridge.up && bridge.route_localnet);
        assert_eq!(bridge.addresses, [address("10.9.0.1/24")]);
        assert_eq!(bridge.mac, node.marks.mac(&lan.to_string()));
        let netns = node.make_instance(&web, &lan, "10.9.0.2/24").await;

        let whole = node.net.look_net().await.seen().cloned().unwrap();
        let side = &whole.instances[&web];
        assert_eq!(side, &node.side(&web).await, "the two looks agree");
        let link = &side.links[&lan];
        assert_eq!(link.controller, Some(bridge.index));
        assert!(link.up && link.hairpin && !link.bridge);
        let inside = side.netns.as_ref().unwrap();
        assert_eq!(inside.inode, netns.inode);
        assert!(inside.loopback_up);
        assert_eq!(inside.default_gateway, Some("10.9.0.1".parse().unwrap()));
        let eth0 = &inside.interfaces["eth0"];
        assert_eq!((eth0.peer_index, eth0.up, eth0.mac), (link.index, true, node.marks.mac(&web.to_string())));
        assert_eq!(eth0.addresses, [address("10.9.0.2/24")]);
        assert!(whole.strays.is_empty());
        assert!(whole.host_routes.is_empty(), "{:?}", whole.host_routes);
        let server = std::net::TcpListener::bind("10.9.0.1:80").unwrap();
        within(&netns.name, move || std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap());

        node.done(Step::DropLink { link: identity(link) }).await;
        node.done(Step::DropNetns { netns: netns.clone() }).await;
        assert_eq!(node.net.look_instance(&web).await.seen(), Some(&None));
        node.done(Step::DropLink { link: identity(&node.bridge(&lan).await) }).await;
        let whole = node.net.look_net().await.seen().cloned().unwrap();
        assert!(whole.instances.is_empty() && whole.networks.is_empty() && whole.strays.is_empty());
        assert_eq!(run("ip -br link | wc -l").trim(), "1", "only lo is left");
        assert_eq!(run("ls /run/netns"), "");
        assert!(!run("cat /proc/thread-self/mountinfo").contains(&netns.name));
    });
}

#[test]
fn every_step_done_twice_is_already_done() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        let netns = node.make_instance(&web, &lan, "10.9.0.2/24").await;
        let side = node.side(&web).await;
        let link = identity(&side.links[&lan]);
        node.done(Step::EnableForwarding { six: false }).await;
        assert_eq!(node.net.look_forwarding().await.seen(), Some(&(true, false)));
        let again = [
            Step::MakeBridge { name: node.marks.bridge(&lan), mac: bridge.mac, network: lan.clone() },
            Step::SetAlias { link: identity(&bridge), alias: node.marks.bridge_alias(&lan) },
            Step::SetBridgeAddress { link: identity(&bridge), address: address("10.9.0.1/24"), six: None },
            Step::SetRouteLocalnet { link: identity(&bridge) },
            Step::MakeNetns { name: netns.name.clone() },
            node.link_step(&web, &lan, &netns, &bridge),
            Step::SetAlias { link: link.clone(), alias: node.marks.link_alias(&web, &lan) },
            Step::AttachPort { link: link.clone(), bridge: bridge.index },
            Step::RenameLink { link: link.clone(), name: link.name.clone() },
            Step::ShapeLink { link: identity(&bridge), mtu: 1500, mac: Some(bridge.mac) },
            Step::LoopbackUp { netns: netns.clone() },
            Step::SetAddress {
                netns: netns.clone(),
                interface: "eth0".into(),
                address: address("10.9.0.2/24"),
                six: None,
            },
            Step::EnableForwarding { six: false },
        ];
        for step in again {
            assert_eq!(node.net.perform(step.clone()).await, Outcome::Already, "{step:?}");
        }
        let writes = || node.counters.net_writes.load(std::sync::atomic::Ordering::Relaxed);
        let before = writes();
        assert_eq!(node.side(&web).await, side, "nothing changed");
        assert!(node.net.look_net().await.is_seen());
        assert_eq!(writes(), before, "a look writes nothing");
        node.done(Step::DropLink { link: link.clone() }).await;
        assert_eq!(node.net.perform(Step::DropLink { link }).await, Outcome::Already);
        node.done(Step::DropNetns { netns: netns.clone() }).await;
        assert_eq!(node.net.perform(Step::DropNetns { netns }).await, Outcome::Already);
    });
}

/// The way back for a link that is named `other` by now.
fn rename(of: &LinkSeen) -> Step {
    let link = LinkIdentity { name: "other".into(), ..identity(of) };
    Step::RenameLink { link, name: of.name.clone() }
}

#[test]
fn drift_of_every_kind_is_seen_and_repaired() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        let netns = node.make_instance(&web, &lan, "10.9.0.2/24").await;
        let good = (node.side(&web).await, node.bridge(&lan).await);
        let link = good.0.links[&lan].clone();
        let attach = Step::AttachPort { link: identity(&link), bridge: bridge.index };
        let inside = format!("ip -n {}", netns.name);
        let address_step = Step::SetAddress {
            netns: netns.clone(),
            interface: "eth0".into(),
            address: address("10.9.0.2/24"),
            six: None,
        };
        let route = Step::SetDefaultRoute { netns: netns.clone(), gateway: "10.9.0.1".parse().unwrap() };
        let bridge_address =
            Step::SetBridgeAddress { link: identity(&bridge), address: address("10.9.0.1/24"), six: None };
        let bridge_shape = Step::ShapeLink { link: identity(&bridge), mtu: 1500, mac: Some(bridge.mac) };
        let mac = node.marks.mac(&web.to_string());
        let inside_shape = Step::ShapeInterface { netns: netns.clone(), interface: "eth0".into(), mtu: 1500, mac };
        let cases: Vec<(String, Vec<Step>)> = vec![
            (format!("ip link set {} nomaster", link.name), vec![attach.clone()]),
            (format!("ip link set {} down", link.name), vec![attach.clone()]),
            (format!("bridge link set dev {} hairpin off", link.name), vec![attach]),
            (format!("{inside} addr add 10.9.0.77/24 dev eth0"), vec![address_step.clone()]),
            (format!("{inside} addr add 10.9.0.2/16 dev eth0"), vec![address_step.clone()]),
            (format!("{inside} addr flush dev eth0"), vec![address_step.clone(), route.clone()]),
            (
                format!(
                    "{inside} addr flush dev eth0; {inside} addr add 10.9.0.7/24 dev eth0; {inside} addr add 10.9.0.2/24 dev eth0"
                ),
                vec![address_step.clone(), route.clone()],
            ),
            (format!("{inside} link set eth0 down"), vec![address_step, route.clone()]),
            (format!("{inside} link set lo down"), vec![Step::LoopbackUp { netns: netns.clone() }]),
            (format!("{inside} route del default"), vec![route.clone()]),
            (format!("{inside} route replace default via 10.9.0.200"), vec![route]),
            (format!("ip addr flush dev {}", bridge.name), vec![bridge_address.clone()]),
            (format!("ip addr add 192.0.2.9/32 dev {}", bridge.name), vec![bridge_address.clone()]),
            (format!("ip link set {} down", bridge.name), vec![bridge_address]),
            (
                format!("ip link set {} mtu 1400", link.name),
                vec![Step::ShapeLink { link: identity(&link), mtu: 1500, mac: None }],
            ),
            (format!("ip link set {} name other", link.name), vec![rename(&link)]),
            (format!("ip link set {} mtu 1400", bridge.name), vec![bridge_shape.clone()]),
            (format!("ip link set {} address 02:00:00:00:00:77", bridge.name), vec![bridge_shape]),
            (format!("ip link set {} name other", bridge.name), vec![rename(&bridge)]),
            (format!("{inside} link set eth0 mtu 1400"), vec![inside_shape.clone()]),
            (format!("{inside} link set eth0 address 02:00:00:00:00:77"), vec![inside_shape]),
            (
                format!("echo 0 > /proc/sys/net/ipv4/conf/{}/route_localnet", bridge.name),
                vec![Step::SetRouteLocalnet { link: identity(&bridge) }],
            ),
        ];
        for (drift, repair) in cases {
            run(&drift);
            assert_ne!((node.side(&web).await, node.bridge(&lan).await), good, "not seen: {drift}");
            for step in repair {
                node.done(step).await;
            }
            assert_eq!((node.side(&web).await, node.bridge(&lan).await), good, "not repaired: {drift}");
        }
    });
}

#[test]
fn a_step_on_another_incarnation_moves_and_does_nothing() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        let old = node.make_instance(&web, &lan, "10.9.0.2/24").await;
        let old_link = identity(&node.side(&web).await.links[&lan]);
        node.done(Step::DropLink { link: old_link.clone() }).await;
        node.done(Step::DropNetns { netns: old.clone() }).await;
        // Inode numbers are handed out anew; one more namespace keeps the new one from taking the old one's place.
        let _other = node.make_netns(&instance("shop/other/1")).await;
        let new = node.make_instance(&web, &lan, "10.9.0.2/24").await;
        let before = node.side(&web).await;
        let stale_netns = NetnsIdentity { inode: new.inode + 1, name: new.name.clone() };
        let link = identity(&before.links[&lan]);
        let renamed = LinkIdentity { name: "other".into(), ..link.clone() };
        let realiased = LinkIdentity { alias: Some("stead:shop/web/9/default".into()), ..link.clone() };
        let eth0 = || "eth0".to_owned();
        let stale = [
            Step::DropNetns { netns: stale_netns.clone() },
            Step::LoopbackUp { netns: stale_netns.clone() },
            Step::SetAddress {
                netns: stale_netns.clone(),
                interface: eth0(),
                address: address("10.9.0.3/24"),
                six: None,
            },
            Step::SetDefaultRoute { netns: stale_netns.clone(), gateway: "10.9.0.9".parse().unwrap() },
            Step::ShapeInterface { netns: stale_netns.clone(), interface: eth0(), mtu: 1400, mac: [2; 6] },
            Step::RenameLink { link: renamed.clone(), name: "more".into() },
            Step::ShapeLink { link: realiased.clone(), mtu: 1400, mac: None },
            node.link_step(&web, &network("shop", "back"), &stale_netns, &bridge),
            Step::DropLink { link: renamed.clone() },
            Step::DropLink { link: realiased.clone() },
            Step::AttachPort { link: renamed, bridge: bridge.index },
            Step::SetAlias { link: realiased.clone(), alias: "x".into() },
            Step::SetBridgeAddress { link: realiased, address: address("10.1.1.1/24"), six: None },
        ];
        for step in stale {
            assert_eq!(node.net.perform(step.clone()).await, Outcome::Moved, "{step:?}");
        }
        let gone_bridge = LinkSeen { index: 9999, ..bridge };
        let step = node.link_step(&web, &network("shop", "back"), &new, &gone_bridge);
        assert_eq!(node.net.perform(step).await, Outcome::Moved);
        assert_eq!(node.side(&web).await, before);
    });
}

#[test]
fn a_link_without_alias_is_its_instances_and_without_owner_a_stray() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        let netns = node.make_netns(&web).await;
        node.done(node.link_step(&web, &lan, &netns, &bridge)).await;
        let name = node.marks.link(&web, &lan);

        let restarted = Node::new();
        let blind = restarted.net.look_net().await.seen().cloned().unwrap();
        assert_eq!(blind.strays, BTreeSet::from([StrayKey::Link(name.clone()), StrayKey::Netns(netns.name.clone())]));
        assert_eq!(blind.stray_netns[&netns.name], netns.inode);
        let key = StrayKey::Link(name.clone());
        let stray = restarted.net.look_stray(&key).await.seen().cloned().unwrap();
        assert_eq!(stray, StraySeen::Link(blind.stray_links[&name].clone()));
        let key = StrayKey::Netns(netns.name.clone());
        assert_eq!(restarted.net.look_stray(&key).await.seen(), Some(&StraySeen::Netns(netns.inode)));

        restarted.own(&[&web], &lan);
        let knowing = restarted.net.look_net().await.seen().cloned().unwrap();
        assert!(knowing.strays.is_empty());
        assert_eq!(knowing.instances[&web].links[&lan].name, name);
        assert_eq!(knowing.instances[&web].netns.as_ref().unwrap().inode, netns.inode);
        assert_eq!(restarted.net.look_stray(&key).await.seen(), Some(&StraySeen::Gone));

        // With its alias it needs nobody to know it, and its netns goes with it.
        let link = identity(&knowing.instances[&web].links[&lan]);
        node.done(Step::SetAlias { link, alias: node.marks.link_alias(&web, &lan) }).await;
        let forgetful = Node::new().net.look_net().await.seen().cloned().unwrap();
        assert!(forgetful.strays.is_empty());
        assert_eq!(forgetful.instances[&web].links[&lan].name, name);
        assert!(forgetful.instances[&web].netns.is_some());
    });
}

#[test]
fn of_two_links_that_claim_one_place_the_rightly_named_has_it() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        node.make_bridge(&lan, "10.9.0.1/24").await;
        node.make_instance(&web, &lan, "10.9.0.2/24").await;
        let (group, alias) = (node.marks.link_group(), node.marks.link_alias(&web, &lan));
        for copy in ["aaa", "zzz"] {
            run(&format!("ip link add {copy} group {group} type veth peer name {copy}p"));
            run(&format!("ip link set {copy} alias {alias}"));
        }
        let seen = node.net.look_net().await.seen().cloned().unwrap();
        assert_eq!(seen.instances[&web].links[&lan].name, node.marks.link(&web, &lan));
        assert_eq!(seen.stray_links.keys().collect::<Vec<_>>(), ["aaa", "zzz"]);
        assert!(seen.foreign_links.contains("aaap"));
    });
}

#[test]
fn foreign_look_alikes_are_neither_seen_nor_touched() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        // The names that we would give, another agent's objects, and our aliases on links of nobody's group.
        let (bridge, link) = (node.marks.bridge(&lan), node.marks.link(&web, &lan));
        run(&format!("ip link add {bridge} type bridge; ip link set {bridge} alias stead:shop/default"));
        run(&format!(
            "ip link add {link} type veth peer name other; ip link set {link} alias stead:shop/web/1/default"
        ));
        run("ip netns add stead-web; ip netns add stead2-0123456789abcdef; ip netns add stead-two-0123456789abcdef");
        let other = Node::named("other");
        let theirs = other.make_bridge(&lan, "10.8.0.1/24").await;
        other.make_instance(&web, &lan, "10.8.0.2/24").await;
        node.own(&[&web], &lan);

        let seen = node.net.look_net().await.seen().cloned().unwrap();
        assert!(seen.instances.is_empty() && seen.networks.is_empty() && seen.strays.is_empty(), "{seen:?}");
        assert!([&bridge, &link, &theirs.name].iter().all(|name| seen.foreign_links.contains(*name)));
        assert!(seen.host_routes.contains(&(address("10.8.0.0/24"), theirs.name.clone())));

        // Without the carrier, which follows a link that was just set up in its own time.
        let state = || run("ip -br link | awk '{print $1, $3}'; ip -4 -br addr | awk '{print $1, $3}'; ip netns");
        let before = state();
        let step = Step::MakeBridge { name: bridge.clone(), mac: [2, 0, 0, 0, 0, 1], network: lan.clone() };
        let Outcome::Refused(cause) = node.net.perform(step).await else { panic!("a foreign bridge was taken over") };
        assert_eq!(cause.kind, CauseKind::Failed);
        assert!(cause.message.contains(&bridge) && cause.hint.is_some(), "{cause:?}");
        let index: u32 =
            run(&format!("cat /sys/class/net/{bridge}/ifindex 2>/dev/null || ip -o link show {bridge} | cut -d: -f1"))
                .trim()
                .parse()
                .unwrap();
        let foreign = LinkIdentity { index, name: bridge, alias: Some("stead:shop/default".into()) };
        for step in [
            Step::DropLink { link: foreign.clone() },
            Step::SetBridgeAddress { link: foreign.clone(), address: address("10.1.0.1/24"), six: None },
            Step::SetRouteLocalnet { link: foreign.clone() },
            Step::SetAlias { link: foreign, alias: "x".into() },
            Step::DropLink { link: identity(&theirs) },
        ] {
            assert_eq!(node.net.perform(step.clone()).await, Outcome::Moved, "{step:?}");
        }
        assert_eq!(state(), before);
    });
}

#[test]
fn a_network_is_not_taken_from_a_live_process() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        let netns = node.make_instance(&web, &lan, "10.9.0.2/24").await;
        let link = identity(&node.side(&web).await.links[&lan]);
        let guest = Guest::in_netns(&netns.name, "sleep 1000");
        let comm = format!("/proc/{}/comm", guest.0.id());
        while std::fs::read_to_string(&comm).unwrap() != "sleep\n" {
            tokio::task::yield_now().await;
        }
        for step in [Step::DropLink { link: link.clone() }, Step::DropNetns { netns: netns.clone() }] {
            let Outcome::Refused(cause) = node.net.perform(step.clone()).await else { panic!("done: {step:?}") };
            assert!(cause.message.contains(&format!("process {} (sleep)", guest.0.id())), "{cause:?}");
        }
        // The netns file is lost; the link is still not pulled from under the process.
        run(&format!("umount /run/netns/{0}; rm /run/netns/{0}", netns.name));
        let Outcome::Refused(_) = node.net.perform(Step::DropLink { link: link.clone() }).await else {
            panic!("the link of a live process was dropped")
        };
        assert_eq!(node.side(&web).await.netns, None);

        let pid = guest.0.id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start_ticks = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
        let adopt = |start_ticks| Step::AdoptNetns { name: netns.name.clone(), pid, start_ticks };
        assert_eq!(node.net.perform(adopt(start_ticks + 1)).await, Outcome::Moved);
        node.done(adopt(start_ticks)).await;
        assert_eq!(node.net.perform(adopt(start_ticks)).await, Outcome::Already);
        assert_eq!(node.side(&web).await.netns.unwrap().inode, netns.inode);

        let step = Step::DropLink { link: identity(&bridge) };
        let Outcome::Refused(cause) = node.net.perform(step).await else { panic!("a bridge with ports was dropped") };
        assert!(cause.message.contains(&link.name), "{cause:?}");
        drop(guest);
        node.done(Step::DropLink { link }).await;
        node.done(Step::DropNetns { netns }).await;
        node.done(Step::DropLink { link: identity(&bridge) }).await;
    });
}

#[test]
fn a_link_whose_inner_name_is_taken_is_refused_and_leaves_nothing() {
    isolated(|| async {
        let node = Node::new();
        let (web, lan) = (instance("shop/web/1"), network("shop", "default"));
        let bridge = node.make_bridge(&lan, "10.9.0.1/24").await;
        let netns = node.make_netns(&web).await;
        run(&format!("ip -n {} link add eth0 type bridge", netns.name));
        let Outcome::Refused(cause) = node.net.perform(node.link_step(&web, &lan, &netns, &bridge)).await else {
            panic!("two interfaces of one name")
        };
        assert!(cause.message.contains("File exists"), "{cause:?}");
        assert_eq!(run("ip -br link | wc -l").trim(), "2", "lo and the bridge");
        let inside = node.side(&web).await.netns.unwrap().interfaces;
        assert_eq!(inside["eth0"].peer_index, 0, "it leads nowhere");
    });
}

#[test]
fn a_netns_file_that_lost_its_mount_is_made_good() {
    isolated(|| async {
        let node = Node::new();
        let web = instance("shop/web/1");
        let netns = node.make_netns(&web).await;
        run(&format!("umount /run/netns/{}", netns.name));
        assert_eq!(node.side(&web).await.netns.unwrap().inode, 0);
        assert_eq!(node.net.perform(Step::DropNetns { netns: netns.clone() }).await, Outcome::Moved);
        node.done(Step::MakeNetns { name: netns.name.clone() }).await;
        let fresh = node.side(&web).await.netns.unwrap().inode;
        assert_ne!(fresh, 0);
        run(&format!("umount /run/netns/{}", netns.name));
        node.done(Step::DropNetns { netns: NetnsIdentity { inode: 0, name: netns.name } }).await;
        assert_eq!(node.net.look_instance(&web).await.seen(), Some(&None));
        // Made as `ip netns` makes it: it can be used, and the folder is a shared mount.
        let netns = node.make_netns(&web).await;
        run(&format!("ip netns exec {} true", netns.name));
        assert!(
            run("cat /proc/thread-self/mountinfo").lines().any(|l| l.contains(" /run/netns ") && l.contains("shared:"))
        );
    });
}

#[test]
fn routes_of_the_host_are_told_without_defaults_and_ours() {
    isolated(|| async {
        let node = Node::new();
        let lan = network("shop", "default");
        node.make_bridge(&lan, "10.9.0.1/24").await;
        run(
            "ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; ip addr add 192.0.2.5/24 dev up0",
        );
        run(
            "ip route add default via 192.0.2.1; ip route add 0.0.0.0/1 via 192.0.2.1; ip route add 128.0.0.0/1 via 192.0.2.1",
        );
        run(
            "ip route add 10.60.0.0/16 via 192.0.2.9; ip route add blackhole 10.70.0.0/16; ip route add 10.80.0.0/16 via 192.0.2.9 table 99",
        );
        let routes = node.net.look_net().await.seen().cloned().unwrap().host_routes;
        let expected: Vec<(Ipv4Net, String)> = [
            ("10.60.0.0/16", "up0"),
            ("10.70.0.0/16", "nowhere"),
            ("10.80.0.0/16", "up0"),
            ("192.0.2.0/24", "up0"),
            ("192.0.2.5/32", "up0"),
        ]
        .map(|(prefix, interface)| (address(prefix), interface.to_owned()))
        .into();
        assert_eq!(routes, expected);
    });
}

#[test]
fn fifty_instances_are_made_side_by_side_and_looked_at_in_no_time() {
    isolated(|| async {
        let node = Node::new();
        let lan = network("shop", "default");
        node.make_bridge(&lan, "10.9.0.1/24").await;
        let keys: Vec<_> = (1..=50).map(|n| instance(&format!("shop/web/{n}"))).collect();
        let netns = keys.iter().map(|key| node.net.perform(Step::MakeNetns { name: node.marks.netns(key) }));
        assert!(futures::future::join_all(netns).await.iter().all(|outcome| *outcome == Outcome::Done));
        let own = run("cat /proc/thread-self/mountinfo");
        let folders = own.lines().filter(|line| line.contains(" /run/netns ")).count();
        assert_eq!(folders, 1, "the folder is mounted on itself once, not once for each netns");
        for (n, key) in keys.iter().enumerate() {
            node.fit_out(key, &lan, &format!("10.9.0.{}/24", n + 2)).await;
        }
        let mut times = Vec::new();
        for _ in 0..5 {
            let begin = tokio::time::Instant::now();
            let seen = node.net.look_net().await.seen().cloned().unwrap();
            times.push(begin.elapsed());
            assert_eq!(seen.instances.len(), 50);
            assert!(seen.instances.values().all(|side| side.links.len() == 1 && side.netns.is_some()));
        }
        times.sort_unstable();
        assert!(times[0] < std::time::Duration::from_millis(50), "{times:?}");
    });
}
