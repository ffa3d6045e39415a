//! The directory source on real files: last known good, quiet period, editors' saves, odd entries, conflicts, lost
//! directories. Every test waits for a picture that fits, with a deadline.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use futures::{Stream, StreamExt as _};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stead::desired::{Directory, MARKER, Options};
use stead::model::{AppName, Desired, Severity};

const DEADLINE: Duration = Duration::from_secs(10);

struct Bench {
    root: tempfile::TempDir,
}

type Pictures = Pin<Box<dyn Stream<Item = Arc<Desired>> + Send>>;

impl Bench {
    fn new() -> Self {
        let bench = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(bench.dir()).unwrap();
        bench
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("desired")
    }

    fn options(&self) -> Options {
        Options { dir: self.dir(), state: self.root.path().join("state"), ..Options::default() }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir().join(name), text).unwrap();
    }

    /// One look by a new agent.
    fn read(&self) -> Arc<Desired> {
        Directory::open(self.options()).read()
    }

    fn follow(&self) -> Pictures {
        Box::pin(Directory::open(self.options()).stream())
    }
}

fn web(port: u16) -> String {
    format!("services:\n  web:\n    image: web:1\n    ports: [\"{port}:80\"]\n")
}

fn name(app: &str) -> AppName {
    AppName::new(app).unwrap()
}

fn host_port(desired: &Desired, app: &str) -> Option<u16> {
    desired.apps.get(&name(app))?.services.values().next()?.spec.ports.first()?.host
}

fn messages(desired: &Desired) -> Vec<String> {
    let of_apps = desired.apps.values().flat_map(|app| &app.findings);
    of_apps.chain(&desired.findings).map(|finding| finding.message.clone()).collect()
}

fn says(desired: &Desired, what: &str) -> bool {
    messages(desired).iter().any(|message| message.contains(what))
}

async fn until(pictures: &mut Pictures, what: &str, fits: impl Fn(&Desired) -> bool) -> Arc<Desired> {
    let mut last = None;
    let wait = async {
        loop {
            let picture = pictures.next().await.expect("the source never ends");
            if fits(&picture) {
                return picture;
            }
            last = Some(picture);
        }
    };
    match tokio::time::timeout(DEADLINE, wait).await {
        Ok(picture) => picture,
        Err(_) => panic!("no picture fits: {what}; the last one: {last:#?}"),
    }
}

#[test]
fn a_bad_edit_keeps_the_last_good_content_across_restarts_with_its_place() {
    let bench = Bench::new();
    bench.write("shop.yaml", &web(8080));
    let first = bench.read();
    assert_eq!(host_port(&first, "shop"), Some(8080), "{first:#?}");
    assert!(first.whole && first.apps[&name("shop")].known);
    bench.write("shop.yaml", "services:\n  web:\n    image: web:1\n    prots: [\"81:80\"]\n");
    for _ in 0..2 {
        let bad = bench.read();
        assert_eq!(host_port(&bad, "shop"), Some(8080));
        let finding = &bad.apps[&name("shop")].findings[0];
        assert_eq!((finding.place.line, finding.place.column), (4, 5));
        assert_eq!(finding.hint.as_deref(), Some("did you mean `ports`?"));
        assert_eq!(bad.apps[&name("shop")].generation, first.apps[&name("shop")].generation);
    }
    bench.write("shop.yaml", &web(81));
    let fixed = bench.read();
    assert_eq!(host_port(&fixed, "shop"), Some(81));
    assert!(fixed.apps[&name("shop")].findings.is_empty());
    assert!(fixed.apps[&name("shop")].generation > first.apps[&name("shop")].generation);
}

#[test]
fn generations_count_pictures_and_outlive_the_agent() {
    let bench = Bench::new();
    bench.write("a.yaml", &web(1001));
    let one = bench.read();
    assert_eq!(bench.read().generation, one.generation);
    bench.write("b.yaml", &web(1002));
    let two = bench.read();
    assert_eq!(two.generation, one.generation + 1);
    assert_eq!(two.apps[&name("a")].generation, one.apps[&name("a")].generation);
    assert_eq!(two.apps[&name("b")].generation, two.generation);
}

#[test]
fn removing_a_file_removes_the_app_and_an_emptied_directory_is_believed() {
    let bench = Bench::new();
    bench.write("a.yaml", &web(1001));
    bench.read();
    assert!(bench.dir().join(MARKER).exists());
    fs::remove_file(bench.dir().join("a.yaml")).unwrap();
    let empty = bench.read();
    assert!(empty.whole && empty.apps.is_empty(), "{empty:#?}");
}

