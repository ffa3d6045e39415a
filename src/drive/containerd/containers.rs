//! Steps on container records.

use super::error::CallError;
use super::labels::{self, Labels};
use super::link::{READ, WRITE};
use super::look::{self, RECORD, created_at};
use super::spec::{self, Surroundings};
use super::{Containerd, RUNTIME, SNAPSHOTTER, runtime};
use crate::model::{
    ContainerIdentity, CreateContainer, Desired, Exit, InstanceKey, NetworkMode, Outcome, Record, Run, Stopping,
};
use containerd_client::services::v1::container::Runtime;
use containerd_client::services::v1::{
    Container, CreateContainerRequest, DeleteContainerRequest, GetContainerRequest, UpdateContainerRequest,
};
use prost_types::{Any, FieldMask};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where containerd looks up how to read an OCI runtime spec.
const SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

impl Containerd {
    /// Makes a container record with its OCI spec, labels and extension.
    pub(super) async fn create_container(&self, ask: &CreateContainer) -> Result<Outcome, CallError> {
        let netns = ask.netns.as_ref().map(|netns| (Path::new("/run/netns").join(&netns.name), netns.inode));
        if netns.as_ref().is_some_and(|(path, inode)| inode_of(path) != Some(*inode)) {
            return Ok(Outcome::Moved);
        }
        let netns = netns.map(|(path, _)| path);
        let built = self.build_spec(&ask.instance, &ask.id, &ask.snapshot, netns, &ask.record).await?;
        let mut labels = made_labels(&ask.instance, &ask.record, &built.clamped);
        labels.insert(labels::SPEC.to_owned(), ask.digest.as_str().to_owned());
        labels.insert(labels::ATTEMPT.to_owned(), ask.attempt.to_string());
        let container = Container {
            id: ask.id.clone(),
            labels,
            image: ask.record.spec.image.reference.clone(),
            runtime: Some(Runtime { name: RUNTIME.to_owned(), options: runtime::options(&ask.record.spec) }),
            spec: Some(built.spec),
            snapshotter: SNAPSHOTTER.to_owned(),
            snapshot_key: ask.snapshot.clone(),
            extensions: HashMap::from([(RECORD.to_owned(), record_value(&ask.record))]),
            ..Container::default()
        };
        self.known().add(&ask.id, &ask.instance);
        let request = self.link().request(CreateContainerRequest { container: Some(container) });
        let echo = self.echoes().expect("/containers/create", &ask.id);
        let mut client = self.link().containers();
        let call = client.create(request);
        let Err(error) = self.link().write("Containers.Create", &ask.id, WRITE, call).await.map(drop) else {
            return Ok(Outcome::Done);
        };
        echo.cancel();
        if !error.already_exists() {
            return Err(error);
        }
        match self.get_container(&ask.id).await? {
            Some(there) if is_this(&there, ask) => Ok(Outcome::Already),
            Some(_) => Err(CallError::invalid(format!("a container `{}` that is not ours is in the way", ask.id))),
            None => Err(error),
        }
    }

    /// Writes the run that is about to start, and clears a stop mark.
    pub(super) async fn record_run(&self, identity: &ContainerIdentity, run: &Run) -> Result<Outcome, CallError> {
        let marks = [(labels::RUN, labels::text(run)), (labels::STOP, String::new())];
        self.set_labels(identity, &marks).await
    }

    /// Writes an exit, after which the witness need not remember it.
    pub(super) async fn record_exit(&self, identity: &ContainerIdentity, exit: &Exit) -> Result<Outcome, CallError> {
        let outcome = self.set_labels(identity, &[(labels::EXIT, labels::text(exit))]).await?;
        if matches!(outcome, Outcome::Done | Outcome::Already) {
            self.witness().journal().forget(&identity.id, exit.pid);
        }
        Ok(outcome)
    }

    /// Marks when the stop signal was sent.
    pub(super) async fn mark_stop(&self, identity: &ContainerIdentity, mark: Stopping) -> Result<Outcome, CallError> {
        self.set_labels(identity, &[(labels::STOP, labels::text(&mark))]).await
    }

    /// Marks a stop as revoked. Without a mark there is nothing to revoke.
    pub(super) async fn revoke_stop(&self, identity: &ContainerIdentity) -> Result<Outcome, CallError> {
        let container = self.same_container(identity).await?;
        let Some(mark) = labels::told(&container.labels).stopping else { return Ok(Outcome::Already) };
        let mark = Stopping { revoked: true, ..mark };
        self.set_labels(identity, &[(labels::STOP, labels::text(&mark))]).await
    }

    /// Writes a changed record with what follows from it: spec, labels, extension, in one update.
    pub(super) async fn update_record(
        &self,
        identity: &ContainerIdentity,
        instance: &InstanceKey,
        limits_of: Option<u32>,
        record: &Record,
    ) -> Result<Outcome, CallError> {
        if let Some(pid) = limits_of {
            self.update_limits(identity, pid, record).await?;
        }
        let mut container = self.same_container(identity).await?;
        let own = || match record.spec.network_mode {
            Some(NetworkMode::Host) => None,
            _ => Some(Desired::shares(instance, &record.spec).unwrap_or_else(|| instance.clone())),
        };
        let netns = own().map(|owner| Path::new("/run/netns").join(self.marks().netns(&owner)));
        let built = self.build_spec(instance, &container.id, &container.snapshot_key, netns, record).await?;
        let mut labels = made_labels(instance, record, &built.clamped);
        let kept = container.labels.drain().filter(|(key, _)| key.starts_with(labels::PREFIX));
        for (key, value) in kept {
            labels.entry(key).or_insert(value);
        }
        if built.clamped.is_empty() {
            labels.remove(labels::CLAMPED);
        }
        container.labels = labels;
        container.spec = Some(built.spec);
        container.extensions.insert(RECORD.to_owned(), record_value(record));
        let paths = ["labels", "spec", "extensions"];
        self.update(container, paths.map(str::to_owned).to_vec()).await
    }

