//! Commands that read what an agent has written: this test's own process stands in for it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests read their own clocks")]

mod cli;

use cli::{Desk, await_until};
use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use stead::desired::{Directory, Options};
use stead::model::{
    AppStatus, ErrorStatus, InstanceStatus, ObjectStatus, ServiceStatus, Status, TimelineStatus, Timelines,
    WaitingStatus,
};

const SHOP: &str = "services:\n  web:\n    image: busybox\n";
const LONG: Duration = Duration::from_secs(20);

fn row(name: &str, state: &str) -> InstanceStatus {
    InstanceStatus {
        instance: name.to_owned(),
        state: state.to_owned(),
        image: "docker.io/library/busybox:latest".to_owned(),
        asked_by: Some("/d/shop.yaml:2:3".to_owned()),
        ..InstanceStatus::default()
    }
}

/// An app of two services: one runs, one waits for its next attempt.
fn shop() -> AppStatus {
    let web = InstanceStatus { pid: Some(4711), ..row("shop/web/1", "running") };
    let job = InstanceStatus {
        restarts: 3,
        exit_code: Some(137),
        waiting: vec![WaitingStatus {
            on: "restart after 3 short runs".to_owned(),
            since: "2024-03-01T00:01:00Z".to_owned(),
            next_attempt: Some("2024-03-01T00:01:05Z".to_owned()),
        }],
        last_error: Some("start-task: no such program".to_owned()),
        hint: Some("check the command".to_owned()),
        ..row("shop/job/1", "backoff")
    };
    let service = |name: &str, row: InstanceStatus| ServiceStatus {
        service: name.to_owned(),
        desired: 1,
        running: u32::from(row.state == "running"),
        instances: vec![row],
        ..ServiceStatus::default()
    };
    AppStatus {
        app: "shop".to_owned(),
        file: "/d/shop.yaml".to_owned(),
        services: vec![service("job", job), service("web", web)],
        ..AppStatus::default()
    }
}

fn blog() -> AppStatus {
    AppStatus {
        app: "blog".to_owned(),
        file: "/d/blog.yaml".to_owned(),
        errors: vec![ErrorStatus {
            file: "/d/blog.yaml".to_owned(),
            line: 4,
            column: 5,
            message: "unknown key `comand`".to_owned(),
            hint: Some("did you mean `command`?".to_owned()),
        }],
        ..AppStatus::default()
    }
}

fn status() -> Status {
    let mut status = Status { apps: vec![blog(), shop()], ..Status::default() };
    status.agent.runtime = "connected".to_owned();
    status.agent.generation = 7;
    status.unsettled = vec![ObjectStatus {
        object: "image docker.io/library/other:1".to_owned(),
        last_error: Some("no archive".to_owned()),
        ..ObjectStatus::default()
    }];
    status
}

#[test]
fn the_table_shows_every_instance_and_what_is_wrong_below() {
    let desk = Desk::new();
    desk.status(status());
    insta::assert_snapshot!(desk.run(&["status"]).good());
    let one = desk.run(&["status", "shop/web"]).good();
    assert!(one.contains("shop/web/1") && !one.contains("shop/job/1") && !one.contains("other:1"), "{one}");
    assert!(desk.run(&["status", "nothing"]).bad(1).contains("there is no app nothing"));
    assert!(desk.run(&["status", "shop/nothing"]).bad(1).contains("has no service nothing"));
}

#[test]
fn json_is_the_document_and_says_whether_its_agent_runs() {
    let desk = Desk::new();
    assert!(desk.run(&["status", "-o", "json"]).bad(1).contains("no agent named stead has run"));
    desk.status(status());
    let read = |text: String| serde_json::from_str::<Status>(&text).unwrap();
    let told = read(desk.run(&["status", "-o", "json"]).good());
    assert!(told.agent.running);
    assert_eq!(told.apps, status().apps);
    // another process has this pid by now
    let mut old = told.clone();
    old.agent.start_ticks += 1;
    desk.raw_status(&old);
    assert!(!read(desk.run(&["status", "-o", "json"]).good()).agent.running);
    let table = desk.run(&["status"]).good();
    assert!(table.starts_with("the agent is not running; this is what it knew last"), "{table}");
    assert!(table.contains("shop/web/1"), "the last document is shown all the same: {table}");
    desk.write("run/status.json", "{\"agent\":");
    assert!(desk.run(&["status"]).bad(1).contains("is no status document"));
}

/// The lines that a command prints, as they come.
fn lines(child: &mut Child) -> Receiver<String> {
    let (to, lines) = channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
    lines
}

