//! Order, exits, restarts and requests, as the planner decides them from Compose files: on foreseen effects, without a node.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use stead::desired::{Request, check};
use stead::model::*;
use stead::plan::{Holds, Picture, decide, foresee, to_the_end};

/// A node in thought, with the apps that it is to run.
struct Bench {
    desired: Desired,
    node: Observed,
    marks: Marks,
    now: u64,
}

fn app(name: &str, text: &str, generation: u64) -> (AppName, App) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(format!("{name}.yaml"));
    fs::write(&file, text).unwrap();
    let checked = check(&Request { files: vec![file], default_name: name.to_owned(), ..Request::default() });
    assert!(checked.is_good(), "{:#?}", checked.findings);
    let mut app = checked.into_app(generation);
    app.file = PathBuf::from(format!("{name}.yaml"));
    (AppName::new(name).unwrap(), app)
}

fn key(text: &str) -> InstanceKey {
    text.parse().unwrap()
}

impl Bench {
    fn new(apps: &[(&str, &str)]) -> Self {
        let image = ImageSeen {
            digest: "sha256:1".to_owned(),
            usable: ImageUse::Ready { chain_id: "chain".to_owned(), stop_signal: None },
            lease: false,
        };
        let images = ["a", "b"].map(|name| (format!("docker.io/library/{name}:latest"), image.clone()));
        let runtime = RuntimeSeen { boot: "b1".to_owned(), images: images.into(), ..RuntimeSeen::default() };
        let mut bench = Self {
            desired: Desired { generation: 1, whole: true, ..Desired::default() },
            node: Observed {
                runtime: Sight::Seen(runtime),
                net: Sight::Seen(NetSeen::default()),
                ports: Sight::Seen(None),
                files: Sight::Seen(FilesSeen::default()),
            },
            marks: Marks::new(AgentName::new("stead").unwrap()),
            now: 1_000_000,
        };
        bench.want(apps);
        bench
    }

    /// The apps as they are from now on.
    fn want(&mut self, apps: &[(&str, &str)]) {
        self.desired.generation += 1;
        let generation = self.desired.generation;
        self.desired.apps = apps.iter().map(|(name, text)| app(name, text, generation)).collect();
    }

    fn decision(&self, name: &str) -> Decision {
        let picture = Picture::new(&self.desired, &self.node, &self.marks);
        decide(&picture, &Key::Instance(key(name)), &Holds::new(), Timestamp(self.now))
    }

    /// What an instance waits for, in one text.
    fn waits(&self, name: &str) -> String {
        match self.decision(name) {
            Decision::Wait(blockers) => blockers.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            other => panic!("{name} does not wait: {other:?}"),
        }
    }

    /// Does all that can be done, one step of one object after the other; the steps on tasks, in order.
    fn settle(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..400 {
            let picture = Picture::new(&self.desired, &self.node, &self.marks);
            let now = Timestamp(self.now);
            let next = picture.keys().into_iter().find_map(|key| match decide(&picture, &key, &Holds::new(), now) {
                Decision::Do(step, why) => Some((key, step, why)),
                _ => None,
            });
            let Some((key, step, _)) = next else {
                return done;
            };
            if ["start-task", "stop-task", "update-record"].contains(&step.name()) {
                done.push(format!("{} {key}", step.name()));
            }
            foresee(&mut self.node, &self.marks, &key, &step, now);
            self.now += 1;
        }
        panic!("not settled after 400 steps: {done:?}");
    }

    fn container(&mut self, name: &str) -> &mut ContainerSeen {
        let side = self.node.runtime.seen_mut().unwrap().instances.get_mut(&key(name)).unwrap();
        side.containers.last_mut().unwrap()
    }

    /// The process of an instance ends.
    fn ends(&mut self, name: &str, status: ExitStatus) {
        let at = Timestamp(self.now);
        let container = self.container(name);
        let pid = container.task.pid().unwrap();
        container.task = TaskSeen::Stopped(Exit { pid, status, at });
    }

    fn is_running(&mut self, name: &str) -> bool {
        matches!(self.container(name).task, TaskSeen::Running { .. })
    }

    /// The machine goes down and comes up: no task is left.
    fn reboot(&mut self) {
        let runtime = self.node.runtime.seen_mut().unwrap();
        runtime.boot.push('x');
        for container in runtime.instances.values_mut().flat_map(|side| &mut side.containers) {
            container.task = TaskSeen::None;
        }
    }
}

fn at(steps: &[String], step: &str) -> usize {
    steps.iter().position(|one| one == step).unwrap_or_else(|| panic!("no {step} in {steps:?}"))
}

