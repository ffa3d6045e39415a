//! One stuck object never delays another: a hung shim is shown for what it is, everything else goes on, and nothing is
//! decided about its task until it can be seen again. Stopping is bounded even then.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use nix::sys::signal::Signal;
use std::time::Duration;
use support::scene::{instance, pid, running};
use support::{Agent, Scene, Version, await_until};

const APP: &str = "\
services:
  web:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
";

struct Hung {
    scene: Scene,
    agent: Agent,
    task: u32,
    shim: u32,
}

/// Two apps run; the shim of `one/web/1` is stopped in its tracks.
fn hung(version: Version) -> Hung {
    let scene = Scene::new(version);
    scene.edit("one.yaml", APP);
    scene.edit("two.yaml", APP);
    let agent = scene.agent(&[]);
    let status = scene.await_settled(Duration::from_secs(30), |status| running(status, 2).map(|()| status.clone()));
    let one = instance(&status, "one/web/1").unwrap();
    let id = format!("-id {}", one["container_id"].as_str().unwrap());
    let shim = scene.processes().into_iter().find(|process| process.command.contains(&id)).unwrap().pid;
    scene.kill(shim, Signal::SIGSTOP);
    Hung { task: pid(&status, "one/web/1"), scene, agent, shim }
}

fn others_go_on(version: Version) {
    let Hung { scene, agent, task, shim } = hung(version);
    let old = pid(&scene.status().unwrap(), "two/web/1");
    scene.edit("two.yaml", &APP.replace("[sleep, inf]", "[sleep, '1000000']"));
    scene.edit("three.yaml", APP);
    await_until("the other apps to be as wanted", Duration::from_secs(20), || {
        let status = scene.status()?;
        let (two, three) = (instance(&status, "two/web/1")?, instance(&status, "three/web/1")?);
        let good = two["state"] == "running" && two["pid"] != old && three["state"] == "running";
        if good { Ok(()) } else { Err(format!("{two:#}\n{three:#}")) }
    });
    await_until("the stuck task to be shown for what it is", Duration::from_secs(20), || {
        let one = instance(&scene.status()?, "one/web/1")?;
        let said = !one["waiting"].as_array().is_none_or(Vec::is_empty) || one["last_error"].is_string();
        if one["state"] == "degraded" && said { Ok(()) } else { Err(format!("{one:#}")) }
    });
    scene.kill(shim, Signal::SIGCONT);
    scene.await_settled(Duration::from_secs(20), |status| {
        running(status, 3)?;
        let now = instance(status, "one/web/1")?["pid"].clone();
        if now == task {
            Ok(())
        } else {
            Err(format!("pid {now}, not {task}: a task that could not be seen was restarted"))
        }
    });
    agent.stop();
    scene.assert_foreign_untouched();
}

#[test]
fn others_go_on_beside_a_hung_shim_on_1_6() {
    others_go_on(Version::V1_6);
}

#[test]
fn others_go_on_beside_a_hung_shim_on_1_7() {
    others_go_on(Version::V1_7);
}

#[test]
fn stopping_is_bounded_beside_a_hung_shim() {
    let Hung { scene, agent, .. } = hung(Version::V1_6);
    // Its removal hangs in the shim.
    scene.unfile("one.yaml");
    let log = || agent.log();
    await_until("the step that hangs", Duration::from_secs(20), || {
        if log().contains("stop-task") || log().contains("kill-task") { Ok(()) } else { Err(log()) }
    });
    agent.stop();
}
