//! Order, jobs, restarts and the commands for them on a real node, looked at from inside the instances.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::Value;
use std::time::Duration;
use support::scene::{instance, pid};
use support::{Scene, Version, await_until, holds_for};

const LONG: Duration = Duration::from_secs(60);

/// Each service proves in the volume that what it needs was there before it: a missing file ends it with a failure. On
/// the way down `db` looks whether `a-web` has ended before.
const STACK: &str = r#"
services:
  a-web:
    image: busybox:lab
    command: [sh, -c, "test -e /data/job || exit 9; trap 'touch /data/web-down; exit 0' TERM; echo up >>/data/web; while :; do sleep 0.05; done"]
    restart: always
    volumes: [data:/data]
    depends_on: {job: {condition: service_completed_successfully}, db: {condition: service_started}}
  db:
    image: busybox:lab
    command: [sh, -c, "trap 'test -e /data/web-down && touch /data/in-order; exit 0' TERM; touch /data/db; while :; do sleep 0.05; done"]
    restart: always
    volumes: [data:/data]
  job:
    image: busybox:lab
    command: [sh, -c, "test -e /data/db || exit 9; sleep 1; test ! -e /data/fail || exit 3; echo run >>/data/job"]
    volumes: [data:/data]
    depends_on: [db]
volumes: {data: }
"#;

fn data(scene: &Scene, file: &str) -> String {
    scene.sh(&format!("cat /var/lib/stead/volumes/app/data/{file} 2>/dev/null || true"))
}

fn there(scene: &Scene, file: &str) -> bool {
    scene.sh(&format!("test -e /var/lib/stead/volumes/app/data/{file} && echo yes || true")) == "yes\n"
}

fn states(status: &Value) -> Result<[String; 3], String> {
    let state = |name: &str| instance(status, name).map(|row| row["state"].as_str().unwrap_or_default().to_owned());
    Ok([state("app/a-web/1")?, state("app/db/1")?, state("app/job/1")?])
}

fn up(status: &Value) -> Result<(), String> {
    let states = states(status)?;
    if states == ["running", "running", "completed"] { Ok(()) } else { Err(format!("{states:?}")) }
}

#[test]
fn order_holds_at_the_first_start_at_boot_and_backwards_at_the_end() {
    let mut scene = Scene::new(Version::V1_7);
    scene.edit("app.yaml", STACK);
    let agent = scene.agent(&[]);
    scene.await_settled(LONG, up);
    let web_came_up = |scene: &Scene, times: usize| {
        await_until("web to be at work", LONG, || match data(scene, "web").lines().count() {
            count if count == times => Ok(()),
            other => Err(other.to_string()),
        });
    };
    web_came_up(&scene, 1);
    assert_eq!(data(&scene, "job"), "run\n");
    agent.kill();
    scene.cut_the_power();
    scene.start_containerd();
    let _agent = scene.agent(&[]);
    scene.await_settled(LONG, up);
    assert_eq!(data(&scene, "job"), "run\n", "a completed job is not run again at boot");
    web_came_up(&scene, 2);
    scene.unfile("app.yaml");
    scene
        .await_settled(LONG, |status| if instance(status, "app/db/1").is_err() { Ok(()) } else { Err("there".into()) });
    assert!(there(&scene, "web-down") && there(&scene, "in-order"), "who needs another ends before it");
}

