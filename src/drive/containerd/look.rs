//! Looking: whole lists, or nothing.
//!
//! A task is absent only when Tasks.Get says NotFound; a list that leaves it out proves nothing.

use super::error::CallError;
use super::images::Inventory;
use super::labels::{self, Labels};
use super::link::READ;
use super::{Containerd, SNAPSHOTTER, hold};
use crate::model::{
    Blind, ContainerSeen, Exit, ImageSeen, InstanceKey, Record, RuntimeSeen, RuntimeSide, Sight, SnapshotSeen,
    StrayKey, StraySeen, Timestamp,
};
use containerd_client::services::v1::snapshots::{Info, Kind, ListSnapshotsRequest, StatSnapshotRequest};
use containerd_client::services::v1::{Container, ListContainersRequest, ListRequest};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Tasks asked for at once. Each costs a round trip to its shim; more only queue up behind the cores.
pub(super) const TASKS_AT_ONCE: usize = 8;

/// The extension of a container record that holds what it was made from.
pub const RECORD: &str = "stead.record";

impl Containerd {
    /// Everything that containerd has in our namespace.
    pub async fn look_runtime(&self) -> Sight<RuntimeSeen> {
        sight(self.see_runtime().await)
    }

    /// What containerd has of one instance.
    pub async fn look_instance(&self, key: &InstanceKey) -> Sight<Option<RuntimeSide>> {
        sight(self.see_instance(key).await)
    }

    /// One image.
    pub async fn look_image(&self, reference: &str) -> Sight<Option<ImageSeen>> {
        sight(self.see_one_image(reference).await)
    }

    /// One stray snapshot or lease.
    pub async fn look_stray(&self, key: &StrayKey) -> Sight<StraySeen> {
        sight(self.see_stray(key).await)
    }

    async fn see_runtime(&self) -> Result<RuntimeSeen, CallError> {
        // Before the list: an exit that is written down by now had its container by now.
        let exits = self.witness().journal().containers();
        let exits = exits.map_err(|error| CallError::local("the journal of exits", error))?;
        let (containers, snapshots, leases) = tokio::try_join!(
            self.list_containers(labels::filter_ours()),
            self.list_snapshots(Vec::new()),
            self.idle_leases(),
        )?;
        let committed: HashSet<String> =
            snapshots.iter().filter(|info| info.kind() == Kind::Committed).map(|info| info.name.clone()).collect();
        let images = self.see_images(&leases, &committed).await?;
        for id in exits.iter().filter(|id| !containers.iter().any(|container| container.id == **id)) {
            self.witness().journal().forget_all(id);
        }

        let mut strays: BTreeSet<StrayKey> = leases
            .iter()
            .filter(|id| !images.keys().any(|reference| self.marks().lease(reference) == **id))
            .map(|id| StrayKey::Lease(id.clone()))
            .collect();
        strays.extend(self.lost_shims(&containers).await?);
        let mut instances: BTreeMap<InstanceKey, RuntimeSide> = BTreeMap::new();
        for info in snapshots.into_iter().filter(|info| info.labels.contains_key(labels::APP)) {
            match labels::instance(&info.labels) {
                Some(key) => instances.entry(key).or_default().snapshots.push(snapshot_seen(info)),
                None => drop(strays.insert(StrayKey::Snapshot(info.name))),
            }
        }
        for (key, container) in self.see_containers(containers).await? {
            instances.entry(key).or_default().containers.push(container);
        }
        for side in instances.values_mut() {
            sort(side);
        }
        self.known().replace(&instances);
        Ok(RuntimeSeen { instances, images, strays, boot: self.boot().to_owned() })
    }