/// `a-web` sorts before what it needs, so that the order is not the one of the names.
const STACK: &str = "
services:
  a-web:
    image: a
    restart: always
    depends_on: {job: {condition: service_completed_successfully}, z-db: {condition: service_started, restart: true}}
  job: {image: a, depends_on: [z-db]}
  z-db: {image: b, restart: always}
";

#[test]
fn up_in_order_down_in_reverse_and_the_same_after_a_reboot() {
    let mut bench = Bench::new(&[("app", STACK)]);
    assert_eq!(bench.settle(), ["start-task app/z-db/1", "start-task app/job/1"]);
    assert!(bench.waits("app/a-web/1").contains("app/job/1: to complete"));
    bench.ends("app/job/1", ExitStatus::Code(0));
    assert_eq!(bench.settle(), ["start-task app/a-web/1"]);
    // the reboot takes the long-running ones; the job has completed and is not run again
    bench.reboot();
    assert_eq!(bench.settle(), ["start-task app/z-db/1", "start-task app/a-web/1"]);
    bench.want(&[]);
    let down = bench.settle();
    assert_eq!(down, ["stop-task app/a-web/1", "stop-task app/z-db/1"]);
    assert!(bench.node.runtime.seen().unwrap().instances.is_empty());
}

#[test]
fn a_job_that_the_reboot_cut_off_is_run_again_and_holds_the_others() {
    let mut bench = Bench::new(&[("app", STACK)]);
    bench.settle();
    bench.reboot();
    assert_eq!(bench.settle(), ["start-task app/z-db/1", "start-task app/job/1"]);
}

#[test]
fn a_failed_job_holds_only_those_that_need_it_and_says_how_to_go_on() {
    let other = "services: {alone: {image: a, restart: always}}";
    for (status, sentence) in [
        (ExitStatus::Code(3), "app/job/1 to complete, which has ended (code 3)"),
        (ExitStatus::Unknown, "nobody saw how that ended"),
    ] {
        let mut bench = Bench::new(&[("app", STACK), ("other", other)]);
        bench.settle();
        bench.ends("app/job/1", status);
        bench.settle();
        assert!(bench.waits("app/a-web/1").contains(sentence), "{}", bench.waits("app/a-web/1"));
        let Decision::Wait(blockers) = bench.decision("app/a-web/1") else { unreachable!() };
        assert!(
            blockers
                .iter()
                .any(|on| matches!(on, Blocker::Stuck { hint, .. } if hint.contains("stead restart app/job")))
        );
        assert!(bench.is_running("other/alone/1") && bench.is_running("app/z-db/1"));
        assert_eq!(bench.decision("app/job/1"), Decision::Settled, "it is not run again by itself");
        // the way out: a restart that is asked for, as it stands in the override file
        let asked = STACK.replace("job: {image: a,", "job: {image: a, x-stead: {restarted: now},");
        bench.want(&[("app", &asked), ("other", other)]);
        let steps = bench.settle();
        assert!(at(&steps, "start-task app/job/1") < steps.len() && !bench.is_running_or_none("app/a-web/1"));
        bench.ends("app/job/1", ExitStatus::Code(0));
        assert_eq!(bench.settle(), ["start-task app/a-web/1"]);
    }
}

impl Bench {
    fn is_running_or_none(&mut self, name: &str) -> bool {
        let side = self.node.runtime.seen().unwrap().instances.get(&key(name));
        side.is_some_and(|side| side.containers.iter().any(|c| matches!(c.task, TaskSeen::Running { .. })))
    }
}

#[test]
fn an_optional_need_waits_for_what_comes_and_not_for_what_failed() {
    let text = "
services:
  web: {image: a, restart: always, depends_on: {job: {condition: service_completed_successfully, required: false}}}
  job: {image: a}
";
    let mut bench = Bench::new(&[("app", text)]);
    assert_eq!(bench.settle(), ["start-task app/job/1"]);
    bench.ends("app/job/1", ExitStatus::Code(1));
    assert_eq!(bench.settle(), ["start-task app/web/1"]);
}

#[test]
fn what_runs_is_not_stopped_for_a_dependency_and_the_new_generation_waits_for_the_new_job() {
    let mut bench = Bench::new(&[("app", STACK)]);
    bench.settle();
    bench.ends("app/job/1", ExitStatus::Code(0));
    bench.settle();
    bench.ends("app/z-db/1", ExitStatus::Code(1));
    assert!(bench.is_running("app/a-web/1") && bench.decision("app/a-web/1") == Decision::Settled);
    bench.now += 60_000;
    bench.settle();
    // job and web change: the old web serves until the new job has completed
    let edit =
        STACK.replace("image: a\n    restart", "image: b\n    restart").replace("job: {image: a", "job: {image: b");
    bench.want(&[("app", &edit)]);
    assert_eq!(bench.settle(), ["start-task app/job/1"]);
    assert!(bench.is_running("app/a-web/1"));
    bench.ends("app/job/1", ExitStatus::Code(0));
    assert_eq!(bench.settle(), ["stop-task app/a-web/1", "start-task app/a-web/1"]);
}

