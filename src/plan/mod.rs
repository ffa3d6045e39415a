//! # plan: from two pictures to one decision
//!
//! `(Desired, Observed, Holds, now) -> Decision` for one object at a time. Pure: no I/O, no async, no clock of its own,
//! no randomness, no memory.
//!
//! Guarantees:
//! 1. `Settled` if and only if what is seen of the object is what is wanted of it.
//! 2. From any picture, doing what is decided ends in `Settled` after a number of steps that is linear in objects.
//! 3. Nothing is destroyed or rebuilt on a domain that is `Unseen`.
//! 4. Nothing without our marks is named in a step.
//! 5. The network is never taken from a task that may be alive.
//! 6. Dropping the holds changes when, never what.
//!
//! Never: looks at how the last step went. That is in the next look.
//!
//! Tests: `tests/plan_properties.rs`; the same planner runs in `tests/simulate.rs` and on the node.

mod allocate;
mod change;
mod compare;
mod exit;
mod foresee;
mod grants;
mod instance;
mod names;
mod needs;
mod node;
mod ports;
mod retire;
mod target;
#[cfg(test)]
mod tests;
mod wire;

pub use allocate::Allocation;
pub use compare::{changes, digest};
pub use foresee::{foresee, to_the_end};
pub use names::host_name;

use crate::model::{
    Archive, Blocker, Decision, Desired, Hold, InstanceKey, Key, Marks, NetworkKey, Observed, Service, Sight, Timestamp,
};
use ipnet::Ipv4Net;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Refused steps that wait for their time, by object.
pub type Holds = BTreeMap<Key, Hold>;

/// The two pictures, with what is derived from both once for all objects.
pub struct Picture<'a> {
    /// What is wanted.
    pub desired: &'a Desired,
    /// What was seen.
    pub observed: &'a Observed,
    /// Our marks.
    pub marks: &'a Marks,
    allocation: OnceCell<Allocation>,
    members: OnceCell<BTreeMap<NetworkKey, Vec<(InstanceKey, &'a Service)>>>,
    images: OnceCell<BTreeMap<String, Option<Archive>>>,
    leaving: OnceCell<needs::Leaving>,
}

impl<'a> Picture<'a> {
    /// Puts the pictures together.
    pub fn new(desired: &'a Desired, observed: &'a Observed, marks: &'a Marks) -> Self {
        let (allocation, members) = (OnceCell::new(), OnceCell::new());
        let (images, leaving) = (OnceCell::new(), OnceCell::new());
        Self { desired, observed, marks, allocation, members, images, leaving }
    }

    /// Every object that is wanted or seen.
    pub fn keys(&self) -> BTreeSet<Key> {
        let mut keys = BTreeSet::from([Key::Publication]);
        keys.extend(self.desired.instances().map(|(key, _)| Key::Instance(key)));
        keys.extend(self.desired.networks().map(|(key, _)| Key::Network(key)));
        keys.extend(self.desired.volumes().map(Key::Volume));
        keys.extend(self.images().keys().cloned().map(Key::Image));
        if let Sight::Seen(runtime) = &self.observed.runtime {
            keys.extend(runtime.instances.keys().cloned().map(Key::Instance));
            keys.extend(
                runtime.images.iter().filter(|(_, image)| image.lease).map(|(name, _)| Key::Image(name.clone())),
            );
            keys.extend(runtime.strays.iter().cloned().map(Key::Stray));
        }
        if let Sight::Seen(net) = &self.observed.net {
            keys.extend(net.instances.keys().cloned().map(Key::Instance));
            keys.extend(net.networks.keys().cloned().map(Key::Network));
            keys.extend(net.strays.iter().cloned().map(Key::Stray));
        }
        if let Sight::Seen(files) = &self.observed.files {
            keys.extend(files.instances.keys().cloned().map(Key::Instance));
        }
        keys
    }

    /// Subnets and addresses.
    pub fn allocation(&self) -> &Allocation {
        self.allocation.get_or_init(|| Allocation::of(self.desired, self.observed))
    }

    /// The wanted instances in a network, in order.
    pub fn members(&self, network: &NetworkKey) -> &[(InstanceKey, &'a Service)] {
        let members = self.members.get_or_init(|| {
            let mut members: BTreeMap<NetworkKey, Vec<(InstanceKey, &'a Service)>> = BTreeMap::new();
            for (key, service) in self.desired.instances() {
                for at in &service.spec.networks {
                    let network = NetworkKey { app: key.app.clone(), network: at.network.clone() };
                    members.entry(network).or_default().push((key.clone(), service));
                }
            }
            members
        });
        members.get(network).map(Vec::as_slice).unwrap_or_default()
    }

    /// What a network's bridge is called: as the file says, or as it is called already while the file cannot say, or by
    /// its mark.
    pub(crate) fn bridge_name(&self, key: &NetworkKey) -> String {
        let said = match self.desired.network(key) {
            Some(spec) => spec.bridge.clone(),
            None => self.observed.net.seen().and_then(|net| net.networks.get(key)).map(|link| link.name.clone()),
        };
        said.unwrap_or_else(|| self.marks.bridge(key))
    }

    /// The wanted images with their archives. Where two services disagree on an archive, the first one's counts.
    pub fn images(&self) -> &BTreeMap<String, Option<Archive>> {
        self.images.get_or_init(|| {
            let mut images: BTreeMap<String, Option<Archive>> = BTreeMap::new();
            for (_, service) in self.desired.instances() {
                let want = &service.spec.image;
                let archive = images.entry(want.reference.clone()).or_default();
                if archive.is_none() {
                    archive.clone_from(&want.archive);
                }
            }
            images
        })
    }

    /// Who needs whom among what is being taken away.
    fn leaving(&self) -> &needs::Leaving {
        self.leaving.get_or_init(|| needs::Leaving::of(self))
    }

    /// This boot of the machine; empty while containerd is not seen.
    pub fn runtime_boot(&self) -> String {
        self.observed.runtime.seen().map(|runtime| runtime.boot.clone()).unwrap_or_default()
    }

    /// An instance that may be alive with an address of this network that is not in the subnet.
    pub(crate) fn live_elsewhere(&self, network: &NetworkKey, subnet: Ipv4Net) -> Sight<Option<InstanceKey>> {
        self.observed.runtime.as_ref().map(|runtime| {
            let lives_elsewhere = |side: &crate::model::RuntimeSide| {
                side.containers.iter().filter(|container| container.task.may_live()).any(|container| {
                    let attachments = container.record.iter().flat_map(|record| &record.attachments);
                    attachments.into_iter().any(|at| at.network == *network && at.subnet != subnet)
                })
            };
            runtime.instances.iter().find(|(_, side)| lives_elsewhere(side)).map(|(key, _)| key.clone())
        })
    }
}

/// Decides for one object.
pub fn decide(picture: &Picture<'_>, key: &Key, holds: &Holds, now: Timestamp) -> Decision {
    let decision = match key {
        Key::Image(reference) => node::image(picture, reference),
        Key::Network(key) => node::network(picture, key),
        Key::Volume(key) => node::volume(picture, key),
        Key::Instance(key) => instance::decide(picture, key, now),
        Key::Publication => node::publication(picture),
        Key::Stray(key) => node::stray(picture, key),
    };
    match (decision, holds.get(key)) {
        (Decision::Do(step, _), Some(hold)) if hold.step == step.name() && now < hold.until => {
            let what = format!("{} again, after: {}", hold.step, hold.error);
            Decision::Wait(vec![Blocker::Until { at: hold.until, what }])
        }
        (decision, _) => decision,
    }
}
