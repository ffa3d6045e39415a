//! Kill anywhere: the agent is killed, or asked to stop, right after each step of bringing an app up and of taking it
//! down, and started again. It reaches the same end state as if nothing had happened, and nothing is left over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use support::{BUSYBOX, Picture, Scene, Version};

const APP: &str = r#"
services:
  web:
    image: busybox:lab
    x-stead: {archive: ./busybox.tar}
    command: [httpd, -f, -p, "80", -h, /www]
    ports: ["8080:80"]
    stop_signal: SIGKILL
  helper:
    image: busybox:lab
    x-stead: {archive: ./busybox.tar}
    command: [sleep, inf]
    networks: [default, inner]
    stop_signal: SIGKILL
networks:
  inner:
    internal: true
"#;

/// More steps than the app takes: the count of steps must not hide an endless series.
const MOST_STEPS: u32 = 150;

/// A scene whose image comes from an archive beside the app's file, so that importing it is among the steps.
fn scene(version: Version) -> Scene {
    let scene = Scene::new(version);
    std::fs::copy(scene.dir.join("busybox.tar"), scene.desired().join("busybox.tar")).expect("the archive is copied");
    scene
}

/// Runs an agent until everything is settled, which must work.
#[track_caller]
fn settle(scene: &Scene) {
    let status = scene.agent_until_end(&["--once", "--timeout", "40s"]);
    assert!(status.success(), "an undisturbed agent must settle, not end with {status}");
}

fn died(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::SIGKILL as i32)
}

/// What is compared: everything, but the image when the app is gone, and forwarding, which is never switched off again.
fn end_state(scene: &Scene) -> Picture {
    scene.picture().shape()
}

/// The image is ours to use and nobody's to remove by itself: taken away so that the next round imports it again.
fn forget_image(scene: &Scene) {
    scene.ctr("stead", &format!("images rm --sync {BUSYBOX}"));
}

/// Brings the app up and down in as many rounds as it has steps, and interrupts round k after step k.
fn interrupted_after_every_step(version: Version, flag: &str, expected: fn(ExitStatus) -> bool) {
    let scene = scene(version);
    settle(&scene);
    let empty = end_state(&scene).without(&["ip_forward"]);
    scene.edit("shop.yaml", APP);
    settle(&scene);
    let full = end_state(&scene);
    assert_eq!(full.section("links").iter().filter(|line| line.contains("alias=stead:")).count(), 2 + 3, "{full:?}");
    let mut steps = 0;
    loop {
        steps += 1;
        assert!(steps < MOST_STEPS, "there is no end of steps");
        let number = steps.to_string();
        scene.unfile("shop.yaml");
        let down = scene.agent_until_end(&["--once", "--timeout", "40s", flag, &number]);
        assert!(expected(down) || down.success(), "interrupted after step {steps} of removing: {down}");
        settle(&scene);
        empty.assert_same(
            &end_state(&scene).without(&["ip_forward"]),
            &format!("removing, interrupted after step {steps}"),
        );
        forget_image(&scene);
        // It stays on for somebody else's bridge; off again, each round has to switch it on and to remember that.
        scene.sh("sysctl -qw net.ipv4.ip_forward=0");
        scene.edit("shop.yaml", APP);
        let up = scene.agent_until_end(&["--once", "--timeout", "40s", flag, &number]);
        assert!(expected(up) || up.success(), "interrupted after step {steps} of making: {up}");
        let complete = full.differences(&end_state(&scene)).is_empty();
        settle(&scene);
        full.assert_same(&end_state(&scene), &format!("making, interrupted after step {steps}"));
        if complete && !died(down) && !died(up) {
            break;
        }
    }
    assert!(steps > 20, "an app of two services takes more than {steps} steps: were they interrupted at all?");
    scene.assert_foreign_untouched();
}

#[test]
fn killed_after_every_step_on_1_6() {
    interrupted_after_every_step(Version::V1_6, "--die-after-step", died);
}

#[test]
fn killed_after_every_step_on_1_7() {
    interrupted_after_every_step(Version::V1_7, "--die-after-step", died);
}

#[test]
fn stopped_after_every_step() {
    interrupted_after_every_step(Version::V1_7, "--stop-after-step", |status| status.success());
}
