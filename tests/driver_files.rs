//! The file driver on a real file system.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use futures::StreamExt as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stead::drive::Counters;
use stead::drive::files::{Files, Options, instance_dir, volume_dir};
use stead::model::{Domain, FilesSeen, InstanceFile, InstanceFiles, InstanceKey, Key, Outcome, Scope, Step, VolumeKey};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(5);

struct Lab {
    files: Files,
    options: Options,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("etc")).unwrap();
        fs::create_dir_all(at("resolve")).unwrap();
        let options = Options {
            resolv_conf: at("etc/resolv.conf"),
            resolv_conf_behind_stub: at("resolve/resolv.conf"),
            ..Options::at(at("run"), at("log"), at("volumes"), Arc::<Counters>::default())
        };
        Self { files: Files::new(options.clone()), options, folder }
    }

    async fn perform(&self, step: Step) -> Outcome {
        self.files.perform(step).await
    }

    async fn write(&self, key: &InstanceKey, file: InstanceFile, content: &str) {
        let step = Step::WriteFile { instance: key.clone(), file, content: content.into() };
        assert_eq!(self.perform(step).await, Outcome::Done);
    }

    async fn seen(&self) -> FilesSeen {
        self.files.look_files().await.seen().cloned().expect("the files can be looked at")
    }

    async fn one(&self, key: &InstanceKey) -> Option<InstanceFiles> {
        self.files.look_instance(key).await.seen().cloned().expect("the files can be looked at")
    }

    fn path(&self, key: &InstanceKey, name: &str) -> PathBuf {
        instance_dir(&self.options.run_dir, key).join(name)
    }
}

fn key(text: &str) -> InstanceKey {
    text.parse().unwrap()
}

fn volume(app: &str, name: &str) -> VolumeKey {
    VolumeKey { app: app.parse().unwrap(), volume: name.parse().unwrap() }
}

