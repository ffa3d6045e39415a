//! # containerd: the runtime
//!
//! Looks at containers, tasks, snapshots, images and leases in one namespace of containerd, carries out the steps on
//! them, and says when to look again.
//!
//! Guarantees: one lazy connection without keepalive and a deadline for every call; a look is whole or unseen; an error
//! is classified here by gRPC code, transport and errno; a step on a container compares when it was made, a step on a
//! task its process; an exit is witnessed by a pidfd that is taken before the start.
//!
//! Never: a decision, a retry, a memory of what was done (the caches hold only what cannot change, or only wake).
//!
//! Tests: beside each part; on real containerds in `tests/driver_containerd.rs`.

mod containers;
pub(in crate::drive) mod documents;
mod echoes;
mod error;
pub(in crate::drive) mod hold;
pub(in crate::drive) mod images;
mod journal;
mod known;
mod labels;
mod link;
mod look;
mod pidfd;
mod process;
mod runtime;
mod shims;
mod signal;
mod snapshots;
pub mod spec;
mod task_state;
mod tasks;
mod turns;
mod wakes;
mod witness;

pub use error::CallError;
pub use hold::FILE as IMPORT_LOCKS;
pub(in crate::drive) use process::after_hours;
pub use process::start_ticks;

use crate::drive::{Counters, image};
use crate::model::{AppName, InstanceKey, Marks, Outcome, Step, Stopping};
use documents::{Config, Documents};
use echoes::Echoes;
use images::Resolved;
use journal::Journal;
use known::Known;
use link::Link;
use std::path::PathBuf;
use std::sync::Arc;
use witness::Witness;

/// The snapshotter of every snapshot of ours.
pub(in crate::drive) const SNAPSHOTTER: &str = "overlayfs";
/// The runtime of every container of ours.
const RUNTIME: &str = "io.containerd.runc.v2";

/// Where things are, and whose they are.
#[derive(Debug, Clone)]
pub struct Options {
    /// containerd's socket.
    pub socket: PathBuf,
    /// The agent's marks: its name is the namespace.
    pub marks: Marks,
    /// Files that live as long as this boot (`/run/stead`): `instances/`, `exits/`, `imports.lock`.
    pub run_dir: PathBuf,
    /// Logs, one file an instance (`/var/log/stead`).
    pub log_dir: PathBuf,
    /// Volumes, by app and name.
    pub volumes_dir: PathBuf,
    /// Where calls are counted.
    pub counters: Arc<Counters>,
}

/// The driver. Cloning shares the connection and the witnesses.
#[derive(Debug, Clone)]
pub struct Containerd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    link: Link,
    boot: String,
    documents: Documents,
    witness: Witness,
    known: Known,
    echoes: Echoes,
}

impl Containerd {
    /// Prepares the driver; containerd need not be there yet. Needs a tokio runtime.
    pub fn new(options: Options) -> Self {
        let link = Link::new(&options.socket, options.marks.agent(), Arc::clone(&options.counters));
        // Without /proc nothing else works either; an empty boot only makes a vanished task look like any other.
        let boot = process::boot_id().unwrap_or_default();
        let witness = Witness::new(Journal::new(options.run_dir.join("exits")));
        let inner = Inner {
            link,
            boot,
            documents: Documents::default(),
            witness,
            known: Known::default(),
            echoes: Echoes::default(),
            options,
        };
        Self { inner: Arc::new(inner) }
    }

    /// containerd's version, as it tells it.
    pub async fn version(&self) -> Result<String, CallError> {
        let link = self.link();
        let answer = link.read("Version", link::READ, link.version().version(link.request(()))).await?;
        Ok(answer.version)
    }

    /// Does one step of this domain, once.
    pub async fn perform(&self, step: Step) -> Outcome {
        self.attempt(&step).await.unwrap_or_else(Outcome::from)
    }

    async fn attempt(&self, step: &Step) -> Result<Outcome, CallError> {
        match step {
            Step::ImportImage { reference, archive } => image::import_step(self, reference, archive).await,
            Step::UnpackImage { reference } => image::unpack_step(self, reference).await,
            Step::DropLease { id } => image::drop_lease(self, id).await,
            Step::EndShim { id, pid, start_ticks } => self.end_shim(id, *pid, *start_ticks).await,
            Step::PrepareSnapshot { instance, key, parent } => self.prepare_snapshot(instance, key, parent).await,
            Step::CreateContainer(ask) => self.create_container(ask).await,
            Step::CreateTask { container } => self.create_task(container).await,
            Step::RecordRun { container, run } => self.record_run(container, run).await,
            Step::StartTask { container, pid } => self.start_task(container, *pid).await,
            Step::RecordExit { container, exit } => self.record_exit(container, exit).await,
            Step::StopTask { container, pid, start_ticks, signal, at, unhealthy } => {
                let mark = Stopping { at: *at, revoked: false, unhealthy: *unhealthy };
                self.stop_task(container, *pid, *start_ticks, signal, mark).await
            }
            Step::KillTask { container, pid } => self.kill_task(container, *pid).await,
            Step::DeleteTask { container, pid } => self.delete_task(container, *pid).await,
            Step::RevokeStop { container } => self.revoke_stop(container).await,
            Step::UpdateRecord { container, instance, limits_of, record } => {
                self.update_record(container, instance, *limits_of, record).await
            }
            Step::DeleteContainer { container } => self.delete_container(container).await,
            Step::RemoveSnapshot { key } => self.remove_snapshot(key).await,
            other => Err(CallError::invalid(format!("{} is no step of the runtime", other.name()))),
        }
    }

    /// The config of the image that a record was made from.
    async fn image_config(&self, digest: &str) -> Result<Arc<Config>, CallError> {
        match self.resolve(digest).await? {
            Resolved::Image { config, .. } => Ok(config),
            Resolved::Incomplete => Err(CallError::missing(format!("the image {digest} is not whole"))),
            Resolved::WrongPlatform(has) => {
                Err(CallError::invalid(format!("the image {digest} is for {} only", has.join(", "))))
            }
        }
    }

    /// The log of an instance.
    pub fn log_path(&self, instance: &InstanceKey) -> PathBuf {
        crate::drive::files::log_file(&self.inner.options.log_dir, instance)
    }

    pub(in crate::drive) fn link(&self) -> &Link {
        &self.inner.link
    }

    pub(in crate::drive) fn marks(&self) -> &Marks {
        &self.inner.options.marks
    }

    pub(in crate::drive) fn documents(&self) -> &Documents {
        &self.inner.documents
    }

    /// The file of the locks that importers hold.
    pub(in crate::drive) fn holds_file(&self) -> PathBuf {
        self.inner.options.run_dir.join(hold::FILE)
    }

    fn boot(&self) -> &str {
        &self.inner.boot
    }

    fn witness(&self) -> &Witness {
        &self.inner.witness
    }

    fn known(&self) -> &Known {
        &self.inner.known
    }

    fn echoes(&self) -> &Echoes {
        &self.inner.echoes
    }

    fn instance_files(&self, instance: &InstanceKey) -> PathBuf {
        let folder = self.inner.options.run_dir.join("instances").join(instance.app.as_str());
        folder.join(instance.service.as_str()).join(instance.replica.to_string())
    }

    fn volumes_root(&self) -> &std::path::Path {
        &self.inner.options.volumes_dir
    }

    fn volumes_folder(&self, app: &AppName) -> PathBuf {
        self.inner.options.volumes_dir.join(app.as_str())
    }
}
