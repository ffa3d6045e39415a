//! Steps on containerd and files: identity first, as the drivers' contract says, then the one effect.

use super::{Container, Daemon, Image, Owner, Shim, Snapshot, Task, World};
use stead::model::{
    Archive, Cause, CauseKind, ContainerIdentity, CreateContainer, Domain, ImageUse, InstanceFile, InstanceKey,
    MountSource, Outcome, Record, Step, Stopping, Timestamp, VolumeKey,
};

/// How much of a step that has two parts is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// The first part, then the caller died.
    First,
}

/// A refusal.
pub fn refused(kind: CauseKind, message: impl Into<String>) -> Outcome {
    Outcome::Refused(Cause { kind, message: message.into(), hint: None })
}

/// A call without an answer.
pub fn unsure(kind: CauseKind, message: impl Into<String>) -> Outcome {
    Outcome::Unsure(Cause { kind, message: message.into(), hint: None })
}

impl World {
    /// Does one step as an honest driver does.
    pub fn act(&mut self, step: &Step, extent: Extent) -> Outcome {
        match step.domain() {
            Domain::Runtime => self.act_runtime(step, extent),
            Domain::Net => self.act_net(step),
            Domain::Ports => self.act_ports(step),
            Domain::Files => self.act_files(step),
        }
    }

    fn act_runtime(&mut self, step: &Step, extent: Extent) -> Outcome {
        match self.runtime.daemon {
            Daemon::Up => {}
            Daemon::Down => return refused(CauseKind::Unavailable, "connection refused"),
            Daemon::Mute => return unsure(CauseKind::Deadline, "no answer"),
        }
        match step {
            Step::ImportImage { reference, archive } => self.import(reference, archive, extent),
            Step::UnpackImage { reference } => self.unpack(reference),
            Step::DropLease { id } => done_if(self.runtime.leases.remove(id)),
            Step::PrepareSnapshot { instance, key, parent } => self.prepare(instance, key, parent),
            Step::CreateContainer(create) => self.create_container(create),
            Step::RemoveSnapshot { key } => self.remove_snapshot(key),
            Step::CreateTask { container }
            | Step::RecordRun { container, .. }
            | Step::StartTask { container, .. }
            | Step::RecordExit { container, .. }
            | Step::StopTask { container, .. }
            | Step::KillTask { container, .. }
            | Step::DeleteTask { container, .. }
            | Step::RevokeStop { container }
            | Step::UpdateRecord { container, .. }
            | Step::DeleteContainer { container } => match self.identified(container) {
                Ok(()) => self.act_container(&container.id, step, extent),
                Err(outcome) => outcome,
            },
            other => unreachable!("{} is no step of the runtime", other.name()),
        }
    }

    fn identified(&self, wanted: &ContainerIdentity) -> Result<(), Outcome> {
        match self.runtime.containers.get(&wanted.id) {
            None => Err(Outcome::Moved),
            Some(found) if found.created_at != wanted.created_at => Err(Outcome::Moved),
            Some(_) => Ok(()),
        }
    }

    fn act_container(&mut self, id: &str, step: &Step, extent: Extent) -> Outcome {
        let hung = self.container(id).task.as_ref().is_some_and(|task| task.shim == Shim::Hung);
        match step {
            Step::CreateTask { .. } => self.create_task(id),
            Step::RecordRun { run, .. } => {
                let container = self.container_mut(id);
                container.run = Some(run.clone());
                container.stopping = None;
                Outcome::Done
            }
            Step::RecordExit { exit, .. } => {
                self.audit_exit(id, exit);
                self.container_mut(id).exit = Some(exit.clone());
                Outcome::Done
            }
            Step::RevokeStop { .. } => {
                if let Some(stopping) = self.container_mut(id).stopping.as_mut() {
                    stopping.revoked = true;
                }
                Outcome::Done
            }
            Step::UpdateRecord { limits_of, record, .. } => self.update_record(id, *limits_of, record, extent),
            Step::DeleteContainer { .. } => self.delete_container(id),
            _ if hung => unsure(CauseKind::Deadline, "the shim does not answer"),
            Step::StartTask { pid, .. } => self.start_task(id, *pid),
            Step::StopTask { pid, start_ticks, at, .. } => self.stop_task(id, *pid, *start_ticks, *at, extent),
            Step::KillTask { pid, .. } => self.kill_task(id, *pid),
            Step::DeleteTask { pid, .. } => self.delete_task(id, *pid),
            other => unreachable!("{} is no step of a container", other.name()),
        }
    }

