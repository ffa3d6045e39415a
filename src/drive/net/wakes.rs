//! What rings: kernel events on our links and inside our netns, commits to our nft table by others, netns files.
//!
//! An event only says where to look. One that is lost costs delay: the loop looks at everything from time to time. So
//! an overrun rings for the whole domain, a source that breaks is opened again, and nothing is counted or replayed.

use super::events::{Heard, Listener};
use super::netns::{Folder, is_ours};
use super::nft::Nft;
use super::owners::{Owner, Owners};
use super::read::{self, Attributes};
use crate::drive::Wake;
use crate::drive::source::{Places, Source, listen};
use crate::model::{Domain, InstanceKey, Key, Marks, Scope};
use futures::{Stream, StreamExt as _, stream};
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use rtnetlink::MulticastGroup;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What the driver and its wake-ups share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) marks: Marks,
    pub(super) folder: Folder,
    pub(super) nft: Nft,
    pub(super) owners: RwLock<Arc<Owners>>,
    pub(super) index: Mutex<Index>,
}

impl Shared {
    /// Whose names are whose.
    pub(super) fn owners(&self) -> Arc<Owners> {
        self.owners.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in what a look at everything found.
    pub(super) fn learn(&self, index: Index) {
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = index;
    }

    /// Takes in what a look at one object found.
    pub(super) fn learn_more(&self, mut index: Index) {
        let known = &mut *self.index.lock().unwrap_or_else(PoisonError::into_inner);
        known.links.append(&mut index.links);
        known.netns.append(&mut index.netns);
    }

    /// The numbers of the links that an object had.
    pub(super) fn links_of(&self, key: &Key) -> Vec<u32> {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let own = index.links.iter().filter(|(_, owner)| owner.as_ref().is_some_and(|owner| owner.key() == *key));
        own.map(|(number, _)| *number).collect()
    }
}

/// Whose a link is, by its number, and whose a netns, by what the kernel calls it in events. From the last look, and
/// kept up by events; only for the wake-ups, no step is decided on it.
#[derive(Debug, Default)]
pub(super) struct Index {
    links: BTreeMap<u32, Option<Owner>>,
    netns: BTreeMap<u32, InstanceKey>,
}

impl Index {
    /// The owners of what is in it.
    pub(super) fn owners(&self) -> BTreeSet<Owner> {
        self.links.values().flatten().cloned().collect()
    }

    /// Takes a link of ours in.
    pub(super) fn add(&mut self, index: u32, owner: Option<Owner>, peer_nsid: Option<u32>) {
        if let (Some(Owner::Instance(instance, _)), Some(id)) = (&owner, peer_nsid) {
            self.netns.insert(id, instance.clone());
        }
        self.links.insert(index, owner);
    }
}

/// Everything that rings, from now on and for ever.
pub(super) fn all(shared: &Arc<Shared>) -> impl Stream<Item = Wake> + use<> {
    stream::select(
        stream::select(listen::<Links>(shared).boxed(), listen::<Tables>(shared).boxed()),
        listen::<Files>(shared).boxed(),
    )
}

/// Links, addresses, routes and the forwarding setting, on the host and in every netns that has a link of ours.
struct Links {
    listener: Listener,
    shared: Arc<Shared>,
}

impl Source for Links {
    type Of = Shared;
    const DOMAIN: Domain = Domain::Net;

    fn open(shared: &Arc<Shared>) -> io::Result<Self> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv4Netconf,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv6Netconf,
        ];
        let listener = Listener::open(netlink_sys::protocols::NETLINK_ROUTE, &groups.map(|group| group as u32), true)?;
        Ok(Self { listener, shared: Arc::clone(shared) })
    }

    async fn next(&mut self) -> io::Result<Places> {
        let mut places = Vec::new();
        let shared = &self.shared;
        let mut each = |netns, kind, body: &[u8]| places.extend(shared.link_event(netns, kind, body));
        if self.listener.hear(&mut each).await? == Heard::WithGaps {
            places.push((Scope::Domain(Domain::Net), "netlink overrun"));
        }
        Ok(places)
    }
}

