//! What a look is asked for and brings back, and how that is taken into the picture.

use super::name::{InstanceKey, Key, NetworkKey, StrayKey, VolumeKey};
use super::seen::{
    Domain, FilesSeen, ImageSeen, InstanceFiles, LinkSeen, NetSeen, NetSide, Observed, RuntimeSeen, RuntimeSide,
    TableSeen,
};
use super::sight::Sight;
use std::collections::BTreeMap;

/// What a look is asked to cover.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A whole domain.
    Domain(Domain),
    /// One object, in every domain that it has a part in.
    Object(Key),
    /// One object's part in one domain: what a step has just touched.
    Part(Key, Domain),
}

/// What a look brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// A whole domain.
    Runtime(Sight<RuntimeSeen>),
    /// A whole domain.
    Net(Sight<NetSeen>),
    /// A whole domain.
    Ports(Sight<Option<TableSeen>>),
    /// A whole domain.
    Files(Sight<FilesSeen>),
    /// One instance. A domain is `None` when it was not looked at, and seen as `None` when nothing of it is there.
    Instance {
        /// Which.
        key: InstanceKey,
        /// Its part in containerd.
        runtime: Option<Sight<Option<RuntimeSide>>>,
        /// Its part in the network.
        net: Option<Sight<Option<NetSide>>>,
        /// Its files.
        files: Option<Sight<Option<InstanceFiles>>>,
    },
    /// One image.
    Image {
        /// Which.
        reference: String,
        /// What is there.
        image: Sight<Option<ImageSeen>>,
    },
    /// One network.
    Network {
        /// Which.
        key: NetworkKey,
        /// Its bridge.
        bridge: Sight<Option<LinkSeen>>,
    },
    /// One volume.
    Volume {
        /// Which.
        key: VolumeKey,
        /// Whether it has a directory.
        exists: Sight<bool>,
    },
    /// The table, and the host setting that it needs.
    Publication {
        /// The table.
        table: Sight<Option<TableSeen>>,
        /// Whether IPv4 and IPv6 are forwarded.
        ip_forward: Sight<(bool, bool)>,
    },
    /// One stray.
    Stray {
        /// Which.
        key: StrayKey,
        /// What is there.
        found: Sight<StraySeen>,
    },
}

/// A stray, looked at again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StraySeen {
    /// It is gone, or it has an owner by now.
    Gone,
    /// A link.
    Link(LinkSeen),
    /// A netns with its inode.
    Netns(u64),
    /// A snapshot, a lease or a shim, still there.
    There,
}

impl Observed {
    /// Takes a sighting in. A blind glimpse of one object blinds its whole domain; a glimpse into a blind domain is
    /// dropped, since only a whole list opens it again.
    pub fn take(&mut self, sighting: Sighting) {
        match sighting {
            Sighting::Runtime(sight) => self.runtime = sight,
            Sighting::Net(sight) => self.net = sight,
            Sighting::Ports(sight) => self.ports = sight,
            Sighting::Files(sight) => self.files = sight,
            Sighting::Instance { key, runtime, net, files } => {
                if let Some(part) = runtime {
                    put(&mut self.runtime, part, |all, part| set(&mut all.instances, &key, part));
                }
                if let Some(part) = net {
                    put(&mut self.net, part, |all, part| set(&mut all.instances, &key, part));
                }
                if let Some(part) = files {
                    put(&mut self.files, part, |all, part| set(&mut all.instances, &key, part));
                }
            }
            Sighting::Image { reference, image } => {
                put(&mut self.runtime, image, |all, part| set(&mut all.images, &reference, part));
            }
            Sighting::Network { key, bridge } => {
                put(&mut self.net, bridge, |all, part| set(&mut all.networks, &key, part));
            }
            Sighting::Volume { key, exists } => put(&mut self.files, exists, |all, there| {
                if there {
                    all.volumes.insert(key)
                } else {
                    all.volumes.remove(&key)
                };
            }),
            Sighting::Publication { table, ip_forward } => {
                put(&mut self.ports, table, |all, part| *all = part);
                put(&mut self.net, ip_forward, |all, on| (all.ip_forward, all.ip6_forward) = on);
            }
            Sighting::Stray { key, found } => self.take_stray(key, found),
        }
    }

