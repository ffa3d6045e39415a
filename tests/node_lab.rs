//! Tests of the lab itself: what the other tests on a node rest on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use nix::sys::signal::Signal;
use std::time::Duration;
use support::{BUSYBOX, Node, Picture, Scene, Version, await_until, busybox_archive, host_leftovers, inside};

/// The links, netns files and nft tables of the host. Looking does not touch them.
fn host_network() -> String {
    let show = |program: &str, arguments: &[&str]| {
        #[allow(clippy::disallowed_methods, reason = "the host is looked at from outside of any node")]
        let output = std::process::Command::new(program).args(arguments).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    show("ip", &["-o", "link"]) + &show("ip", &["netns"]) + &show("nft", &["list", "tables"])
}

#[test]
fn the_host_is_left_clean() {
    let before = host_network();
    {
        let node = Node::new(Version::V1_6);
        node.sh("ip link add st0123456789ab type bridge; ip netns add stead-x; nft add table inet stead");
        node.sh("for hierarchy in /sys/fs/cgroup/*/; do mkdir -p $hierarchy/stead/web; done");
        node.ctr("stead", "namespaces create lab");
        assert!(!node.try_sh("touch /here /usr/here").status.success(), "the host's root must be read-only in a node");
        assert!(!host_leftovers().is_empty(), "the check for leftovers must see a living node");
    }
    assert_eq!(host_network(), before);
    await_until("nothing to be left of the node", Duration::from_secs(5), || {
        let left = host_leftovers();
        if left.iter().any(|line| line.contains("-0")) { Err(left.join("\n")) } else { Ok(()) }
    });
}

#[test]
fn both_containerd_versions_survive_kill_and_freeze() {
    for version in Version::ALL {
        let mut node = Node::new(version);
        let shown = node.ctr("stead", "version");
        assert!(shown.contains(if version == Version::V1_6 { "1.6." } else { "1.7." }), "{version:?}: {shown}");
        node.freeze_containerd();
        assert!(!node.try_sh("timeout 1 ctr version").status.success(), "a frozen containerd must not answer");
        node.thaw_containerd();
        node.ctr("stead", "version");
        node.end_containerd(Signal::SIGKILL);
        node.start_containerd();
        node.end_containerd(Signal::SIGTERM);
        node.start_containerd();
        node.ctr("stead", "version");
    }
}

#[test]
fn a_picture_tells_two_of_one_name_apart() {
    let node = Node::new(Version::V1_6);
    node.sh("ip link add st0 type bridge; ip netns add stead-x; nft add table inet stead '{ chain c { counter; }; }'");
    let before = Picture::of(node.enter(), "stead");
    before.assert_same(&Picture::of(node.enter(), "stead"), "looking twice");
    node.sh("ip link del st0; ip link add st0 type bridge; ip netns del stead-x; ip netns add stead-x");
    let after = Picture::of(node.enter(), "stead");
    before.shape().assert_same(&after.shape(), "made again");
    let differences = before.differences(&after);
    assert!(differences.iter().any(|line| line.starts_with("links: - st0")), "{differences:?}");
    assert!(differences.iter().any(|line| line.starts_with("netns: - stead-x")), "{differences:?}");
}

#[test]
fn the_client_is_another_host() {
    let node = Node::bare(Version::V1_6);
    let _server = node.daemon("server.log", "busybox", &["nc", "-ll", "-p", "8080", "-e", "echo", "hello"]);
    let hello = await_until("an answer", Duration::from_secs(5), || node.client("busybox nc -w 1 192.0.2.1 8080"));
    assert_eq!(hello, "hello\n");
    assert!(node.client("busybox nc -w 1 127.0.0.1 8080").is_err(), "its loopback is not the node's");
}

#[test]
fn a_body_runs_inside_a_node() {
    inside(
        || Node::new(Version::V1_7),
        |dir| {
            assert_eq!(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), "node\n");
            assert!(std::path::Path::new("/run/containerd/containerd.sock").exists());
            std::fs::write(dir.join("here"), "").unwrap();
        },
    );
}

#[test]
fn the_test_image_runs() {
    let node = Node::new(Version::V1_6);
    let archive = busybox_archive(&node.dir);
    node.ctr("stead", &format!("images import {}", archive.display()));
    assert_eq!(node.ctr("stead", &format!("run --rm {BUSYBOX} one cat /www/index.html")), "hello\n");
}

#[test]
fn look_alikes_are_watched() {
    let scene = Scene::new(Version::V1_6);
    scene.assert_foreign_untouched();
    for damage in [
        "ip link set stf0f0f0f0f0f1 nomaster",
        "ctr -n stead containers rm web-web-2-f0f0f0f0",
        "ip netns del stead-foreign",
    ] {
        let before = scene.picture();
        scene.sh(damage);
        let seen = before.differences(&scene.picture());
        assert!(!seen.is_empty(), "`{damage}` must be seen");
    }
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.assert_foreign_untouched()));
    assert!(caught.is_err(), "damage to look-alikes must be caught");
}
