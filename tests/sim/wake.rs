//! Wake-ups: what the kernel and containerd would announce of each change. Whether the agent hears it is the stage's choice.

use super::world::World;
use std::fmt::Debug;
use stead::drive::Wake;
use stead::model::{Domain, InstanceKey, Key, Scope, StrayKey};

/// A wake-up on its way.
#[derive(Debug, Clone)]
pub struct Ring(pub Wake);

impl World {
    fn ring(&mut self, scope: Scope, because: &'static str) {
        self.rings.push(Ring(Wake { scope, because, lost: None }));
    }

    /// Something of an instance changed in containerd.
    pub fn ring_instance(&mut self, key: &InstanceKey, because: &'static str) {
        if self.runtime.daemon == super::world::Daemon::Up || because == "exit witnessed" {
            self.ring(Scope::Part(Key::Instance(key.clone()), Domain::Runtime), because);
        }
    }

    /// An image changed.
    pub fn ring_image(&mut self, reference: &str, because: &'static str) {
        self.ring(Scope::Object(Key::Image(reference.to_owned())), because);
    }

    /// A host link changed.
    pub fn ring_link(&mut self, index: u32, because: &'static str) {
        let Some(link) = self.net.links.get(&index) else {
            return;
        };
        let name = &link.seen.name;
        let key = match (self.registry.link_owner(name), self.registry.bridge_owner(name)) {
            (Some((instance, _)), _) => Key::Instance(instance.clone()),
            (None, Some(network)) => Key::Network(network.clone()),
            (None, None) if link.ours => Key::Stray(StrayKey::Link(name.clone())),
            (None, None) => return self.ring(Scope::Domain(Domain::Net), because),
        };
        self.ring(Scope::Part(key, Domain::Net), because);
    }

    /// Something in a netns, or its file, changed.
    pub fn ring_netns(&mut self, name: &str, because: &'static str) {
        if let Some(instance) = self.registry.netns_owner(name).cloned() {
            self.ring(Scope::Part(Key::Instance(instance), Domain::Net), because);
        } else {
            self.ring(Scope::Domain(Domain::Net), because);
        }
    }

    /// The nft table changed.
    pub fn ring_ports(&mut self, because: &'static str) {
        self.ring(Scope::Domain(Domain::Ports), because);
    }

    /// A domain changed as a whole.
    pub fn ring_domain(&mut self, domain: Domain, because: &'static str) {
        self.ring(Scope::Domain(domain), because);
    }

    /// containerd is there again.
    pub fn ring_runtime(&mut self, because: &'static str) {
        self.ring_domain(Domain::Runtime, because);
    }

    /// The stream to containerd broke.
    pub fn ring_runtime_lost(&mut self, why: impl Into<String> + Debug) {
        self.rings.push(Ring(Wake::lost(Domain::Runtime, why)));
    }
}