impl Shared {
    /// Where an event says to look. Links that are not ours do not ring, nor do netns that are not.
    fn link_event(&self, netns: Option<u32>, kind: u16, body: &[u8]) -> Option<(Scope, &'static str)> {
        if netns.is_some() && kind == libc::RTM_NEWNETCONF {
            return None; // a setting inside a netns that nothing of ours depends on
        }
        if !read::concerns(kind, body) {
            return None;
        }
        let index = &mut *self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = netns {
            let instance = Key::Instance(index.netns.get(&id)?.clone());
            return Some((Scope::Part(instance, Domain::Net), "changed inside its netns"));
        }
        if kind == libc::RTM_NEWNETCONF {
            // Only of all links at once: each link tells the same by itself.
            let all = read::netconf_of_all(body);
            return all.then_some((Scope::Part(Key::Publication, Domain::Net), "forwarding changed"));
        }
        let (owner, because) = match kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => match read::link(body) {
                Some(link) if link.group == self.marks.link_group() => {
                    let owner = Owner::of(&self.marks, &self.owners(), &link);
                    index.add(link.index, owner.clone(), link.peer_nsid);
                    if kind == libc::RTM_DELLINK {
                        index.links.remove(&link.index);
                    }
                    (owner, "link changed")
                }
                // Ours until just now.
                Some(link) => (index.links.remove(&link.index)?, "link changed hands"),
                // A bridge's word on one of its ports.
                None => (index.links.get(&read::index(body)?)?.clone(), "bridge port changed"),
            },
            libc::RTM_NEWADDR | libc::RTM_DELADDR => (index.links.get(&read::index(body)?)?.clone(), "address changed"),
            _ => return None,
        };
        let scope = owner.map_or(Scope::Domain(Domain::Net), |owner| Scope::Part(owner.key(), Domain::Net));
        Some((scope, because))
    }
}

/// Commits of nft transactions.
struct Tables {
    listener: Listener,
    shared: Arc<Shared>,
    /// Whether the transaction whose objects are being told concerns our table.
    concerned: bool,
}

impl Tables {
    const SUBSYSTEM: u16 = 10;
    const GROUP: u32 = 7;
    const NEW_GENERATION: u16 = 15;
    const HEADER: usize = 4;
    /// What an object's table is called, in messages of every kind.
    const TABLE: u16 = 1;
    const PROCESS: u16 = 2;
}

impl Source for Tables {
    type Of = Shared;
    const DOMAIN: Domain = Domain::Ports;

    fn open(shared: &Arc<Shared>) -> io::Result<Self> {
        let listener = Listener::open(netlink_sys::protocols::NETLINK_NETFILTER, &[Self::GROUP], false)?;
        Ok(Self { listener, shared: Arc::clone(shared), concerned: false })
    }

    async fn next(&mut self) -> io::Result<Places> {
        let mut places = Vec::new();
        let (nft, concerned) = (&self.shared.nft, &mut self.concerned);
        let mut each = |_, kind: u16, body: &[u8]| {
            if kind >> 8 != Self::SUBSYSTEM {
                return;
            }
            let attribute = |wanted| Attributes::behind(body, Self::HEADER).find(|(kind, _)| *kind == wanted);
            if kind & 0xff != Self::NEW_GENERATION {
                *concerned |= attribute(Self::TABLE).is_some_and(|(_, name)| read::text(name) == nft.table());
                return;
            }
            let process = attribute(Self::PROCESS).and_then(|(_, id)| id.first_chunk::<4>().copied());
            let ours = process.is_some_and(|id| nft.is_ours(u32::from_be_bytes(id)));
            if std::mem::take(concerned) && !ours {
                places.push((Scope::Part(Key::Publication, Domain::Ports), "nft table changed"));
            }
        };
        if self.listener.hear(&mut each).await? == Heard::WithGaps {
            places.push((Scope::Domain(Domain::Ports), "nft overrun"));
        }
        Ok(places)
    }
}

/// Names under the netns folder.
struct Files {
    events: EventStream<[u8; 4096]>,
    shared: Arc<Shared>,
}

impl Source for Files {
    type Of = Shared;
    const DOMAIN: Domain = Domain::Net;

    fn open(shared: &Arc<Shared>) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        let names = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
        let itself = WatchMask::DELETE_SELF | WatchMask::MOVE_SELF | WatchMask::ONLYDIR;
        inotify.watches().add(&shared.folder.path, names | itself)?;
        Ok(Self { events: inotify.into_event_stream([0; 4096])?, shared: Arc::clone(shared) })
    }

    async fn next(&mut self) -> io::Result<Places> {
        let event = self.events.next().await.ok_or(io::ErrorKind::UnexpectedEof)??;
        if event.mask.intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED) {
            return Err(io::Error::other("the netns folder was replaced"));
        }
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            return Ok(vec![(Scope::Domain(Domain::Net), "inotify overrun")]);
        }
        let name = event.name.as_deref().and_then(|name| name.to_str());
        let place = name.filter(|name| is_ours(&self.shared.marks, name)).map(|name| {
            let owner = self.shared.owners().netns(name).cloned().map(Key::Instance);
            let scope = owner.map_or(Scope::Domain(Domain::Net), |key| Scope::Part(key, Domain::Net));
            (scope, "netns file changed")
        });
        Ok(place.into_iter().collect())
    }
}
