//! From the snapshot to nothing: each step, repeated, and on something else than it was decided on.

use crate::rig::{Rig, identity, key, on_both, pid_of, sh, ticks};
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use std::path::Path;
use stead::model::{CauseKind, ContainerIdentity, Exit, ExitStatus, Outcome, Run, Step, Stopping, TaskSeen, Timestamp};

on_both!(
    /// Every step has its one effect, says so when it had it before, and leaves nothing in the end.
    a_whole_life_step_by_step
);
async fn a_whole_life_step_by_step(rig: Rig) {
    let web = key("web");
    let (digest, chain_id) = rig.busybox().await;
    let ask = rig.ask(
        &web,
        json!({"command": ["sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.02; done"],
        "labels": {"team": "shop", "stead/wedged": "1"}}),
        digest,
    );
    let prepare = Step::PrepareSnapshot { instance: web.clone(), key: ask.snapshot.clone(), parent: chain_id.clone() };
    rig.done(prepare.clone()).await;
    assert_eq!(rig.driver.perform(prepare).await, Outcome::Already);
    let side = rig.side(&web).await;
    assert_eq!(
        (side.snapshots[0].key.as_str(), side.snapshots[0].parent.as_str()),
        (ask.snapshot.as_str(), chain_id.as_str())
    );

    let create = Step::CreateContainer(Box::new(ask.clone()));
    rig.done(create.clone()).await;
    assert_eq!(rig.driver.perform(create).await, Outcome::Already);
    let seen = rig.container(&web).await;
    assert_eq!((&seen.id, &seen.digest, seen.attempt), (&ask.id, &ask.digest, 0));
    assert_eq!((seen.record.as_ref(), &seen.task), (Some(&ask.record), &TaskSeen::None));
    assert_eq!((&seen.run, &seen.exit, &seen.stopping, seen.wedged), (&None, &None, &None, false));
    let container = identity(&seen);

    rig.done(Step::CreateTask { container: container.clone() }).await;
    assert_eq!(rig.driver.perform(Step::CreateTask { container: container.clone() }).await, Outcome::Already);
    let TaskSeen::Created { pid } = rig.container(&web).await.task else { panic!("not created") };
    let run = Run { boot: "b".to_owned(), pid, at: Timestamp(5), count: 1, ..Run::default() };
    rig.done(Step::RecordRun { container: container.clone(), run: run.clone() }).await;
    rig.done(Step::StartTask { container: container.clone(), pid }).await;
    assert_eq!(rig.driver.perform(Step::StartTask { container: container.clone(), pid }).await, Outcome::Already);
    assert_eq!(rig.output(&web, 1), ["up"]);
    let seen = rig.container(&web).await;
    assert_eq!((seen.run, seen.task), (Some(run), TaskSeen::Running { pid, start_ticks: ticks(pid) }));

    let stop = Step::StopTask {
        container: container.clone(),
        pid,
        start_ticks: ticks(pid),
        signal: "SIGTERM".to_owned(),
        at: Timestamp(7),
        unhealthy: false,
    };
    rig.done(stop.clone()).await;
    let (seen, exit) = rig.until("the exit", &web, stopped).await;
    assert_eq!((exit.pid, exit.status), (pid, ExitStatus::Code(3)));
    assert_eq!(seen.stopping, Some(Stopping { at: Timestamp(7), ..Stopping::default() }));
    assert_eq!(rig.driver.perform(stop).await, Outcome::Already);
    let (seen, witnessed) = rig.until("the witness", &web, |seen| seen.witnessed.clone()).await;
    assert_eq!((witnessed.pid, witnessed.status, seen.exit), (pid, ExitStatus::Code(3), None));
    rig.done(Step::RecordExit { container: container.clone(), exit: witnessed.clone() }).await;
    let seen = rig.container(&web).await;
    assert_eq!((seen.exit, seen.witnessed), (Some(witnessed), None), "written down, so not open any more");
    assert_eq!(rig.driver.perform(Step::DeleteContainer { container: container.clone() }).await, Outcome::Moved);
    rig.done(Step::DeleteTask { container: container.clone(), pid }).await;
    assert_eq!(rig.driver.perform(Step::DeleteTask { container: container.clone(), pid }).await, Outcome::Already);
    rig.done(Step::DeleteContainer { container: container.clone() }).await;
    assert_eq!(rig.driver.perform(Step::DeleteContainer { container }).await, Outcome::Already);
    rig.done(Step::RemoveSnapshot { key: ask.snapshot.clone() }).await;
    assert_eq!(rig.driver.perform(Step::RemoveSnapshot { key: ask.snapshot }).await, Outcome::Already);
    assert_eq!(rig.try_side(&web).await, Ok(None));
    assert_eq!(sh("ls /run/stead/exits"), "");
}

