//! Whose network an instance has, what its interfaces are like, and what it is told of names: seen from inside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::time::Duration;
use support::scene::{instance, instances, pid, running};
use support::{Agent, Scene, Version, await_until};

const LONG: Duration = Duration::from_secs(30);

fn start(app: &str, count: usize) -> (Scene, Agent) {
    let scene = Scene::new(Version::V1_6);
    scene.edit("net.yaml", app);
    let agent = scene.agent(&["--pool", "10.77.0.0/16"]);
    scene.await_settled(LONG, |status| running(status, count));
    (scene, agent)
}

/// Runs a script with the image's own programs in an instance.
#[track_caller]
fn within(scene: &Scene, name: &str, script: &str) -> String {
    let pid = pid(&scene.status().unwrap(), name);
    scene.sh(&format!("nsenter -t {pid} -m -n -- /bin/busybox timeout 5 /bin/sh -c '{script}'"))
}

/// The pid of an instance once it is another one, and all is settled.
#[track_caller]
fn pid_after(scene: &Scene, name: &str, old: u32) -> u32 {
    scene.await_settled(LONG, |status| {
        let now = instance(status, name)?["pid"].as_u64().filter(|pid| *pid != u64::from(old));
        now.and_then(|pid| u32::try_from(pid).ok()).ok_or_else(|| format!("{name} is the one of before"))
    })
}

const MODES: &str = r#"
services:
  alone:
    image: busybox:lab
    command: [sleep, inf]
    network_mode: none
    stop_signal: SIGKILL
  host:
    image: busybox:lab
    command: [httpd, -f, -p, "127.0.0.1:8085", -h, /www]
    network_mode: host
    extra_hosts: ["here:host-gateway"]
    stop_signal: SIGKILL
"#;

#[test]
fn without_a_network_there_is_the_loopback_alone_and_the_hosts_is_the_hosts() {
    let (scene, _agent) = start(MODES, 2);
    assert_eq!(within(&scene, "net/alone/1", "ip -o link | busybox wc -l").trim(), "1");
    assert!(within(&scene, "net/alone/1", "ip -o link").contains("LOOPBACK,UP"));
    assert_eq!(within(&scene, "net/alone/1", "ip route").trim(), "");
    let status = scene.status().unwrap();
    let netns = |pid: &str| scene.sh(&format!("readlink /proc/{pid}/ns/net"));
    assert_eq!(netns(&pid(&status, "net/host/1").to_string()), netns("self"), "it is in the node's own network");
    assert_ne!(netns(&pid(&status, "net/alone/1").to_string()), netns("self"));
    assert_eq!(scene.sh("busybox wget -q -O - http://127.0.0.1:8085/"), "hello\n");
    assert!(within(&scene, "net/host/1", "cat /etc/hosts").contains("127.0.0.1\there\n"));
    assert_eq!(
        scene.sh("ls /run/netns | grep -c ^stead-[0-9a-f]*$").trim(),
        "1",
        "one netns, of the one that is alone"
    );

    // From the host's network into one of its own and back: nothing of the one that it left stays.
    let own = MODES.replace("    network_mode: host\n", "").replace("127.0.0.1:8085", "80");
    let old = pid(&scene.status().unwrap(), "net/host/1");
    scene.edit("net.yaml", &own);
    let moved = pid_after(&scene, "net/host/1", old);
    assert!(within(&scene, "net/host/1", "ip -o -4 addr show eth0").contains("10.77."));
    await_until("the server in its own network", LONG, || {
        let output = scene.try_sh(&format!("nsenter -t {moved} -n busybox wget -q -O - http://127.0.0.1/"));
        if output.stdout == b"hello\n" { Ok(()) } else { Err(format!("{output:?}")) }
    });
    scene.edit("net.yaml", MODES);
    pid_after(&scene, "net/host/1", moved);
    scene.await_settled(LONG, |status| running(status, 2));
    let links = scene.sh("ip -o link | grep -c alias.stead: || true");
    assert_eq!(links.trim(), "0", "no bridge and no link is left");
    assert_eq!(scene.sh("ls /run/netns | grep -c ^stead-[0-9a-f]*$").trim(), "1");
    scene.assert_foreign_untouched();
}

const SHAPES: &str = r#"
services:
  web:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
    networks:
      front: {mac_address: "02:00:00:00:00:17", interface_name: outer, priority: 10}
      back: {interface_name: inner, ipv4_address: 10.66.0.130, gw_priority: 5}
      third: {}
  peer:
    image: busybox:lab
    command: [sleep, inf]
    scale: 3
    stop_signal: SIGKILL
    networks: [back]
