//! Pictures: what a driver's look brings back of this node at this moment.

use super::{Container, Daemon, Link, Owner, Shim, Task, World};
use stead::model::{
    ContainerSeen, Domain, ImageSeen, InstanceKey, Key, NetSeen, NetSide, NetnsSeen, Observed, RuntimeSeen,
    RuntimeSide, Scope, Sight, Sighting, SnapshotSeen, StrayKey, StraySeen, TaskSeen,
};

impl World {
    /// The whole node, truly.
    pub fn see(&self) -> Observed {
        Observed {
            runtime: self.sight_of_runtime(|world| world.see_runtime()),
            net: Sight::Seen(self.see_net()),
            ports: Sight::Seen(self.net.table.clone()),
            files: Sight::Seen(self.files.clone()),
        }
    }

    fn sight_of_runtime<T>(&self, see: impl FnOnce(&Self) -> T) -> Sight<T> {
        match self.runtime.daemon {
            Daemon::Up => Sight::Seen(see(self)),
            Daemon::Down => Sight::unseen("connection refused"),
            Daemon::Mute => Sight::unseen("no answer"),
        }
    }

    /// What a look at this scope brings back.
    pub fn look(&self, scope: &Scope) -> Sighting {
        match scope {
            Scope::Domain(Domain::Runtime) => Sighting::Runtime(self.sight_of_runtime(Self::see_runtime)),
            Scope::Domain(Domain::Net) => Sighting::Net(Sight::Seen(self.see_net())),
            Scope::Domain(Domain::Ports) => Sighting::Ports(Sight::Seen(self.net.table.clone())),
            Scope::Domain(Domain::Files) => Sighting::Files(Sight::Seen(self.files.clone())),
            Scope::Object(Key::Instance(key)) => self.look_at_instance(key, None),
            Scope::Part(Key::Instance(key), domain) => self.look_at_instance(key, Some(*domain)),
            Scope::Object(key) | Scope::Part(key, _) => self.look_at(key),
        }
    }

    fn look_at_instance(&self, key: &InstanceKey, only: Option<Domain>) -> Sighting {
        let wants = |domain| only.is_none_or(|only| only == domain);
        Sighting::Instance {
            key: key.clone(),
            runtime: wants(Domain::Runtime).then(|| self.sight_of_runtime(|world| world.see_runtime_side(key))),
            net: wants(Domain::Net).then(|| Sight::Seen(self.see_net_side(key))),
            files: wants(Domain::Files).then(|| Sight::Seen(self.files.instances.get(key).cloned())),
        }
    }

    fn look_at(&self, key: &Key) -> Sighting {
        match key {
            Key::Instance(key) => self.look_at_instance(key, None),
            Key::Image(reference) => Sighting::Image {
                reference: reference.clone(),
                image: self.sight_of_runtime(|world| world.see_image(reference)),
            },
            Key::Network(key) => {
                let bridge = self.link_named(&self.registry.bridge_name(key)).filter(|link| link.ours);
                Sighting::Network { key: key.clone(), bridge: Sight::Seen(bridge.map(|link| link.seen.clone())) }
            }
            Key::Volume(key) => {
                Sighting::Volume { key: key.clone(), exists: Sight::Seen(self.files.volumes.contains(key)) }
            }
            Key::Publication => Sighting::Publication {
                table: Sight::Seen(self.net.table.clone()),
                ip_forward: Sight::Seen((self.net.ip_forward, self.net.ip6_forward)),
            },
            Key::Stray(key) => Sighting::Stray { key: key.clone(), found: self.look_at_stray(key) },
        }
    }

    fn look_at_stray(&self, key: &StrayKey) -> Sight<StraySeen> {
        let there = |there: bool| if there { StraySeen::There } else { StraySeen::Gone };
        match key {
            StrayKey::Snapshot(key) => self.sight_of_runtime(|world| {
                let found = world.runtime.snapshots.get(key);
                there(found.is_some_and(|snapshot| snapshot.owner == Owner::Unreadable))
            }),
            StrayKey::Lease(id) => {
                self.sight_of_runtime(|world| there(world.runtime.leases.contains(id) && !world.lease_has_image(id)))
            }
            // no shim is lost here: that is a fault of containerd's own, met on the node
            StrayKey::Shim { .. } => self.sight_of_runtime(|_| StraySeen::Gone),
            StrayKey::Link(name) => {
                let link = self.link_named(name).filter(|link| link.ours && !self.has_owner(link));
                Sight::Seen(link.map_or(StraySeen::Gone, |link| StraySeen::Link(link.seen.clone())))
            }
            StrayKey::Netns(name) => {
                let inode = self.net.files.get(name).filter(|_| self.registry.netns_owner(name).is_none());
                Sight::Seen(inode.map_or(StraySeen::Gone, |inode| StraySeen::Netns(*inode)))
            }
        }
    }

