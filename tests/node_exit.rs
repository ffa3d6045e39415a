//! Exits are seen once and told truly: of tasks that die while containerd is down, just before, or with their shim; and a
//! create that a containerd crash cut off heals by itself. On both containerd versions, since a restart of 1.7 forgets
//! ended tasks and one of 1.6 can keep half-made ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::Duration;
use support::scene::{instance, instances, pid, running};
use support::{Scene, Version, await_until, holds_for};

/// `retry` is started again after a failure, `job` is not; both exit with 7 on SIGUSR1.
const APP: &str = r#"
services:
  retry:
    image: busybox:lab
    command: &loop [sh, -c, "trap 'exit 7' USR1; while :; do sleep 0.05; done"]
    restart: on-failure
    stop_signal: SIGKILL
  job:
    image: busybox:lab
    command: *loop
    restart: "no"
    stop_signal: SIGKILL
"#;

const RETRY: &str = "app/retry/1";
const JOB: &str = "app/job/1";
const LONG: Duration = Duration::from_secs(30);

struct Running {
    scene: Scene,
    agent: support::Agent,
    retry: u32,
    job: u32,
}

fn start(version: Version) -> Running {
    let scene = Scene::new(version);
    scene.edit("app.yaml", APP);
    let agent = scene.agent(&[]);
    let status = scene.await_settled(LONG, |status| running(status, 2).map(|()| status.clone()));
    let (retry, job) = (pid(&status, RETRY), pid(&status, JOB));
    Running { scene, agent, retry, job }
}

/// The shim of an instance: the one whose id is its container's.
fn shim(scene: &Scene, name: &str) -> u32 {
    let id = instance(&scene.status().unwrap(), name).unwrap()["container_id"].as_str().unwrap().to_owned();
    let found = scene.processes().into_iter().find(|process| process.command.contains(&format!("-id {id}")));
    found.unwrap_or_else(|| panic!("no shim of {id}")).pid
}

/// `retry` was restarted exactly once, and `job` shows its exit as one of these codes (`null` is unknown).
#[track_caller]
fn assert_seen_once(running: &Running, codes: &[Value]) {
    let scene = &running.scene;
    let check = |status: &Value| {
        let (retry, job) = (instance(status, RETRY)?, instance(status, JOB)?);
        if retry["state"] != "running" || retry["pid"] == running.retry {
            return Err("retry is not started again".to_owned());
        }
        if job["state"] == "running" || !job["pid"].is_null() {
            return Err("job still runs".to_owned());
        }
        Ok((retry, job))
    };
    let (retry, job) = scene.await_settled(LONG, check);
    assert!(codes.contains(&job["exit_code"]), "job's exit must be one of {codes:?}: {job:#}");
    assert!(codes.contains(&retry["exit_code"]), "retry's last exit must be one of {codes:?}: {retry:#}");
    assert_eq!((&retry["restarts"], &job["restarts"]), (&Value::from(1), &Value::from(0)), "{retry:#}\n{job:#}");
    holds_for("nothing more happens", Duration::from_secs(2), || {
        let now = instance(&scene.status()?, RETRY)?;
        if now["pid"] == retry["pid"] && now["restarts"] == 1 { Ok(()) } else { Err(format!("{now:#}")) }
    });
    scene.assert_foreign_untouched();
}

fn on_both(test: fn(Running)) {
    for version in Version::ALL {
        test(start(version));
    }
}

#[test]
fn a_task_that_dies_is_restarted_once() {
    on_both(|running| {
        running.scene.kill(running.retry, Signal::SIGUSR1);
        running.scene.kill(running.job, Signal::SIGUSR1);
        assert_seen_once(&running, &[7.into()]);
    });
}

#[test]
fn a_task_that_dies_while_containerd_is_down() {
    on_both(|mut running| {
        running.scene.end_containerd(Signal::SIGKILL);
        running.scene.kill(running.retry, Signal::SIGUSR1);
        running.scene.kill(running.job, Signal::SIGUSR1);
        for pid in [running.retry, running.job] {
            await_until("the process to end", LONG, || match running.scene.start_ticks(pid) {
                None => Ok(()),
                Some(_) => Err("alive".into()),
            });
        }
        running.scene.start_containerd();
        // The witness took the status from the kernel, whatever containerd remembers.
        assert_seen_once(&running, &[7.into()]);
        running.agent.stop();
    });
}

#[test]
fn a_task_that_died_just_before_containerd() {
    on_both(|mut running| {
        running.scene.kill(running.retry, Signal::SIGUSR1);
        running.scene.kill(running.job, Signal::SIGUSR1);
        running.scene.end_containerd(Signal::SIGKILL);
        running.scene.start_containerd();
        assert_seen_once(&running, &[7.into()]);
    });
}