    /// A container that is known to be there.
    pub fn container(&self, id: &str) -> &Container {
        self.runtime.containers.get(id).expect("the caller has found it")
    }

    fn container_mut(&mut self, id: &str) -> &mut Container {
        self.runtime.containers.get_mut(id).expect("the caller has found it")
    }

    fn import(&mut self, reference: &str, archive: &Archive, extent: Extent) -> Outcome {
        let lease = self.registry.marks.lease(reference);
        match self.archives.get(&archive.path) {
            None => return refused(CauseKind::Missing, format!("{}: no such file", archive.path.display())),
            Some(digest) if *digest != archive.digest => {
                return refused(CauseKind::Invalid, "the archive holds another image than its index says");
            }
            Some(_) => {}
        }
        self.runtime.leases.insert(lease.clone());
        if extent == Extent::First {
            return Outcome::Done;
        }
        let digest = archive.digest.clone();
        let usable = ImageUse::Ready { chain_id: format!("chain-{digest}"), stop_signal: None };
        self.runtime.images.insert(reference.to_owned(), Image { digest, usable });
        self.runtime.leases.remove(&lease);
        self.audit.count(reference, "import-image");
        self.ring_image(reference, "image event");
        Outcome::Done
    }

    fn unpack(&mut self, reference: &str) -> Outcome {
        let Some(image) = self.runtime.images.get_mut(reference) else {
            return refused(CauseKind::Missing, "image not found");
        };
        match &image.usable {
            ImageUse::Ready { .. } => Outcome::Already,
            ImageUse::Packed => {
                image.usable = ImageUse::Ready { chain_id: format!("chain-{}", image.digest), stop_signal: None };
                self.audit.count(reference, "unpack-image");
                self.ring_image(reference, "image event");
                Outcome::Done
            }
            ImageUse::Incomplete => refused(CauseKind::Missing, "content not found"),
            ImageUse::WrongPlatform { .. } => refused(CauseKind::Invalid, "no layer for this platform"),
        }
    }

    fn prepare(&mut self, instance: &InstanceKey, key: &str, parent: &str) -> Outcome {
        if self.runtime.snapshots.contains_key(key) {
            return Outcome::Already;
        }
        let ready = |image: &Image| matches!(&image.usable, ImageUse::Ready { chain_id, .. } if chain_id == parent);
        if !self.runtime.images.values().any(ready) {
            return refused(CauseKind::Missing, format!("parent snapshot {parent} does not exist"));
        }
        let snapshot = Snapshot { owner: Owner::Instance(instance.clone()), parent: parent.to_owned() };
        self.runtime.snapshots.insert(key.to_owned(), snapshot);
        self.audit.count(instance, "prepare-snapshot");
        self.ring_instance(instance, "snapshot event");
        Outcome::Done
    }

    fn remove_snapshot(&mut self, key: &str) -> Outcome {
        let Some(snapshot) = self.runtime.snapshots.get(key).cloned() else {
            return Outcome::Already;
        };
        self.audit_snapshot_removal(key, &snapshot);
        self.runtime.snapshots.remove(key);
        if let Owner::Instance(instance) = &snapshot.owner {
            self.audit.count(instance, "remove-snapshot");
            self.ring_instance(instance, "snapshot event");
        }
        Outcome::Done
    }

