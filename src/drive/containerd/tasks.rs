//! Steps on tasks. Each looks first whether the container and the process are the ones it was decided on.

use super::error::CallError;
use super::link::{SHIM, WRITE};
use super::{Containerd, labels, look, process, runtime, signal, spec};
use crate::model::{ContainerIdentity, InstanceKey, MountSource, Outcome, Record, Stopping};
use containerd_client::services::v1::{
    Container, CreateTaskRequest, DeleteTaskRequest, KillRequest, StartRequest, UpdateTaskRequest,
};
use containerd_client::types::v1::{Process, Status};
use prost_types::Any;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tonic::Code;

/// Where containerd looks up how to read resources.
const RESOURCES_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";
const SIGKILL: u32 = 9;

impl Containerd {
    /// Makes the task; its process waits, and its exit is witnessed from here on.
    pub(super) async fn create_task(&self, identity: &ContainerIdentity) -> Result<Outcome, CallError> {
        let container = self.same_container(identity).await?;
        let instance = labels::instance(&container.labels).ok_or(CallError::Moved)?;
        let record = look::record(&container)
            .ok_or_else(|| CallError::invalid("the container's record cannot be read by this version"))?;
        self.prepare_sources(&instance, &record)?;
        let log = self.log_file(&instance)?;
        let rootfs = self.mounts(&container.snapshot_key).await?;
        let streams = self.streams(&instance, &record, &log)?;
        let id = &identity.id;
        let request = self.link().request(CreateTaskRequest {
            container_id: id.clone(),
            rootfs,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
            terminal: record.spec.setup.tty,
            options: runtime::options(&record.spec),
            ..CreateTaskRequest::default()
        });
        let echo = self.echoes().expect("/tasks/create", id);
        match self.link().write("Tasks.Create", id, SHIM, self.link().tasks().create(request)).await {
            Ok(answer) => {
                if let Err(error) = self.witness().arm(&instance, id, answer.pid, None) {
                    tracing::warn!(container = id, pid = answer.pid, %error, "its exit will not be witnessed");
                }
                Ok(Outcome::Done)
            }
            Err(error) => {
                echo.cancel();
                if error.already_exists() {
                    return self.half_made(identity, &container).await;
                }
                if !error.is_unsure() && self.clear_bundle(id).await? {
                    return Err(CallError::Answer {
                        what: "Tasks.Create",
                        code: Code::AlreadyExists,
                        message: "containerd's crash had left the task's bundle; it has been cleared".to_owned(),
                    });
                }
                Err(self.explain(error, &container).await)
            }
        }
    }

    /// containerd refuses to make a task that it has, or that it has half of (left by its own crash on 1.6).
    async fn half_made(&self, identity: &ContainerIdentity, container: &Container) -> Result<Outcome, CallError> {
        if self.get_task(&identity.id).await?.is_some() {
            return Ok(Outcome::Already);
        }
        // A half that a crash has left answers NotFound here, and is cleared all the same. Any other error means that
        // containerd is at it itself (the clean-up after a dead shim), which ends by itself.
        match self.call_delete(&identity.id).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let cured = container.labels.get(labels::WEDGED).is_some_and(|text| !text.is_empty());
        let mark = if cured { "1" } else { "cured" };
        self.set_labels(identity, &[(labels::WEDGED, mark.to_owned())]).await?;
        Err(CallError::Answer {
            what: "Tasks.Create",
            code: Code::AlreadyExists,
            message: "containerd kept half of an earlier task; it is being cleared".to_owned(),
        })
    }

    /// What was missing, when a failed create does not say it by its code.
    async fn explain(&self, error: CallError, container: &Container) -> CallError {
        if error.is_unsure() || matches!(error, CallError::Transport { .. }) {
            return error;
        }
        if let Ok(None) = self.stat_snapshot(&container.snapshot_key).await {
            return CallError::missing(format!("the snapshot `{}` is not there any more", container.snapshot_key));
        }
        let Ok(mounts) = self.mounts(&container.snapshot_key).await else { return error };
        match spec::missing_program(container.spec.as_ref(), &spec::RootFs::from_mounts(&mounts)) {
            Some(program) => CallError::Invalid {
                what: format!("there is no program `{program}` in the image {}", container.image),
                hint: Some("look at the service's `command` and `entrypoint`".to_owned()),
            },
            None => error,
        }
    }

