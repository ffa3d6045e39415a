//! Drift is repaired, in the network as in containerd, within two seconds, and without touching a running task.
//!
//! These tests measure a time, so they run one after another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "a real clock measures")]

mod support;

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use support::scene::{instance, pid, running};
use support::{Picture, Scene, Version, await_until};

const APP: &str = r#"
services:
  web:
    image: busybox:lab
    command: [httpd, -f, -p, "80", -h, /www]
    ports: ["8080:80"]
    stop_signal: SIGKILL
    restart: always
    deploy: {replicas: 1}
  peer:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
    restart: always
    deploy: {replicas: 2}
"#;

/// The time in which drift has to be gone.
const WITHIN: Duration = Duration::from_secs(2);

static ALONE: Mutex<()> = Mutex::new(());

struct Settled {
    scene: Scene,
    agent: support::Agent,
    before: Picture,
    /// The names that the tests damage.
    link: String,
    bridge: String,
    netns: String,
    container: String,
    _alone: MutexGuard<'static, ()>,
}

fn settled() -> Settled {
    settled_on("true")
}

/// The same on a node that a script has prepared.
fn settled_on(prepared: &str) -> Settled {
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let scene = Scene::new(Version::V1_6);
    scene.sh(prepared);
    scene.edit("shop.yaml", APP);
    let agent = scene.agent(&[]);
    let status = scene.await_settled(Duration::from_secs(30), |status| running(status, 3).map(|()| status.clone()));
    let before = scene.picture().without(&["files"]);
    let named = |what: &str| {
        let lines = before.section("links");
        let line = lines.iter().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no link {what}: {lines:?}"));
        line.split(' ').next().unwrap().to_owned()
    };
    let (link, bridge) = (named("alias=stead:shop/web/1/default"), named("alias=stead:shop/default"));
    let web = instance(&status, "shop/web/1").unwrap();
    let task = pid(&status, "shop/web/1");
    let inode = scene.sh(&format!("stat -L -c %i /proc/{task}/ns/net"));
    let netns =
        scene.sh(&format!("cd /run/netns; for n in *; do [ $(stat -c %i $n) != {} ] || echo $n; done", inode.trim()));
    let container = web["container_id"].as_str().unwrap().to_owned();
    Settled { scene, agent, before, link, bridge, netns: netns.trim().to_owned(), container, _alone: alone }
}

/// The damage is done by a shell script, and the picture is again as before but for the lines that `fresh` chooses: things
/// that cannot come back as the same ones. All tasks go on, unless `fresh` says otherwise.
#[track_caller]
fn repaired(settled: &Settled, damage: &str, fresh: impl Fn(&str) -> bool) {
    let take = || {
        let now = settled.scene.picture().without(&["files"]);
        let (same, new) = (now.only(|line| !fresh(line)), now.only(&fresh));
        (same, new.shape())
    };
    let want = (settled.before.only(|line| !fresh(line)), settled.before.only(&fresh).shape());
    settled.scene.sh(damage);
    let began = Instant::now();
    await_until(&format!("repair of `{damage}`"), WITHIN + Duration::from_secs(3), || {
        let now = take();
        let mut differences = want.0.differences(&now.0);
        differences.extend(want.1.differences(&now.1));
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    });
    assert!(began.elapsed() < WITHIN, "repair of `{damage}` took {:?}", began.elapsed());
    let reached = || settled.scene.client("busybox wget -q -O - http://192.0.2.1:8080/");
    assert_eq!(await_until("the published port", WITHIN, reached), "hello\n");
}

#[test]
fn a_deleted_veth_comes_back() {
    let settled = settled();
    let (link, netns) = (settled.link.clone(), settled.netns.clone());
    repaired(&settled, &format!("ip link del {link}"), |line| line.contains(&link) || line.contains(&netns));
    settled.scene.assert_foreign_untouched();
}

#[test]
fn a_deleted_bridge_comes_back() {
    let settled = settled();
    let bridge = settled.bridge.clone();
    repaired(&settled, &format!("ip link del {bridge}"), |line| line.starts_with(&bridge));
    settled.scene.assert_foreign_untouched();
}

#[test]
fn changed_links_and_addresses_are_put_right() {
    let settled = settled();
    let (link, bridge, netns) = (&settled.link, &settled.bridge, &settled.netns);
    for damage in [
        format!("ip link set {link} nomaster"),
        format!("ip link set {link} down"),
        format!("bridge link set dev {link} hairpin off"),
        format!("ip link set {link} alias somebody"),
        format!("ip link set {link} name stray0"),
        format!("ip link set {bridge} name stray1"),
        format!("ip link set {bridge} down"),
        format!("ip address flush dev {bridge}"),
        format!("ip address add 10.9.9.9/24 dev {bridge}"),
        format!("ip -n {netns} address flush dev eth0"),
        format!("ip -n {netns} route del default"),
        format!("ip -n {netns} link set eth0 down"),
        format!("ip -n {netns} link set lo down"),
        "sysctl -qw net.ipv4.ip_forward=0".to_owned(),
    ] {
        repaired(&settled, &damage, |_| false);
    }
    settled.scene.assert_foreign_untouched();
}

#[test]
fn the_nft_table_comes_back() {
    // The table remembers that forwarding was off before; with the table, that memory is lost.
    let settled = settled_on("sysctl -qw net.ipv4.ip_forward=1");
    // A flush takes the other tables too: that is not ours to undo.
    let ours = |line: &str| line.starts_with("table inet stead:");
    for damage in
        ["nft delete table inet stead", "nft add rule inet stead postrouting counter", "nft flush table inet stead"]
    {
        repaired(&settled, damage, ours);
    }
    settled.scene.assert_foreign_untouched();
    let theirs = |line: &str| line.contains("steadfast") || line.contains("table ip stead-foreign");
    settled.scene.sh("nft flush ruleset");
    let want = settled.before.without(&["nft"]);
    await_until("the table after a flush of everything", WITHIN, || {
        let now = settled.scene.picture();
        let table = settled.before.only(|line| ours(line) && !theirs(line)).shape();
        let differences = table.differences(&now.only(ours).shape());
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    });
    want.assert_same(&settled.scene.picture().without(&["nft", "files"]), "after a flush");
}

#[test]
fn a_killed_task_comes_back_and_the_others_stay() {
    let settled = settled();
    let id = settled.container.clone();
    repaired(&settled, &format!("ctr -n stead task kill -s SIGKILL {id}"), |line| line.starts_with(&id));
    settled.scene.assert_foreign_untouched();
}

#[test]
fn a_removed_task_and_container_come_back() {
    let settled = settled();
    let id = settled.container.clone();
    repaired(&settled, &format!("ctr -n stead task rm -f {id}"), |line| line.starts_with(&id));
    // The agent is held meanwhile, or it would have the task back before the container can be removed.
    let agent = settled.agent.pid();
    let damage =
        format!("kill -STOP {agent}; ctr -n stead task rm -f {id}; ctr -n stead container rm {id}; kill -CONT {agent}");
    repaired(&settled, &damage, |line| line.starts_with(&id));
    settled.scene.assert_foreign_untouched();
}