#[test]
fn a_directory_that_is_gone_or_another_one_removes_nothing() {
    let bench = Bench::new();
    bench.write("a.yaml", &web(1001));
    bench.read();
    let aside = bench.root.path().join("aside");
    fs::rename(bench.dir(), &aside).unwrap();
    let gone = bench.read();
    assert!(!gone.whole && host_port(&gone, "a") == Some(1001) && says(&gone, "does not exist"), "{gone:#?}");
    fs::create_dir(bench.dir()).unwrap();
    let bare = bench.read();
    assert!(!bare.whole && host_port(&bare, "a") == Some(1001) && says(&bare, "has lost its marker"), "{bare:#?}");
    bench.write("b.yaml", &web(1002));
    let other = bench.read();
    assert!(!other.whole && !other.apps.contains_key(&name("b")), "{other:#?}");
    fs::remove_dir_all(bench.dir()).unwrap();
    fs::rename(&aside, bench.dir()).unwrap();
    let back = bench.read();
    assert!(back.whole && host_port(&back, "a") == Some(1001) && messages(&back).is_empty(), "{back:#?}");
}

#[test]
fn odd_entries_each_give_a_finding_and_hold_up_nothing() {
    let bench = Bench::new();
    bench.write("good.yaml", &web(1001));
    let at = |name: &str| bench.dir().join(name);
    nix::unistd::mkfifo(&at("fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/dev/zero", at("device.yaml")).unwrap();
    fs::File::create(at("huge.yaml")).unwrap().set_len(200 << 20).unwrap();
    fs::write(at("latin.yaml"), b"services:\n  a:\n    image: caf\xe9\n").unwrap();
    fs::write(at("nul.yaml"), b"services:\n  a:\n    image: \0\n").unwrap();
    symlink("nowhere", at("dangling.yaml")).unwrap();
    symlink("loop.yaml", at("loop.yaml")).unwrap();
    std::os::unix::net::UnixListener::bind(at("socket.yaml")).unwrap();
    fs::create_dir(at("folder.yaml")).unwrap();
    bench.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n");
    for ignored in [".hidden.yaml", "#auto#", "good.yaml~", ".good.yaml.swp", "notes.txt", "4913"] {
        bench.write(ignored, "not: [yaml");
    }
    let picture = bench.read();
    for (app, what) in [
        ("fifo", "this is a FIFO"),
        ("device", "this is a device"),
        ("huge", "209715200 bytes"),
        ("latin", "byte 0xE9 is not valid UTF-8"),
        ("nul", "NUL byte"),
        ("dangling", "the symlink leads to a file that does not exist"),
        ("loop", "symlinks lead round in a circle"),
        ("socket", "this is a socket"),
        ("pod", "a Kubernetes manifest"),
    ] {
        let app = &picture.apps[&name(app)];
        assert!(!app.known && app.findings[0].message.contains(what), "{what}: {app:#?}");
    }
    assert_eq!(picture.apps[&name("latin")].findings[0].place.line, 3);
    assert_eq!(host_port(&picture, "good"), Some(1001));
    assert_eq!(picture.apps.len(), 10);
    assert!(says(&picture, "this is a directory"));
}

#[test]
fn the_newcomer_is_refused_whatever_the_order_of_names_and_restarts() {
    let bench = Bench::new();
    bench.write("zebra.yaml", &web(8080));
    bench.read();
    bench.write("aardvark.yaml", &web(8080));
    for _ in 0..3 {
        let picture = bench.read();
        assert_eq!(host_port(&picture, "zebra"), Some(8080));
        let newcomer = &picture.apps[&name("aardvark")];
        assert!(!newcomer.known);
        assert!(newcomer.findings[0].message.contains("8080/tcp belongs to the app `zebra`"));
        assert_eq!(newcomer.findings[0].place.line, 4);
        assert!(newcomer.findings[0].notes[0].place.file.ends_with("zebra.yaml"));
    }
    // Two apps that exchange their ports in one edit do not stand in each other's way.
    bench.write("zebra.yaml", &web(8080));
    bench.write("aardvark.yaml", &web(8081));
    bench.read();
    bench.write("zebra.yaml", &web(8081));
    bench.write("aardvark.yaml", &web(8080));
    let swapped = bench.read();
    assert_eq!((host_port(&swapped, "zebra"), host_port(&swapped, "aardvark")), (Some(8081), Some(8080)));
}

#[test]
fn two_files_for_one_app_are_both_told_and_what_runs_stays() {
    let bench = Bench::new();
    bench.write("one.yaml", &format!("name: shop\n{}", web(8080)));
    bench.read();
    bench.write("another.yaml", &format!("name: shop\n{}", web(9090)));
    let picture = bench.read();
    assert_eq!(host_port(&picture, "shop"), Some(8080));
    let files: Vec<_> =
        picture.apps[&name("shop")].findings.iter().map(|f| f.place.file.file_name().unwrap().to_owned()).collect();
    assert_eq!(files, ["another.yaml", "one.yaml"]);
}

#[test]
fn a_full_state_disk_is_told_and_made_up_for_later() {
    let bench = Bench::new();
    bench.write("a.yaml", &web(1001));
    bench.read();
    // A file where the directory should be refuses every write, as a full disk does.
    let good = bench.root.path().join("state/good");
    let aside = bench.root.path().join("aside");
    fs::rename(&good, &aside).unwrap();
    fs::write(&good, "").unwrap();
    let mut source = Directory::open(bench.options());
    bench.write("b.yaml", &web(1002));
    let picture = source.refresh().unwrap();
    assert_eq!(host_port(&picture, "b"), Some(1002));
    assert!(says(&picture, "cannot be written"), "{picture:#?}");
    fs::remove_file(&good).unwrap();
    fs::rename(&aside, &good).unwrap();
    let after = source.refresh().unwrap();
    assert!(!says(&after, "cannot be written"), "{after:#?}");
    assert!(good.join("b.json").exists());
}

#[test]
fn garbage_in_the_state_is_set_aside() {
    let bench = Bench::new();
    bench.write("a.yaml", &web(1001));
    bench.read();
    let file = bench.root.path().join("state/good/a.json");
    fs::write(&file, "{garbage").unwrap();
    let picture = bench.read();
    assert_eq!(host_port(&picture, "a"), Some(1001));
    assert!(says(&picture, "cannot be used"));
    assert!(file.with_extension("json.bad").exists());
    assert!(picture.findings.iter().all(|finding| finding.severity == Severity::Warning));
}

#[tokio::test]
async fn each_editors_way_of_saving_is_one_change() {
    let bench = Bench::new();
    let path = bench.dir().join("a.yaml");
    bench.write("a.yaml", &web(1000));
    let mut pictures = bench.follow();
    until(&mut pictures, "first", |picture| host_port(picture, "a") == Some(1000)).await;
    let saves: [fn(&Path, &str); 5] = [
        // Truncate and write in place, in two parts.
        |path, text| {
            use std::io::Write as _;
            let mut file = fs::File::create(path).unwrap();
            let (head, tail) = text.split_at(text.len() / 2);
            file.write_all(head.as_bytes()).unwrap();
            file.flush().unwrap();
            file.write_all(tail.as_bytes()).unwrap();
        },
        // A new file renamed over the old one.
        |path, text| {
            let new = path.with_file_name(".a.yaml.new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, path).unwrap();
        },
        // The old one renamed to a backup, then a new one.
        |path, text| {
            fs::rename(path, path.with_file_name("a.yaml~")).unwrap();
            fs::write(path, text).unwrap();
        },
        // Removed, then written.
        |path, text| {
            fs::write(path.with_file_name("4913"), "").unwrap();
            fs::remove_file(path.with_file_name("4913")).unwrap();
            fs::remove_file(path).unwrap();
            fs::write(path, text).unwrap();
        },
        // A hard link put in its place.
        |path, text| {
            let new = path.with_file_name(".a.link");
            fs::write(&new, text).unwrap();
            fs::remove_file(path).unwrap();
            fs::hard_link(&new, path).unwrap();
            fs::remove_file(&new).unwrap();
        },
    ];
    for (port, save) in (1001..).zip(saves) {
        save(&path, &web(port));
        let picture = pictures.next().await.unwrap();
        assert_eq!(host_port(&picture, "a"), Some(port), "the first picture after a save has the whole of it");
    }
}

#[tokio::test]
async fn a_file_in_the_middle_of_being_written_does_not_count() {
    use std::io::Write as _;
    let bench = Bench::new();
    let services =
        |port: u16| format!("services:\n  web: {{image: web, ports: [\"{port}:80\"]}}\n  db: {{image: db}}\n");
    bench.write("a.yaml", &services(1001));
    bench.write("b.yaml", &web(2001));
    let mut pictures = bench.follow();
    let both = |picture: &Desired| picture.apps[&name("a")].services.len() == 2;
    until(&mut pictures, "first", both).await;
    // What is there so far is a whole file by itself, with one service less.
    let text = services(1002);
    let (head, tail) = text.split_at(text.find("  db").unwrap());
    let mut file = fs::File::create(bench.dir().join("a.yaml")).unwrap();
    file.write_all(head.as_bytes()).unwrap();
    bench.write("b.yaml", &web(2002));
    let between = until(&mut pictures, "the other app", |picture| host_port(picture, "b") == Some(2002)).await;
    assert!(both(&between), "{between:#?}");
    file.write_all(tail.as_bytes()).unwrap();
    drop(file);
    let after = pictures.next().await.unwrap();
    assert!(both(&after) && messages(&after).is_empty(), "{after:#?}");
    let web = &after.apps[&name("a")].services.values().nth(1).unwrap().spec;
    assert_eq!(web.ports[0].host, Some(1002));
}

#[tokio::test]
async fn a_symlink_swap_changes_the_whole_set_at_once() {
    let bench = Bench::new();
    let dir = bench.dir();
    for (version, port) in [("..v1", 1001), ("..v2", 2001)] {
        fs::create_dir(dir.join(version)).unwrap();
        fs::write(dir.join(version).join("a.yaml"), web(port)).unwrap();
    }
    symlink("..v1", dir.join("..data")).unwrap();
    symlink("..data/a.yaml", dir.join("a.yaml")).unwrap();
    let mut pictures = bench.follow();
    until(&mut pictures, "first", |picture| host_port(picture, "a") == Some(1001)).await;
    symlink("..v2", dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    until(&mut pictures, "swapped", |picture| host_port(picture, "a") == Some(2001)).await;
    // An edit of the file behind the links is seen as well.
    fs::write(dir.join("..v2/a.yaml"), web(3001)).unwrap();
    until(&mut pictures, "edited behind", |picture| host_port(picture, "a") == Some(3001)).await;
}

#[tokio::test]
async fn folders_overrides_and_env_files_are_followed() {
    let bench = Bench::new();
    let folder = bench.dir().join("shop");
    let mut pictures = bench.follow();
    until(&mut pictures, "empty", |picture| picture.apps.is_empty()).await;
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(".env"), "PORT=1001\n").unwrap();
    fs::write(folder.join("compose.yaml"), "services: {web: {image: web, ports: [\"${PORT}:80\"]}}\n").unwrap();
    until(&mut pictures, "new folder", |picture| host_port(picture, "shop") == Some(1001)).await;
    fs::write(folder.join(".env"), "PORT=1002\n").unwrap();
    until(&mut pictures, "env edit", |picture| host_port(picture, "shop") == Some(1002)).await;
    bench.write("shop.override.yaml", "services: {web: {scale: 3}}\n");
    let over = until(&mut pictures, "override", |picture| {
        picture.apps.values().any(|app| app.services.values().any(|service| service.replicas == 3))
    });
    over.await;
    fs::remove_dir_all(&folder).unwrap();
    until(&mut pictures, "removed", |picture| picture.apps.is_empty() && says(picture, "no app `shop`")).await;
}

#[tokio::test]
async fn a_lost_directory_is_found_again() {
    let bench = Bench::new();
    bench.write("a.yaml", &web(1001));
    let mut pictures = bench.follow();
    until(&mut pictures, "first", |picture| picture.whole).await;
    let aside = bench.root.path().join("aside");
    fs::rename(bench.dir(), &aside).unwrap();
    until(&mut pictures, "lost", |picture| !picture.whole && host_port(picture, "a") == Some(1001)).await;
    fs::write(aside.join("a.yaml"), web(1002)).unwrap();
    fs::rename(&aside, bench.dir()).unwrap();
    until(&mut pictures, "back", |picture| picture.whole && host_port(picture, "a") == Some(1002)).await;
}

#[test]
fn a_folder_that_cannot_be_looked_into_keeps_its_app() {
    let bench = Bench::new();
    let folder = bench.dir().join("shop");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("compose.yaml"), web(1001)).unwrap();
    bench.read();
    fs::rename(&folder, bench.root.path().join("elsewhere")).unwrap();
    symlink("nowhere", &folder).unwrap();
    let picture = bench.read();
    assert!(picture.whole && host_port(&picture, "shop") == Some(1001), "{picture:#?}");
    assert!(says(&picture, "cannot be looked into"));
    fs::set_permissions(bench.dir(), fs::Permissions::from_mode(0o755)).unwrap();
}