    fn has_owner(&self, link: &Link) -> bool {
        let name = &link.seen.name;
        if link.seen.bridge {
            self.registry.bridge_owner(name).is_some()
        } else {
            self.registry.link_owner(name).is_some()
        }
    }

    fn lease_has_image(&self, id: &str) -> bool {
        self.runtime.images.keys().any(|reference| self.registry.marks.lease(reference) == *id)
    }

    fn see_runtime(&self) -> RuntimeSeen {
        let mut seen = RuntimeSeen { boot: self.boot_id(), ..RuntimeSeen::default() };
        for (id, container) in &self.runtime.containers {
            if let Some(key) = &container.instance {
                let side = seen.instances.entry(key.clone()).or_default();
                side.containers.push(self.see_container(id, container));
            }
        }
        for (key, snapshot) in &self.runtime.snapshots {
            match &snapshot.owner {
                Owner::Instance(instance) => {
                    let side = seen.instances.entry(instance.clone()).or_default();
                    side.snapshots.push(SnapshotSeen { key: key.clone(), parent: snapshot.parent.clone() });
                }
                Owner::Unreadable => {
                    seen.strays.insert(StrayKey::Snapshot(key.clone()));
                }
                Owner::Foreign => {}
            }
        }
        for reference in self.runtime.images.keys() {
            seen.images.extend(self.see_image(reference).map(|image| (reference.clone(), image)));
        }
        let ours = self.runtime.leases.iter().filter(|id| id.starts_with(&self.registry.marks.lease_prefix()));
        seen.strays.extend(ours.filter(|id| !self.lease_has_image(id)).map(|id| StrayKey::Lease(id.clone())));
        seen
    }

    /// One instance's part in containerd.
    pub fn see_runtime_side(&self, key: &InstanceKey) -> Option<RuntimeSide> {
        let containers: Vec<_> = self.containers_of(key).map(|(id, found)| self.see_container(id, found)).collect();
        let ours = |owner: &Owner| matches!(owner, Owner::Instance(of) if of == key);
        let snapshots = self.runtime.snapshots.iter().filter(|(_, snapshot)| ours(&snapshot.owner));
        let snapshots: Vec<_> =
            snapshots.map(|(key, found)| SnapshotSeen { key: key.clone(), parent: found.parent.clone() }).collect();
        (!containers.is_empty() || !snapshots.is_empty()).then_some(RuntimeSide { containers, snapshots })
    }

    fn see_image(&self, reference: &str) -> Option<ImageSeen> {
        let image = self.runtime.images.get(reference)?;
        let lease = self.lease_held(reference);
        Some(ImageSeen { digest: image.digest.clone(), usable: image.usable.clone(), lease })
    }

    fn see_container(&self, id: &str, container: &Container) -> ContainerSeen {
        let (task, witnessed) = self.see_task(id, container);
        ContainerSeen {
            id: id.to_owned(),
            created_at: container.created_at,
            digest: container.digest.clone(),
            attempt: container.attempt,
            record: container.record.clone(),
            snapshot: container.snapshot.clone(),
            run: container.run.clone(),
            exit: container.exit.clone(),
            witnessed,
            stopping: container.stopping,
            wedged: container.wedge && container.wedge_known,
            clamped: Vec::new(),
            task,
            health: None,
        }
    }

    /// What is seen of a container's task, with the exit that the witness saw of it or of the run before.
    pub fn see_task(&self, id: &str, container: &Container) -> (TaskSeen, Option<stead::model::Exit>) {
        let pid = container.task.as_ref().map(|task| task.pid).or(container.run.as_ref().map(|run| run.pid));
        let witnessed = pid.and_then(|pid| self.witnessed.get(&(id.to_owned(), pid)).cloned());
        (container.task.as_ref().map_or(TaskSeen::None, see_state), witnessed)
    }

    fn see_net(&self) -> NetSeen {
        let mut seen = NetSeen {
            host_routes: self.net.host_routes.clone(),
            ip_forward: self.net.ip_forward,
            ip6_forward: self.net.ip6_forward,
            ..NetSeen::default()
        };
        for (name, inode) in &self.net.files {
            if let Some(owner) = self.registry.netns_owner(name) {
                seen.instances.entry(owner.clone()).or_default().netns = Some(self.see_netns(*inode));
            } else if name.starts_with(&self.registry.marks.netns_prefix()) {
                seen.strays.insert(StrayKey::Netns(name.clone()));
                seen.stray_netns.insert(name.clone(), *inode);
            }
        }
        for link in self.net.links.values() {
            let name = link.seen.name.clone();
            let owner = self.registry.link_owner(&name).filter(|_| !link.seen.bridge);
            let network = self.registry.bridge_owner(&name).filter(|_| link.seen.bridge);
            if !link.ours {
                seen.foreign_links.insert(name);
            } else if let Some((instance, network)) = owner {
                let side = seen.instances.entry(instance.clone()).or_default();
                side.links.insert(network.clone(), link.seen.clone());
            } else if let Some(network) = network {
                seen.networks.insert(network.clone(), link.seen.clone());
            } else {
                seen.strays.insert(StrayKey::Link(name.clone()));
                seen.stray_links.insert(name, link.seen.clone());
            }
        }
        seen
    }

