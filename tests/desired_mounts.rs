//! The directory source on file systems that come and go, are full, or send no events: each test in a mount namespace of
//! its own thread.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use futures::StreamExt as _;
use nix::mount::{MntFlags, MsFlags, mount, umount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead::desired::{Directory, Options};
use stead::model::{AppName, Desired};

struct Bench {
    root: tempfile::TempDir,
}

/// The directories of a test.
const NAMES: [&str; 4] = ["desired", "state", "lower", "upper"];

impl Drop for Bench {
    /// A mount point cannot be removed, and what is mounted here is no one else's.
    fn drop(&mut self) {
        for name in NAMES {
            while umount2(&self.path(name), MntFlags::MNT_DETACH).is_ok() {}
        }
    }
}

impl Bench {
    /// Directories of this test, in a mount namespace that only this thread (and what it starts) is in.
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).expect("root may have a mount namespace of its own");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let bench = Self { root: tempfile::tempdir().unwrap() };
        for name in NAMES {
            fs::create_dir(bench.path(name)).unwrap();
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn options(&self) -> Options {
        Options { dir: self.path("desired"), state: self.path("state"), ..Options::default() }
    }

    fn read(&self) -> std::sync::Arc<Desired> {
        Directory::open(self.options()).read()
    }

    fn tmpfs(&self, name: &str, options: &str) {
        mount(Some("tmpfs"), &self.path(name), Some("tmpfs"), MsFlags::empty(), Some(options)).unwrap();
    }
}

fn write_app(dir: &Path, port: u16) {
    fs::write(dir.join("a.yaml"), format!("services: {{web: {{image: web, ports: ['{port}:80']}}}}\n")).unwrap();
}

fn host_port(desired: &Desired) -> Option<u16> {
    desired.apps.get(&AppName::new("a").unwrap())?.services.values().next()?.spec.ports.first()?.host
}

#[test]
fn an_unmounted_directory_removes_nothing_and_is_taken_up_again() {
    let bench = Bench::new();
    bench.tmpfs("desired", "size=1m");
    write_app(&bench.path("desired"), 1001);
    assert!(bench.read().whole);
    // The file system is kept by a second mount while the first one is gone.
    mount(Some(&bench.path("desired")), &bench.path("upper"), None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    umount(&bench.path("desired")).unwrap();
    for _ in 0..2 {
        let gone = bench.read();
        assert!(!gone.whole && host_port(&gone) == Some(1001), "{gone:#?}");
        assert!(gone.findings[0].message.contains("has lost its marker"));
    }
    // What is put on the bare mount point meanwhile is not believed either.
    write_app(&bench.path("desired"), 6666);
    assert_eq!(host_port(&bench.read()), Some(1001));
    mount(Some(&bench.path("upper")), &bench.path("desired"), None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let back = bench.read();
    assert!(back.whole && host_port(&back) == Some(1001), "{back:#?}");
}

#[test]
fn a_directory_that_is_read_only_is_followed_without_a_marker_and_never_emptied_by_an_unmount() {
    let bench = Bench::new();
    write_app(&bench.path("lower"), 1001);
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(Some(&bench.path("lower")), &bench.path("desired"), None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    mount(None::<&str>, &bench.path("desired"), None::<&str>, flags, None::<&str>).unwrap();
    let first = bench.read();
    assert!(first.whole && host_port(&first) == Some(1001), "{first:#?}");
    umount(&bench.path("desired")).unwrap();
    let gone = bench.read();
    assert!(!gone.whole && host_port(&gone) == Some(1001), "{gone:#?}");
}

#[test]
fn a_full_state_disk_keeps_what_it_has_and_catches_up() {
    let bench = Bench::new();
    bench.tmpfs("state", "size=64k");
    write_app(&bench.path("desired"), 1001);
    bench.read();
    fs::write(bench.path("state/ballast"), vec![0u8; 1 << 20]).unwrap_err();
    write_app(&bench.path("desired"), 1002);
    let mut source = Directory::open(bench.options());
    let full = source.refresh().unwrap();
    assert_eq!(host_port(&full), Some(1002), "the edit counts all the same");
    assert!(full.findings.iter().any(|finding| finding.message.contains("cannot be written")), "{full:#?}");
    // Killed now, the next agent finds the content before.
    fs::write(bench.path("desired/a.yaml"), "broken: [").unwrap();
    let after = bench.read();
    assert_eq!(host_port(&after), Some(1001), "{after:#?}");
    write_app(&bench.path("desired"), 1002);
    fs::remove_file(bench.path("state/ballast")).unwrap();
    let freed = source.refresh().unwrap();
    assert!(!freed.findings.iter().any(|finding| finding.message.contains("cannot be written")), "{freed:#?}");
    fs::write(bench.path("desired/a.yaml"), "broken: [").unwrap();
    assert_eq!(host_port(&bench.read()), Some(1002));
}

#[test]
fn an_edit_that_sends_no_event_is_found_by_the_sweep() {
    let bench = Bench::new();
    // Overlayfs takes no upper layer on another overlayfs, which the machine's own root may be.
    bench.tmpfs("upper", "size=1m");
    let layer = |name: &str| {
        let path = bench.path("upper").join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (lower, upper, work) = (layer("lower"), layer("upper"), layer("work"));
    write_app(&lower, 1001);
    let layers = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    mount(Some("overlay"), &bench.path("desired"), Some("overlay"), MsFlags::empty(), Some(layers.as_str())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut pictures = Box::pin(Directory::open(bench.options()).stream());
        assert_eq!(host_port(&pictures.next().await.unwrap()), Some(1001));
        // An edit of the lower layer is not seen through the overlay's own inodes.
        write_app(&lower, 1002);
        // Time stands still but for the timers: thirty seconds pass at once.
        let began = tokio::time::Instant::now();
        let picture = tokio::time::timeout(Duration::from_secs(120), pictures.next()).await.unwrap().unwrap();
        assert_eq!(host_port(&picture), Some(1002));
        assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
    });
}