    fn create_container(&mut self, create: &CreateContainer) -> Outcome {
        if self.runtime.containers.contains_key(&create.id) {
            return Outcome::Already;
        }
        let container = Container {
            instance: Some(create.instance.clone()),
            created_at: self.creation_time(),
            digest: create.digest.clone(),
            attempt: create.attempt,
            record: Some(create.record.clone()),
            snapshot: create.snapshot.clone(),
            netns: create.netns.clone(),
            run: None,
            exit: None,
            stopping: None,
            wedge: false,
            wedge_known: false,
            task: None,
            pristine: true,
        };
        self.runtime.containers.insert(create.id.clone(), container);
        self.audit.count(&create.instance, "create-container");
        self.ring_instance(&create.instance, "container event");
        Outcome::Done
    }

    fn create_task(&mut self, id: &str) -> Outcome {
        let container = self.container(id);
        if container.task.is_some() {
            return Outcome::Already;
        }
        if container.wedge {
            self.container_mut(id).wedge_known = true;
            return refused(CauseKind::Failed, "task already exists, and containerd knows none");
        }
        if let Err(missing) = self.bundle_is_whole(container) {
            return refused(CauseKind::Missing, missing);
        }
        let space = self.space_of(container).unwrap_or_default();
        let instance = container.instance.clone();
        let limits = container.record.as_ref().map(|record| record.spec.limits.clone()).unwrap_or_default();
        let (pid, start_ticks) = (self.fresh_pid(), self.ticks());
        let task = Task { pid, start_ticks, started: false, exit: None, shim: Shim::Up, space, limits };
        self.container_mut(id).task = Some(task);
        self.witnesses.insert((id.to_owned(), pid));
        if let Some(instance) = &instance {
            self.audit.count(instance, "create-task");
            self.ring_instance(instance, "task event");
        }
        Outcome::Done
    }

    /// The namespace that a container's processes join, where it has one that is there.
    fn space_of(&self, container: &Container) -> Option<u64> {
        self.net.files.get(&container.netns.as_ref()?.name).copied().filter(|inode| *inode != 0)
    }

    fn bundle_is_whole(&self, container: &Container) -> Result<(), String> {
        if !self.runtime.snapshots.contains_key(&container.snapshot) {
            return Err("failed to mount rootfs component: no such file or directory".to_owned());
        }
        if container.netns.is_some() && self.space_of(container).is_none() {
            return Err(format!("/run/netns/{:?}: no network namespace", container.netns));
        }
        let (Some(key), Some(record)) = (&container.instance, &container.record) else {
            return Ok(());
        };
        let files = self.files.instances.get(key);
        if files.is_none_or(|files| files.hosts.is_none() || files.resolv_conf.is_none() || files.hostname.is_none()) {
            return Err(format!("files of {key}: no such file or directory"));
        }
        for mount in &record.spec.mounts {
            if let MountSource::Volume(volume) = &mount.source {
                let volume = VolumeKey { app: key.app.clone(), volume: volume.clone() };
                if !self.files.volumes.contains(&volume) {
                    return Err(format!("volume {volume}: no such file or directory"));
                }
            }
        }
        Ok(())
    }

    fn start_task(&mut self, id: &str, pid: u32) -> Outcome {
        match &self.container(id).task {
            None => return refused(CauseKind::Failed, "task not found"),
            Some(task) if task.pid != pid => return Outcome::Moved,
            Some(task) if task.started => return Outcome::Already,
            Some(_) => {}
        }
        self.audit_start(id);
        let container = self.container_mut(id);
        let instance = container.instance.clone();
        if let Some(task) = container.task.as_mut() {
            task.started = true;
        }
        if let Some(instance) = &instance {
            if let Some((after, code)) = self.behaviour(instance).ends {
                self.process_will_end(pid, after, code);
            }
            self.audit.count(instance, "start-task");
            self.ring_instance(instance, "task event");
        }
        Outcome::Done
    }