networks:
  front:
    driver_opts: {com.docker.network.driver.mtu: 1400, com.docker.network.bridge.name: br-front}
  third: {}
  back:
    ipam:
      config:
        - subnet: 10.66.0.0/24
          ip_range: 10.66.0.128/29
          gateway: 10.66.0.9
          aux_addresses: {printer: 10.66.0.128, router: 10.66.0.129}
"#;

#[test]
fn interfaces_and_addresses_are_as_the_file_says() {
    let (scene, _agent) = start(SHAPES, 4);
    let links = within(&scene, "net/web/1", "ip -o link");
    let line =
        |name: &str| links.lines().find(|line| line.contains(&format!(" {name}@"))).unwrap_or_default().to_owned();
    assert!(line("outer").contains("mtu 1400") && line("outer").contains("02:00:00:00:00:17"), "{links}");
    assert!(line("inner").contains("mtu 1500"), "{links}");
    assert!(!line("eth0").is_empty(), "a network without a name for its interface: {links}");
    assert!(within(&scene, "net/web/1", "ip -o -4 addr show inner").contains("10.66.0.130/24"));
    assert_eq!(
        within(&scene, "net/web/1", "ip route | busybox grep ^default").trim(),
        "default via 10.66.0.9 dev inner"
    );
    assert!(scene.sh("ip -o link show br-front").contains("mtu 1400"));
    assert!(scene.sh("ip -o -4 addr show br-front").contains("10.77."), "from the agent's own pool");
    let mut given = std::collections::BTreeSet::new();
    for n in 1..=3 {
        let text = within(&scene, &format!("net/peer/{n}"), "ip -o -4 addr show eth0");
        let last: u8 = text.split("10.66.0.").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
        assert!((131..136).contains(&last) && given.insert(last), "in the range, past what is taken: {text}");
    }
    let before = instances(&scene.status().unwrap());

    // What somebody changes is put back under the running task; so is what the file changes of a bridge.
    let inside = pid(&scene.status().unwrap(), "net/web/1");
    for damage in [
        "ip link set br-front mtu 1300".to_owned(),
        "ip link set br-front name elsewhere".to_owned(),
        "ip link set br-front address 02:00:00:00:00:99".to_owned(),
        format!("nsenter -t {inside} -n ip link set outer mtu 1300"),
        format!("nsenter -t {inside} -n ip link set outer address 02:00:00:00:00:99"),
    ] {
        let look = || {
            let bridge =
                scene.sh("ip -o link show type bridge | grep -o 'br-front.*mtu [0-9]*\\|ether [0-9a-f:]*' | sort");
            bridge + &scene.sh(&format!("nsenter -t {inside} -n ip -o link show outer"))
        };
        let good = look();
        scene.sh(&damage);
        await_until(&damage, LONG, || if look() == good { Ok(()) } else { Err(look()) });
    }
    scene.edit("net.yaml", &SHAPES.replace("1400", "1300").replace("br-front", "br-other"));
    scene.await_settled(LONG, |status| running(status, 4));
    await_until("the new name and MTU", LONG, || {
        let bridge = scene.sh("ip -o link show br-other || true");
        let outer = within(&scene, "net/web/1", "ip -o link show outer");
        if bridge.contains("mtu 1300") && outer.contains("mtu 1300") { Ok(()) } else { Err(bridge + &outer) }
    });
    for ((name, old), (_, new)) in before.iter().zip(instances(&scene.status().unwrap())) {
        assert_eq!(old["pid"], new["pid"], "{name} was not to be restarted");
    }
    scene.unfile("net.yaml");
    scene.await_settled(LONG, |status| running(status, 0));
    assert_eq!(scene.sh("ip -o link | grep -c 'br-other\\|br-front' || true").trim(), "0");
    scene.assert_foreign_untouched();
}

const NAMES: &str = r#"
services:
  web:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
    extra_hosts: ["gate:host-gateway", "db=192.0.2.50", "six:2001:db8::7"]
    dns: [192.0.2.53, 192.0.2.54]
    dns_search: [one.test, two.test]
    dns_opt: ["ndots:3"]
  plain:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
"#;

