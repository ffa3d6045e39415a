//! Stopping an instance: its signal, its grace period, and a stop that is cut off by a crash of containerd or of the agent.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "a real clock measures")]

mod support;

use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use support::scene::running;
use support::{Agent, Scene, Version, await_until};

const LONG: Duration = Duration::from_secs(30);

/// An app whose process does something on SIGUSR1, its stop signal.
fn app(on_signal: &str, grace: &str) -> String {
    format!(
        "services:\n  slow:\n    image: busybox:lab\n    \
         command: [sh, -c, \"trap '{on_signal}' USR1; touch /out/ready; while :; do sleep 0.05; done\"]\n    \
         stop_signal: SIGUSR1\n    stop_grace_period: {grace}\n    volumes: [./out:/out]\n    restart: always\n"
    )
}

/// The app runs, and its trap is set.
fn start(version: Version, on_signal: &str, grace: &str) -> (Scene, Agent) {
    let scene = Scene::new(version);
    std::fs::create_dir_all(scene.desired().join("app/out")).unwrap();
    scene.edit("app/compose.yaml", &app(on_signal, grace));
    let agent = scene.agent(&[]);
    scene.await_settled(LONG, |status| running(status, 1));
    await_until("the trap", LONG, || if said(&scene, "ready") { Ok(()) } else { Err("not set".into()) });
    (scene, agent)
}

/// Whether the process made a file.
fn said(scene: &Scene, name: &str) -> bool {
    scene.desired().join("app/out").join(name).exists()
}

/// Waits until nothing of the app is left, and tells how long that took.
#[track_caller]
fn await_gone(scene: &Scene, since: Instant) -> Duration {
    await_until("the app to be gone", LONG, || {
        let picture = scene.picture();
        let left: Vec<String> = ["containers", "tasks", "shims", "snapshots"]
            .iter()
            .flat_map(|section| picture.section(section))
            .filter(|line| line.contains("app-slow"))
            .map(str::to_owned)
            .collect();
        if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
    });
    since.elapsed()
}

#[test]
fn the_stop_signal_is_sent_and_waited_for() {
    let (scene, agent) = start(Version::V1_6, "sleep 1; touch /out/cleaned; exit 0", "20s");
    let began = Instant::now();
    scene.unfile("app/compose.yaml");
    let took = await_gone(&scene, began);
    assert!(said(&scene, "cleaned"), "it had the time that it asked for");
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(15), "it was not waited out: {took:?}");
    agent.stop();
}

#[test]
fn after_the_grace_period_it_is_killed() {
    let (scene, agent) = start(Version::V1_6, "touch /out/ignored", "3s");
    let began = Instant::now();
    scene.unfile("app/compose.yaml");
    let took = await_gone(&scene, began);
    assert!(said(&scene, "ignored"), "it got the signal");
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(12), "{took:?}");
    agent.stop();
}

/// containerd is killed while an instance is on its way down; the exit comes while nobody can report it.
fn stop_cut_off_by_containerd(version: Version) {
    let (mut scene, agent) = start(version, "touch /out/asked; sleep 2; touch /out/cleaned; exit 0", "20s");
    scene.unfile("app/compose.yaml");
    await_until("the stop signal", LONG, || if said(&scene, "asked") { Ok(()) } else { Err("not sent".into()) });
    scene.end_containerd(Signal::SIGKILL);
    await_until("the exit", LONG, || if said(&scene, "cleaned") { Ok(()) } else { Err("still there".into()) });
    scene.start_containerd();
    await_gone(&scene, Instant::now());
    agent.stop();
    scene.assert_foreign_untouched();
}

#[test]
fn a_stop_that_containerd_dies_in_ends_on_1_6() {
    stop_cut_off_by_containerd(Version::V1_6);
}

#[test]
fn a_stop_that_containerd_dies_in_ends_on_1_7() {
    stop_cut_off_by_containerd(Version::V1_7);
}

/// The grace period goes on from when the signal was sent, not from when the agent came back.
#[test]
fn a_restarted_agent_goes_on_with_a_stop() {
    let (scene, agent) = start(Version::V1_7, "touch /out/asked", "4s");
    let began = Instant::now();
    scene.unfile("app/compose.yaml");
    await_until("the stop signal", LONG, || if said(&scene, "asked") { Ok(()) } else { Err("not sent".into()) });
    agent.kill();
    std::thread::sleep(Duration::from_secs(2));
    let agent = scene.agent(&[]);
    let took = await_gone(&scene, began);
    assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(12), "{took:?}");
    agent.stop();
}

/// An edit that takes the removal back while the instance is on its way down: a new one runs, once the old one is gone.
#[test]
fn a_removal_that_is_taken_back_ends_in_one_instance() {
    let (scene, agent) = start(Version::V1_6, "touch /out/asked; sleep 1; exit 0", "20s");
    let text = std::fs::read_to_string(scene.desired().join("app/compose.yaml")).unwrap();
    scene.unfile("app/compose.yaml");
    await_until("the stop signal", LONG, || if said(&scene, "asked") { Ok(()) } else { Err("not sent".into()) });
    scene.edit("app/compose.yaml", &text);
    scene.await_settled(LONG, |status| running(status, 1));
    let picture = scene.picture();
    for section in ["containers", "tasks", "shims", "snapshots"] {
        let count = picture.section(section).iter().filter(|line| line.contains("app-slow")).count();
        assert_eq!(count, 1, "{section}: {:?}", picture.section(section));
    }
    agent.stop();
}
