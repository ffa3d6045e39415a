//! IPv6 beside IPv4 on a node, ports that are not for everybody, and forwarding that goes back to what it was.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::time::Duration;
use support::scene::{instance, instances, pid, running};
use support::{Scene, Version, await_until};

const LONG: Duration = Duration::from_secs(30);

const APP: &str = r#"
services:
  web:
    image: busybox:lab
    command: [httpd, -f, -p, "80", -h, /www]
    ports:
      - "8080:80"
      - {target: 80, published: 8081, x-stead: {from: [192.0.2.77, "2001:db8::/64"]}}
    networks: [lan, fixed]
    scale: 2
    stop_signal: SIGKILL
  peer:
    image: busybox:lab
    command: [sleep, inf]
    networks:
      lan: {}
      fixed: {ipv6_address: "fd00:77::5"}
    stop_signal: SIGKILL
networks:
  lan: {enable_ipv6: true}
  fixed:
    enable_ipv6: true
    ipam: {config: [{subnet: 10.66.1.0/24}, {subnet: "fd00:77::/64", gateway: "fd00:77::3"}]}
"#;

#[test]
fn a_dual_stack_app_is_reached_and_repaired_and_leaves_the_host_as_it_was() {
    let scene = Scene::new(Version::V1_6);
    // A bridge of somebody else's would keep forwarding on.
    scene.sh("ip link del stf0f0f0f0f0f0; sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
    let link =
        scene.sh("ip -o -4 addr show | sed -n 's/^[0-9]*: \\([^ ]*\\) *inet 192.0.2.1.*/\\1/p'").trim().to_owned();
    let theirs = scene.sh("ip -n client -o -4 addr show | sed -n 's/^[0-9]*: \\([^ ]*\\) *inet 192.0.2.2.*/\\1/p'");
    scene
        .sh(&format!("ip addr add 2001:db8::1/64 dev {link} nodad; ip -n client addr add 2001:db8::2/64 dev {theirs}"));
    scene.edit("six.yaml", APP);
    let _agent = scene.agent(&[]);
    scene.await_settled(LONG, |status| running(status, 3));

    let get = |url: &str| scene.client(&format!("timeout 3 busybox wget -q -O - {url}"));
    for url in ["http://192.0.2.1:8080/", "http://[2001:db8::1]:8080/", "http://[2001:db8::1]:8081/"] {
        assert_eq!(await_until(url, LONG, || get(url)), "hello\n");
    }
    assert!(get("http://192.0.2.1:8081/").is_err(), "not for this client");
    let status = scene.status().unwrap();
    let peer = pid(&status, "six/peer/1");
    let inside = |script: &str| scene.sh(&format!("nsenter -t {peer} -n -m /bin/busybox sh -c '{script}'"));
    let addresses = inside("ip -o -6 addr show");
    assert!(addresses.contains("fd00:77::5/64") && addresses.matches("scope global").count() == 2, "{addresses}");
    let hosts = inside("cat /etc/hosts");
    let six = hosts.lines().find(|line| line.starts_with("fd00:77:") && line.contains("web")).expect("web by IPv6");
    let six = six.split('\t').next().unwrap();
    assert_eq!(inside(&format!("busybox timeout 3 busybox wget -q -O - http://[{six}]/")), "hello\n");
    let told = instance(&status, "six/peer/1").unwrap()["addresses"].clone();
    assert!(told.to_string().contains("fd00:77::5"), "{told}");

    // Damage to the IPv6 side alone is put right under the running task.
    let before = instances(&status);
    let bridge =
        scene.sh("ip -o -6 addr show | sed -n 's/^[0-9]*: \\([^ ]*\\) *inet6 fd00:77::3.*/\\1/p'").trim().to_owned();
    for damage in [
        format!("ip -6 addr flush dev {bridge} scope global"),
        format!("nsenter -t {peer} -n ip -6 route del default"),
        format!(
            "nsenter -t {peer} -n ip -6 addr del fd00:77::5/64 dev eth0 || nsenter -t {peer} -n ip -6 addr del fd00:77::5/64 dev eth1"
        ),
        "sysctl -qw net.ipv6.conf.all.forwarding=0".to_owned(),
    ] {
        let look = || {
            scene.sh(&format!(
                "ip -o -6 addr show {bridge} scope global; nsenter -t {peer} -n ip -6 route show default;
                 nsenter -t {peer} -n ip -o -6 addr show scope global; sysctl -n net.ipv6.conf.all.forwarding"
            ))
        };
        let good = look();
        scene.sh(&damage);
        await_until(&damage, LONG, || if look() == good { Ok(()) } else { Err(look()) });
    }
    await_until("the port after the damage", LONG, || get("http://[2001:db8::1]:8080/"));
    for ((name, old), (_, new)) in before.iter().zip(instances(&scene.status().unwrap())) {
        assert_eq!(old["pid"], new["pid"], "{name} was not to be restarted");
    }

    scene.unfile("six.yaml");
    scene.await_settled(LONG, |status| running(status, 0));
    await_until("the host as it was", LONG, || {
        let left = scene.sh("sysctl -n net.ipv4.ip_forward net.ipv6.conf.all.forwarding; nft list tables | grep -c 'inet stead$' || true");
        if left == "0\n0\n0\n" { Ok(()) } else { Err(left) }
    });
}