#[test]
fn names_are_told_as_the_file_says_and_change_under_the_running_task() {
    let (scene, _agent) = start(NAMES, 2);
    let resolver = "nameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch one.test two.test\noptions ndots:3\n";
    assert_eq!(within(&scene, "net/web/1", "cat /etc/resolv.conf"), resolver);
    let hosts = within(&scene, "net/web/1", "cat /etc/hosts");
    let gateway = within(&scene, "net/web/1", "ip route | busybox grep ^default").split(' ').nth(2).unwrap().to_owned();
    for line in [format!("{gateway}\tgate\n"), "192.0.2.50\tdb\n".into(), "2001:db8::7\tsix\n".into()] {
        assert!(hosts.contains(&line), "{line} is missing in {hosts}");
    }
    let before = instances(&scene.status().unwrap());
    scene.edit(
        "net.yaml",
        &NAMES
            .replace("192.0.2.54", "192.0.2.55")
            .replace("[one.test, two.test]", "[\".\"]")
            .replace("db=192.0.2.50", "db=192.0.2.51"),
    );
    let settled = |status: &serde_json::Value| running(status, 2);
    scene.await_settled(LONG, settled);
    await_until("the edited names", LONG, || {
        let text = within(&scene, "net/web/1", "cat /etc/resolv.conf /etc/hosts");
        let good = text.starts_with("nameserver 192.0.2.53\nnameserver 192.0.2.55\noptions ndots:3\n");
        if good && text.contains("192.0.2.51\tdb") && !text.contains("192.0.2.50") { Ok(()) } else { Err(text) }
    });
    // The host's own resolver moves: whoever says nothing of its own follows.
    scene.sh("printf \"nameserver 192.0.2.77\\nsearch moved.test\\n\" > /etc/resolv.conf");
    await_until("the host's new resolver", LONG, || {
        let text = within(&scene, "net/plain/1", "cat /etc/resolv.conf");
        if text == "nameserver 192.0.2.77\nsearch moved.test\n" { Ok(()) } else { Err(text) }
    });
    assert!(within(&scene, "net/web/1", "cat /etc/resolv.conf").starts_with("nameserver 192.0.2.53\n"));
    for ((name, old), (_, new)) in before.iter().zip(instances(&scene.status().unwrap())) {
        assert_eq!(
            (&old["pid"], &old["started_at"]),
            (&new["pid"], &new["started_at"]),
            "{name} was not to be restarted"
        );
    }
}

const SHARED: &str = r#"
services:
  owner:
    image: busybox:lab
    command: [sleep, inf]
    ports: ["8080:80"]
    stop_signal: SIGKILL
    restart: always
  guest:
    image: busybox:lab
    command: [httpd, -f, -p, "80", -h, /www]
    network_mode: service:owner
    stop_signal: SIGKILL
    restart: always
"#;

#[test]
fn a_service_has_the_network_of_another_and_keeps_it_when_that_one_restarts() {
    let (scene, agent) = start(SHARED, 2);
    let get = || scene.client("busybox wget -q -O - http://192.0.2.1:8080/");
    assert_eq!(await_until("the guest by the owner's port", LONG, get), "hello\n");
    let status = scene.status().unwrap();
    let (owner, guest) = (pid(&status, "net/owner/1"), pid(&status, "net/guest/1"));
    let netns = |pid: u32| scene.sh(&format!("readlink /proc/{pid}/ns/net"));
    let shared = netns(owner);
    assert_eq!(netns(guest), shared);
    let hosts = within(&scene, "net/guest/1", "cat /etc/hosts");
    let own = within(&scene, "net/guest/1", "ip -o -4 addr show eth0");
    let own = own.split("inet ").nth(1).unwrap().split('/').next().unwrap();
    assert!(hosts.contains(&format!("{own}\tnet-guest-1\n")), "its own name is at that address: {hosts}");

    // The owner ends and comes back; the guest does not notice, nor does its client.
    scene.kill(owner, nix::sys::signal::Signal::SIGKILL);
    let second = pid_after(&scene, "net/owner/1", owner);
    assert_eq!(netns(second), shared, "the network is the owner's, not the process's");
    assert_eq!(pid(&scene.status().unwrap(), "net/guest/1"), guest);
    assert_eq!(get().unwrap(), "hello\n");

    // So it is when the netns file is lost while the owner is down and only the guest lives in it.
    agent.kill();
    let name = scene.sh("ls /run/netns | grep -E '^stead-[0-9a-f]{16}$'");
    let container = instance(&status, "net/owner/1").unwrap()["container_id"].as_str().unwrap().to_owned();
    scene.sh(&format!("ctr -n stead task rm -f {container}; umount /run/netns/{0}; rm /run/netns/{0}", name.trim()));
    let _agent = scene.agent(&["--pool", "10.77.0.0/16"]);
    let third = pid_after(&scene, "net/owner/1", second);
    assert_eq!(netns(third), shared, "the guest's network was taken up again");
    assert_eq!(pid(&scene.status().unwrap(), "net/guest/1"), guest);
    assert_eq!(await_until("the port again", LONG, get), "hello\n");

    scene.unfile("net.yaml");
    scene.await_settled(LONG, |status| running(status, 0));
    assert_eq!(scene.sh("ls /run/netns | grep -c ^stead-[0-9a-f]*$ || true").trim(), "0", "nothing is left");
    scene.assert_foreign_untouched();
}
