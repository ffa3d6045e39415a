//! A bad file never stops a good workload, and what happens to the directory never removes one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::Value;
use std::time::Duration;
use support::scene::{instance, pid, running};
use support::{Agent, Picture, Scene, Version, await_until, holds_for};

const GOOD: &str = "\
services:
  web:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
";

const LONG: Duration = Duration::from_secs(30);

fn start() -> (Scene, Agent, Picture) {
    let scene = Scene::new(Version::V1_6);
    scene.edit("web.yaml", GOOD);
    let agent = scene.agent(&[]);
    scene.await_settled(LONG, |status| running(status, 1));
    let before = scene.picture().without(&["files", "mounts"]);
    (scene, agent, before)
}

fn first_error(status: &Value) -> Result<Value, String> {
    let error = &status["apps"][0]["errors"][0];
    if error.is_null() { Err(format!("no error is shown: {status:#}")) } else { Ok(error.clone()) }
}

/// The workloads stay as they were for a while that is longer than the quiet period and a sweep of events.
#[track_caller]
fn assert_goes_on(scene: &Scene, before: &Picture) {
    holds_for("the workload goes on", Duration::from_millis(1500), || {
        let differences = before.differences(&scene.picture().without(&["files", "mounts"]));
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    });
}

#[test]
fn a_broken_edit_keeps_the_old_app_and_says_where_it_is_broken() {
    let (scene, agent, before) = start();
    for (broken, line, column) in [
        (GOOD.replace("    command", "    comand"), 4, 5),
        (GOOD.replace("[sleep, inf]", "[sleep, inf"), 4, 14),
        (GOOD.replace("sleep, inf]", "sleep, inf]\n    mem_limit: lots"), 5, 16),
        ("services: [".to_owned(), 1, 11),
        (String::new(), 1, 1),
    ] {
        scene.edit("web.yaml", &broken);
        let error = await_until("the error in status", LONG, || {
            let error = first_error(&scene.status()?)?;
            // An unclosed bracket may be reported where the text stops making sense.
            let near = error["line"].as_u64().is_some_and(|at| at >= line);
            let file = error["file"].as_str().is_some_and(|file| file.ends_with("web.yaml"));
            if near && file { Ok(error) } else { Err(format!("{broken}: {error:#}")) }
        });
        assert!(error["column"].as_u64().is_some_and(|at| at >= 1), "{column} or so: {error:#}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error:#}");
        assert_goes_on(&scene, &before);
        let refused = scene.try_stead(&["validate", scene.desired().join("web.yaml").to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1), "validate must refuse {broken}");
    }
    let (kept, comand) = (scene.status().unwrap(), GOOD.replace("    command", "    comand"));
    scene.edit("web.yaml", &comand);
    let exact = await_until("the place of the unknown field", LONG, || {
        let error = first_error(&scene.status()?)?;
        if error["line"] == 4 && error["column"] == 5 { Ok(error) } else { Err(format!("{error:#}")) }
    });
    assert!(exact["message"].as_str().unwrap().contains("comand"), "{exact:#}");
    agent.kill();
    let agent = scene.agent(&[]);
    await_until("the error after a restart of the agent", LONG, || {
        let status = scene.status()?;
        if status["agent"]["pid"] == agent.pid() { first_error(&status).map(drop) } else { Err("an old status".into()) }
    });
    assert_goes_on(&scene, &before);
    scene.edit("web.yaml", &GOOD.replace("[sleep, inf]", "[sleep, '1000000']"));
    let old = pid(&kept, "web/web/1");
    scene.await_settled(LONG, |status| {
        running(status, 1)?;
        let none = status["apps"][0]["errors"].as_array().is_none_or(Vec::is_empty);
        let new = instance(status, "web/web/1")?["pid"] != old;
        if none && new { Ok(()) } else { Err("the fixed edit is not applied".into()) }
    });
    agent.stop();
}

/// What a file says after an edit that is valid but would be wrong to act on in halves.
#[test]
fn a_file_without_services_is_refused_or_removes_only_itself() {
    let (scene, _agent, before) = start();
    scene.edit("other.yaml", &GOOD.replace("web:", "other:"));
    scene.await_settled(LONG, |status| running(status, 2));
    scene.unfile("other.yaml");
    scene.await_settled(LONG, |status| running(status, 1));
    // The table is replaced as a whole when networks come and go: the same rules, under new handles.
    let rules = |picture: &Picture| picture.without(&["files", "mounts"]).shape_of(|section| section == "nft");
    rules(&before).assert_same(&rules(&scene.picture()), "another app came and went");
}

#[test]
fn a_directory_that_goes_away_removes_nothing() {
    let (scene, agent, before) = start();
    let desired = scene.desired();
    let (path, away) = (desired.display().to_string(), scene.dir.join("away").display().to_string());
    for (gone, back) in [
        (format!("mount -t tmpfs tmpfs {path}"), format!("umount {path}")),
        (format!("mv {path} {away}"), format!("mv {away} {path}")),
        (format!("mv {path} {away}; mkdir {path}"), format!("rmdir {path}; mv {away} {path}")),
        (format!("mv {path} {away}; touch {path}"), format!("rm {path}; mv {away} {path}")),
    ] {
        scene.sh(&gone);
        assert_goes_on(&scene, &before);
        scene.sh(&back);
        scene.await_settled(LONG, |status| running(status, 1));
        before.assert_same(&scene.picture().without(&["files", "mounts"]), &format!("after `{back}`"));
    }
    agent.stop();
    scene.sh(&format!("mv {path} {away}; mkdir {path}"));
    let agent = scene.agent(&[]);
    assert_goes_on(&scene, &before);
    agent.kill();
    scene.assert_foreign_untouched();
}

/// The directory is a mount of its own that is taken away, with an empty one below it.
#[test]
fn an_unmounted_directory_removes_nothing() {
    let scene = Scene::new(Version::V1_6);
    let desired = scene.desired();
    scene.sh(&format!("mount -t tmpfs tmpfs {}", desired.display()));
    std::fs::write(scene.path(desired.join("web.yaml")), GOOD).unwrap();
    let agent = scene.agent(&[]);
    scene.await_settled(LONG, |status| running(status, 1));
    let before = scene.picture().without(&["files", "mounts"]);
    scene.sh(&format!("umount -l {}", desired.display()));
    assert_goes_on(&scene, &before);
    agent.kill();
    let agent = scene.agent(&[]);
    assert_goes_on(&scene, &before);
    agent.stop();
}

#[test]
fn an_app_that_is_removed_leaves_nothing() {
    let scene = Scene::new(Version::V1_7);
    let once = || assert!(scene.agent_until_end(&["--once", "--timeout", "40s"]).success());
    once();
    let empty = scene.picture().shape();
    scene.edit("web.yaml", GOOD);
    once();
    let file = scene.write("apply.yaml", &GOOD.replace("web:", "other:"));
    scene.stead(&[
        "apply",
        file.to_str().unwrap(),
        "--app",
        "other",
        "--desired-state",
        scene.desired().to_str().unwrap(),
    ]);
    once();
    assert_eq!(scene.picture().section("tasks").iter().filter(|line| line.contains("RUNNING")).count(), 2 + 1);
    for app in ["web", "other"] {
        scene.stead(&["rm", app, "--desired-state", scene.desired().to_str().unwrap()]);
    }
    once();
    let forwarding = ["ip_forward"];
    empty.without(&forwarding).assert_same(&scene.picture().shape().without(&forwarding), "both apps are removed");
}
