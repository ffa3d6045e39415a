//! Workloads do not notice the agent or containerd: either is killed or restarted any number of times, and the tasks,
//! links, addresses and nft handles are the same ones as before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use nix::sys::signal::Signal;
use std::time::Duration;
use support::scene::{running, writes};
use support::{Picture, Scene, Version, await_until, holds_for};

/// What may differ after a restart: nothing of the workloads; but the agent's own files, and images' content.
const OF_WORKLOADS: [&str; 1] = ["files"];

fn app(service: &str, replicas: u32, memory: &str) -> String {
    format!(
        r#"
services:
  {service}:
    image: busybox:lab
    command: [sleep, inf]
    mem_limit: {memory}
    stop_signal: SIGKILL
    deploy: {{replicas: {replicas}}}
"#
    )
}

fn web() -> &'static str {
    r#"
services:
  web:
    image: busybox:lab
    command: [httpd, -f, -p, "80", -h, /www]
    ports: ["8080:80"]
    stop_signal: SIGKILL
"#
}

/// The memory limits of the running tasks, as the kernel has them.
fn limits(scene: &Scene) -> Vec<String> {
    let files = "/sys/fs/cgroup/memory/stead/*/memory.limit_in_bytes /sys/fs/cgroup/stead/*/memory.max";
    let output = scene.sh(&format!("cat {files} 2>/dev/null || true"));
    output.lines().map(str::to_owned).collect()
}

/// Waits until the agent says that it cannot reach containerd.
#[track_caller]
fn await_unavailable(scene: &Scene, seconds: u64) {
    await_until("the agent to see that containerd is away", Duration::from_secs(seconds), || {
        let state = scene.status()?["agent"]["runtime"].clone();
        if state == "unavailable" { Ok(()) } else { Err(format!("runtime is {state}")) }
    });
}

/// containerd is killed, and asked to end, with five instances running; a file is edited while it is down.
fn containerd_restarts(version: Version) {
    let mut scene = Scene::new(version);
    scene.edit("pool.yaml", &app("pool", 4, "64m"));
    scene.edit("web.yaml", web());
    let agent = scene.agent(&[]);
    scene.await_settled(Duration::from_secs(30), |status| running(status, 5));
    let before = scene.picture().without(&OF_WORKLOADS);
    for round in 1..=20_u32 {
        let signal = if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGTERM };
        scene.end_containerd(signal);
        let memory = 64 + round;
        scene.edit("pool.yaml", &app("pool", 4, &format!("{memory}m")));
        await_unavailable(&scene, 5);
        assert!(scene.client("busybox nc -w 2 192.0.2.1 8080 </dev/null").is_ok(), "the published port must go on");
        scene.start_containerd();
        let wanted = (u64::from(memory) * 1024 * 1024).to_string();
        await_until("the edit to be applied", Duration::from_secs(10), || {
            let limits = limits(&scene);
            let applied = limits.iter().filter(|limit| **limit == wanted).count();
            if applied == 4 { Ok(()) } else { Err(format!("limits are {limits:?}, {wanted} wanted")) }
        });
        scene.await_settled(Duration::from_secs(10), |status| running(status, 5));
        before.assert_same(&scene.picture().without(&OF_WORKLOADS), &format!("round {round}, after {signal}"));
    }
    let log = agent.log();
    for step in ["kill-task", "stop-task", "delete-task", "delete-container", "create-task"] {
        let done = log.lines().filter(|line| line.contains(step)).count();
        assert!(done == if step == "create-task" { 5 } else { 0 }, "{step} was done {done} times:\n{log}");
    }
    agent.stop();
    scene.assert_foreign_untouched();
}

#[test]
fn containerd_restarts_unnoticed_on_1_6() {
    containerd_restarts(Version::V1_6);
}

#[test]
fn containerd_restarts_unnoticed_on_1_7() {
    containerd_restarts(Version::V1_7);
}