on_both!(
    /// A start that was cut off between opening the runtime's FIFO and saying so: containerd goes on calling it
    /// created, and would hang in the next start.
    what_has_begun_is_running_whatever_containerd_says
);
async fn what_has_begun_is_running_whatever_containerd_says(rig: Rig) {
    let web = key("web");
    let container = rig
        .make(&web, json!({"command": ["sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.02; done"]}))
        .await;
    rig.done(Step::CreateTask { container: container.clone() }).await;
    let TaskSeen::Created { pid } = rig.container(&web).await.task else { panic!("not created") };
    sh(&format!("head -c 1 /run/containerd/runc/stead/{}/exec.fifo >/dev/null", container.id));
    assert_eq!(rig.output(&web, 1), ["up"]);
    assert!(rig.ctr("task ls").contains("CREATED"), "containerd says what it believes");
    assert_eq!(rig.container(&web).await.task, TaskSeen::Running { pid, start_ticks: ticks(pid) });
    assert_eq!(rig.driver.perform(Step::StartTask { container: container.clone(), pid }).await, Outcome::Already);
    assert_eq!(rig.driver.perform(Step::DeleteTask { container: container.clone(), pid }).await, Outcome::Moved);
    let stop = Step::StopTask {
        container: container.clone(),
        pid,
        start_ticks: ticks(pid),
        signal: "SIGTERM".to_owned(),
        at: Timestamp(7),
        unhealthy: false,
    };
    rig.done(stop).await;
    let (_, exit) = rig.until("the exit", &web, stopped).await;
    assert_eq!((exit.pid, exit.status), (pid, ExitStatus::Code(3)));
    rig.done(Step::DeleteTask { container: container.clone(), pid }).await;
    rig.done(Step::DeleteContainer { container }).await;
}

fn stopped(seen: &stead::model::ContainerSeen) -> Option<Exit> {
    match &seen.task {
        TaskSeen::Stopped(exit) => Some(exit.clone()),
        _ => None,
    }
}

on_both!(
    /// A step on a container or a process that is another one by now does nothing.
    another_one_is_left_alone
);
async fn another_one_is_left_alone(rig: Rig) {
    let web = key("web");
    let (container, pid) = rig.shell(&web, "sleep 1000").await;
    let before = rig.writes();
    let older = ContainerIdentity { created_at: Timestamp(container.created_at.0 - 1), ..container.clone() };
    let exit = Exit { pid, status: ExitStatus::Unknown, at: Timestamp(1) };
    let run = Run { boot: String::new(), pid, at: Timestamp(1), count: 1, ..Run::default() };
    let stop = |container: &ContainerIdentity, pid, start_ticks| Step::StopTask {
        container: container.clone(),
        pid,
        start_ticks,
        signal: "KILL".to_owned(),
        at: Timestamp(1),
        unhealthy: false,
    };
    let steps = [
        Step::KillTask { container: older.clone(), pid: Some(pid) },
        Step::KillTask { container: older.clone(), pid: None },
        Step::KillTask { container: container.clone(), pid: Some(pid + 1) },
        Step::DeleteTask { container: container.clone(), pid },
        Step::DeleteTask { container: container.clone(), pid: pid + 1 },
        Step::StartTask { container: container.clone(), pid: pid + 1 },
        Step::DeleteContainer { container: older.clone() },
        Step::DeleteContainer { container: container.clone() },
        Step::RecordExit { container: older.clone(), exit },
        Step::RecordRun { container: older.clone(), run },
        Step::CreateTask { container: older.clone() },
        Step::RevokeStop { container: older.clone() },
        stop(&older, pid, ticks(pid)),
        stop(&container, pid, ticks(pid) + 1),
        stop(&container, pid + 1, 0),
    ];
    for step in steps {
        let name = step.name();
        assert_eq!(rig.driver.perform(step).await, Outcome::Moved, "{name}");
    }
    assert_eq!(rig.writes(), before);
    assert_eq!(rig.container(&web).await.task, TaskSeen::Running { pid, start_ticks: ticks(pid) });

    rig.done(Step::KillTask { container: container.clone(), pid: Some(pid) }).await;
    rig.until("the end", &web, stopped).await;
    assert_eq!(rig.driver.perform(Step::KillTask { container, pid: Some(pid) }).await, Outcome::Already);
}