    /// Makes what the record asks to make, and says what is missing before the runtime does so in its own words.
    fn prepare_sources(&self, instance: &InstanceKey, record: &Record) -> Result<(), CallError> {
        for mount in &record.spec.mounts {
            match &mount.source {
                MountSource::Bind { path, create: true } if !path.exists() => std::fs::create_dir_all(path)
                    .map_err(|error| CallError::local(format!("making {}", path.display()), error))?,
                MountSource::Bind { path, .. } => must_exist(path, "the bind source", &mount.target)?,
                MountSource::Volume(name) => {
                    let path = self.volumes_folder(&instance.app).join(name.as_str());
                    must_exist(&path, "the volume's directory", &mount.target)?;
                    if let Some(inside) = &mount.settings.subpath {
                        runtime::inside_volume(&path, inside)?;
                    }
                }
                MountSource::Tmpfs { .. } => {}
            }
        }
        Ok(())
    }

    /// The log of an instance, made before the shim would make it readable for everybody.
    fn log_file(&self, instance: &InstanceKey) -> Result<PathBuf, CallError> {
        let path = self.log_path(instance);
        let folder = path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder).and_then(|()| open_log(&path));
        made.map_err(|error| CallError::local(format!("the log {}", path.display()), error))?;
        Ok(path)
    }

    /// Starts a made task.
    pub(super) async fn start_task(&self, identity: &ContainerIdentity, pid: u32) -> Result<Outcome, CallError> {
        self.same_container(identity).await?;
        match self.same_process(&identity.id, pid).await?.status() {
            Status::Created => {}
            Status::Running => return Ok(Outcome::Already),
            _ => return Ok(Outcome::Moved),
        }
        let request = StartRequest { container_id: identity.id.clone(), exec_id: String::new() };
        let request = self.link().request(request);
        let echo = self.echoes().expect("/tasks/start", &identity.id);
        match self.link().write("Tasks.Start", &identity.id, SHIM, self.link().tasks().start(request)).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => {
                echo.cancel();
                Err(error)
            }
        }
    }

    /// Sends the stop signal, then marks when. (Signal first: a crash in between repeats it.)
    pub(super) async fn stop_task(
        &self,
        identity: &ContainerIdentity,
        pid: u32,
        start_ticks: u64,
        signal: &str,
        mark: Stopping,
    ) -> Result<Outcome, CallError> {
        let signal = signal::number(signal)?;
        self.same_container(identity).await?;
        if start_ticks != 0 && process::start_ticks(pid).is_some_and(|ticks| ticks != start_ticks) {
            return Ok(Outcome::Moved);
        }
        let process = match self.get_task(&identity.id).await? {
            None => return Ok(Outcome::Already),
            Some(process) if process.pid != pid => return Ok(Outcome::Moved),
            Some(process) => process,
        };
        if process.status() == Status::Stopped {
            return Ok(Outcome::Already);
        }
        match self.call_kill(&identity.id, signal).await {
            Ok(()) => self.mark_stop(identity, mark).await,
            Err(error) if error.is_not_found() => Ok(Outcome::Already),
            Err(error) => Err(error),
        }
    }

    /// Sends SIGKILL; with no pid, to a task whose state cannot be judged.
    pub(super) async fn kill_task(&self, identity: &ContainerIdentity, pid: Option<u32>) -> Result<Outcome, CallError> {
        self.same_container(identity).await?;
        if let Some(pid) = pid {
            match self.get_task(&identity.id).await? {
                None => return self.kill_forgotten(&identity.id),
                Some(process) if process.pid != pid => return Ok(Outcome::Moved),
                Some(process) if process.status() == Status::Stopped => return Ok(Outcome::Already),
                Some(_) => {}
            }
        }
        match self.call_kill(&identity.id, SIGKILL).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) if error.is_not_found() => self.kill_forgotten(&identity.id),
            Err(error) => Err(error),
        }
    }

    /// Ends a process whose shim died without taking it along: containerd has no task for it any more.
    fn kill_forgotten(&self, id: &str) -> Result<Outcome, CallError> {
        let killed = self.witness().kill(id);
        let killed = killed.map_err(|error| CallError::local(format!("killing the process of {id}"), error))?;
        Ok(if killed { Outcome::Done } else { Outcome::Already })
    }

    /// Deletes a task that has ended or was never started.
    pub(super) async fn delete_task(&self, identity: &ContainerIdentity, pid: u32) -> Result<Outcome, CallError> {
        self.same_container(identity).await?;
        let process = match self.get_task(&identity.id).await? {
            None => return Ok(Outcome::Already),
            Some(process) if process.pid != pid => return Ok(Outcome::Moved),
            Some(process) => process,
        };
        match process.status() {
            Status::Stopped => {}
            // What never ran has no exit to tell.
            Status::Created => self.witness().disarm(&identity.id, pid),
            _ => return Ok(Outcome::Moved),
        }
        let echo = self.echoes().expect("/tasks/delete", &identity.id);
        match self.call_delete(&identity.id).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => {
                echo.cancel();
                if error.is_not_found() { Ok(Outcome::Already) } else { Err(error) }
            }
        }
    }

    /// Changes the limits of a running task; those that are not set are lifted.
    pub(super) async fn update_limits(
        &self,
        identity: &ContainerIdentity,
        pid: u32,
        record: &Record,
    ) -> Result<(), CallError> {
        let container = self.same_container(identity).await?;
        if self.same_process(&identity.id, pid).await?.status() != Status::Running {
            return Err(CallError::Moved);
        }
        let old = look::record(&container).map(|record| record.spec.limits).unwrap_or_default();
        let resources = spec::limits_update(&record.spec.limits, &old, &spec::Node::read())?;
        let value = serde_json::to_vec(&resources)
            .map_err(|error| CallError::invalid(format!("the limits cannot be written: {error}")))?;
        let request = self.link().request(UpdateTaskRequest {
            container_id: identity.id.clone(),
            resources: Some(Any { type_url: RESOURCES_TYPE.to_owned(), value }),
            ..UpdateTaskRequest::default()
        });
        self.link().write("Tasks.Update", &identity.id, SHIM, self.link().tasks().update(request)).await
    }

    /// The task with this process, or [`CallError::Moved`].
    async fn same_process(&self, id: &str, pid: u32) -> Result<Process, CallError> {
        self.get_task(id).await?.filter(|process| process.pid == pid).ok_or(CallError::Moved)
    }

    async fn call_kill(&self, id: &str, signal: u32) -> Result<(), CallError> {
        let request = KillRequest { container_id: id.to_owned(), exec_id: String::new(), signal, all: false };
        let request = self.link().request(request);
        // A hung shim never answers; the deadline is that of a record, not of a start.
        self.link().write("Tasks.Kill", id, WRITE, self.link().tasks().kill(request)).await
    }

    async fn call_delete(&self, id: &str) -> Result<(), CallError> {
        let request = self.link().request(DeleteTaskRequest { container_id: id.to_owned() });
        self.link().write("Tasks.Delete", id, SHIM, self.link().tasks().delete(request)).await.map(drop)
    }
}

fn must_exist(path: &Path, what: &str, target: &str) -> Result<(), CallError> {
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(CallError::Missing {
            what: format!("{what} {} for {target} is not there", path.display()),
            hint: Some(format!("make it: mkdir -p {}", path.display())),
        }),
        Err(error) => Err(CallError::local(format!("{what} {}", path.display()), error)),
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}
