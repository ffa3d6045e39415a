//! The names of everything that a run can make, both ways: a driver knows its own names again without a record.

use std::collections::BTreeMap;
use stead::model::{AgentName, AppName, InstanceKey, Marks, NetworkKey, NetworkName, ServiceName};

/// Apps of the universe.
pub const APPS: [&str; 3] = ["shop", "blog", "wiki"];
/// Services of each app.
pub const SERVICES: [&str; 3] = ["web", "db", "job"];
/// Networks of each app.
pub const NETWORKS: [&str; 2] = ["default", "back"];
/// Volumes of each app.
pub const VOLUMES: [&str; 2] = ["data", "cache"];
/// The most replicas of a service.
pub const REPLICAS: u32 = 3;

/// Marks and the way back from them.
pub struct Registry {
    /// The agent's marks.
    pub marks: Marks,
    netns: BTreeMap<String, InstanceKey>,
    netns_names: BTreeMap<InstanceKey, String>,
    links: BTreeMap<String, (InstanceKey, NetworkKey)>,
    link_names: BTreeMap<(InstanceKey, NetworkKey), String>,
    bridges: BTreeMap<String, NetworkKey>,
    bridge_names: BTreeMap<NetworkKey, String>,
}

/// An app's name.
pub fn app(name: &str) -> AppName {
    AppName::new(name).expect("a valid app name")
}

/// A service's name.
pub fn service(name: &str) -> ServiceName {
    ServiceName::new(name).expect("a valid service name")
}

/// A network's key.
pub fn network(app_name: &str, name: &str) -> NetworkKey {
    NetworkKey { app: app(app_name), network: NetworkName::new(name).expect("a valid network name") }
}

/// An instance's key.
pub fn instance(app_name: &str, service_name: &str, replica: u32) -> InstanceKey {
    InstanceKey { app: app(app_name), service: service(service_name), replica }
}

impl Registry {
    /// The names of the whole universe.
    pub fn new() -> Self {
        let marks = Marks::new(AgentName::new("stead").expect("a valid agent name"));
        let (mut netns, mut links, mut bridges) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut netns_names, mut link_names, mut bridge_names) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for app_name in APPS {
            let networks = NETWORKS.map(|name| network(app_name, name));
            for key in &networks {
                bridges.insert(marks.bridge(key), key.clone());
                bridge_names.insert(key.clone(), marks.bridge(key));
            }
            for service_name in SERVICES {
                for replica in 1..=REPLICAS {
                    let key = instance(app_name, service_name, replica);
                    netns.insert(marks.netns(&key), key.clone());
                    netns_names.insert(key.clone(), marks.netns(&key));
                    for network in &networks {
                        let name = marks.link(&key, network);
                        links.insert(name.clone(), (key.clone(), network.clone()));
                        link_names.insert((key.clone(), network.clone()), name);
                    }
                }
            }
        }
        Self { marks, netns, netns_names, links, link_names, bridges, bridge_names }
    }

    /// Whose netns file this is.
    pub fn netns_owner(&self, name: &str) -> Option<&InstanceKey> {
        self.netns.get(name)
    }

    /// Whose link this is.
    pub fn link_owner(&self, name: &str) -> Option<&(InstanceKey, NetworkKey)> {
        self.links.get(name)
    }

    /// Whose bridge this is.
    pub fn bridge_owner(&self, name: &str) -> Option<&NetworkKey> {
        self.bridges.get(name)
    }

    /// The name of an instance's link.
    pub fn link_name(&self, instance: &InstanceKey, network: &NetworkKey) -> String {
        let known = self.link_names.get(&(instance.clone(), network.clone()));
        known.cloned().unwrap_or_else(|| self.marks.link(instance, network))
    }

    /// The name of a bridge.
    pub fn bridge_name(&self, network: &NetworkKey) -> String {
        self.bridge_names.get(network).cloned().unwrap_or_else(|| self.marks.bridge(network))
    }

    /// The name of an instance's netns.
    pub fn netns_name(&self, instance: &InstanceKey) -> String {
        self.netns_names.get(instance).cloned().unwrap_or_else(|| self.marks.netns(instance))
    }
}