#[track_caller]
fn await_line(lines: &Receiver<String>, part: &str) {
    await_until(LONG, || match lines.try_recv() {
        Ok(line) if line.contains(part) => Ok(()),
        other => Err(format!("no line with {part}: {other:?}")),
    });
}

#[test]
fn watch_shows_the_document_again_when_it_changes_and_ends_with_its_reader() {
    let desk = Desk::new();
    desk.status(status());
    let mut child = desk.spawn(&["status", "--watch"]);
    let shown = lines(&mut child);
    await_line(&shown, "generation 7");
    let mut next = status();
    next.agent.generation = 8;
    desk.status(next.clone());
    await_line(&shown, "generation 8");
    drop(shown);
    let ended = await_until(LONG, || {
        next.agent.generation += 1; // it learns that its reader has gone when it has something to say
        desk.status(next.clone());
        child.try_wait().unwrap().ok_or_else(|| "it watches on".to_owned())
    });
    assert!(ended.success(), "{ended}");
}

#[test]
fn wait_times_out_with_the_reason() {
    let desk = Desk::new();
    let wait = |more: &[&str]| {
        let began = Instant::now();
        let said = desk.run(&[&["wait", "shop", "--timeout", "200ms"], more].concat()).bad(1);
        assert!(began.elapsed() < Duration::from_secs(10), "200 ms are not {:?}", began.elapsed());
        said
    };
    assert_eq!(wait(&[]), "error: not within 0.2 s: no agent has run here yet\n");
    desk.status(Status::default());
    assert!(wait(&[]).contains("there is no app shop in DESK/desired"));
    desk.write("desired/shop.yaml", SHOP);
    assert!(wait(&[]).contains("shop: the agent has not taken its file yet"));
    desk.status(status());
    assert_eq!(
        wait(&[]),
        "error: not within 0.2 s: shop/job/1 is backoff, start-task: no such program\n",
        "what does not run, and why"
    );
    assert_eq!(wait(&["--for", "gone"]), "error: not within 0.2 s: shop is wanted by /d/shop.yaml\n");
    assert!(desk.run(&["wait", "blog", "--timeout", "50ms"]).bad(1).contains("/d/blog.yaml:4:5: unknown key"));
}

/// The agent's part: it reads the directory and keeps what is good.
fn take(desk: &Desk) -> u64 {
    let options = Options { dir: desk.path("desired"), state: desk.path("root"), ..Options::default() };
    Directory::open(options).refresh().expect("a new picture").generation
}

fn settled(generation: u64) -> Status {
    let mut app = shop();
    app.services.remove(0);
    (app.settled, app.generation) = (true, generation);
    Status { apps: vec![app], ..Status::default() }
}

