//! The command line beside a real containerd: what is told is what is there, and what is planned is what is done.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::Duration;
use support::scene::{instance, pid, running};
use support::{Node, Scene, Version, await_until, busybox_archive};

const LONG: Duration = Duration::from_secs(60);

const SHOP: &str = "\
services:
  db:
    image: busybox:lab
    command: [sleep, inf]
    stop_signal: SIGKILL
    volumes: ['data:/data']
  web:
    image: busybox:lab
    command: [httpd, -f, -p, '80']
    stop_signal: SIGKILL
    ports: ['8080:80']
    mem_limit: 64m
    deploy: {replicas: 2}
volumes: {data: {}}
";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn code(output: &Output, code: i32) -> (String, String) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    (out, err)
}

impl Desk<'_> {
    fn run(&self, arguments: &[&str]) -> Output {
        let desired = self.0.desired();
        self.0.try_stead(&[&["--desired-state", desired.to_str().unwrap()], arguments].concat())
    }

    /// The steps that `plan` shows, by object, and what waits.
    #[track_caller]
    fn plan(&self) -> (BTreeMap<String, Vec<String>>, Value) {
        let ran = self.run(&["plan", "--detailed-exitcode", "-o", "json"]);
        let plan: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", text(&ran.stderr)));
        let mut steps: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for step in plan["steps"].as_array().unwrap() {
            let (object, name) = (step["object"].as_str().unwrap(), step["do"]["step"].as_str().unwrap());
            assert!(!step["why"].as_str().unwrap().is_empty(), "a step without a reason: {step}");
            steps.entry(object.to_owned()).or_default().push(name.to_owned());
        }
        assert_eq!(ran.status.code(), Some(if steps.is_empty() { 0 } else { 2 }), "{}", text(&ran.stderr));
        (steps, plan)
    }

    /// The steps that an agent does until everything is settled, by object.
    #[track_caller]
    fn once(&self) -> BTreeMap<String, Vec<String>> {
        let (out, _) = code(&self.run(&["agent", "--once"]), 0);
        let mut steps: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in out.lines() {
            let mut parts = line.split("  ");
            let (object, name) = (parts.next().unwrap(), parts.next().unwrap_or_else(|| panic!("no step: {line}")));
            assert!(!line.contains("refused") && !line.contains("unsure"), "a step that failed: {line}");
            steps.entry(object.to_owned()).or_default().push(name.to_owned());
        }
        steps
    }

    /// What `plan` shows is what `agent` does, object by object. (How often the port table is written while its
    /// instances come up depends on how many come up at once; that it is written does not.)
    #[track_caller]
    fn planned_is_done(&self, when: &str) -> BTreeMap<String, Vec<String>> {
        let (mut planned, _) = self.plan();
        let mut done = self.once();
        assert_eq!(planned.remove("ports").is_some(), done.remove("ports").is_some(), "{when}: the port table");
        assert_eq!(planned, done, "{when}: planned, and done");
        let (again, plan) = self.plan();
        assert!(again.is_empty(), "{when}: nothing is left to do: {plan:#}");
        done
    }
}

/// The commands of a node, all told of its desired state.
struct Desk<'a>(&'a Node);

#[test]
fn what_plan_prints_is_what_the_loop_does() {
    let scene = Scene::new(Version::V1_6);
    let desk = Desk(&scene);
    scene.edit("shop.yaml", SHOP);
    let up = desk.planned_is_done("up");
    assert!(up["shop/web/2"].contains(&"start-task".to_owned()), "{up:#?}");
    assert_eq!(text(&desk.run(&["plan"]).stdout), "nothing to do\n");
    let started = pid(&scene.status().unwrap(), "shop/web/1");

    // a change in place, and one that recreates
    let edited = SHOP.replace("64m", "96m").replace("[sleep, inf]", "[sleep, '100000']");
    scene.edit("shop.yaml", &edited);
    let shown = text(&desk.run(&["plan"]).stdout);
    for part in ["mem_limit: ", "(in place)", "command: ", "(recreate)", " steps\n"] {
        assert!(shown.contains(part), "no {part} in:\n{shown}");
    }
    let change = desk.planned_is_done("edit");
    assert_eq!(change["shop/web/1"], ["update-record"]);
    assert_eq!(pid(&scene.status().unwrap(), "shop/web/1"), started, "a limit is changed under the process");

    // one file beside the others: nothing of the app that is there
    let other = scene.write("other.yaml", "services: {x: {image: 'busybox:lab', command: [sleep, inf]}}\n");
    let ran = desk.run(&["plan", "--detailed-exitcode", other.to_str().unwrap()]);
    let (shown, _) = code(&ran, 2);
    assert!(shown.contains("other/x/1") && !shown.contains("shop/"), "{shown}");

    scene.edit("shop.yaml", &edited.replace("replicas: 2", "replicas: 1"));
    let fewer = desk.planned_is_done("fewer");
    assert!(fewer["shop/web/2"].contains(&"delete-container".to_owned()), "{fewer:#?}");
    scene.unfile("shop.yaml");
    desk.planned_is_done("down");
    assert_eq!(scene.status().unwrap()["apps"], serde_json::json!([]));
    scene.assert_foreign_untouched();
}

