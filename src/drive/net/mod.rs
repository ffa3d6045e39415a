//! # net: links, netns, sysctls and the nft table
//!
//! Everything by rtnetlink messages and nft scripts; no other program is run.
//!
//! Guarantees: what is ours is known by its marks alone (link group, netns name, nft table), and a step on anything
//! else is [`Outcome::Moved`]. The identity that a step carries is compared again right before it acts. A link or a
//! netns in which a process lives is not dropped, whatever was decided. A look is whole or unseen.
//!
//! Never: a thread that has been inside a netns is used again; a socket or a handle stays open in one.
//!
//! Tests: `tests/driver_net.rs`, `tests/driver_ports.rs` and `tests/driver_wakes.rs`, each test in a network and mount
//! namespace of its own.

mod conntrack;
mod delta;
mod events;
mod firewall;
mod inside;
mod links;
mod listing;
mod look;
mod netns;
mod nft;
mod owners;
mod probe;
mod read;
mod render;
mod sysctl;
mod wakes;
mod wire;

pub use firewall::forward_drops;
pub use owners::{Owner, Owners};
pub use probe::{Tried, probe};

use super::fault::Fault;
use super::{Counters, Wake, sight, thread};
use crate::model::{
    InstanceKey, Key, LinkSeen, Marks, NetSeen, NetSide, NetnsIdentity, NetworkKey, Outcome, Sight, Step, StrayKey,
    StraySeen, TableSeen,
};
use futures::Stream;
use look::{Host, Lens};
use netns::Folder;
use nft::Nft;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use wakes::Shared;
use wire::Wire;

/// What the driver works with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Our marks.
    pub marks: Marks,
    /// Where netns files are: `/run/netns`.
    pub netns_dir: PathBuf,
    /// What is counted.
    pub counters: Arc<Counters>,
}

/// The network driver.
#[derive(Debug)]
pub struct Net {
    counters: Arc<Counters>,
    shared: Arc<Shared>,
}

impl Net {
    /// A driver that has looked at nothing yet.
    pub fn new(options: Options) -> Self {
        let shared = Shared {
            nft: Nft::new(options.marks.agent()),
            marks: options.marks,
            folder: Folder { path: options.netns_dir },
            owners: RwLock::default(),
            index: Mutex::default(),
        };
        Self { counters: options.counters, shared: Arc::new(shared) }
    }

    /// Says whom names belong to, for links that have no alias yet and for netns. Without it they count as strays.
    /// Answers whether that is news: what was looked at before may then have been told wrongly.
    pub fn set_owners(&self, owners: Arc<Owners>) -> bool {
        let mut known = self.shared.owners.write().unwrap_or_else(PoisonError::into_inner);
        let news = *known != owners;
        *known = owners;
        news
    }

    /// Looks at all links, netns and settings.
    pub async fn look_net(&self) -> Sight<NetSeen> {
        let lens = self.lens(None);
        let looked = thread::run("look at the network", move || lens.whole()).await;
        sight(looked.map(|(net, host)| {
            self.shared.learn(host.index);
            net
        }))
    }

    /// Looks at one instance; `None` when nothing of it is there.
    pub async fn look_instance(&self, key: &InstanceKey) -> Sight<Option<NetSide>> {
        let (lens, key) = (self.lens(Some(Key::Instance(key.clone()))), key.clone());
        let looked = thread::run("look at an instance's network", move || lens.instance(&key)).await;
        sight(looked.map(|(side, host)| self.told(side, host)))
    }

    /// Looks at one network; `None` when it has no bridge.
    pub async fn look_network(&self, key: &NetworkKey) -> Sight<Option<LinkSeen>> {
        let (lens, key) = (self.lens(Some(Key::Network(key.clone()))), key.clone());
        let looked = thread::run("look at a bridge", move || lens.network(&key)).await;
        sight(looked.map(|(bridge, host)| self.told(bridge, host)))
    }

    /// Looks at our nft table; `None` when there is none.
    pub async fn look_ports(&self) -> Sight<Option<TableSeen>> {
        sight(self.shared.nft.look().await)
    }