    async fn see_instance(&self, key: &InstanceKey) -> Result<Option<RuntimeSide>, CallError> {
        let filter = labels::filter(key);
        let (containers, snapshots) =
            tokio::try_join!(self.list_containers(filter.clone()), self.list_snapshots(vec![filter]))?;
        let containers = self.see_containers(containers).await?;
        let mut side = RuntimeSide {
            containers: containers.into_iter().map(|(_, container)| container).collect(),
            snapshots: snapshots.into_iter().map(snapshot_seen).collect(),
        };
        sort(&mut side);
        self.known().update(key, &side);
        Ok((!side.containers.is_empty() || !side.snapshots.is_empty()).then_some(side))
    }

    async fn see_one_image(&self, reference: &str) -> Result<Option<ImageSeen>, CallError> {
        let Some(image) = self.get_image(reference).await? else { return Ok(None) };
        let lease = self.idle_leases().await?.contains(&self.marks().lease(reference));
        self.see_image(image, lease, &Inventory::Ask).await.map(Some)
    }

    async fn see_stray(&self, key: &StrayKey) -> Result<StraySeen, CallError> {
        let there = match key {
            StrayKey::Lease(id) => self.idle_leases().await?.contains(id),
            StrayKey::Snapshot(name) => {
                let info = self.stat_snapshot(name).await?;
                info.is_some_and(|info| {
                    info.labels.contains_key(labels::APP) && labels::instance(&info.labels).is_none()
                })
            }
            StrayKey::Shim { id, pid, start_ticks } => self.is_lost_shim(id, *pid, *start_ticks).await?,
            StrayKey::Link(_) | StrayKey::Netns(_) => false,
        };
        Ok(if there { StraySeen::There } else { StraySeen::Gone })
    }

    async fn list_containers(&self, filter: String) -> Result<Vec<Container>, CallError> {
        let request = self.link().request(ListContainersRequest { filters: vec![filter] });
        let mut client = self.link().containers();
        let stream = self.link().read("Containers.ListStream", READ, client.list_stream(request)).await?;
        let parts = drain("Containers.ListStream", stream).await?;
        Ok(parts.into_iter().filter_map(|part| part.container).collect())
    }

    async fn list_snapshots(&self, filters: Vec<String>) -> Result<Vec<Info>, CallError> {
        let request = ListSnapshotsRequest { snapshotter: SNAPSHOTTER.to_owned(), filters };
        let request = self.link().request(request);
        let mut client = self.link().snapshots();
        let stream = self.link().read("Snapshots.List", READ, client.list(request)).await?;
        let parts = drain("Snapshots.List", stream).await?;
        Ok(parts.into_iter().flat_map(|part| part.info).collect())
    }

