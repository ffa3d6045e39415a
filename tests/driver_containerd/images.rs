//! Archives: imported, resumed, refused when damaged.

use crate::rig::{Rig, marks, on_both, sh};
use crate::support::{BUSYBOX, busybox_archive};
use nix::sys::signal::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use stead::drive::image::{self, Progress};
use stead::model::{Archive, CauseKind, ImageSeen, ImageUse, Outcome, Sight, Step, StrayKey};

const NAME: &str = "docker.io/library/made:1";

async fn see(rig: &Rig, reference: &str) -> Option<ImageSeen> {
    match rig.driver.look_image(reference).await {
        Sight::Seen(image) => image,
        Sight::Unseen(blind) => panic!("{}", blind.why),
    }
}

fn is_ready(image: Option<&ImageSeen>) -> bool {
    image.is_some_and(|image| matches!(image.usable, ImageUse::Ready { .. }))
}

/// Runs containerd's garbage collector.
fn collect(rig: &Rig) {
    rig.ctr("leases create --id sweep");
    rig.ctr("leases rm --sync sweep");
}

/// An archive with one layer of this many MiB that cannot be compressed away.
fn large(dir: &Path, mib: u64) -> PathBuf {
    let folder = dir.join("root");
    fs::create_dir_all(&folder).unwrap();
    sh(&format!("head -c {}M /dev/urandom >{}/large", mib, folder.display()));
    let archive = dir.join("large.tar");
    image::from_files(NAME, &[folder], &archive).unwrap();
    archive
}

on_both!(
    /// Imported, kept by the garbage collector, and imported again for nothing.
    an_import_stays
);
async fn an_import_stays(rig: Rig) {
    let path = busybox_archive(&rig.dir);
    let digest = image::describe(&path).await.unwrap()[0].digest.clone();
    let step = Step::ImportImage { reference: BUSYBOX.to_owned(), archive: Archive { path, digest: digest.clone() } };
    assert_eq!(see(&rig, BUSYBOX).await, None);
    rig.done(step.clone()).await;
    collect(&rig);
    let seen = see(&rig, BUSYBOX).await.expect("imported");
    assert_eq!((seen.digest.as_str(), seen.lease), (digest.as_str(), false));
    let ImageUse::Ready { chain_id, .. } = &seen.usable else { panic!("{seen:?}") };
    let Sight::Seen(whole) = rig.driver.look_runtime().await else { panic!("containerd answers") };
    assert_eq!(whole.images.get(BUSYBOX), Some(&seen));
    rig.done(step).await;
    assert!(is_ready(see(&rig, BUSYBOX).await.as_ref()));

    // the layers' snapshots are lost: unpacked again from the content
    rig.ctr(&format!("snapshots rm {chain_id}"));
    assert_eq!(see(&rig, BUSYBOX).await.map(|image| image.usable), Some(ImageUse::Packed));
    rig.done(Step::UnpackImage { reference: BUSYBOX.to_owned() }).await;
    collect(&rig);
    assert!(is_ready(see(&rig, BUSYBOX).await.as_ref()));
    // the content is lost: only another import helps
    for line in rig.ctr("content ls -q").lines() {
        rig.ctr(&format!("content rm {line}"));
    }
    assert_eq!(see(&rig, BUSYBOX).await.map(|image| image.usable), Some(ImageUse::Incomplete));
    assert_eq!(rig.ctr("leases ls -q"), "");
}

on_both!(
    /// Cut off in the middle, with containerd or without: the rest is written, not the whole.
    an_import_goes_on_where_it_stopped
);
async fn an_import_goes_on_where_it_stopped(mut rig: Rig) {
    let archive = large(&rig.dir, 40);
    let cut = |rig: &Rig, at: u64| {
        let (driver, archive) = (rig.driver.clone(), archive.clone());
        async move {
            let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
            let task = tokio::spawn(async move {
                image::import(&driver, &archive, NAME, None, &mut |progress: Progress| {
                    let _ = tell.send(progress);
                })
                .await
            });
            while let Some(progress) = told.recv().await {
                if progress.done >= at {
                    break;
                }
            }
            task.abort();
            assert!(task.await.is_err(), "cut off");
        }
    };
    cut(&rig, 8 << 20).await;
    assert_eq!(see(&rig, NAME).await, None);
    rig.down(Signal::SIGKILL);
    rig.up();
    let lease = StrayKey::Lease(marks().lease(NAME));
    let Sight::Seen(seen) = rig.driver.look_runtime().await else { panic!("containerd answers") };
    assert!(seen.strays.contains(&lease), "nobody works under it any more");
    let mut first = None;
    image::import(&rig.driver, &archive, NAME, None, &mut |progress| {
        first.get_or_insert(progress.done);
    })
    .await
    .unwrap();
    assert!(first >= Some(8 << 20), "{first:?}");
    collect(&rig);
    assert!(is_ready(see(&rig, NAME).await.as_ref()));
    assert_eq!((rig.ctr("leases ls -q"), rig.ctr("content active")), (String::new(), "REF\tSIZE\tAGE\t\n".to_owned()));
}