    /// Looks whether IPv4 and IPv6 are forwarded.
    pub async fn look_forwarding(&self) -> Sight<(bool, bool)> {
        let both = || Ok((sysctl::ip_forward()?, sysctl::ip6_forward()?));
        sight(thread::run("look at forwarding", both).await)
    }

    /// Looks at a stray link or netns again.
    pub async fn look_stray(&self, key: &StrayKey) -> Sight<StraySeen> {
        let (lens, key) = (self.lens(None), key.clone());
        sight(thread::run("look at a stray", move || lens.stray(&key)).await)
    }

    /// Does one step of this domain. A step of another domain is refused.
    pub async fn perform(&self, step: Step) -> Outcome {
        let acted = if let Step::ApplyRuleset { ruleset } = &step {
            self.counters.nft_writes.fetch_add(1, Ordering::Relaxed);
            self.shared.nft.apply(ruleset.as_ref()).await
        } else {
            self.counters.net_writes.fetch_add(1, Ordering::Relaxed);
            let (marks, folder) = (self.shared.marks.clone(), self.shared.folder.clone());
            thread::run(step.name(), move || act(&marks, &folder, &step)).await
        };
        acted.unwrap_or_else(|fault| fault.outcome())
    }

    /// What happens to our links, netns and table, from now on and for ever. Needs a tokio runtime.
    pub fn wakes(&self) -> impl Stream<Item = Wake> + use<> {
        wakes::all(&self.shared)
    }

    fn lens(&self, of: Option<Key>) -> Lens {
        let shared = &self.shared;
        Lens {
            marks: shared.marks.clone(),
            owners: shared.owners(),
            folder: shared.folder.clone(),
            before: of.map(|key| shared.links_of(&key)).unwrap_or_default(),
        }
    }

    fn told<T>(&self, seen: T, host: Host) -> T {
        self.shared.learn_more(host.index);
        seen
    }
}

/// Does a step on the calling thread, which may end up in a netns.
fn act(marks: &Marks, folder: &Folder, step: &Step) -> Result<Outcome, Fault> {
    match step {
        Step::MakeNetns { name } => return folder.make(name),
        Step::AdoptNetns { name, pid, start_ticks } => return folder.adopt(name, *pid, *start_ticks),
        Step::DropNetns { netns } => return folder.drop(netns),
        Step::LoopbackUp { netns } => return inside::loopback_up(folder, netns),
        Step::SetAddress { netns, interface, address, six } => {
            return inside::set_address(folder, netns, interface, *address, *six);
        }
        Step::ShapeInterface { netns, interface, mtu, mac } => {
            return inside::shape(folder, netns, interface, *mtu, *mac);
        }
        Step::SetDefaultRoute { netns, gateway } => return inside::set_default_route(folder, netns, *gateway),
        Step::EnableForwarding { six } => return sysctl::enable_forwarding(*six),
        Step::RestoreForwarding { six } => return sysctl::restore_forwarding(*six),
        _ => {}
    }
    let wire = &mut Wire::route()?;
    match step {
        Step::MakeLink { name, netns, inode, interface, mac, mtu, bridge } => {
            let netns = NetnsIdentity { name: netns.clone(), inode: *inode };
            let bridge = (bridge.0.as_str(), bridge.1);
            links::make_pair(wire, marks, folder, &links::Pair { name, netns, interface, mac: *mac, mtu: *mtu, bridge })
        }
        Step::SetAlias { link, alias } => links::set_alias(wire, marks, link, alias),
        Step::RenameLink { link, name } => links::rename(wire, marks, link, name),
        Step::ShapeLink { link, mtu, mac } => links::shape(wire, marks, link, *mtu, *mac),
        Step::AttachPort { link, bridge } => links::attach(wire, marks, link, *bridge),
        Step::DropLink { link } => links::drop_link(wire, marks, link),
        Step::MakeBridge { name, mac, network: _ } => links::make_bridge(wire, marks, name, *mac),
        Step::SetBridgeAddress { link, address, six } => links::bridge_address(wire, marks, link, *address, *six),
        Step::SetRouteLocalnet { link } => links::route_localnet(wire, marks, link),
        other => Err(Fault::Refused {
            why: format!("{} is no step of the network", other.name()),
            hint: "this is a defect of the agent",
        }),
    }
}
