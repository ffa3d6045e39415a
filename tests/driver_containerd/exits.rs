//! Exits: true when containerd is down, when a shim is killed, when the agent was restarted; never made up.

use crate::rig::{Rig, key, on_both, pid_of};
use crate::support::{Version, await_until};
use nix::sys::signal::{Signal, kill};
use std::time::Duration;
use stead::model::{ContainerSeen, Exit, ExitStatus, Step, TaskSeen};

fn witnessed(seen: &ContainerSeen) -> Option<Exit> {
    seen.witnessed.clone()
}

/// Whether the task is over: gone, or ended.
fn over(seen: &ContainerSeen) -> Option<()> {
    matches!(seen.task, TaskSeen::None | TaskSeen::Stopped(_)).then_some(())
}

fn gone_from_kernel(pid: u32) {
    await_until("the process to end", Duration::from_secs(10), || match kill(pid_of(pid), None) {
        Err(_) => Ok(()),
        Ok(()) if std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z ")) => {
            Ok(())
        }
        Ok(()) => Err("it runs".to_owned()),
    });
}

on_both!(
    /// containerd 1.7 forgets an exit that it did not see; the witness does not.
    an_exit_while_containerd_is_down_is_true
);
async fn an_exit_while_containerd_is_down_is_true(mut rig: Rig) {
    let web = key("web");
    let (_, pid) = rig.shell(&web, "trap 'exit 7' USR1; echo up; while :; do sleep 0.02; done").await;
    rig.output(&web, 1);
    rig.down(Signal::SIGKILL);
    kill(pid_of(pid), Signal::SIGUSR1).unwrap();
    gone_from_kernel(pid);
    rig.up();
    let (seen, exit) = rig.until("the witnessed exit", &web, witnessed).await;
    assert_eq!((exit.pid, exit.status), (pid, ExitStatus::Code(7)));
    match rig.version {
        Version::V1_6 => assert!(matches!(seen.task, TaskSeen::Stopped(Exit { status: ExitStatus::Code(7), .. }))),
        Version::V1_7 => assert_eq!(seen.task, TaskSeen::None),
    }
}

on_both!(
    /// A run that is over before anybody looks has been seen all the same, by its pidfd.
    a_run_of_no_time_is_seen
);
async fn a_run_of_no_time_is_seen(rig: Rig) {
    let web = key("web");
    let (container, pid) = rig.shell(&web, "exit 5").await;
    let (_, exit) = rig.until("the witnessed exit", &web, witnessed).await;
    assert_eq!((exit.pid, exit.status), (pid, ExitStatus::Code(5)));
    let (seen, ()) = rig.until("the end", &web, over).await;
    assert!(matches!(seen.task, TaskSeen::Stopped(Exit { status: ExitStatus::Code(5), .. })), "{seen:?}");
    // the same container runs again: another process, another exit
    rig.done(Step::RecordExit { container: container.clone(), exit }).await;
    rig.done(Step::DeleteTask { container: container.clone(), pid }).await;
    let again = rig.start(&web, &container).await;
    assert_ne!(again, pid);
    let (_, exit) = rig.until("the second exit", &web, witnessed).await;
    assert_eq!((exit.pid, exit.status), (again, ExitStatus::Code(5)));
}

on_both!(
    /// containerd kills what a dead shim left. The exit is what the kernel saw, not what the clean-up says.
    a_killed_shim_takes_its_task_along
);
async fn a_killed_shim_takes_its_task_along(mut rig: Rig) {
    let web = key("web");
    let (container, pid) = rig.shell(&web, "sleep 1000").await;
    kill(pid_of(rig.shim(&container)), Signal::SIGKILL).unwrap();
    let (seen, ()) = rig.until("the end", &web, over).await;
    assert_eq!(seen.task, TaskSeen::None);
    let exit = seen.witnessed.expect("its status was waited for");
    assert_eq!((exit.pid, exit.status), (pid, ExitStatus::Code(137)), "it was killed by a signal indeed");

    // the same while containerd is down: it kills at its start
    rig.done(Step::RecordExit { container: container.clone(), exit }).await;
    let pid = rig.start_again(&web, &container).await;
    rig.down(Signal::SIGKILL);
    kill(pid_of(rig.shim(&container)), Signal::SIGKILL).unwrap();
    rig.up();
    let (seen, ()) = rig.until("the end", &web, over).await;
    assert_eq!(seen.task, TaskSeen::None);
    assert_eq!(seen.witnessed.map(|exit| (exit.pid, exit.status)), Some((pid, ExitStatus::Code(137))));
}

