//! What rings, and what does not.

use crate::rig::{Rig, key, on_both, pid_of, sh};
use crate::support::BUSYBOX;
use futures::{Stream, StreamExt};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use serde_json::json;
use std::time::Duration;
use stead::drive::Wake;
use stead::model::{Domain, InstanceKey, Key, Scope, Step, TaskSeen};

/// Reads wakes until one fits, and answers the ones before it.
async fn until(
    wakes: &mut (impl Stream<Item = Wake> + Unpin),
    within: Duration,
    fits: impl Fn(&Wake) -> bool,
) -> Vec<Wake> {
    let mut before = Vec::new();
    let search = async {
        while let Some(wake) = wakes.next().await {
            if fits(&wake) {
                return true;
            }
            before.push(wake);
        }
        false
    };
    let found = tokio::time::timeout(within, search).await.unwrap_or(false);
    assert!(found, "it did not ring within {within:?}; what did: {before:?}");
    before
}

fn is_resync(wake: &Wake) -> bool {
    wake.because == "resync" && wake.scope == Scope::Domain(Domain::Runtime) && wake.lost.is_none()
}

fn is_lost(wake: &Wake) -> bool {
    wake.lost.as_ref().is_some_and(|(domain, why)| *domain == Domain::Runtime && !why.is_empty())
}

fn rings(key: &InstanceKey) -> impl Fn(&Wake) -> bool {
    let scope = Scope::Object(Key::Instance(key.clone()));
    move |wake| wake.scope == scope
}

const SOON: Duration = Duration::from_secs(5);

on_both!(
    /// First a resync, then an instance's own events; the agent's own steps ring nothing.
    events_name_their_instance
);
async fn events_name_their_instance(rig: Rig) {
    let mut wakes = Box::pin(rig.driver.wakes());
    assert_eq!(until(&mut wakes, SOON, is_resync).await, []);
    let web = key("web");
    // driven while the stream is read, as the loop does it
    let life = async {
        let (container, pid) = rig.shell(&web, "sleep 1000").await;
        rig.ctr(&format!("snapshots label {} x=y", container.id)); // no event: a pause for late ones
        (container, pid)
    };
    let mut early = Vec::new();
    let (container, pid) = {
        let mut life = Box::pin(life);
        loop {
            tokio::select! {
                made = &mut life => break made,
                wake = wakes.next() => early.extend(wake),
            }
        }
    };
    early.retain(|wake| !matches!(&wake.scope, Scope::Object(Key::Image(_))));
    assert_eq!(early, [], "own steps");
    rig.ctr(&format!("containers label {} x=y", container.id));
    until(&mut wakes, SOON, |wake| rings(&web)(wake) && wake.because == "container updated").await;
    kill(pid_of(pid), Signal::SIGKILL).unwrap();
    until(&mut wakes, SOON, |wake| rings(&web)(wake) && wake.because == "task exited").await;
    rig.until("the end", &web, |seen| matches!(seen.task, TaskSeen::Stopped(_)).then_some(())).await;
    rig.ctr(&format!("tasks rm {}", container.id));
    until(&mut wakes, SOON, |wake| rings(&web)(wake) && wake.because == "task deleted").await;
    rig.ctr(&format!("containers rm {}", container.id));
    until(&mut wakes, SOON, |wake| rings(&web)(wake) && wake.because == "container deleted").await;
    rig.ctr(&format!("images label {BUSYBOX} x=y"));
    let image = Scope::Object(Key::Image(BUSYBOX.to_owned()));
    until(&mut wakes, SOON, |wake| wake.scope == image).await;
    rig.ctr(&format!("containers create --snapshotter overlayfs {BUSYBOX} stranger sleep 1"));
    until(&mut wakes, SOON, |wake| wake.scope == Scope::Domain(Domain::Runtime)).await;
}

on_both!(
    /// A witnessed exit rings without containerd.
    an_exit_rings_while_containerd_is_down
);
async fn an_exit_rings_while_containerd_is_down(mut rig: Rig) {
    let web = key("web");
    let (_, pid) = rig.shell(&web, "sleep 1000").await;
    let mut wakes = Box::pin(rig.driver.wakes());
    until(&mut wakes, SOON, is_resync).await;
    rig.down(Signal::SIGKILL);
    until(&mut wakes, SOON, is_lost).await;
    kill(pid_of(pid), Signal::SIGKILL).unwrap();
    until(&mut wakes, SOON, |wake| rings(&web)(wake) && wake.because == "exit witnessed").await;
}

on_both!(
    /// Each restart is told once as lost and once as a resync; waiting costs next to nothing.
    an_outage_is_told_once_and_costs_little
);
async fn an_outage_is_told_once_and_costs_little(mut rig: Rig) {
    rig.make(&key("web"), json!({})).await;
    let mut wakes = Box::pin(rig.driver.wakes());
    until(&mut wakes, SOON, is_resync).await;
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL] {
        rig.down(signal);
        until(&mut wakes, SOON, is_lost).await;
        let cpu = || {
            let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
            (usage.user_time() + usage.system_time()).num_milliseconds()
        };
        let before = cpu();
        let quiet = tokio::time::timeout(Duration::from_secs(6), wakes.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        // ten minutes may cost 2 s; the first second has the quick tries
        assert!(cpu() - before < 60, "{} ms of CPU in 6 s", cpu() - before);
        rig.up();
        assert_eq!(until(&mut wakes, SOON, is_resync).await, []);
    }
}

on_both!(
    /// A containerd that takes connections and does not answer is as good as none; when it goes on, so do we.
    a_mute_containerd_is_lost
);
async fn a_mute_containerd_is_lost(rig: Rig) {
    let web = key("web");
    let (container, _) = rig.shell(&web, "sleep 1000").await;
    let mut wakes = Box::pin(rig.driver.wakes());
    until(&mut wakes, SOON, is_resync).await;
    rig.signal(Signal::SIGSTOP);
    until(&mut wakes, Duration::from_secs(25), is_lost).await;
    assert!(!rig.driver.look_runtime().await.is_seen());
    rig.signal(Signal::SIGCONT);
    until(&mut wakes, Duration::from_secs(15), is_resync).await;
    let mark = Step::RevokeStop { container };
    rig.driver.perform(mark).await;
    sh("true");
    rig.until("to see it again", &web, |seen| matches!(seen.task, TaskSeen::Running { .. }).then_some(())).await;
}