#[test]
fn wait_ends_when_the_present_file_is_settled_and_not_before() {
    let desk = Desk::new();
    desk.write("desired/shop.yaml", SHOP);
    let generation = take(&desk);
    desk.status(settled(generation));
    desk.run(&["wait", "shop"]).good();
    // another edit that the agent has not taken: what is settled is the file before
    desk.write("desired/shop.yaml", SHOP.replace("busybox", "other"));
    assert!(desk.run(&["wait", "shop", "--timeout", "100ms"]).bad(1).contains("has not taken its file yet"));
    let mut waiting = desk.spawn(&["wait", "shop"]);
    let generation = take(&desk);
    assert!(waiting.try_wait().unwrap().is_none(), "taken is not settled: the document is of the file before");
    desk.status(settled(generation));
    let ended = waiting.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn wait_for_gone_ends_when_neither_file_nor_agent_know_the_app() {
    let desk = Desk::new();
    desk.write("desired/shop.yaml", SHOP);
    take(&desk);
    desk.status(Status::default());
    let gone = || desk.run(&["wait", "shop", "--for", "gone", "--timeout", "100ms"]);
    assert!(gone().bad(1).contains("shop is wanted by DESK/desired/shop.yaml"));
    std::fs::remove_file(desk.path("desired/shop.yaml")).unwrap();
    assert!(gone().bad(1).contains("the agent has not taken the removal of shop yet"));
    take(&desk);
    gone().good();
}

#[test]
fn apply_answers_with_the_generation_that_the_agent_gave() {
    let desk = Desk::new();
    desk.write("desired/first.yaml", SHOP);
    take(&desk);
    desk.status(Status::default());
    desk.write("shop.yaml", SHOP);
    let applying = desk.spawn(&["apply", "shop.yaml"]);
    await_until(LONG, || if desk.path("desired/shop.yaml").exists() { Ok(()) } else { Err("not recorded".into()) });
    let generation = take(&desk);
    let ended = applying.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(said.ends_with(&format!("desired/shop.yaml, generation {generation}\n")), "{said}");
}

#[test]
fn explain_tells_the_reason_the_next_attempt_and_the_steps() {
    let desk = Desk::new();
    desk.status(status());
    let step = |at: &str, step: &str, outcome: &str, error: Option<&str>| TimelineStatus {
        at: at.to_owned(),
        step: step.to_owned(),
        why: "it is made and does not run".to_owned(),
        outcome: outcome.to_owned(),
        took_ms: 9,
        error: error.map(str::to_owned),
    };
    let steps = vec![
        step("2024-03-01T00:00:59Z", "create-task", "done", None),
        step("2024-03-01T00:01:00Z", "start-task", "refused", Some("no such program")),
    ];
    desk.timelines(&Timelines { objects: [("shop/job/1".to_owned(), steps)].into() });
    insta::assert_snapshot!(desk.run(&["explain", "shop/job"]).good());
    let both = desk.run(&["explain", "shop"]).good();
    assert!(both.contains("shop/web/1") && both.contains("shop/job/1"), "{both}");
    let refused = desk.run(&["explain", "blog"]).good();
    assert!(refused.contains("/d/blog.yaml:4:5: error: unknown key"), "an app without instances: {refused}");
    assert!(desk.run(&["explain", "shop/other"]).bad(1).contains("nothing named shop/other"));
}

#[test]
fn logs_are_read_without_an_agent() {
    let desk = Desk::new();
    desk.write("logs/shop/web-1.log", "one\ntwo\nthree");
    desk.write("logs/shop/web-2.log", "uno\n");
    desk.write("logs/shop/web-side-1.log", "beside\n");
    assert_eq!(desk.run(&["logs", "shop/web/1"]).good(), "one\ntwo\nthree\n");
    assert_eq!(
        desk.run(&["logs", "shop/web"]).good(),
        "shop/web/1 | one\nshop/web/1 | two\nshop/web/1 | three\nshop/web/2 | uno\n"
    );
    assert_eq!(desk.run(&["logs", "shop/web", "-n", "1", "--no-prefix"]).good(), "three\nuno\n");
    assert_eq!(desk.run(&["logs", "shop/web/1", "-n", "0"]).good(), "");
    assert_eq!(desk.run(&["logs", "shop/web-side"]).good(), "beside\n");
    assert!(desk.run(&["logs", "shop/nothing"]).bad(1).contains("no log of shop/nothing"));
    // longer than what is held of a line, and not text
    desk.write("logs/shop/big-1.log", [vec![0xff; 200_000], b"\nend\n".to_vec()].concat());
    let ran = desk.command(&["logs", "shop/big"]).output().unwrap();
    assert_eq!((ran.stdout.len(), ran.stdout.ends_with(b"\nend\n")), (200_005, true));
    assert_eq!(desk.run(&["logs", "shop/big", "-n", "1"]).good(), "end\n");
}

#[test]
fn following_logs_goes_on_over_new_files_and_files_that_begin_anew() {
    let desk = Desk::new();
    let log = desk.write("logs/shop/web-1.log", "old\nlast\n");
    let mut child = desk.spawn(&["logs", "-f", "-n", "1", "shop"]);
    let shown = lines(&mut child);
    assert_eq!(shown.recv_timeout(LONG).unwrap(), "shop/web/1 | last");
    let append = |text: &str| {
        use std::io::Write as _;
        std::fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(text.as_bytes()).unwrap();
    };
    append("ha");
    append("lf\n");
    assert_eq!(shown.recv_timeout(LONG).unwrap(), "shop/web/1 | half", "a line is shown when it is whole");
    desk.write("logs/shop/job-1.log", "another\n");
    assert_eq!(shown.recv_timeout(LONG).unwrap(), "shop/job/1 | another");
    std::fs::rename(&log, desk.path("logs/shop/web-1.log.1")).unwrap();
    desk.write("logs/shop/web-1.log", "a new file that is longer than the old one was\n");
    assert!(shown.recv_timeout(LONG).unwrap().contains("a new file"));
    desk.write("logs/shop/web-1.log", "cut\n");
    assert_eq!(shown.recv_timeout(LONG).unwrap(), "shop/web/1 | cut");
    child.kill().unwrap();
    child.wait().unwrap();
}
