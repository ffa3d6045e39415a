//! Whose a link or a netns is when its name is all that there is: the way back from the hashes in names.

use super::read::Link;
use crate::model::{InstanceKey, Key, Marks, NetworkKey};
use std::collections::{BTreeMap, BTreeSet};

/// Names of links and netns with their owners, for every instance and network that anything on the node tells of:
/// what is wanted, labels in containerd, folders with files.
///
/// A link is made before its alias is set, and a crash may come in between; its name then leads to its owner here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    links: BTreeMap<String, Owner>,
    netns: BTreeMap<String, InstanceKey>,
    /// The names of each object's links.
    names: BTreeMap<Key, BTreeSet<String>>,
}

/// Whose a link is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A bridge.
    Network(NetworkKey),
    /// An instance's link into a network.
    Instance(InstanceKey, NetworkKey),
}

impl Owner {
    /// The object.
    pub fn key(&self) -> Key {
        match self {
            Self::Network(network) => Key::Network(network.clone()),
            Self::Instance(instance, _) => Key::Instance(instance.clone()),
        }
    }

    /// The name that a link of this owner is made with.
    pub(super) fn link_name(&self, marks: &Marks) -> String {
        match self {
            Self::Network(network) => marks.bridge(network),
            Self::Instance(instance, network) => marks.link(instance, network),
        }
    }

    /// Whose a link of ours is: by its alias, else by its name.
    pub(super) fn of(marks: &Marks, owners: &Owners, link: &Link) -> Option<Self> {
        let by_alias = link.alias.as_deref().and_then(|alias| Self::of_alias(marks, alias));
        by_alias.or_else(|| owners.link(&link.name).cloned())
    }

    /// Whose a link with this alias is, if the alias is one of ours.
    fn of_alias(marks: &Marks, alias: &str) -> Option<Self> {
        match marks.read_alias(alias)? {
            Key::Network(network) => Some(Self::Network(network)),
            Key::Instance(instance) => {
                let (_, name) = alias.rsplit_once('/')?;
                let network = NetworkKey { app: instance.app.clone(), network: name.parse().ok()? };
                Some(Self::Instance(instance, network))
            }
            Key::Image(_) | Key::Volume(_) | Key::Publication | Key::Stray(_) => None,
        }
    }
}

impl Owners {
    /// The names that these instances, each with the networks that it is or was in, and these networks lead to.
    pub fn new(
        marks: &Marks,
        instances: impl IntoIterator<Item = (InstanceKey, BTreeSet<NetworkKey>)>,
        networks: impl IntoIterator<Item = NetworkKey>,
    ) -> Self {
        let mut owners = Self::default();
        for (instance, networks) in instances {
            owners.netns.insert(marks.netns(&instance), instance.clone());
            for network in networks {
                let name = marks.link(&instance, &network);
                owners.add(name, Owner::Instance(instance.clone(), network));
            }
        }
        for network in networks {
            owners.add(marks.bridge(&network), Owner::Network(network));
        }
        owners
    }

    /// Takes in a bridge whose name is the user's.
    pub fn add_bridge(&mut self, name: String, network: NetworkKey) {
        self.add(name, Owner::Network(network));
    }

    fn add(&mut self, name: String, owner: Owner) {
        self.names.entry(owner.key()).or_default().insert(name.clone());
        self.links.insert(name, owner);
    }

    /// Whose a link of this name is.
    pub fn link(&self, name: &str) -> Option<&Owner> {
        self.links.get(name)
    }

    /// The names that an object's links are made with.
    pub(super) fn links_of(&self, key: &Key) -> impl Iterator<Item = &str> {
        let own = self.names.get(key).into_iter().flatten();
        own.map(String::as_str)
    }

    /// Whose a netns of this name is.
    pub fn netns(&self, name: &str) -> Option<&InstanceKey> {
        self.netns.get(name)
    }
}