on_both!(
    /// The clean-up after a shim that dies late tells a second exit, 137: the first one counts.
    the_first_exit_counts
);
async fn the_first_exit_counts(rig: Rig) {
    let web = key("web");
    let (container, pid) = rig.shell(&web, "exit 4").await;
    rig.until("the end", &web, over).await;
    kill(pid_of(rig.shim(&container)), Signal::SIGKILL).unwrap();
    let (seen, ()) = rig.until("the task to be gone", &web, |seen| (seen.task == TaskSeen::None).then_some(())).await;
    assert_eq!(seen.witnessed.map(|exit| (exit.pid, exit.status)), Some((pid, ExitStatus::Code(4))));
}

on_both!(
    /// Exits outlive the agent on disk, and a live task is witnessed again by the next agent's first look.
    an_agent_that_starts_anew_knows
);
async fn an_agent_that_starts_anew_knows(mut rig: Rig) {
    let (ended, lives) = (key("ended"), key("lives"));
    let (_, pid) = rig.shell(&ended, "exit 6").await;
    let (_, live_pid) = rig.shell(&lives, "trap 'exit 9' USR1; echo up; while :; do sleep 0.02; done").await;
    rig.output(&lives, 1);
    rig.until("the exit", &ended, witnessed).await;
    rig.restart_driver();
    let seen = rig.driver.look_runtime().await;
    let seen = seen.seen().expect("containerd answers");
    let exit = seen.instances[&ended].containers[0].witnessed.clone().expect("read back");
    assert_eq!((exit.pid, exit.status), (pid, ExitStatus::Code(6)));
    rig.down(Signal::SIGTERM);
    kill(pid_of(live_pid), Signal::SIGUSR1).unwrap();
    gone_from_kernel(live_pid);
    rig.up();
    let (_, exit) = rig.until("the exit", &lives, witnessed).await;
    assert_eq!((exit.pid, exit.status), (live_pid, ExitStatus::Code(9)));
}

on_both!(
    /// containerd drops a task whose shim died, and may fail to end its process: that one is not gone, and can be ended.
    a_process_without_a_task_is_not_gone
);
async fn a_process_without_a_task_is_not_gone(rig: Rig) {
    let web = key("web");
    let (container, pid) = rig.shell(&web, "sleep 1000").await;
    // the runtime's state is lost, so the clean-up finds nothing to kill
    std::fs::rename(format!("/run/containerd/runc/stead/{}", container.id), "/run/lost").unwrap();
    kill(pid_of(rig.shim(&container)), Signal::SIGKILL).unwrap();
    await_until("containerd to drop the task", Duration::from_secs(10), || {
        let tasks = rig.ctr("tasks ls");
        if tasks.contains(&container.id) { Err(tasks) } else { Ok(()) }
    });
    let seen = rig.container(&web).await;
    assert!(matches!(seen.task, TaskSeen::Unknown { .. }) && seen.task.may_live(), "{seen:?}");
    rig.done(Step::KillTask { container: container.clone(), pid: None }).await;
    let (seen, exit) = rig.until("the end", &web, witnessed).await;
    assert_eq!((exit.pid, exit.status), (pid, ExitStatus::Code(137)));
    let (seen, ()) = if seen.task == TaskSeen::None { (seen, ()) } else { rig.until("no task", &web, over).await };
    assert_eq!(seen.task, TaskSeen::None);
}
