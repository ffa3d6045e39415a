//! What `plan` prints is what the loop does, and `explain` says why: on a node that is new, and on one that has drifted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::collections::BTreeSet;
use support::{BUSYBOX, Scene, Version};

const APP: &str = r#"
services:
  web:
    image: busybox:lab
    x-stead: {archive: ./busybox.tar}
    command: [httpd, -f, -p, "80", -h, /www]
    ports: ["8080:80"]
    volumes: [files:/files]
    stop_signal: SIGKILL
  peer:
    image: busybox:lab
    x-stead: {archive: ./busybox.tar}
    command: [sleep, inf]
    stop_signal: SIGKILL
    scale: 2
volumes:
  files:
"#;

/// The steps that `plan` prints: object and step.
fn planned(scene: &Scene) -> BTreeSet<String> {
    let desired = scene.desired();
    let output = scene.try_stead(&["plan", "--detailed-exitcode", desired.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut object, mut steps) = ("", BTreeSet::new());
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        match line.strip_prefix("  ") {
            Some(step) => drop(steps.insert(format!("{object}: {}", step.split(' ').next().unwrap()))),
            None => object = line,
        }
    }
    assert_eq!(output.status.code(), Some(if steps.is_empty() { 0 } else { 2 }), "{text}");
    steps
}

/// The steps that an agent did until everything was settled, by its log.
fn done(scene: &Scene) -> BTreeSet<String> {
    let before = std::fs::read_to_string(scene.dir.join("agent.log")).unwrap_or_default().len();
    assert!(scene.agent_until_end(&["--once", "--timeout", "40s"]).success());
    let log = std::fs::read_to_string(scene.dir.join("agent.log")).unwrap();
    let mut steps = BTreeSet::new();
    for line in log[before..].lines() {
        let Some((_, rest)) = line.split_once(" key=") else { continue };
        let (object, rest) = rest.split_once(" step=\"").unwrap_or_else(|| panic!("a step without a name: {line}"));
        assert!(line.contains("outcome=\"done\""), "an undisturbed step is done: {line}");
        steps.insert(format!("{object}: {}", rest.split('"').next().unwrap()));
    }
    steps
}

#[track_caller]
fn assert_as_planned(scene: &Scene, when: &str, at_least: usize) {
    let before = scene.picture();
    let planned = planned(scene);
    before.assert_same(&scene.picture(), "plan only looks");
    let mut done = done(scene);
    // `plan` tells one order, and the loop works on several objects at once: a link that it made before the bridge is
    // made a port of it in a step of its own.
    done.retain(|step| planned.contains(step) || !planned.contains(&step.replace("attach-port", "make-link")));
    assert_eq!(planned, done, "{when}: planned on the left, done on the right");
    assert!(planned.len() >= at_least, "{when}: {planned:#?}");
    assert_eq!(self::planned(scene), BTreeSet::new(), "{when}: nothing is left to do");
}

#[test]
fn the_loop_does_what_plan_prints() {
    let scene = Scene::new(Version::V1_7);
    std::fs::copy(scene.dir.join("busybox.tar"), scene.desired().join("busybox.tar")).unwrap();
    scene.ctr("stead", &format!("images rm --sync {BUSYBOX}"));
    scene.edit("shop.yaml", APP);
    assert_as_planned(&scene, "a new app", 20);
    scene.edit("shop.yaml", &APP.replace("8080:80", "8081:80"));
    assert_as_planned(&scene, "a change in place", 1);
    scene.edit("shop.yaml", &APP.replace("[sleep, inf]", "[sleep, '1000000']").replace("scale: 2", "scale: 1"));
    assert_as_planned(&scene, "one of two replaced, the other removed", 10);
    scene
        .sh("nft delete table inet stead; for link in $(ip -o link show type bridge | grep -o 'st[0-9a-f]\\{12\\}' | \
              grep -v f0f0f0); do ip link del $link; done");
    assert_as_planned(&scene, "drift", 2);
    scene.unfile("shop.yaml");
    assert_as_planned(&scene, "a removed app", 10);
    scene.assert_foreign_untouched();
}

#[test]
fn explain_says_which_line_asked_and_what_was_done() {
    let scene = Scene::new(Version::V1_6);
    scene.edit(
        "shop.yaml",
        "services:\n  web:\n    image: busybox:lab\n    command: [no-such-program]\n    restart: always\n",
    );
    let agent = scene.agent(&[]);
    support::await_until("the cause in explain", std::time::Duration::from_secs(30), || {
        let text = String::from_utf8_lossy(&scene.try_stead(&["explain", "shop/web/1"]).stdout).into_owned();
        let all = ["shop.yaml:2", "no-such-program", "create-container", "next"];
        let missing: Vec<_> = all.iter().filter(|part| !text.contains(**part)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} not in:\n{text}")) }
    });
    agent.stop();
}