/// Agent and containerd are both down when the task dies: nobody could see how. 1.6 still knows; 1.7 forgets.
#[test]
fn a_task_that_dies_while_nobody_looks() {
    on_both(|mut running| {
        running.agent.kill();
        running.scene.end_containerd(Signal::SIGKILL);
        running.scene.kill(running.retry, Signal::SIGUSR1);
        running.scene.kill(running.job, Signal::SIGUSR1);
        running.scene.start_containerd();
        running.agent = running.scene.agent(&[]);
        assert_seen_once(&running, &[7.into(), Value::Null]);
    });
}

/// containerd then kills the process with its shim, so 137 is what happened to it. It is never 0.
#[test]
fn a_shim_that_is_killed() {
    on_both(|running| {
        for name in [RETRY, JOB] {
            running.scene.kill(shim(&running.scene, name), Signal::SIGKILL);
        }
        assert_seen_once(&running, &[137.into(), Value::Null]);
    });
}

#[test]
fn a_shim_that_is_killed_while_containerd_is_down() {
    on_both(|mut running| {
        let shims = [RETRY, JOB].map(|name| shim(&running.scene, name));
        running.scene.end_containerd(Signal::SIGKILL);
        for shim in shims {
            running.scene.kill(shim, Signal::SIGKILL);
        }
        running.scene.start_containerd();
        assert_seen_once(&running, &[137.into(), Value::Null]);
    });
}

/// The process ends by itself after its shim, so that a 137 in containerd's books would be made up.
#[test]
fn a_task_that_outlives_its_shim_and_then_exits() {
    on_both(|mut running| {
        let shims = [RETRY, JOB].map(|name| shim(&running.scene, name));
        running.scene.end_containerd(Signal::SIGKILL);
        for shim in shims {
            running.scene.kill(shim, Signal::SIGKILL);
        }
        running.scene.kill(running.retry, Signal::SIGUSR1);
        running.scene.kill(running.job, Signal::SIGUSR1);
        running.scene.start_containerd();
        assert_seen_once(&running, &[7.into(), Value::Null]);
    });
}

/// Four instances are on their way up when containerd is killed, at another moment each time.
fn create_cut_off(version: Version) {
    let mut scene = Scene::new(version);
    let app = |generation: u64| {
        format!(
            "services:\n  pool:\n    image: busybox:lab\n    command: [sleep, inf]\n    stop_signal: SIGKILL\n    \
             environment: {{GENERATION: '{generation}'}}\n    deploy: {{replicas: 4}}\n"
        )
    };
    let _agent = scene.agent(&[]);
    let ids = |scene: &Scene| {
        let picture = scene.picture();
        let ours = picture.section("containers").into_iter().filter(|line| line.contains("app-pool"));
        ours.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for round in 0..8_u64 {
        let old = ids(&scene);
        scene.edit("app.yaml", &app(round));
        await_until("creates to begin", LONG, || {
            if ids(&scene).iter().any(|id| !old.contains(id)) { Ok(()) } else { Err("none".into()) }
        });
        std::thread::sleep(Duration::from_millis(17 * round));
        scene.end_containerd(Signal::SIGKILL);
        scene.start_containerd();
        scene.await_settled(LONG, |status| {
            running(status, 4)?;
            let new = instances(status).iter().all(|(_, instance)| {
                instance["container_id"].as_str().is_some_and(|id| !old.iter().any(|old| old == id))
            });
            if new { Ok(()) } else { Err(format!("some are still of {old:?}")) }
        });
    }
    let status = scene.status().unwrap();
    let picture = scene.picture();
    let count = |section: &str, mark: &str| picture.section(section).iter().filter(|line| line.contains(mark)).count();
    assert_eq!(instances(&status).len(), 4);
    for section in ["containers", "tasks", "shims"] {
        assert_eq!(count(section, "app-pool"), 4, "{section}: {:?}", picture.section(section));
    }
    assert_eq!(count("tasks", "RUNNING"), 4 + 1, "{:?}", picture.section("tasks"));
    assert_eq!(count("snapshots", "app-pool"), 4, "{:?}", picture.section("snapshots"));
    scene.assert_foreign_untouched();
}

#[test]
fn a_create_that_is_cut_off_heals_on_1_6() {
    create_cut_off(Version::V1_6);
}

#[test]
fn a_create_that_is_cut_off_heals_on_1_7() {
    create_cut_off(Version::V1_7);
}
