//! The generation of an instance that is aimed at: the wanted one, or the recorded one while the wanted cannot be made.

use super::{Picture, compare};
use crate::model::{
    Blocker, ContainerSeen, ImageUse, InstanceKey, Key, Marks, MountSource, Record, RuntimeSide, Service, Sight,
    SpecDigest, TaskSeen, VolumeKey,
};

/// What one instance is to be made from.
pub(super) struct Target {
    pub digest: SpecDigest,
    pub record: Record,
    /// What is missing to know the attachments; they are then not judged.
    unplaced: Option<Blocker>,
    /// It is a container's own record: that container is the only memory of it.
    pub recorded: bool,
}

/// Whether a target can be made now.
pub(super) enum Ready {
    Yes,
    Not(Vec<Blocker>),
}

impl Target {
    /// The wanted generation.
    pub fn of_service(picture: &Picture<'_>, key: &InstanceKey, service: &Service) -> Self {
        let (attachments, unplaced) = match picture.allocation().attachments(key, &service.spec, picture.marks) {
            Ok(attachments) => (attachments, None),
            Err(blocker) => (Vec::new(), Some(blocker)),
        };
        let image = picture.observed.runtime.seen().and_then(|all| all.images.get(&service.spec.image.reference));
        let archive = service.spec.image.archive.as_ref().map(|archive| &archive.digest);
        let app = picture.desired.apps.get(&key.app);
        let record = Record {
            spec: service.spec.sealed(),
            image_digest: archive.or(image.map(|image| &image.digest)).cloned().unwrap_or_default(),
            attachments,
            generation: app.map_or(0, |app| app.generation),
            file: service.place.file.display().to_string(),
        };
        Self { digest: compare::digest(key, &service.spec), record, unplaced, recorded: false }
    }

    /// The generation that the instance's best container was made from.
    pub fn of_record(runtime: &RuntimeSide) -> Option<Self> {
        let readable = runtime.containers.iter().filter(|container| !container.wedged);
        let best = readable.max_by_key(|container| (rank(&container.task), container.attempt))?;
        let record = best.record.clone()?;
        Some(Self { digest: best.digest.clone(), record, unplaced: None, recorded: true })
    }

    /// Whether a container is of this target.
    pub fn is(&self, container: &ContainerSeen) -> bool {
        let Some(record) = &container.record else {
            return false;
        };
        let archive = self.record.spec.image.archive.is_some();
        container.digest == self.digest
            && !container.wedged
            && (self.unplaced.is_some() || record.attachments == self.record.attachments)
            && (!archive || record.image_digest == self.record.image_digest)
    }

    /// The container of this target, if there is one: the one that lives, else the latest attempt.
    pub fn current<'r>(&self, runtime: &'r RuntimeSide) -> Option<&'r ContainerSeen> {
        let ours = runtime.containers.iter().filter(|container| self.is(container));
        ours.max_by_key(|container| (rank(&container.task), container.attempt))
    }

    /// Whether everything is at hand that has to be there before an older generation is given up.
    pub fn ready(&self, picture: &Picture<'_>, key: &InstanceKey, runtime: &RuntimeSide) -> Ready {
        let mut blockers: Vec<Blocker> = self.unplaced.iter().cloned().collect();
        if self.current(runtime).is_none() && !self.record.spec.stopped {
            blockers.extend(self.image_blocker(picture));
        }
        if let Sight::Unseen(blind) = &picture.observed.net {
            blockers.push(Blocker::Blind { what: "the network".to_owned(), why: blind.why.clone() });
        }
        let own = |blocker: &Blocker| matches!(blocker, Blocker::On { key: Key::Instance(on), .. } if on == key);
        blockers.retain(|blocker| !own(blocker));
        if blockers.is_empty() { Ready::Yes } else { Ready::Not(blockers) }
    }

    fn image_blocker(&self, picture: &Picture<'_>) -> Option<Blocker> {
        let want = &self.record.spec.image;
        let runtime = picture.observed.runtime.seen()?;
        let current = |image: &&crate::model::ImageSeen| {
            want.archive.as_ref().is_none_or(|archive| archive.digest == image.digest)
        };
        match runtime.images.get(&want.reference).filter(current).map(|image| &image.usable) {
            Some(ImageUse::Ready { .. }) => None,
            Some(ImageUse::WrongPlatform { has }) => Some(Blocker::Stuck {
                what: format!("image {} is not for this machine, only for {}", want.reference, has.join(", ")),
                hint: "use an image that has this platform".to_owned(),
            }),
            _ => Some(Blocker::On { key: Key::Image(want.reference.clone()), what: "to be ready".to_owned() }),
        }
    }

    /// The snapshot that the container's snapshot starts from.
    pub fn chain_id(&self, picture: &Picture<'_>) -> Option<String> {
        let image = picture.observed.runtime.seen()?.images.get(&self.record.spec.image.reference)?;
        match &image.usable {
            ImageUse::Ready { chain_id, .. } => Some(chain_id.clone()),
            ImageUse::Packed | ImageUse::Incomplete | ImageUse::WrongPlatform { .. } => None,
        }
    }

    /// The id for a new container: the first attempt at this digest whose id is free.
    pub fn next_id(&self, marks: &Marks, key: &InstanceKey, runtime: &RuntimeSide) -> (String, u32) {
        let used = |id: &String| runtime.containers.iter().any(|container| container.id == *id);
        let ids = (0..=runtime.containers.len() as u32).map(|n| (marks.container_id(key, &self.digest, n), n));
        let mut ids = ids.skip_while(|(id, _)| used(id));
        ids.next().unwrap_or_else(|| (marks.container_id(key, &self.digest, 0), 0))
    }

    /// The named volumes that it mounts.
    pub fn volumes(&self, key: &InstanceKey) -> impl Iterator<Item = VolumeKey> {
        self.record.spec.mounts.iter().filter_map(|mount| match &mount.source {
            MountSource::Volume(volume) => Some(VolumeKey { app: key.app.clone(), volume: volume.clone() }),
            MountSource::Bind { .. } | MountSource::Tmpfs { .. } => None,
        })
    }

    /// The record of this target for a container that was made from `made`: what cannot change in place is kept.
    pub fn record_for(&self, made: &Record) -> Record {
        Record { image_digest: made.image_digest.clone(), attachments: made.attachments.clone(), ..self.record.clone() }
    }
}

fn rank(task: &TaskSeen) -> u8 {
    match task {
        TaskSeen::Running { .. } => 4,
        TaskSeen::Unknown { .. } => 3,
        TaskSeen::Created { .. } => 2,
        TaskSeen::Stopped(_) => 1,
        TaskSeen::None => 0,
    }
}