    /// One instance's part in the network.
    pub fn see_net_side(&self, key: &InstanceKey) -> Option<NetSide> {
        let netns = self.net.files.get(&self.registry.netns_name(key)).map(|inode| self.see_netns(*inode));
        let mut side = NetSide { netns, ..NetSide::default() };
        for link in self.net.links.values().filter(|link| link.ours && !link.seen.bridge) {
            if let Some((_, network)) = self.registry.link_owner(&link.seen.name).filter(|(owner, _)| owner == key) {
                side.links.insert(network.clone(), link.seen.clone());
            }
        }
        (side != NetSide::default()).then_some(side)
    }

    fn see_netns(&self, inode: u64) -> NetnsSeen {
        let space = self.net.spaces.get(&inode).cloned().unwrap_or_default();
        NetnsSeen {
            inode,
            loopback_up: space.loopback_up,
            interfaces: space.interfaces,
            default_gateway: space.default_gateway,
            default_gateway6: space.default_gateway6,
        }
    }
}

fn see_state(task: &Task) -> TaskSeen {
    match (&task.exit, task.shim) {
        (_, Shim::Hung) => TaskSeen::Unknown { why: "its shim does not answer".to_owned() },
        (Some(exit), _) => TaskSeen::Stopped(exit.clone()),
        (None, _) if task.started => TaskSeen::Running { pid: task.pid, start_ticks: task.start_ticks },
        (None, _) => TaskSeen::Created { pid: task.pid },
    }
}

/// Makes a part of a sighting blind.
pub fn blind(sighting: &mut Sighting, domain: Domain, why: &str) {
    match (sighting, domain) {
        (Sighting::Runtime(sight), Domain::Runtime) => *sight = Sight::unseen(why),
        (Sighting::Net(sight), Domain::Net) => *sight = Sight::unseen(why),
        (Sighting::Ports(sight), Domain::Ports) => *sight = Sight::unseen(why),
        (Sighting::Files(sight), Domain::Files) => *sight = Sight::unseen(why),
        (Sighting::Instance { runtime: Some(sight), .. }, Domain::Runtime) => *sight = Sight::unseen(why),
        (Sighting::Instance { net: Some(sight), .. }, Domain::Net) => *sight = Sight::unseen(why),
        (Sighting::Instance { files: Some(sight), .. }, Domain::Files) => *sight = Sight::unseen(why),
        (Sighting::Image { image, .. }, Domain::Runtime) => *image = Sight::unseen(why),
        (Sighting::Network { bridge, .. }, Domain::Net) => *bridge = Sight::unseen(why),
        (Sighting::Volume { exists, .. }, Domain::Files) => *exists = Sight::unseen(why),
        (Sighting::Publication { table, .. }, Domain::Ports) => *table = Sight::unseen(why),
        (Sighting::Publication { ip_forward, .. }, Domain::Net) => *ip_forward = Sight::unseen(why),
        _ => {}
    }
}

impl World {
    /// The tasks of a picture as they are now: lists of one look are read one after the other.
    pub fn retouch(&self, sighting: &mut Sighting) {
        let sides: Vec<&mut RuntimeSide> = match sighting {
            Sighting::Runtime(Sight::Seen(seen)) => seen.instances.values_mut().collect(),
            Sighting::Instance { runtime: Some(Sight::Seen(Some(side))), .. } => vec![side],
            _ => return,
        };
        for container in sides.into_iter().flat_map(|side| side.containers.iter_mut()) {
            if let Some(found) = self.runtime.containers.get(&container.id) {
                (container.task, container.witnessed) = self.see_task(&container.id, found);
            }
        }
    }

    /// A look's driver takes a witness of every live process that it sees.
    pub fn watch_tasks(&mut self, scope: &Scope) {
        if self.runtime.daemon != Daemon::Up || matches!(scope, Scope::Domain(domain) if *domain != Domain::Runtime) {
            return;
        }
        let live = self.runtime.containers.iter().filter_map(|(id, container)| {
            let task = container.task.as_ref().filter(|task| task.exit.is_none() && task.shim == Shim::Up)?;
            Some((id.clone(), task.pid))
        });
        let live: Vec<_> = live.collect();
        self.witnesses.extend(live);
    }
}