#[test]
fn agent_restarts_write_nothing() {
    let scene = Scene::new(Version::V1_6);
    scene.edit("pool.yaml", &app("pool", 9, "64m"));
    scene.edit("web.yaml", web());
    let mut agent = scene.agent(&[]);
    scene.await_settled(Duration::from_secs(60), |status| running(status, 10));
    let before = scene.picture().without(&OF_WORKLOADS);
    for round in 1..=20 {
        if round % 2 == 0 {
            agent.kill()
        } else {
            agent.stop()
        }
        agent = scene.agent(&[]);
        let pid = agent.pid();
        let written = scene.await_settled(Duration::from_secs(20), |status| {
            if status["agent"]["pid"] == pid {
                running(status, 10).map(|()| writes(status))
            } else {
                Err("an old status".into())
            }
        });
        assert_eq!(written, 0, "round {round}: a restart on a settled node writes nothing\n{}", agent.log());
        before.assert_same(&scene.picture().without(&OF_WORKLOADS), &format!("round {round}"));
    }
    scene.assert_foreign_untouched();
}

/// Ten instances whose agent and containerd die together, in a row, while files change.
#[test]
fn both_die_together() {
    let mut scene = Scene::new(Version::V1_7);
    scene.edit("pool.yaml", &app("pool", 3, "64m"));
    let mut agent = scene.agent(&[]);
    scene.await_settled(Duration::from_secs(30), |status| running(status, 3));
    let before = scene.picture().without(&OF_WORKLOADS);
    for _ in 0..3 {
        agent.kill();
        scene.end_containerd(Signal::SIGKILL);
        agent = scene.agent(&[]);
        await_unavailable(&scene, 5);
        scene.start_containerd();
        scene.await_settled(Duration::from_secs(20), |status| running(status, 3));
        before.assert_same(&scene.picture().without(&OF_WORKLOADS), "agent and containerd killed");
    }
    agent.stop();
}

/// A containerd that accepts connections and answers nothing is seen as unavailable; nothing is decided meanwhile.
#[test]
fn a_frozen_containerd_is_unavailable() {
    let scene = Scene::new(Version::V1_6);
    scene.edit("pool.yaml", &app("pool", 2, "64m"));
    let agent = scene.agent(&[]);
    scene.await_settled(Duration::from_secs(30), |status| running(status, 2));
    let before = scene.picture().without(&OF_WORKLOADS);
    scene.freeze_containerd();
    await_unavailable(&scene, 40);
    scene.thaw_containerd();
    scene.await_settled(Duration::from_secs(30), |status| running(status, 2));
    before.assert_same(&scene.picture().without(&OF_WORKLOADS), "containerd was frozen");
    agent.stop();
}

/// A long outage costs little: bounded CPU time and log lines, and the agent is back at once when containerd is.
#[test]
fn an_outage_costs_little() {
    let mut scene = Scene::new(Version::V1_7);
    scene.edit("pool.yaml", &app("pool", 2, "64m"));
    let mut agent = scene.agent(&[]);
    scene.await_settled(Duration::from_secs(30), |status| running(status, 2));
    scene.end_containerd(Signal::SIGTERM);
    let (ticks, lines) = (agent.cpu_ticks(), agent.log().lines().count());
    // A fifteenth of the ten minutes that the bounds are given for; the first seconds are the dearest of an outage.
    holds_for("the agent goes on", Duration::from_secs(20), || match agent.ended() {
        Some(status) => Err(format!("it ended: {status}")),
        None => Ok(()),
    });
    let (ticks, lines) = (agent.cpu_ticks() - ticks, agent.log().lines().count() - lines);
    assert!(
        ticks <= 20 && lines <= 25,
        "20 s of outage cost {ticks} ticks of CPU and {lines} log lines\n{}",
        agent.log()
    );
    scene.start_containerd();
    scene.await_settled(Duration::from_secs(5), |status| running(status, 2));
    agent.stop();
}

#[test]
fn sigterm_leads_to_exit_0_at_any_moment() {
    let scene = Scene::new(Version::V1_7);
    for delay in [0_u64, 30, 100, 250, 500, 900] {
        scene.edit("pool.yaml", &app("pool", 6, "64m"));
        let agent = scene.agent(&[]);
        std::thread::sleep(Duration::from_millis(delay));
        agent.stop();
    }
    assert!(scene.agent_until_end(&["--once", "--timeout", "60s"]).success());
    let picture: Picture = scene.picture();
    assert_eq!(picture.section("tasks").iter().filter(|line| line.contains("pool-")).count(), 6);
}