#[test]
fn a_renewed_dependency_restarts_those_that_ask_for_it_and_nobody_else() {
    let text = "
services:
  asks: {image: a, restart: always, depends_on: {db: {condition: service_started, restart: true}}}
  db: {image: a, restart: always}
  plain: {image: a, restart: always, depends_on: [db]}
";
    let mut bench = Bench::new(&[("app", text)]);
    bench.settle();
    bench.ends("app/db/1", ExitStatus::Code(1));
    bench.now += 60_000;
    assert_eq!(bench.settle(), ["start-task app/db/1"], "an exit of its own is no renewal");
    bench.want(&[("app", &text.replace("db: {image: a,", "db: {image: b,"))]);
    let steps = bench.settle();
    assert_eq!(steps, ["stop-task app/db/1", "start-task app/db/1", "stop-task app/asks/1", "start-task app/asks/1"],);
}

#[test]
fn needs_lead_across_apps_and_one_that_no_file_asks_for_is_said() {
    let web = "services: {web: {image: a, restart: always, x-stead: {needs: [store/db: started]}}}";
    let store = "services: {db: {image: a, restart: always}}";
    let mut bench = Bench::new(&[("a", web)]);
    assert!(bench.settle().is_empty());
    assert!(bench.waits("a/web/1").contains("it needs store/db, and no file asks for that"));
    bench.want(&[("a", web), ("store", store)]);
    assert_eq!(bench.settle(), ["start-task store/db/1", "start-task a/web/1"]);
    bench.want(&[]);
    assert_eq!(bench.settle(), ["stop-task a/web/1", "stop-task store/db/1"]);
}

#[test]
fn the_preview_takes_jobs_to_end_well_and_shows_the_whole_way() {
    let bench = Bench::new(&[("app", STACK)]);
    let steps = to_the_end(&bench.desired, &bench.node, &bench.marks, Timestamp(1), 500);
    let starts = steps.iter().filter(|(_, step, _)| step.name() == "start-task").map(|(key, ..)| key.to_string());
    assert_eq!(starts.collect::<Vec<_>>(), ["app/z-db/1", "app/job/1", "app/a-web/1"]);
}

#[test]
fn stopped_is_kept_and_started_again_and_a_restart_keeps_the_container() {
    let text = "services: {web: {image: a, restart: always}, job: {image: a}}";
    let mut bench = Bench::new(&[("app", text)]);
    bench.settle();
    bench.ends("app/job/1", ExitStatus::Code(0));
    bench.settle();
    let id = bench.container("app/web/1").id.clone();
    let with = |what: &str| text.replace("image: a", &format!("image: a, x-stead: {{{what}}}"));
    bench.want(&[("app", &with("stopped: true"))]);
    assert!(bench.settle().contains(&"stop-task app/web/1".to_owned()));
    assert!(!bench.is_running("app/web/1"));
    bench.reboot();
    assert!(bench.settle().is_empty(), "a reboot does not start what is stopped");
    bench.want(&[("app", text)]);
    let steps = bench.settle();
    assert!(steps.contains(&"start-task app/web/1".to_owned()) && !steps.contains(&"start-task app/job/1".to_owned()));
    bench.want(&[("app", &with("restarted: '1'"))]);
    let steps = bench.settle();
    assert!(at(&steps, "stop-task app/web/1") < at(&steps, "start-task app/web/1"));
    assert!(steps.contains(&"start-task app/job/1".to_owned()), "a completed job is run again on request");
    assert_eq!(bench.container("app/web/1").id, id, "its writable layer stays");
    bench.want(&[("app", text)]);
    let steps = bench.settle();
    assert!(
        steps.iter().all(|step| step.starts_with("update-record")),
        "taking the request back does nothing: {steps:?}"
    );
}

#[test]
fn stopped_from_the_beginning_makes_nothing() {
    let mut bench = Bench::new(&[("app", "services: {web: {image: missing, x-stead: {stopped: true}}}")]);
    bench.settle();
    assert_eq!(bench.decision("app/web/1"), Decision::Settled);
    assert!(bench.node.runtime.seen().unwrap().instances.is_empty());
}