#[tokio::test]
async fn files_are_seen_as_they_were_written_and_go_without_a_trace() {
    let lab = Lab::new();
    assert_eq!(lab.seen().await, FilesSeen::default());
    // `.` and `..` are good names for a service.
    let keys = ["shop/web/1", "shop/web/12", "shop/./1", "shop/../1", "blog/a.b_C-d/3"].map(key);
    for key in &keys {
        assert_eq!(lab.one(key).await, None);
        lab.write(key, InstanceFile::Hosts, &format!("hosts of {key}")).await;
        lab.write(key, InstanceFile::ResolvConf, "").await;
    }
    let seen = lab.seen().await;
    assert_eq!(seen.instances.keys().cloned().collect::<std::collections::BTreeSet<_>>(), keys.clone().into());
    for key in &keys {
        let files = InstanceFiles {
            hosts: Some(format!("hosts of {key}")),
            resolv_conf: Some(String::new()),
            ..InstanceFiles::default()
        };
        assert_eq!(lab.one(key).await.as_ref(), Some(&files));
        assert_eq!(seen.instances[key], files);
    }
    for key in &keys {
        assert_eq!(lab.perform(Step::DropFiles { instance: key.clone() }).await, Outcome::Done);
        assert_eq!(lab.one(key).await, None);
    }
    assert_eq!(lab.perform(Step::DropFiles { instance: keys[0].clone() }).await, Outcome::Already);
    assert_eq!(fs::read_dir(lab.options.run_dir.join("instances")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_file_is_changed_in_place_and_never_empty_for_a_reader() {
    let lab = Lab::new();
    let web = key("shop/web/1");
    lab.write(&web, InstanceFile::Hosts, &"long ".repeat(10_000)).await;
    let path = lab.path(&web, "hosts");
    let before = fs::metadata(&path).unwrap();
    assert_eq!(before.mode() & 0o777, 0o644);
    let reader = std::thread::spawn({
        let path = path.clone();
        move || {
            loop {
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.is_empty());
                if text == "end" {
                    return;
                }
            }
        }
    });
    for round in 0..100 {
        lab.write(&web, InstanceFile::Hosts, &format!("{round} ").repeat(1 + 1000 * (round % 7))).await;
    }
    lab.write(&web, InstanceFile::Hosts, "end").await;
    reader.join().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino(), "it is mounted into the instance");
    assert_eq!(fs::read_to_string(&path).unwrap(), "end");
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone_and_blinds_nobody() {
    let lab = Lab::new();
    let web = key("shop/web/1");
    lab.write(&web, InstanceFile::Hosts, "x").await;
    let root = lab.options.run_dir.join("instances");
    let precious = lab.folder.path().join("precious");
    fs::write(&precious, "keep").unwrap();
    for foreign in ["UPPER/x/1", "shop/web/01", "shop/web/+1", "shop/web/one", "shop/we%b/1"] {
        fs::create_dir_all(root.join(foreign)).unwrap();
    }
    fs::write(root.join("file"), "").unwrap();
    fs::write(root.join("shop/web/2"), "no folder").unwrap();
    fs::create_dir(lab.path(&web, "hostname")).unwrap();
    symlink(&precious, lab.path(&web, "resolv.conf")).unwrap();
    let seen = lab.seen().await;
    assert_eq!(seen.instances.keys().collect::<Vec<_>>(), [&web]);
    assert_eq!(seen.instances[&web], InstanceFiles { hosts: Some("x".into()), ..InstanceFiles::default() });

    lab.write(&web, InstanceFile::ResolvConf, "ours").await;
    assert_eq!(fs::read_to_string(&precious).unwrap(), "keep", "no link is followed");
    assert_eq!(lab.one(&web).await.unwrap().resolv_conf.as_deref(), Some("ours"));
    let step = Step::WriteFile { instance: web.clone(), file: InstanceFile::Hostname, content: "x".into() };
    let Outcome::Refused(cause) = lab.perform(step).await else { panic!("a folder was written to") };
    assert!(cause.message.contains("hostname"), "{cause:?}");

    // Whatever a workload writes into its file is not loaded without a bound.
    fs::write(lab.path(&web, "hosts"), vec![0xff; 3 << 20]).unwrap();
    assert!(lab.one(&web).await.unwrap().hosts.unwrap().len() < 4 << 20);
    symlink(&precious, lab.path(&web, "link")).unwrap();
    assert_eq!(lab.perform(Step::DropFiles { instance: web }).await, Outcome::Done);
    assert!(precious.exists());
    assert!(root.join("shop/web/one").exists() && root.join("UPPER/x/1").exists());
}

#[tokio::test]
async fn a_volume_is_made_once_and_never_removed() {
    let lab = Lab::new();
    let (data, odd) = (volume("shop", "data"), volume("shop", ".."));
    for key in [&data, &odd] {
        assert_eq!(lab.files.look_volume(key).await.seen(), Some(&false));
        let step = || Step::MakeVolume { volume: key.clone() };
        assert_eq!(lab.perform(step()).await, Outcome::Done);
        assert_eq!(lab.perform(step()).await, Outcome::Already);
        assert_eq!(lab.files.look_volume(key).await.seen(), Some(&true));
        assert_eq!(fs::metadata(volume_dir(&lab.options.volumes_dir, key)).unwrap().mode() & 0o777, 0o755);
    }
    fs::write(lab.options.volumes_dir.join("shop/file"), "").unwrap();
    assert_eq!(lab.seen().await.volumes, [data, odd].into());
    fs::write(lab.options.volumes_dir.join("blog"), "").unwrap();
    let Outcome::Refused(cause) = lab.perform(Step::MakeVolume { volume: volume("blog", "data") }).await else {
        panic!("a directory was made in a file")
    };
    assert!(cause.message.contains("volumes/blog/data"), "{cause:?}");
}

#[tokio::test]
async fn a_tree_that_cannot_be_read_is_unseen() {
    let lab = Lab::new();
    // A link that leads to itself cannot be told from something that is there.
    fs::create_dir_all(lab.options.run_dir.join("instances")).unwrap();
    symlink("shop", lab.options.run_dir.join("instances/shop")).unwrap();
    assert!(!lab.files.look_files().await.is_seen());
    assert!(!lab.files.look_instance(&key("shop/web/1")).await.is_seen());
}

#[tokio::test]
async fn the_resolver_is_the_one_behind_the_stub() {
    let lab = Lab::new();
    let servers = async || lab.seen().await.resolver.servers.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(servers().await.is_empty());
    fs::write(&lab.options.resolv_conf, "nameserver 127.0.0.53\nsearch stub.example\n").unwrap();
    assert_eq!(servers().await, ["127.0.0.53"]);
    fs::write(&lab.options.resolv_conf_behind_stub, "nameserver 192.0.2.1\nsearch true.example\n").unwrap();
    assert_eq!(servers().await, ["192.0.2.1"]);
    assert_eq!(lab.seen().await.resolver.search, ["true.example"]);
    fs::write(&lab.options.resolv_conf, "nameserver 192.0.2.2\nnameserver 127.0.0.1\n").unwrap();
    assert_eq!(servers().await, ["192.0.2.2", "127.0.0.1"]);
}

#[tokio::test]
async fn changes_ring_for_what_they_concern() {
    let lab = Lab::new();
    let (web, data) = (key("shop/web/1"), volume("shop", "data"));
    fs::write(&lab.options.resolv_conf_behind_stub, "nameserver 192.0.2.1\n").unwrap();
    symlink(&lab.options.resolv_conf_behind_stub, &lab.options.resolv_conf).unwrap();
    let mut wakes = Box::pin(lab.files.wakes());
    lab.write(&web, InstanceFile::Hosts, "one").await;
    lab.perform(Step::MakeVolume { volume: data.clone() }).await;
    let mut rings = async |scope: Scope, cause: &str| {
        let found = async { while wakes.next().await.unwrap().scope != scope {} };
        assert!(timeout(SOON, found).await.is_ok(), "nothing rang for {scope:?} after: {cause}");
        while timeout(Duration::from_millis(60), wakes.next()).await.is_ok() {}
    };
    let instance = || Scope::Part(Key::Instance(web.clone()), Domain::Files);
    let domain = || Scope::Domain(Domain::Files);
    // What came before its folder was watched is covered by the ring for the folder.
    rings(domain(), "an app's first folder").await;
    fs::write(lab.path(&web, "hosts"), "two").unwrap();
    rings(instance(), "a file written").await;
    fs::remove_file(lab.path(&web, "hosts")).unwrap();
    rings(instance(), "a file removed").await;
    fs::remove_dir_all(lab.path(&web, "")).unwrap();
    rings(instance(), "an instance's folder removed").await;
    fs::remove_dir_all(lab.options.run_dir.join("instances/shop")).unwrap();
    rings(domain(), "an app's folder removed").await;
    fs::remove_dir_all(lab.options.volumes_dir.join("shop/data")).unwrap();
    rings(Scope::Part(Key::Volume(data), Domain::Files), "a volume removed").await;

    fs::write(&lab.options.resolv_conf_behind_stub, "nameserver 192.0.2.9\n").unwrap();
    rings(domain(), "the resolver written through its link").await;
    fs::create_dir(lab.folder.path().join("elsewhere")).unwrap();
    let elsewhere = lab.folder.path().join("elsewhere/other.conf");
    fs::write(&elsewhere, "nameserver 192.0.2.3\n").unwrap();
    fs::remove_file(&lab.options.resolv_conf).unwrap();
    symlink(&elsewhere, &lab.options.resolv_conf).unwrap();
    rings(domain(), "the resolver's link led elsewhere").await;
    fs::write(&elsewhere, "nameserver 192.0.2.4\n").unwrap();
    rings(domain(), "the resolver written at its new place").await;

    fs::remove_dir_all(lab.options.run_dir.join("instances")).unwrap();
    let again = async { while wakes.next().await.unwrap().because != "listening again" {} };
    timeout(SOON, again).await.expect("the root is made and watched again");
    lab.write(&web, InstanceFile::Hosts, "three").await;
    let found = async { while wakes.next().await.unwrap().scope != domain() {} };
    timeout(SOON, found).await.expect("a folder in the new root rings");
}