on_both!(
    /// Damage is said in a sentence, and leaves nothing behind.
    a_damaged_archive_is_refused
);
async fn a_damaged_archive_is_refused(rig: Rig) {
    let good = fs::read(busybox_archive(&rig.dir)).unwrap();
    let digest = image::describe(&rig.dir.join("busybox.tar")).await.unwrap()[0].digest.clone();
    let needle = b"root:x:0:0::/:/bin/sh";
    let at = good.windows(needle.len()).position(|window| window == needle).expect("in the layer");
    let mut flipped = good.clone();
    flipped[at] ^= 1;
    let empty = vec![0; 1024];
    for (bytes, kind, word) in [
        (flipped, CauseKind::Invalid, "damaged"),
        (good[..good.len() / 2].to_vec(), CauseKind::Invalid, "cut off"),
        (empty, CauseKind::Invalid, "no OCI archive"),
        (b"not a tar".to_vec(), CauseKind::Invalid, "archive"),
    ] {
        let path = rig.dir.join("bad.tar");
        fs::write(&path, bytes).unwrap();
        let archive = Archive { path, digest: digest.clone() };
        let outcome = rig.driver.perform(Step::ImportImage { reference: NAME.to_owned(), archive }).await;
        let Outcome::Refused(cause) = outcome else { panic!("{word}: {outcome:?}") };
        assert!(cause.kind == kind && cause.message.contains(word), "{cause:?}");
        let lease = marks().lease(NAME);
        let dropped = rig.driver.perform(Step::DropLease { id: lease }).await;
        assert!(matches!(dropped, Outcome::Done | Outcome::Already), "{dropped:?}");
        assert_eq!((see(&rig, NAME).await, rig.ctr("content active").lines().count()), (None, 1));
        assert_eq!((rig.ctr("leases ls -q"), rig.ctr("content ls -q")), (String::new(), String::new()));
    }
    let archive = Archive { path: rig.dir.join("busybox.tar"), digest: "sha256:0".to_owned() };
    let outcome = rig.driver.perform(Step::ImportImage { reference: NAME.to_owned(), archive }).await;
    let Outcome::Refused(cause) = outcome else { panic!("another archive than was asked for") };
    assert_eq!(cause.kind, CauseKind::Missing, "{cause:?}");
    let archive = Archive { path: rig.dir.join("absent.tar"), digest };
    let outcome = rig.driver.perform(Step::ImportImage { reference: NAME.to_owned(), archive }).await;
    assert!(matches!(outcome, Outcome::Refused(cause) if cause.kind == CauseKind::Missing));
}

on_both!(
    /// What `docker save` wrote, plain and compressed, is the same image as an OCI archive of its layer.
    what_docker_saves_is_imported
);
async fn what_docker_saves_is_imported(rig: Rig) {
    let folder = rig.dir.join("saved");
    let oci = busybox_archive(&rig.dir);
    fs::create_dir_all(folder.join("one")).unwrap();
    fs::create_dir_all(folder.join("two")).unwrap();
    sh(&format!("tar -xf {} -C {}", oci.display(), folder.display()));
    // the largest blob is the layer, the one with diff ids the config
    let layer = sh(&format!("ls -S {}/blobs/sha256 | head -n1", folder.display()));
    let config = sh(&format!("basename $(grep -l diff_ids {}/blobs/sha256/*)", folder.display()));
    let (layer, config) = (layer.trim(), config.trim());
    fs::rename(folder.join("blobs/sha256").join(layer), folder.join("one/layer.tar")).unwrap();
    fs::rename(folder.join("blobs/sha256").join(config), folder.join(format!("{config}.json"))).unwrap();
    std::os::unix::fs::symlink("../one/layer.tar", folder.join("two/layer.tar")).unwrap();
    let manifest =
        serde_json::json!([{"Config": format!("{config}.json"), "RepoTags": ["saved:1"], "Layers": ["two/layer.tar"]}]);
    fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    sh(&format!(
        "cd {}; tar -cf ../saved.tar manifest.json one two {config}.json; gzip -k ../saved.tar",
        folder.display()
    ));
    let mut digests = Vec::new();
    for name in ["saved.tar", "saved.tar.gz"] {
        let path = rig.dir.join(name);
        let described = image::describe(&path).await.unwrap();
        assert_eq!(described[0].name.as_deref(), Some("saved:1"));
        digests.push(image::import(&rig.driver, &path, NAME, None, &mut |_| {}).await.unwrap());
        assert_eq!(described[0].digest, digests[0]);
        assert!(is_ready(see(&rig, NAME).await.as_ref()));
    }
    assert_eq!(digests[0], digests[1]);
    assert!(rig.ctr("content ls -q").contains(layer));
}