    /// One snapshot.
    pub(super) async fn stat_snapshot(&self, key: &str) -> Result<Option<Info>, CallError> {
        let request = StatSnapshotRequest { snapshotter: SNAPSHOTTER.to_owned(), key: key.to_owned() };
        let request = self.link().request(request);
        match self.link().read("Snapshots.Stat", READ, self.link().snapshots().stat(request)).await {
            Ok(answer) => Ok(answer.info),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Our leases whose holder is gone: no import works under them.
    async fn idle_leases(&self) -> Result<HashSet<String>, CallError> {
        let request = self.link().request(ListRequest::default());
        let leases = self.link().read("Leases.List", READ, self.link().leases().list(request)).await?.leases;
        let prefix = self.marks().lease_prefix();
        let ours = leases.into_iter().map(|lease| lease.id).filter(|id| id.starts_with(&prefix));
        let mut idle = HashSet::new();
        for id in ours {
            if !hold::is_held(&self.holds_file(), &id).map_err(|error| CallError::local("import locks", error))? {
                idle.insert(id);
            }
        }
        Ok(idle)
    }

    async fn see_containers(&self, containers: Vec<Container>) -> Result<Vec<(InstanceKey, ContainerSeen)>, CallError> {
        let ours = containers.into_iter().filter_map(|container| {
            let key = labels::instance(&container.labels)?;
            Some(async move {
                let seen = self.see_container(&key, container).await?;
                Ok((key, seen))
            })
        });
        stream::iter(ours).buffered(TASKS_AT_ONCE).try_collect().await
    }

    async fn see_container(&self, key: &InstanceKey, container: Container) -> Result<ContainerSeen, CallError> {
        let told = labels::told(&container.labels);
        let task = self.see_task(key, &container.id).await?;
        // After the task: what ended it has been written down before the task counts as gone.
        let witnessed = self.unwritten_exit(&container.id, &told)?;
        Ok(ContainerSeen {
            created_at: created_at(&container),
            record: record(&container),
            snapshot: container.snapshot_key,
            digest: told.digest,
            attempt: told.attempt,
            run: told.run,
            exit: told.exit,
            witnessed,
            stopping: told.stopping,
            wedged: told.wedged,
            clamped: told.clamped,
            task,
            health: None,
            id: container.id,
        })
    }

    /// The exit of this container that its label does not tell yet: that of its run, else the latest.
    fn unwritten_exit(&self, id: &str, told: &labels::Told) -> Result<Option<Exit>, CallError> {
        let journal = self.witness().journal();
        let mut open = journal.exits(id).map_err(|error| CallError::local("the journal of exits", error))?;
        open.retain(|exit| {
            let written = told.exit.as_ref().is_some_and(|label| is_same_exit(label, exit));
            if written {
                journal.forget(id, exit.pid);
            }
            !written
        });
        let of_run = open.iter().find(|exit| told.run.as_ref().is_some_and(|run| run.pid == exit.pid));
        Ok(of_run.or(open.last()).cloned())
    }
}

/// Two accounts of one exit: the same process, and not so far apart that the pid could have come round.
fn is_same_exit(label: &Exit, witnessed: &Exit) -> bool {
    const APART: u64 = 5_000;
    label.pid == witnessed.pid && label.at.0.saturating_add(APART) >= witnessed.at.0
}

/// When a record was made.
pub fn created_at(container: &Container) -> Timestamp {
    container.created_at.as_ref().and_then(timestamp).unwrap_or_default()
}

/// A time of containerd's; `None` for Go's zero time, which stands for "not yet".
pub fn timestamp(time: &prost_types::Timestamp) -> Option<Timestamp> {
    let seconds = u64::try_from(time.seconds).ok()?;
    let millis = u64::try_from(time.nanos).ok()? / 1_000_000;
    Some(Timestamp(seconds.saturating_mul(1000).saturating_add(millis)))
}

/// What a container was made from.
pub fn record(container: &Container) -> Option<Record> {
    serde_json::from_slice(&container.extensions.get(RECORD)?.value).ok()
}

/// Reads a stream of parts to its end.
pub async fn drain<T>(what: &'static str, mut stream: tonic::Streaming<T>) -> Result<Vec<T>, CallError> {
    let collect = async {
        let mut parts = Vec::new();
        while let Some(part) = stream.message().await.map_err(|status| CallError::from_status(what, status))? {
            parts.push(part);
        }
        Ok(parts)
    };
    tokio::time::timeout(READ, collect).await.unwrap_or(Err(CallError::Deadline { what, within: READ }))
}

fn snapshot_seen(info: Info) -> SnapshotSeen {
    SnapshotSeen { key: info.name, parent: info.parent }
}

fn sort(side: &mut RuntimeSide) {
    side.containers.sort_by(|a, b| a.id.cmp(&b.id));
    side.snapshots.sort_by(|a, b| a.key.cmp(&b.key));
}

fn sight<T>(looked: Result<T, CallError>) -> Sight<T> {
    match looked {
        Ok(seen) => Sight::Seen(seen),
        Err(error) => Sight::Unseen(Blind { why: error.chain() }),
    }
}

/// Whether labels name an instance: whatever else is in our namespace is foreign.
pub fn is_ours(labels: &Labels) -> bool {
    labels::instance(labels).is_some()
}
