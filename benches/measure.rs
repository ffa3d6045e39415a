//! What it costs, from one run, as ratios against `ctr run -d` of the same image on the same containerd: `make measure`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "a real clock measures")]

#[path = "../tests/support/mod.rs"]
mod support;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use support::scene::{running, writes};
use support::{BUSYBOX, Node, Version, await_until, busybox_archive};

const ROUNDS: usize = 10;
const CROWD: usize = 50;
const LONG: Duration = Duration::from_secs(120);

fn main() {
    println!("{:<58} {:>10} {:>10} {:>7}  target", "", "stead", "ctr", "ratio");
    let node = Node::new(Version::V1_6);
    node.ctr("stead", &format!("images import {}", busybox_archive(&node.dir).display()));
    fs::create_dir_all(node.dir.join("out")).expect("a directory");
    let agent = node.agent(&[]);
    settled(&node, 0);

    let (ours, theirs) = (one_by_one(&node), ctr_one_by_one(&node));
    ratio("one: from the file's write to its process, median ms", ours, theirs, "at most 1.2");
    let (ours, theirs) = (crowd(&node), ctr_crowd(&node));
    ratio(&format!("{CROWD} from one file, all running, ms"), ours, theirs, "at most 1.1");

    let before = (agent.cpu_ticks(), Instant::now());
    support::holds_for("the node stays settled", Duration::from_secs(60), || {
        if node.path("/run/containerd/containerd.sock").exists() { Ok(()) } else { Err("containerd is gone".into()) }
    });
    let ticks = agent.cpu_ticks() - before.0;
    // A tick is a hundredth of a second, so ticks per second are per cent.
    let percent = f64::from(u32::try_from(ticks).unwrap_or(u32::MAX)) / before.1.elapsed().as_secs_f64();
    let [all, own, files] = ["VmRSS:", "RssAnon:", "RssFile:"].map(|field| memory_mib(&node, agent.pid(), field));
    line(&format!("resident memory with {CROWD} instances, MiB"), &format!("{all:.1}"), "under 12");
    println!("  ({own:.1} of it its own, {files:.1} pages of the binary and of libraries)");
    line("CPU over 60 s idle, %", &format!("{percent:.3}"), "under 0.1");

    agent.kill();
    let began = Instant::now();
    let agent = node.agent(&[]);
    let status_file = node.path("/run/stead/status.json");
    let written = await_until("a settled agent", LONG, || {
        let status: Value = serde_json::from_slice(&fs::read(&status_file).map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
        let ours = status["agent"]["pid"] == agent.pid() && status["agent"]["settled"] == true;
        if ours { Ok(writes(&status)) } else { Err("not settled".into()) }
    });
    let took = milliseconds(began.elapsed());
    line(&format!("agent restart with {CROWD} instances, ms"), &format!("{took:.0}"), "under 300");
    line("writes of that restart", &written.to_string(), "0");
    agent.stop();
}

fn line(what: &str, ours: &str, target: &str) {
    println!("{what:<58} {ours:>10} {:>10} {:>7}  {target}", "", "");
}

fn ratio(what: &str, ours: f64, theirs: f64, target: &str) {
    println!("{what:<58} {ours:>10.0} {theirs:>10.0} {:>7.2}  {target}", ours / theirs);
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn settled(node: &Node, instances: usize) {
    node.await_settled(LONG, |status| running(status, instances));
}

/// An app whose processes say that they run by making a file.
fn app(out: &Path, replicas: usize) -> String {
    format!(
        "services:\n  one:\n    image: busybox:lab\n    command: [sh, -c, 'echo >/out/$$(hostname); exec sleep inf']\n    \
         volumes: ['{}:/out']\n    stop_signal: SIGKILL\n    deploy: {{replicas: {replicas}}}\n",
        out.display()
    )
}

/// Waits until a number of processes have said that they run, and forgets what they said.
fn await_running(out: &Path, count: usize) {
    let deadline = Instant::now() + LONG;
    while fs::read_dir(out).expect("the directory").count() < count {
        assert!(Instant::now() < deadline, "{count} processes do not come up");
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn forget(out: &Path) {
    for entry in fs::read_dir(out).expect("the directory").flatten() {
        let _ = fs::remove_file(entry.path());
    }
}

fn one_by_one(node: &Node) -> f64 {
    let out = node.dir.join("out");
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        forget(&out);
        let began = Instant::now();
        node.edit(&format!("app{round}.yaml"), &app(&out, 1));
        await_running(&out, 1);
        times.push(milliseconds(began.elapsed()));
        settled(node, round + 1);
    }
    for round in 0..ROUNDS {
        node.unfile(&format!("app{round}.yaml"));
    }
    settled(node, 0);
    median(times)
}

fn crowd(node: &Node) -> f64 {
    let out = node.dir.join("out");
    forget(&out);
    let began = Instant::now();
    node.edit("crowd.yaml", &app(&out, CROWD));
    await_running(&out, CROWD);
    let took = milliseconds(began.elapsed());
    settled(node, CROWD);
    took
}

/// The same process by `ctr`, in a containerd namespace of its own; timed by the shell that runs it, inside the node.
fn ctr(out: &Path, id: &str) -> String {
    let mount = format!("type=bind,src={},dst=/out,options=rbind:rw", out.display());
    format!("ctr -n theirs run -d --mount {mount} {BUSYBOX} {id} sh -c 'echo >/out/{id}; exec sleep inf'")
}

fn ctr_one_by_one(node: &Node) -> f64 {
    let out = node.dir.join("out");
    node.ctr("theirs", &format!("images import {}", node.dir.join("busybox.tar").display()));
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let id = format!("one{round}");
        let file = out.join(&id).display().to_string();
        let run = ctr(&out, &id);
        times.push(timed(node, &format!("{run}; while [ ! -e {file} ]; do :; done")));
        node.ctr("theirs", &format!("task rm -f {id}"));
        node.ctr("theirs", &format!("container rm {id}"));
    }
    median(times)
}

fn ctr_crowd(node: &Node) -> f64 {
    let out = node.dir.join("out");
    forget(&out);
    let run = ctr(&out, "crowd$i");
    let run = run.replace("'echo >/out/crowd$i; exec sleep inf'", "\"echo >/out/crowd$i; exec sleep inf\"");
    let took = timed(node, &format!("for i in {{1..{CROWD}}}; do {run} & done; wait"));
    await_running(&out, CROWD);
    node.sh(&format!(
        "for i in {{1..{CROWD}}}; do ctr -n theirs task rm -f crowd$i; ctr -n theirs container rm crowd$i; done"
    ));
    took
}

/// Milliseconds that a script takes inside the node.
fn timed(node: &Node, script: &str) -> f64 {
    let output = node.sh(&format!("began=$EPOCHREALTIME; {{ {script}; }} >&2; echo $began $EPOCHREALTIME"));
    let times: Vec<f64> = output.split_whitespace().map(|time| time.parse().expect("a time")).collect();
    (times[1] - times[0]) * 1000.0
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A line of the agent's `/proc/PID/status`.
fn memory_mib(node: &Node, pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(node.path(format!("/proc/{pid}/status"))).expect("the agent's status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field of memory");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}