/// How long after the exit the next start comes, in milliseconds; nothing when there is none.
fn delay(bench: &Bench, name: &str) -> Option<u64> {
    match bench.decision(name) {
        Decision::Do(step, _) if step.name() == "create-task" => Some(0),
        Decision::Settled => None,
        Decision::Wait(blockers) => match blockers.as_slice() {
            [Blocker::Until { at, .. }] => Some(at.0 - bench.now),
            other => panic!("{other:?}"),
        },
        Decision::Do(step, _) => panic!("{}", step.name()),
    }
}

fn crash(bench: &mut Bench, name: &str, status: ExitStatus) -> Option<u64> {
    bench.ends(name, status);
    let marks = bench.marks.clone();
    while let Decision::Do(step, _) = bench.decision(name) {
        if step.name() == "create-task" {
            break;
        }
        let now = Timestamp(bench.now);
        foresee(&mut bench.node, &marks, &Key::Instance(key(name)), &step, now);
    }
    let delay = delay(bench, name)?;
    bench.now += delay;
    bench.settle();
    Some(delay)
}

#[test]
fn delays_grow_to_their_cap_and_a_good_run_or_an_edit_resets_them() {
    let text = "services: {web: {image: a, restart: always}}";
    let mut bench = Bench::new(&[("app", text)]);
    bench.settle();
    let delays: Vec<u64> = (0..14).map(|_| crash(&mut bench, "app/web/1", ExitStatus::Code(1)).unwrap()).collect();
    for (n, delay) in delays.iter().enumerate() {
        let full = (100_u64 << n).min(60_000);
        assert!((full * 3 / 4..=full).contains(delay), "{n}: {delays:?}");
    }
    bench.now += 60_000;
    assert_eq!(crash(&mut bench, "app/web/1", ExitStatus::Code(1)), Some(0), "after a good run it starts at once");
    for _ in 0..9 {
        crash(&mut bench, "app/web/1", ExitStatus::Code(1));
    }
    // an edit in place, while it waits
    bench.ends("app/web/1", ExitStatus::Code(1));
    bench.settle();
    assert!(!bench.is_running("app/web/1"));
    bench.want(&[("app", &text.replace("image: a", "image: a, mem_limit: 64m"))]);
    assert_eq!(bench.settle(), ["update-record app/web/1", "start-task app/web/1"]);
}

#[test]
fn policies_of_both_places() {
    let with = |policy: &str| format!("services: {{web: {{image: a, {policy}}}}}");
    let tries = |policy: &str, status: ExitStatus| -> Vec<Option<u64>> {
        let mut bench = Bench::new(&[("app", &with(policy))]);
        bench.settle();
        let mut tries = Vec::new();
        for _ in 0..5 {
            let next = crash(&mut bench, "app/web/1", status);
            tries.push(next);
            if next.is_none() {
                break;
            }
        }
        tries
    };
    let count = |policy: &str, status: ExitStatus| tries(policy, status).iter().flatten().count();
    let (good, bad) = (ExitStatus::Code(0), ExitStatus::Code(1));
    assert_eq!((count("restart: on-failure:2", bad), count("restart: on-failure:2", good)), (2, 0));
    assert_eq!(count("restart: on-failure", ExitStatus::Unknown), 5, "an exit that nobody saw is a failure");
    assert_eq!((count("restart: \"no\"", bad), count("restart: unless-stopped", good)), (0, 5));
    let policy = |inner: &str| format!("restart: \"no\", deploy: {{restart_policy: {{{inner}}}}}");
    assert_eq!(count(&policy("condition: none"), bad), 0);
    assert_eq!(count(&policy("condition: on-failure, max_attempts: 3"), bad), 3);
    assert_eq!(count(&policy("condition: on-failure"), good), 0);
    assert_eq!(count(&policy("condition: any"), good), 5);
    let slow = tries(&policy("delay: 7s"), bad);
    assert_eq!(slow[..3], [Some(7000), Some(7000), Some(7000)]);
    // with a window of nothing every run is a good one
    let brief = tries(&policy("window: 0s"), bad);
    assert_eq!(brief, vec![Some(0); 5]);
}

#[test]
fn needs_of_a_circle_across_apps_wait_and_end_nothing() {
    let one = "services: {x: {image: a, restart: always, x-stead: {needs: [b/y: started]}}}";
    let two = "services: {y: {image: a, restart: always, x-stead: {needs: [a/x: started]}}}";
    let alone = "services: {z: {image: a, restart: always}}";
    let mut bench = Bench::new(&[("a", one), ("b", two), ("c", alone)]);
    assert_eq!(bench.settle(), ["start-task c/z/1"]);
    let circle: BTreeMap<&str, String> = ["a/x/1", "b/y/1"].map(|name| (name, bench.waits(name))).into();
    assert!(circle["a/x/1"].contains("b/y/1: to be started"), "{circle:?}");
}