/// A failed job holds those that need it, and nobody else, and `stead restart` is the way out that `explain` names.
#[test]
fn a_failed_job_blocks_its_dependents_until_it_is_run_again() {
    let scene = Scene::new(Version::V1_7);
    scene.edit("app.yaml", STACK);
    scene.edit("other.yaml", "services: {alone: {image: 'busybox:lab', command: [sleep, inf], stop_signal: SIGKILL}}");
    scene.sh("mkdir -p /var/lib/stead/volumes/app/data; touch /var/lib/stead/volumes/app/data/fail");
    let _agent = scene.agent(&[]);
    let blocked = await_until("web to be blocked by the job", LONG, || {
        let status = scene.status()?;
        let web = instance(&status, "app/a-web/1")?;
        let found = states(&status)?;
        let as_wanted =
            found == ["blocked", "running", "exited"] && instance(&status, "other/alone/1")?["state"] == "running";
        if as_wanted { Ok(web) } else { Err(format!("{found:?}: {web:#}")) }
    });
    assert!(
        blocked["last_error"].as_str().unwrap().contains("app/job/1 to complete, which has ended (code 3)"),
        "{blocked:#}"
    );
    let why = scene.stead(&["explain", "app/a-web"]);
    assert!(why.contains("stead restart app/job") && why.contains("app.yaml:3:3"), "{why}");
    let before = pid(&scene.status().unwrap(), "app/db/1");
    scene.sh("rm /var/lib/stead/volumes/app/data/fail");
    scene.stead(&["restart", "app/job", "--wait"]);
    let status = scene.await_settled(LONG, |status| up(status).map(|()| status.clone()));
    assert_eq!(pid(&status, "app/db/1"), before, "the others are not touched");
    assert_eq!(data(&scene, "job"), "run\n");
    // a change in place does not run it again, one of its definition does
    scene.edit("app.yaml", &STACK.replace("    depends_on: [db]", "    labels: {a: b}\n    depends_on: [db]"));
    scene.stead(&["wait", "app", "--timeout", "60s"]);
    assert_eq!(data(&scene, "job"), "run\n");
    scene.edit("app.yaml", &STACK.replace("sleep 1;", "sleep 0.1;"));
    scene.stead(&["wait", "app", "--timeout", "60s"]);
    await_until("the job to be run again", LONG, || match data(&scene, "job").as_str() {
        "run\nrun\n" => Ok(()),
        other => Err(other.to_owned()),
    });
}

#[test]
fn commands_are_edits_and_hold_across_a_reboot() {
    let mut scene = Scene::new(Version::V1_7);
    let text = "services:\n  web: {image: 'busybox:lab', command: [sleep, inf], stop_signal: SIGKILL, restart: always}\n  \
                crash: {image: 'busybox:lab', command: [sh, -c, 'exit 1'], restart: always}\n";
    scene.edit("app.yaml", text);
    let agent = scene.agent(&[]);
    let web = |state: &'static str| {
        move |status: &Value| {
            let row = instance(status, "app/web/1")?;
            if row["state"] == state { Ok(row) } else { Err(format!("{row:#}")) }
        }
    };
    let first = await_until("web to run", LONG, || web("running")(&scene.status()?));
    scene.sh(&format!("echo kept >/proc/{}/root/file", first["pid"]));
    scene.stead(&["restart", "app/web"]);
    let again = await_until("web to be restarted", LONG, || {
        let row = web("running")(&scene.status()?)?;
        if row["pid"] != first["pid"] { Ok(row) } else { Err("the same".into()) }
    });
    assert_eq!(again["container_id"], first["container_id"]);
    assert_eq!(scene.sh(&format!("cat /proc/{}/root/file", again["pid"])), "kept\n", "the writable layer stays");
    // stopped in the middle of its back-off, and for good
    scene.stead(&["stop", "app"]);
    scene.await_settled(LONG, |status| {
        let crash = instance(status, "app/crash/1")?;
        if crash["state"] == "stopped" { web("stopped")(status) } else { Err(format!("{crash:#}")) }
    });
    agent.kill();
    scene.cut_the_power();
    scene.start_containerd();
    let _agent = scene.agent(&[]);
    let restarts = scene.await_settled(LONG, web("stopped"))["restarts"].clone();
    holds_for("nothing stopped is started", Duration::from_secs(2), || {
        let row = instance(&scene.status()?, "app/web/1")?;
        if row["state"] == "stopped" && row["restarts"] == restarts { Ok(()) } else { Err(format!("{row:#}")) }
    });
    scene.stead(&["start", "app/web"]);
    scene.stead(&["scale", "app/web=2"]);
    await_until("two to run", LONG, || {
        let status = scene.status()?;
        web("running")(&status)?;
        if instance(&status, "app/web/2")?["state"] == "running" { Ok(()) } else { Err("one".into()) }
    });
    let over = scene.sh(&format!("cat {}/app.override.yaml", scene.desired().display()));
    assert!(over.contains("scale: 2") && over.contains("stopped: true"), "{over}");
}
