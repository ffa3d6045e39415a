//! Published ports, names, the way out and the ways that are closed, with real packets between real namespaces.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::time::Duration;
use support::scene::{instance, instances, running};
use support::{Agent, Scene, Version, await_until, echo_server};

const APP: &str = r#"
services:
  echo:
    image: busybox:lab
    command: [/srv/echo]
    hostname: echo-host
    volumes: [./srv:/srv:ro]
    ports: ["7000:7", "7000:7/udp", "127.0.0.1:7001:7"]
    networks:
      default: {aliases: [parrot]}
      inner: {}
    stop_signal: SIGKILL
  hidden:
    image: busybox:lab
    command: [/srv/echo]
    volumes: [./srv:/srv:ro]
    networks: [inner]
    stop_signal: SIGKILL
  peer:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
networks:
  inner:
    internal: true
"#;

const LONG: Duration = Duration::from_secs(30);

fn start() -> (Scene, Agent) {
    let scene = Scene::new(Version::V1_6);
    let files = scene.desired().join("net/srv");
    std::fs::create_dir_all(&files).unwrap();
    echo_server(&files);
    scene.edit("net/compose.yaml", APP);
    let agent = scene.agent(&[]);
    scene.await_settled(LONG, |status| running(status, 3));
    (scene, agent)
}

/// Runs a script in a container of the app and gives back its output.
fn within(scene: &Scene, name: &str, script: &str) -> Result<String, String> {
    let instance = instance(&scene.status()?, name)?;
    let pid = instance["pid"].as_u64().ok_or("no pid")?;
    let output = scene
        .command("nsenter")
        .args(["-t", &pid.to_string(), "-m", "-n", "--", "/bin/busybox", "timeout", "3", "/bin/sh", "-c", script])
        .output()
        .expect("nsenter runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{script}: {} {text}", output.status)) }
}

fn address(scene: &Scene, name: &str, network: &str) -> String {
    let instance = instance(&scene.status().unwrap(), name).unwrap();
    let addresses = instance["addresses"].as_array().unwrap();
    let found =
        addresses.iter().find(|address| address["network"].as_str().is_some_and(|name| name.ends_with(network)));
    found.unwrap_or_else(|| panic!("{name} is not on {network}: {instance:#}"))["ip"].as_str().unwrap().to_owned()
}

const TCP: &str = "echo hi | busybox nc -w 2";
/// bash speaks UDP by itself, but its `read` takes a byte at a time, which throws the rest of a datagram away.
const UDP: &str = "exec 3<>/dev/udp/192.0.2.1/7000; echo hi >&3; timeout 2 dd bs=512 count=1 <&3 2>/dev/null";

#[test]
fn published_ports_are_reached_from_everywhere_they_should() {
    let (scene, agent) = start();
    let outside = await_until("TCP from another host", LONG, || scene.client(&format!("{TCP} 192.0.2.1 7000")));
    assert_eq!(outside, "echo-host 192.0.2.2\n", "the server sees the client's own address");
    assert_eq!(await_until("UDP from another host", LONG, || scene.client(UDP)), "echo-host 192.0.2.2\n");
    let own = scene.sh(&format!("{TCP} 192.0.2.1 7000"));
    assert!(own.starts_with("echo-host "), "from the node by its own address: {own}");
    for port in [7000, 7001] {
        let loopback = scene.sh(&format!("{TCP} 127.0.0.1 {port}"));
        assert!(loopback.starts_with("echo-host "), "from the node by 127.0.0.1:{port}: {loopback}");
    }
    assert!(scene.client(&format!("{TCP} 192.0.2.1 7001")).is_err(), "a port on 127.0.0.1 is not for other hosts");
    for name in ["net/echo/1", "net/peer/1"] {
        let hairpin = within(&scene, name, "echo hi | nc -w 2 192.0.2.1 7000");
        assert!(hairpin.as_ref().is_ok_and(|text| text.starts_with("echo-host ")), "from {name}: {hairpin:?}");
    }
    agent.kill();
    scene.client(&format!("{TCP} 192.0.2.1 7000")).expect("ports work without the agent");
}