    /// Deletes a container record, unless there is a task.
    pub(super) async fn delete_container(&self, identity: &ContainerIdentity) -> Result<Outcome, CallError> {
        let Some(container) = self.get_container(&identity.id).await? else { return Ok(Outcome::Already) };
        if created_at(&container) != identity.created_at || !look::is_ours(&container.labels) {
            return Ok(Outcome::Moved);
        }
        if self.get_task(&identity.id).await?.is_some() {
            return Ok(Outcome::Moved);
        }
        let id = &identity.id;
        self.end_shims_of(id).await?;
        let request = self.link().request(DeleteContainerRequest { id: id.clone() });
        let echo = self.echoes().expect("/containers/delete", id);
        let outcome =
            match self.link().write("Containers.Delete", id, WRITE, self.link().containers().delete(request)).await {
                Ok(()) => Outcome::Done,
                Err(error) => {
                    echo.cancel();
                    if !error.is_not_found() {
                        return Err(error);
                    }
                    Outcome::Already
                }
            };
        self.witness().journal().forget_all(id);
        Ok(outcome)
    }

    /// A container record.
    pub(super) async fn get_container(&self, id: &str) -> Result<Option<Container>, CallError> {
        let request = self.link().request(GetContainerRequest { id: id.to_owned() });
        match self.link().read("Containers.Get", READ, self.link().containers().get(request)).await {
            Ok(answer) => Ok(answer.container),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The container record that a step was decided on, or [`CallError::Moved`].
    pub(super) async fn same_container(&self, identity: &ContainerIdentity) -> Result<Container, CallError> {
        match self.get_container(&identity.id).await? {
            Some(container) if created_at(&container) == identity.created_at && look::is_ours(&container.labels) => {
                Ok(container)
            }
            _ => Err(CallError::Moved),
        }
    }

    /// Sets labels of ours, each by its own path so that others stay as they are; an empty value removes one.
    pub(super) async fn set_labels(
        &self,
        identity: &ContainerIdentity,
        marks: &[(&str, String)],
    ) -> Result<Outcome, CallError> {
        let container = self.same_container(identity).await?;
        let current = |key: &str| container.labels.get(key).map_or("", String::as_str).to_owned();
        if marks.iter().all(|(key, value)| current(key) == *value) {
            return Ok(Outcome::Already);
        }
        let paths = marks.iter().map(|(key, _)| format!("labels.{key}")).collect();
        let labels = marks.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        self.update(Container { id: identity.id.clone(), labels, ..Container::default() }, paths).await
    }

    async fn update(&self, container: Container, paths: Vec<String>) -> Result<Outcome, CallError> {
        let id = container.id.clone();
        let update_mask = Some(FieldMask { paths });
        let request = self.link().request(UpdateContainerRequest { container: Some(container), update_mask });
        let echo = self.echoes().expect("/containers/update", &id);
        let mut client = self.link().containers();
        let call = client.update(request);
        match self.link().write("Containers.Update", &id, WRITE, call).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => {
                echo.cancel();
                if error.is_not_found() { Err(CallError::Moved) } else { Err(error) }
            }
        }
    }

    async fn build_spec(
        &self,
        instance: &InstanceKey,
        id: &str,
        snapshot: &str,
        netns: Option<PathBuf>,
        record: &Record,
    ) -> Result<Built, CallError> {
        let config = self.image_config(&record.image_digest).await?;
        let rootfs = spec::RootFs::from_mounts(&self.mounts(snapshot).await?);
        let parent = record.spec.setup.cgroup_parent.clone();
        let cgroup = format!("{}/{id}", parent.unwrap_or_else(|| format!("/{}", self.marks().agent())));
        let surroundings = Surroundings {
            instance,
            netns,
            files: self.instance_files(instance),
            volumes: self.volumes_folder(&instance.app),
            helper: self.helper(),
            cgroup,
            node: spec::Node::read(),
        };
        let built = spec::build(record, &config, &rootfs, &surroundings)?;
        let value = serde_json::to_vec(&built.spec)
            .map_err(|error| CallError::invalid(format!("the OCI spec cannot be written: {error}")))?;
        Ok(Built { spec: Any { type_url: SPEC_TYPE.to_owned(), value }, clamped: built.clamped })
    }
}

fn inode_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).map(|file| file.ino()).ok()
}

struct Built {
    spec: Any,
    clamped: Vec<String>,
}

/// The labels that follow from the record.
fn made_labels(instance: &InstanceKey, record: &Record, clamped: &[String]) -> Labels {
    let users = record.spec.labels.iter().filter(|(key, _)| !key.starts_with(labels::PREFIX));
    let mut labels: Labels = users.map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.extend(labels::of_instance(instance));
    labels.insert(labels::FILE.to_owned(), record.file.clone());
    if !clamped.is_empty() {
        labels.insert(labels::CLAMPED.to_owned(), labels::text(&clamped));
    }
    labels
}

fn record_value(record: &Record) -> Any {
    let value = serde_json::to_vec(record).expect("a record has no map keys that JSON cannot hold");
    Any { type_url: RECORD.to_owned(), value }
}

/// Whether a record that is there is the one that was asked for.
fn is_this(there: &Container, ask: &CreateContainer) -> bool {
    labels::instance(&there.labels).as_ref() == Some(&ask.instance)
        && labels::told(&there.labels).digest == ask.digest
        && there.snapshot_key == ask.snapshot
        && look::record(there).as_ref() == Some(&ask.record)
}