#[test]
fn an_image_that_is_missing_is_told_by_every_command_with_its_place() {
    let node = Node::new(Version::V1_6);
    let desk = Desk(&node);
    node.edit("shop.yaml", "services:\n  web:\n    image: nowhere:1\n");
    let (out, _) = code(&desk.run(&["plan", "--detailed-exitcode"]), 2);
    assert!(out.contains("nowhere:1") && out.contains("waits"), "what cannot be done is part of the plan:\n{out}");
    let (_, err) = code(&desk.run(&["agent", "--once", "--timeout", "2s"]), 1);
    assert!(err.contains("not settled within 2 s"), "{err}");
    let status = node.status().unwrap();
    assert_eq!(status["agent"]["running"], false, "an agent that ended does not run");
    let (out, _) = code(&desk.run(&["explain", "shop/web/1"]), 0);
    assert!(out.contains("blocked") && out.contains("shop.yaml:2:3") && out.contains("way out"), "{out}");

    let agent = node.agent(&[]);
    let (_, err) = code(&desk.run(&["wait", "shop", "--timeout", "2s"]), 1);
    assert!(err.contains("shop/web/1 is blocked") && err.contains("nowhere:1"), "{err}");
    // the way out that it names
    let archive = busybox_archive(&node.dir);
    let (out, _) = code(&desk.run(&["image", "import", archive.to_str().unwrap(), "--as", "nowhere:1"]), 0);
    assert!(out.starts_with("docker.io/library/nowhere:1 sha256:"), "{out}");
    let (out, _) = code(&desk.run(&["image", "ls"]), 0);
    assert!(out.lines().any(|line| line.contains("nowhere:1") && line.ends_with("ready")), "{out}");
    node.edit("shop.yaml", "services:\n  web:\n    image: nowhere:1\n    command: [sleep, inf]\n");
    code(&desk.run(&["wait", "shop"]), 0);
    agent.stop();
}

#[test]
fn while_containerd_is_down_the_last_rows_are_shown_and_nothing_is_planned() {
    let mut scene = Scene::new(Version::V1_7);
    scene.edit("shop.yaml", SHOP);
    let agent = scene.agent(&[]);
    scene.await_settled(LONG, |status| running(status, 3));
    let before = pid(&scene.status().unwrap(), "shop/db/1");
    code(&Desk(&scene).run(&["doctor"]), 0);
    scene.end_containerd(Signal::SIGKILL);
    await_until("status that says so", LONG, || match &scene.status()?["agent"]["runtime"] {
        Value::String(word) if word == "unavailable" => Ok(()),
        other => Err(other.to_string()),
    });
    let desk = Desk(&scene);
    let table = text(&desk.run(&["status"]).stdout);
    assert!(table.contains("containerd unavailable") && table.contains("shop/web/2"), "{table}");
    let row = instance(&scene.status().unwrap(), "shop/db/1").unwrap();
    assert_eq!((row["state"].as_str(), row["pid"].as_u64()), (Some("unknown"), Some(u64::from(before))), "{row:#}");
    let (_, err) = code(&desk.run(&["plan"]), 1);
    assert!(err.contains("containerd cannot be looked at"), "{err}");
    let (out, _) = code(&desk.run(&["doctor"]), 1);
    assert!(out.contains("missing  containerd does not answer"), "{out}");
    scene.start_containerd();
    scene.await_settled(LONG, |status| running(status, 3));
    assert_eq!(pid(&scene.status().unwrap(), "shop/db/1"), before);
    agent.stop();
}

#[test]
fn one_agent_of_a_name_runs_and_outlives_whoever_reads_its_log() {
    let scene = Scene::new(Version::V1_6);
    let desired = scene.desired();
    let mut command = scene.command(env!("CARGO_BIN_EXE_stead"));
    command.args(["agent", "--desired-state", desired.to_str().unwrap()]);
    let mut agent = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((agent.stdout.take(), agent.stderr.take()));
    scene.edit("shop.yaml", SHOP);
    scene.await_settled(LONG, |status| running(status, 3));
    let desk = Desk(&scene);
    let (_, err) = code(&desk.run(&["agent", "--once"]), 1);
    let own = scene.status().unwrap()["agent"]["pid"].as_u64().unwrap();
    assert!(err.contains(&format!("an agent named stead runs already (pid {own})")), "{err}");
    assert!(agent.try_wait().unwrap().is_none(), "it goes on without its reader");
    scene.kill(u32::try_from(own).unwrap(), Signal::SIGKILL);
    agent.wait().unwrap();
}

/// Files mean to every command what they mean to the agent, its own values included.
#[test]
fn an_env_file_of_the_agent_counts_for_apply_and_wait_too() {
    let scene = Scene::new(Version::V1_6);
    let values = scene.write("values", "SECONDS=100000\n");
    let agent = scene.agent(&["--env-file", values.to_str().unwrap()]);
    await_until("an agent", LONG, || scene.status().map(drop));
    let file = scene.write(
        "shop.yaml",
        "services: {x: {image: 'busybox:lab', command: [sleep, '${SECONDS:?needed}'], stop_signal: SIGKILL}}\n",
    );
    let desk = Desk(&scene);
    let (out, _) = code(&desk.run(&["apply", file.to_str().unwrap(), "--wait"]), 0);
    assert!(out.contains("generation "), "{out}");
    assert_eq!(text(&desk.run(&["plan"]).stdout), "nothing to do\n");
    code(&desk.run(&["rm", "shop"]), 0);
    code(&desk.run(&["wait", "shop", "--for", "gone"]), 0);
    agent.stop();
}
