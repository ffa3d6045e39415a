//! containerd killed at any moment: tasks run on, half-made ones heal, a hung shim hides nobody else.

use crate::rig::{Rig, identity, key, on_both, pid_of, ticks};
use crate::support::await_until;
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use std::time::{Duration, Instant};
use stead::model::{CauseKind, Outcome, Run, Sight, Step, TaskSeen, Timestamp};

on_both!(
    /// Killed and stopped ten times: the same process, not one write, and blind in between instead of wrong.
    tasks_do_not_notice_a_restart
);
async fn tasks_do_not_notice_a_restart(mut rig: Rig) {
    let web = key("web");
    let (_, pid) = rig.shell(&web, "sleep 1000").await;
    let running = TaskSeen::Running { pid, start_ticks: ticks(pid) };
    let before = rig.writes();
    for round in 0..10 {
        rig.down(if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGTERM });
        assert!(!rig.driver.look_runtime().await.is_seen());
        assert!(rig.try_side(&web).await.is_err());
        rig.up();
        assert_eq!(rig.container(&web).await.task, running);
    }
    assert_eq!(rig.writes(), before);
}

on_both!(
    /// A step without containerd is refused as unavailable: nothing was sent.
    a_step_without_containerd_is_refused
);
async fn a_step_without_containerd_is_refused(mut rig: Rig) {
    let web = key("web");
    let (container, _) = rig.shell(&web, "sleep 1000").await;
    rig.down(Signal::SIGTERM); // the socket file is gone
    for _ in 0..2 {
        let outcome = rig.driver.perform(Step::KillTask { container: container.clone(), pid: None }).await;
        let Outcome::Refused(cause) = outcome else { panic!("{outcome:?}") };
        assert_eq!(cause.kind, CauseKind::Unavailable);
        std::fs::write(crate::support::SOCKET, "").unwrap(); // and then something that nobody listens on
    }
    std::fs::remove_file(crate::support::SOCKET).unwrap();
    rig.up();
}

on_both!(
    /// containerd killed while it makes a task, at many moments: within a few tries the task runs, on this record or, when
    /// containerd keeps half of one, on a fresh one.
    a_create_that_is_cut_off_heals
);
async fn a_create_that_is_cut_off_heals(mut rig: Rig) {
    for round in 0..12_u64 {
        let web = key(&format!("web{round}"));
        let container = rig.make(&web, json!({"command": ["sleep", "1000"]})).await;
        let step = Step::CreateTask { container: container.clone() };
        let driver = rig.driver.clone();
        let attempt = tokio::spawn(async move { driver.perform(step).await });
        tokio::time::sleep(Duration::from_millis(5 * round)).await;
        rig.down(Signal::SIGKILL);
        let outcome = attempt.await.unwrap();
        assert!(!matches!(outcome, Outcome::Moved | Outcome::Already), "{outcome:?}");
        rig.up();
        let mut tries = Vec::new();
        let pid = loop {
            match rig.container(&web).await.task {
                TaskSeen::Created { pid } => break pid,
                _ if rig.container(&web).await.wedged => panic!("wedged after {tries:?}"),
                _ => {}
            }
            assert!(tries.len() < 6, "round {round}: {tries:?}");
            tries.push(rig.driver.perform(Step::CreateTask { container: container.clone() }).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let run = Run { boot: String::new(), pid, at: Timestamp(1), count: 1, ..Run::default() };
        rig.done(Step::RecordRun { container: container.clone(), run }).await;
        rig.done(Step::StartTask { container: container.clone(), pid }).await;
        assert!(matches!(rig.container(&web).await.task, TaskSeen::Running { .. }));
        rig.done(Step::KillTask { container, pid: Some(pid) }).await;
    }
}

on_both!(
    /// A hung shim makes its own task unknown, not gone; others are seen, and their steps done, all the same.
    a_hung_shim_hides_nobody_else
);
async fn a_hung_shim_hides_nobody_else(rig: Rig) {
    let (web, other) = (key("web"), key("other"));
    let (container, _) = rig.shell(&web, "sleep 1000").await;
    let (second, pid) = rig.shell(&other, "sleep 1000").await;
    let shim = pid_of(rig.shim(&container));
    kill(shim, Signal::SIGSTOP).unwrap();
    await_until("the shim to stand still", Duration::from_secs(10), || {
        let stat = std::fs::read_to_string(format!("/proc/{shim}/stat")).unwrap_or_default();
        if stat.contains(") T ") { Ok(()) } else { Err(stat) }
    });
    let Sight::Seen(seen) = rig.driver.look_runtime().await else { panic!("one hung shim blinds nobody") };
    assert!(matches!(seen.instances[&web].containers[0].task, TaskSeen::Unknown { .. }));
    assert!(matches!(seen.instances[&other].containers[0].task, TaskSeen::Running { .. }));
    let began = Instant::now();
    let killing = rig.driver.perform(Step::KillTask { container: container.clone(), pid: None });
    let stopping = async {
        rig.done(Step::KillTask { container: second.clone(), pid: Some(pid) }).await;
        began.elapsed()
    };
    let (hung, took) = tokio::join!(killing, stopping);
    assert!(took < Duration::from_secs(3), "{took:?}");
    let Outcome::Unsure(cause) = hung else { panic!("{hung:?}") };
    assert_eq!(cause.kind, CauseKind::Deadline);
    kill(shim, Signal::SIGCONT).unwrap();
    rig.until("the kill to arrive", &web, |seen| matches!(seen.task, TaskSeen::Stopped(_)).then_some(())).await;
    assert_eq!(identity(&rig.container(&web).await), container);
}
