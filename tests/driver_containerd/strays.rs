//! What is ours is known by its marks alone; what is not is not seen.

use crate::rig::{NAMESPACE, Rig, key, marks, on_both, sh, ticks};
use crate::support::{BUSYBOX, busybox_archive};
use serde_json::json;
use std::path::Path;
use stead::drive::image;
use stead::model::{Archive, ImageUse, Outcome, Sight, Step, StrayKey, StraySeen};

on_both!(
    /// Foreign things in our own namespace are neither seen nor touched; ours without an owner are strays.
    strays_and_foreigners
);
async fn strays_and_foreigners(rig: Rig) {
    let web = key("web");
    let (_, chain_id) = rig.busybox().await;
    rig.make(&web, json!({})).await;
    rig.ctr(&format!("containers create --snapshotter overlayfs {BUSYBOX} shop-web-1-foreign sleep 1"));
    rig.ctr(&format!("snapshots prepare foreign {chain_id}"));
    rig.ctr(&format!("snapshots prepare broken {chain_id}"));
    rig.ctr("snapshots label broken stead/app=shop stead/service=web stead/replica=many");
    rig.ctr("leases create --id someone");
    let left = marks().lease("docker.io/library/gone:1");
    rig.ctr(&format!("leases create --id {left}"));
    let Sight::Seen(seen) = rig.driver.look_runtime().await else { panic!("containerd answers") };
    assert_eq!(seen.instances.keys().collect::<Vec<_>>(), [&web]);
    assert_eq!(seen.instances[&web].containers.len(), 1);
    let (snapshot, lease) = (StrayKey::Snapshot("broken".to_owned()), StrayKey::Lease(left.clone()));
    assert_eq!(seen.strays.iter().collect::<Vec<_>>(), [&snapshot, &lease]);
    assert!(!seen.boot.is_empty());
    assert_eq!(rig.driver.perform(Step::RemoveSnapshot { key: "foreign".to_owned() }).await, Outcome::Moved);
    for (stray, step) in
        [(snapshot, Step::RemoveSnapshot { key: "broken".to_owned() }), (lease, Step::DropLease { id: left })]
    {
        assert_eq!(rig.driver.look_stray(&stray).await, Sight::Seen(StraySeen::There));
        rig.done(step.clone()).await;
        assert_eq!(rig.driver.look_stray(&stray).await, Sight::Seen(StraySeen::Gone));
        assert_eq!(rig.driver.perform(step).await, Outcome::Already);
    }
    let listed = rig.ctr("containers ls -q") + &rig.ctr("snapshots ls") + &rig.ctr("leases ls");
    for name in ["shop-web-1-foreign", "foreign ", "someone"] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
}

on_both!(
    /// An import at work holds its lease: it is no stray, and nobody can drop it.
    a_lease_at_work_is_no_stray
);
async fn a_lease_at_work_is_no_stray(rig: Rig) {
    let path = busybox_archive(&rig.dir);
    let digest = image::describe(&path).await.unwrap()[0].digest.clone();
    let reference = "docker.io/library/slow:1";
    let lease = marks().lease(reference);
    let (driver, step) = (rig.driver.clone(), Step::DropLease { id: lease.clone() });
    let mut looked = 0;
    // what a look and a drop do is tried from within the import, each time it tells its progress
    image::import(&rig.driver, &path, reference, None, &mut |_| {
        let (driver, step) = (driver.clone(), step.clone());
        let stray = StrayKey::Lease(lease.clone());
        let (found, dropped) = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { (driver.look_stray(&stray).await, driver.perform(step).await) })
        })
        .join()
        .unwrap();
        assert_eq!((found, dropped), (Sight::Seen(StraySeen::Gone), Outcome::Moved));
        looked += 1;
    })
    .await
    .unwrap();
    assert!(looked > 2);
    let archive = Archive { path, digest };
    rig.done(Step::ImportImage { reference: reference.to_owned(), archive }).await;
    let Sight::Seen(Some(seen)) = rig.driver.look_image(reference).await else { panic!("imported") };
    assert!(matches!(seen.usable, ImageUse::Ready { .. }) && !seen.lease);
    assert!(!rig.ctr("leases ls").contains(&lease));
}

on_both!(
    /// A directory that a crash of containerd has left fails every create of that id, until it is cleared.
    a_bundle_that_a_crash_left_is_cleared
);

async fn a_bundle_that_a_crash_left_is_cleared(rig: Rig) {
    let key = key("web");
    let container = rig.make(&key, json!({"command": ["sleep", "inf"]})).await;
    let bundle = format!("/run/containerd/io.containerd.runtime.v2.task/{NAMESPACE}/{}", container.id);
    sh(&format!("mkdir -p {bundle}/rootfs"));
    let create = || rig.driver.perform(Step::CreateTask { container: container.clone() });
    let young = create().await;
    assert!(matches!(young, Outcome::Refused(_)), "{young:?}");
    assert!(Path::new(&bundle).exists(), "a young one may be of a create on its way");
    sh(&format!("touch -d '1 minute ago' {bundle}"));
    let old = create().await;
    assert!(matches!(&old, Outcome::Refused(cause) if cause.message.contains("cleared")), "{old:?}");
    let pid = rig.start(&key, &container).await;
    assert!(ticks(pid) > 0);
}