on_both!(
    /// A stop can be revoked; what was never started can be deleted, and is no exit.
    marks_and_tasks_that_never_ran
);
async fn marks_and_tasks_that_never_ran(rig: Rig) {
    let web = key("web");
    let container =
        rig.make(&web, json!({"command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.02; done"]})).await;
    rig.done(Step::CreateTask { container: container.clone() }).await;
    let TaskSeen::Created { pid } = rig.container(&web).await.task else { panic!("not created") };
    rig.done(Step::DeleteTask { container: container.clone(), pid }).await;
    let seen = rig.container(&web).await;
    assert_eq!((seen.task, seen.witnessed), (TaskSeen::None, None));

    let pid = rig.start(&web, &container).await;
    assert_eq!(rig.driver.perform(Step::RevokeStop { container: container.clone() }).await, Outcome::Already);
    let signal = "term".to_owned();
    rig.done(Step::StopTask {
        container: container.clone(),
        pid,
        start_ticks: ticks(pid),
        signal,
        at: Timestamp(9),
        unhealthy: false,
    })
    .await;
    rig.done(Step::RevokeStop { container: container.clone() }).await;
    assert_eq!(
        rig.container(&web).await.stopping,
        Some(Stopping { at: Timestamp(9), revoked: true, unhealthy: false })
    );
    let run = Run { boot: String::new(), pid, at: Timestamp(10), count: 2, ..Run::default() };
    rig.done(Step::RecordRun { container: container.clone(), run }).await;
    assert_eq!(rig.container(&web).await.stopping, None, "a new run has no stop mark");
    let unknown = Step::StopTask {
        container,
        pid,
        start_ticks: ticks(pid),
        signal: "SIGNOPE".to_owned(),
        at: Timestamp(9),
        unhealthy: false,
    };
    let Outcome::Refused(cause) = rig.driver.perform(unknown).await else { panic!("there is no such signal") };
    assert!(cause.kind == CauseKind::Invalid && cause.hint.is_some(), "{cause:?}");
    kill(pid_of(pid), Signal::SIGKILL).unwrap();
}

on_both!(
    /// What a step needs and is not there is said by name, before the runtime says it in its own words.
    what_is_missing_is_named
);
async fn what_is_missing_is_named(rig: Rig) {
    let web = key("web");
    let spec = json!({"command": ["sleep", "1000"], "mounts": [
        {"target": "/a", "source": {"bind": {"path": "/var/tmp/stead-absent", "create": false}}},
        {"target": "/b", "source": {"bind": {"path": "/var/lib/stead/made", "create": true}}},
    ]});
    let spec = serde_json::from_str::<serde_json::Value>(
        &spec.to_string().replace("/var/tmp/stead-absent", "/var/lib/stead/absent"),
    )
    .unwrap();
    let container = rig.make(&web, spec).await;
    let create = Step::CreateTask { container: container.clone() };
    let Outcome::Refused(cause) = rig.driver.perform(create.clone()).await else { panic!("nothing to bind") };
    assert!(cause.kind == CauseKind::Missing && cause.message.contains("/var/lib/stead/absent"), "{cause:?}");
    std::fs::create_dir("/var/lib/stead/absent").unwrap();
    let pid = rig.start(&web, &container).await;
    assert!(Path::new("/var/lib/stead/made").is_dir());
    rig.done(Step::KillTask { container: container.clone(), pid: Some(pid) }).await;
    rig.until("the end", &web, stopped).await;
    rig.done(Step::DeleteTask { container: container.clone(), pid }).await;
    // the snapshot is taken away behind our back
    rig.ctr(&format!("snapshots rm {}", container.id));
    let Outcome::Refused(cause) = rig.driver.perform(create).await else { panic!("no snapshot") };
    assert_eq!(cause.kind, CauseKind::Missing, "{cause:?}");

    let (digest, _) = rig.busybox().await;
    let other = key("other");
    let mut ask = rig.ask(&other, json!({}), digest);
    ask.netns.as_mut().unwrap().inode += 1;
    assert_eq!(rig.driver.perform(Step::CreateContainer(Box::new(ask.clone()))).await, Outcome::Moved);
    ask.netns.as_mut().unwrap().inode -= 1;
    let Outcome::Refused(cause) = rig.driver.perform(Step::CreateContainer(Box::new(ask))).await else {
        panic!("no snapshot")
    };
    assert_eq!(cause.kind, CauseKind::Missing, "{cause:?}");
    let prepare = Step::PrepareSnapshot { instance: other, key: "k".to_owned(), parent: "sha256:none".to_owned() };
    let Outcome::Refused(cause) = rig.driver.perform(prepare).await else { panic!("no parent") };
    assert_eq!(cause.kind, CauseKind::Missing, "{cause:?}");
}
