//! What the tests share: a containerd under the test's own hand, the driver on it, and short ways through a life.

use crate::support::{BUSYBOX, CONFIG, SOCKET, Version, await_until, busybox_archive};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stead::drive::Counters;
use stead::drive::containerd::{Containerd, Options, start_ticks};
use stead::drive::image;
use stead::model::{
    AgentName, AppName, ContainerIdentity, ContainerSeen, CreateContainer, ImageUse, InstanceKey, Marks, NetnsIdentity,
    Outcome, Record, Run, RuntimeSide, ServiceName, SpecDigest, Step, TaskSeen, Timestamp,
};

/// Makes one test for each containerd out of an `async fn(Rig)`.
macro_rules! on_both {
    ($(#[$doc:meta])* $name:ident) => {
        mod $name {
            use crate::rig::run;
            use crate::support::{Node, Version, inside};

            $(#[$doc])*
            #[test]
            fn v1_6() {
                inside(|| Node::bare(Version::V1_6), |dir| run(Version::V1_6, dir, super::$name));
            }

            $(#[$doc])*
            #[test]
            fn v1_7() {
                inside(|| Node::bare(Version::V1_7), |dir| run(Version::V1_7, dir, super::$name));
            }
        }
    };
}
pub(crate) use on_both;

pub const NAMESPACE: &str = "stead";

/// Runs a test's body on a fresh rig.
pub fn run<F: Future<Output = ()>>(version: Version, dir: &Path, body: impl FnOnce(Rig) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let rig = Rig::new(version, dir);
        body(rig).await;
    });
}

/// A containerd and the driver on it.
pub struct Rig {
    pub version: Version,
    pub dir: PathBuf,
    pub driver: Containerd,
    pub counters: Arc<Counters>,
    containerd: Option<Child>,
}

impl Rig {
    fn new(version: Version, dir: &Path) -> Self {
        let counters = Arc::new(Counters::default());
        let driver = Containerd::new(options(&counters));
        let mut rig = Self { version, dir: dir.to_path_buf(), driver, counters, containerd: None };
        rig.up();
        rig
    }

    /// The driver of an agent that was started anew: nothing is remembered.
    pub fn restart_driver(&mut self) {
        self.driver = Containerd::new(options(&self.counters));
    }

    /// Starts containerd and waits until it listens.
    pub fn up(&mut self) {
        fs::write("/etc/containerd/config.toml", CONFIG).unwrap();
        let log = fs::File::options().create(true).append(true).open(self.dir.join("containerd.log")).unwrap();
        let mut command = Command::new(self.version.program());
        command.env("PATH", self.version.path()).args(["--log-level", "debug"]).stdout(log.try_clone().unwrap());
        self.containerd = Some(command.stderr(log).spawn().unwrap());
        await_until("containerd to listen", Duration::from_secs(60), || {
            std::os::unix::net::UnixStream::connect(SOCKET).map(drop).map_err(|error| error.to_string())
        });
    }

    /// Ends containerd; shims and tasks stay.
    pub fn down(&mut self, signal: Signal) {
        let mut child = self.containerd.take().expect("containerd runs");
        kill(pid_of(child.id()), signal).unwrap();
        child.wait().unwrap();
    }

    /// Sends containerd a signal.
    pub fn signal(&self, signal: Signal) {
        kill(pid_of(self.containerd.as_ref().expect("containerd runs").id()), signal).unwrap();
    }

    pub fn writes(&self) -> u64 {
        self.counters.containerd_writes.load(Ordering::Relaxed)
    }

    pub fn ctr(&self, arguments: &str) -> String {
        sh(&format!("PATH={} ctr -n {NAMESPACE} {arguments}", self.version.path()))
    }

    /// Imports busybox, and answers its digest and chain id.
    pub async fn busybox(&self) -> (String, String) {
        let archive = busybox_archive(&self.dir);
        image::import(&self.driver, &archive, BUSYBOX, None, &mut |_| {}).await.unwrap();
        let image = self.driver.look_image(BUSYBOX).await.seen().cloned().flatten().expect("imported");
        match image.usable {
            ImageUse::Ready { chain_id, .. } => (image.digest, chain_id),
            other => panic!("not ready: {other:?}"),
        }
    }

    /// Does a step that must succeed.
    #[track_caller]
    pub fn done(&self, step: Step) -> impl Future<Output = ()> {
        let name = step.name();
        async move {
            let outcome = self.driver.perform(step).await;
            assert_eq!(outcome, Outcome::Done, "{name}");
        }
    }

    /// Makes the container of an instance from a spec in JSON, with its netns, files and snapshot.
    pub async fn make(&self, key: &InstanceKey, spec: Value) -> ContainerIdentity {
        let (image_digest, chain_id) = self.busybox().await;
        let ask = self.ask(key, spec, image_digest);
        let prepare = Step::PrepareSnapshot { instance: key.clone(), key: ask.snapshot.clone(), parent: chain_id };
        assert!(matches!(self.driver.perform(prepare).await, Outcome::Done | Outcome::Already));
        self.done(Step::CreateContainer(Box::new(ask.clone()))).await;
        identity(&self.container(key).await)
    }

    /// What a container is made from.
    pub fn ask(&self, key: &InstanceKey, spec: Value, image_digest: String) -> CreateContainer {
        let netns = marks().netns(key);
        let path = Path::new("/run/netns").join(&netns);
        if !path.exists() {
            sh(&format!("ip netns add {netns}"));
        }
        let folder = Path::new("/run/stead/instances").join(key.to_string());
        fs::create_dir_all(&folder).unwrap();
        for (name, content) in [("hosts", "127.0.0.1 localhost\n"), ("resolv.conf", ""), ("hostname", "here\n")] {
            fs::write(folder.join(name), content).unwrap();
        }
        let record = record(spec, image_digest);
        let digest = SpecDigest::of(&serde_json::to_vec(&record.spec).unwrap());
        let id = marks().container_id(key, &digest, 0);
        CreateContainer {
            snapshot: id.clone(),
            id,
            instance: key.clone(),
            digest,
            attempt: 0,
            netns: Some(NetnsIdentity { inode: fs::metadata(&path).unwrap().ino(), name: netns }),
            record,
        }
    }

    /// Makes and starts the task of a container, and answers its pid.
    pub async fn start(&self, key: &InstanceKey, container: &ContainerIdentity) -> u32 {
        let made = self.driver.perform(Step::CreateTask { container: container.clone() }).await;
        assert!(matches!(made, Outcome::Done | Outcome::Already), "{made:?}");
        let TaskSeen::Created { pid } = self.container(key).await.task else { panic!("not created") };
        let run = Run { boot: String::new(), pid, at: Timestamp(1), count: 1, ..Run::default() };
        self.done(Step::RecordRun { container: container.clone(), run }).await;
        self.done(Step::StartTask { container: container.clone(), pid }).await;
        pid
    }

    /// The same while containerd may still clean up after the last task: it refuses until it has.
    pub async fn start_again(&self, key: &InstanceKey, container: &ContainerIdentity) -> u32 {
        let mut refused = Vec::new();
        while !matches!(self.container(key).await.task, TaskSeen::Created { .. }) {
            assert!(refused.len() < 100, "{refused:?}");
            refused.push(self.driver.perform(Step::CreateTask { container: container.clone() }).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!self.container(key).await.wedged, "{refused:?}");
        self.start(key, container).await
    }

    /// Makes and starts a container of busybox's shell.
    pub async fn shell(&self, key: &InstanceKey, script: &str) -> (ContainerIdentity, u32) {
        let container = self.make(key, json!({"command": ["sh", "-c", script]})).await;
        let pid = self.start(key, &container).await;
        (container, pid)
    }

    /// An instance's part in containerd.
    pub async fn side(&self, key: &InstanceKey) -> RuntimeSide {
        self.try_side(key).await.expect("containerd answers").unwrap_or_default()
    }

    pub async fn try_side(&self, key: &InstanceKey) -> Result<Option<RuntimeSide>, String> {
        match self.driver.look_instance(key).await {
            stead::model::Sight::Seen(side) => Ok(side),
            stead::model::Sight::Unseen(blind) => Err(blind.why),
        }
    }

    /// The one container of an instance.
    pub async fn container(&self, key: &InstanceKey) -> ContainerSeen {
        let mut side = self.side(key).await;
        assert_eq!(side.containers.len(), 1, "{side:?}");
        side.containers.remove(0)
    }

    /// Waits until the one container of an instance is as it should be.
    pub async fn until<T>(
        &self,
        what: &str,
        key: &InstanceKey,
        check: impl Fn(&ContainerSeen) -> Option<T>,
    ) -> (ContainerSeen, T) {
        let mut last = String::new();
        for _ in 0..1000 {
            match self.try_side(key).await {
                Ok(Some(side)) if side.containers.len() == 1 => {
                    if let Some(found) = check(&side.containers[0]) {
                        return (side.containers[0].clone(), found);
                    }
                    last = format!("{:?}", side.containers[0]);
                }
                other => last = format!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain for: {what}\nlast seen: {last}");
    }

    /// What the instance has written, once it has written `lines` lines.
    pub fn output(&self, key: &InstanceKey, lines: usize) -> Vec<String> {
        let path = self.driver.log_path(key);
        await_until("output", Duration::from_secs(20), || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let found: Vec<String> = text.lines().map(str::to_owned).collect();
            if found.len() >= lines { Ok(found) } else { Err(format!("{found:?}")) }
        })
    }

    /// The pid of the shim of a container.
    pub fn shim(&self, container: &ContainerIdentity) -> u32 {
        let found = sh(&format!("pgrep -f 'containerd-shim-runc-v2.* -id {}( |$)'", container.id));
        found.trim().parse().unwrap_or_else(|_| panic!("not one shim: {found}"))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(child) = &mut self.containerd {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn options(counters: &Arc<Counters>) -> Options {
    Options {
        socket: PathBuf::from(SOCKET),
        marks: marks(),
        run_dir: PathBuf::from("/run/stead"),
        log_dir: PathBuf::from("/var/log/stead"),
        volumes_dir: PathBuf::from("/var/lib/stead/volumes"),
        counters: Arc::clone(counters),
    }
}

pub fn marks() -> Marks {
    Marks::new(AgentName::new(NAMESPACE).unwrap())
}

pub fn key(service: &str) -> InstanceKey {
    InstanceKey { app: AppName::new("shop").unwrap(), service: ServiceName::new(service).unwrap(), replica: 1 }
}

pub fn identity(container: &ContainerSeen) -> ContainerIdentity {
    ContainerIdentity { id: container.id.clone(), created_at: container.created_at }
}

/// A record with the fields of a spec that are given.
pub fn record(spec: Value, image_digest: String) -> Record {
    let mut whole = json!({"image": {"reference": BUSYBOX}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let spec = serde_json::from_value(whole).unwrap();
    Record { spec, image_digest, attachments: Vec::new(), generation: 1, file: "/d/shop.yaml".to_owned() }
}

/// The start time of a process that runs.
pub fn ticks(pid: u32) -> u64 {
    start_ticks(pid).expect("it runs")
}

pub fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap())
}

#[track_caller]
pub fn sh(script: &str) -> String {
    let output = Command::new("bash").args(["-euc", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "`{script}`: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