    fn stop_task(&mut self, id: &str, pid: u32, start_ticks: u64, at: Timestamp, extent: Extent) -> Outcome {
        match &self.container(id).task {
            None => return Outcome::Already,
            Some(task) if task.pid != pid || task.start_ticks != start_ticks => return Outcome::Moved,
            Some(task) if task.exit.is_some() => return Outcome::Already,
            Some(_) => {}
        }
        let behaviour = self.container(id).instance.as_ref().map(|key| self.behaviour(key)).unwrap_or_default();
        if let Some(after) = behaviour.stops_in {
            self.process_will_end(pid, after, 143);
        }
        if extent == Extent::Whole {
            self.container_mut(id).stopping = Some(Stopping { at, ..Stopping::default() });
        }
        Outcome::Done
    }

    fn kill_task(&mut self, id: &str, pid: Option<u32>) -> Outcome {
        match &self.container(id).task {
            None => return Outcome::Already,
            Some(task) if pid.is_some_and(|pid| task.pid != pid) => return Outcome::Moved,
            Some(task) if task.exit.is_some() => return Outcome::Already,
            Some(task) => {
                let pid = task.pid;
                self.process_will_end(pid, 2, 137);
            }
        }
        Outcome::Done
    }

    fn delete_task(&mut self, id: &str, pid: u32) -> Outcome {
        match &self.container(id).task {
            None => return Outcome::Already,
            Some(task) if task.pid != pid => return Outcome::Moved,
            Some(task) if task.runs() => return refused(CauseKind::Failed, "cannot delete a running process"),
            Some(_) => {}
        }
        self.remove_task(id);
        let instance = self.container(id).instance.clone();
        if let Some(instance) = &instance {
            self.audit.count(instance, "delete-task");
            self.ring_instance(instance, "task event");
        }
        Outcome::Done
    }

    fn update_record(&mut self, id: &str, limits_of: Option<u32>, record: &Record, extent: Extent) -> Outcome {
        if let Some(pid) = limits_of {
            match self.container_mut(id).task.as_mut() {
                Some(task) if task.pid == pid && task.runs() => {
                    if task.shim == Shim::Hung {
                        return unsure(CauseKind::Deadline, "the shim does not answer");
                    }
                    task.limits = record.spec.limits.clone();
                }
                _ => return Outcome::Moved,
            }
        }
        if extent == Extent::Whole {
            self.container_mut(id).record = Some(record.clone());
        }
        Outcome::Done
    }

    fn delete_container(&mut self, id: &str) -> Outcome {
        self.audit_container_removal(id);
        let Some(container) = self.runtime.containers.remove(id) else {
            return Outcome::Already;
        };
        if let Some(instance) = &container.instance {
            self.audit.count(instance, "delete-container");
            self.ring_instance(instance, "container event");
        }
        Outcome::Done
    }

    fn act_files(&mut self, step: &Step) -> Outcome {
        match step {
            Step::WriteFile { instance, file, content } => {
                let files = self.files.instances.entry(instance.clone()).or_default();
                let place = match file {
                    InstanceFile::Hosts => &mut files.hosts,
                    InstanceFile::ResolvConf => &mut files.resolv_conf,
                    InstanceFile::Hostname => &mut files.hostname,
                };
                *place = Some(content.clone());
                Outcome::Done
            }
            Step::SetGrants { instance, write, remove } => {
                let files = self.files.instances.entry(instance.clone()).or_default();
                files.grants.retain(|name| !remove.contains(name));
                files.grants.extend(write.iter().map(|file| file.name.clone()));
                Outcome::Done
            }
            Step::DropFiles { instance } => {
                self.audit_files_removal(instance);
                done_if(self.files.instances.remove(instance).is_some())
            }
            Step::MakeVolume { volume } => done_if(self.files.volumes.insert(volume.clone())),
            other => unreachable!("{} is no step on files", other.name()),
        }
    }
}

/// The effect took place, or it had before.
pub fn done_if(changed: bool) -> Outcome {
    if changed { Outcome::Done } else { Outcome::Already }
}