#[test]
fn peers_find_each_other_by_name_and_names_stay_current() {
    let (scene, _agent) = start();
    for name in ["echo", "parrot"] {
        let answer = within(&scene, "net/peer/1", &format!("echo hi | nc -w 2 {name} 7"));
        assert!(answer.as_ref().is_ok_and(|text| text.starts_with("echo-host ")), "peer -> {name}: {answer:?}");
    }
    let before = instances(&scene.status().unwrap());
    scene.edit(
        "net/compose.yaml",
        &APP.replace("  peer:\n", "  peer:\n    scale: 2\n").replace("aliases: [parrot]", "aliases: [jay]"),
    );
    scene.await_settled(LONG, |status| running(status, 4));
    let answer = within(&scene, "net/peer/1", "echo hi | nc -w 2 jay 7");
    assert!(answer.is_ok(), "the new alias: {answer:?}");
    assert!(within(&scene, "net/peer/1", "echo hi | nc -w 2 parrot 7").is_err(), "the old alias is gone");
    let after = instances(&scene.status().unwrap());
    for (name, old) in before {
        let new = &after.iter().find(|(other, _)| *other == name).unwrap().1;
        assert_eq!(
            (&old["pid"], &old["started_at"]),
            (&new["pid"], &new["started_at"]),
            "{name} was not to be restarted"
        );
    }
    let resolver = within(&scene, "net/peer/1", "cat /etc/resolv.conf").unwrap();
    assert!(resolver.contains("192.0.2.2"), "the host's name server: {resolver}");
}

#[test]
fn the_way_out_is_masqueraded_and_an_internal_network_has_none() {
    let (scene, _agent) = start();
    let server = scene.write("who", "");
    std::fs::copy(scene.desired().join("net/srv/echo"), &server).unwrap();
    let _outside = scene.daemon("who.log", "ip", &["netns", "exec", "client", server.to_str().unwrap()]);
    let out = await_until("a connection from inside to another host", LONG, || {
        within(&scene, "net/peer/1", "echo hi | nc -w 2 192.0.2.2 7")
    });
    assert!(out.ends_with(" 192.0.2.1\n"), "the other host sees the node's address, not {out}");
    assert!(
        within(&scene, "net/hidden/1", "echo hi | nc -w 2 192.0.2.2 7").is_err(),
        "an internal network has no way out"
    );
    let hidden = address(&scene, "net/hidden/1", "inner");
    assert!(within(&scene, "net/echo/1", "echo hi | nc -w 2 hidden 7").is_ok(), "its members reach each other");
    assert!(within(&scene, "net/peer/1", &format!("echo hi | nc -w 2 {hidden} 7")).is_err(), "others do not reach it");
    scene.sh(&format!("ip -n client route add {hidden}/32 via 192.0.2.1"));
    assert!(scene.client(&format!("{TCP} {hidden} 7")).is_err(), "nor does another host that routes to it");
}

/// `route_localnet` lets 127.0.0.1 reach published ports; it must not let containers reach the node's own services there,
/// not even one that has power over its own network.
#[test]
fn loopback_services_of_the_node_stay_closed() {
    let (scene, agent) = start();
    let _server = scene.daemon("own.log", "busybox", &["nc", "-ll", "-p", "9000", "-e", "echo", "secret"]);
    let reach = "busybox nc -w 2 127.0.0.1 9000";
    await_until("the node's own service", LONG, || {
        let output = scene.try_sh(reach);
        if output.stdout == b"secret\n" { Ok(()) } else { Err(format!("{output:?}")) }
    });
    let pid = instance(&scene.status().unwrap(), "net/peer/1").unwrap()["pid"].clone();
    let from_inside = |script: &str| scene.try_sh(&format!("nsenter -t {pid} -n bash -euc '{script}'"));
    let prepared = from_inside(
        "gateway=$(ip -4 route show default | sed -n \"s/^default via \\([0-9.]*\\).*/\\1/p\")
         sysctl -qw net.ipv4.conf.all.route_localnet=1
         ip address del 127.0.0.1/8 dev lo; ip route add 127.0.0.1/32 via $gateway",
    );
    assert!(prepared.status.success(), "{prepared:?}");
    let reached = from_inside(reach);
    assert!(reached.stdout.is_empty(), "the node's loopback is reached from a container: {reached:?}");
    agent.kill();
    scene.sh("nft flush chain inet stead guard");
    let reached = from_inside(reach);
    assert_eq!(reached.stdout, b"secret\n", "it is the guard that closes it, or this test sees nothing: {reached:?}");
}