    /// Puts back what an earlier picture has of one object in one domain: it is newer than the list just taken.
    pub fn keep(&mut self, domain: Domain, key: &Key, before: &Self) {
        match (domain, key) {
            (Domain::Runtime, Key::Instance(key)) => {
                graft(&mut self.runtime, &before.runtime, |all, old| {
                    set(&mut all.instances, key, old.instances.get(key).cloned());
                });
            }
            (Domain::Runtime, Key::Image(name)) => graft(&mut self.runtime, &before.runtime, |all, old| {
                set(&mut all.images, name, old.images.get(name).cloned());
            }),
            (Domain::Net, Key::Instance(key)) => graft(&mut self.net, &before.net, |all, old| {
                set(&mut all.instances, key, old.instances.get(key).cloned());
            }),
            (Domain::Net, Key::Network(key)) => graft(&mut self.net, &before.net, |all, old| {
                set(&mut all.networks, key, old.networks.get(key).cloned());
            }),
            (Domain::Net, Key::Publication) => {
                graft(&mut self.net, &before.net, |all, old| {
                    (all.ip_forward, all.ip6_forward) = (old.ip_forward, old.ip6_forward);
                });
            }
            (Domain::Ports, Key::Publication) => graft(&mut self.ports, &before.ports, Clone::clone_from),
            (Domain::Files, Key::Instance(key)) => graft(&mut self.files, &before.files, |all, old| {
                set(&mut all.instances, key, old.instances.get(key).cloned());
            }),
            (Domain::Files, Key::Volume(key)) => graft(&mut self.files, &before.files, |all, old| {
                if old.volumes.contains(key) {
                    all.volumes.insert(key.clone())
                } else {
                    all.volumes.remove(key)
                };
            }),
            _ => {}
        }
    }

    fn take_stray(&mut self, key: StrayKey, found: Sight<StraySeen>) {
        if matches!(key, StrayKey::Snapshot(_) | StrayKey::Lease(_) | StrayKey::Shim { .. }) {
            put(&mut self.runtime, found, |all, found| {
                if found == StraySeen::Gone {
                    all.strays.remove(&key)
                } else {
                    all.strays.insert(key)
                };
            });
            return;
        }
        put(&mut self.net, found, |all, found| match (found, &key) {
            (StraySeen::Link(link), StrayKey::Link(name)) => {
                all.stray_links.insert(name.clone(), link);
                all.strays.insert(key);
            }
            (StraySeen::Netns(inode), StrayKey::Netns(name)) => {
                all.stray_netns.insert(name.clone(), inode);
                all.strays.insert(key);
            }
            (_, StrayKey::Link(name)) => {
                all.stray_links.remove(name);
                all.strays.remove(&key);
            }
            (_, StrayKey::Netns(name)) => {
                all.stray_netns.remove(name);
                all.strays.remove(&key);
            }
            (_, StrayKey::Snapshot(_) | StrayKey::Lease(_) | StrayKey::Shim { .. }) => {}
        });
    }
}

fn put<T, P>(domain: &mut Sight<T>, part: Sight<P>, store: impl FnOnce(&mut T, P)) {
    match (domain, part) {
        (Sight::Seen(all), Sight::Seen(part)) => store(all, part),
        (domain @ Sight::Seen(_), Sight::Unseen(blind)) => *domain = Sight::Unseen(blind),
        (Sight::Unseen(_), _) => {}
    }
}

fn graft<T>(now: &mut Sight<T>, before: &Sight<T>, keep: impl FnOnce(&mut T, &T)) {
    if let (Sight::Seen(now), Sight::Seen(before)) = (now, before) {
        keep(now, before);
    }
}

fn set<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, part: Option<V>) {
    match part {
        Some(part) => map.insert(key.clone(), part),
        None => map.remove(key),
    };
}
