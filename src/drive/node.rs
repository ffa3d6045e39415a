//! The real node: the drivers of the four domains behind one [`Drive`].
//!
//! It chooses nothing. It splits a look by domain, hands each step to the driver of its domain, merges what rings, and
//! keeps the table of owners that tells whose a link or a netns is while nothing but its hashed name says so.

use super::containerd::{self, Containerd};
use super::files::{self, Files};
use super::net::{self, Net, Owners};
use super::{Counters, Drive, Wake};
use crate::model::{
    Desired, Domain, FilesSeen, InstanceKey, Key, Marks, NetworkKey, Outcome, RuntimeSeen, Scope, Sight, Sighting,
    Step, StrayKey,
};
use futures::channel::mpsc;
use futures::stream::select_all;
use futures::{Stream, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The node that the agent runs on.
pub struct Node {
    marks: Marks,
    containerd: Containerd,
    net: Net,
    files: Files,
    known: Mutex<Known>,
    rings: Mutex<Rings>,
}

/// What is known of names: from what is wanted, from labels in containerd, from folders with files.
#[derive(Default)]
struct Known {
    wanted: Tellers,
    labelled: Option<Tellers>,
    filed: Tellers,
}

/// Instances with the networks that something tells of, and networks.
#[derive(Default, Clone, PartialEq, Eq)]
struct Tellers {
    instances: BTreeMap<InstanceKey, BTreeSet<NetworkKey>>,
    networks: BTreeSet<NetworkKey>,
    /// Bridges whose names are the user's.
    bridges: BTreeMap<String, NetworkKey>,
}

/// Wakes of our own making. Bounded: a full channel holds a wake for the same domain already.
struct Rings {
    sender: mpsc::Sender<Wake>,
    receiver: Option<mpsc::Receiver<Wake>>,
}

/// Where things are on the node.
#[derive(Debug, Clone)]
pub struct Places {
    /// containerd's socket.
    pub containerd: PathBuf,
    /// Files that live as long as this boot.
    pub run: PathBuf,
    /// Logs.
    pub logs: PathBuf,
    /// Named volumes.
    pub volumes: PathBuf,
}

impl Node {
    /// Puts the drivers together. Nothing is looked at yet, and containerd need not be there.
    pub fn new(marks: Marks, places: &Places, counters: &Arc<Counters>) -> Self {
        let (sender, receiver) = mpsc::channel(4);
        let rings = Mutex::new(Rings { sender, receiver: Some(receiver) });
        let containerd = Containerd::new(containerd::Options {
            socket: places.containerd.clone(),
            marks: marks.clone(),
            run_dir: places.run.clone(),
            log_dir: places.logs.clone(),
            volumes_dir: places.volumes.clone(),
            counters: Arc::clone(counters),
        });
        let net = Net::new(net::Options {
            marks: marks.clone(),
            netns_dir: PathBuf::from("/run/netns"),
            counters: Arc::clone(counters),
        });
        let (run, logs, volumes) = (places.run.clone(), places.logs.clone(), places.volumes.clone());
        let files = Files::new(files::Options::at(run, logs, volumes, Arc::clone(counters)));
        Self { marks, containerd, net, files, known: Mutex::default(), rings }
    }

    /// The runtime driver, for subcommands that talk to containerd themselves.
    pub fn containerd(&self) -> &Containerd {
        &self.containerd
    }

    /// Tells the node what is wanted, so that a link made for it is known again by its name.
    pub fn expect(&self, desired: &Desired) {
        let mut wanted = Tellers::default();
        for (key, service) in desired.instances() {
            let networks = service.spec.networks.iter().map(|at| (key.app.clone(), at.network.clone()));
            let networks = networks.map(|(app, network)| NetworkKey { app, network }).collect();
            wanted.instances.insert(key, networks);
        }
        wanted.networks = desired.networks().map(|(key, _)| key).collect();
        let named = desired.networks().filter_map(|(key, spec)| Some((spec.bridge.clone()?, key)));
        wanted.bridges = named.collect();
        self.learn(|known| known.wanted = wanted);
    }

    fn learn(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut known);
        let owners = Arc::new(known.owners(&self.marks));
        if self.net.set_owners(owners) {
            let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
            // a full channel is no loss: it holds the same wake
            let _ = rings.sender.try_send(Wake::domain(Domain::Net, "owners changed"));
        }
    }

    fn labels_known(&self) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).labelled.is_some()
    }

    async fn look_runtime(&self) -> Sight<RuntimeSeen> {
        let sight = self.containerd.look_runtime().await;
        if let Sight::Seen(seen) = &sight {
            let labelled = Tellers::of_runtime(seen);
            self.learn(|known| known.labelled = Some(labelled));
        }
        sight
    }

    async fn look_files(&self) -> Sight<FilesSeen> {
        let sight = self.files.look_files().await;
        if let Sight::Seen(seen) = &sight {
            let instances = seen.instances.keys().map(|key| (key.clone(), BTreeSet::new())).collect();
            self.learn(|known| known.filed = Tellers { instances, ..Tellers::default() });
        }
        sight
    }

    async fn look_domain(&self, domain: Domain) -> Sighting {
        match domain {
            Domain::Runtime => Sighting::Runtime(self.look_runtime().await),
            Domain::Net => {
                // before the first list of labels every netns would look like a stray
                if !self.labels_known() {
                    let _ = self.look_runtime().await;
                }
                Sighting::Net(self.net.look_net().await)
            }
            Domain::Ports => Sighting::Ports(self.net.look_ports().await),
            Domain::Files => Sighting::Files(self.look_files().await),
        }
    }

    async fn look_object(&self, key: Key, domain: Option<Domain>) -> Sighting {
        let asked = |part: Domain| domain.is_none_or(|domain| domain == part);
        match key {
            Key::Instance(key) => {
                let runtime = async {
                    if asked(Domain::Runtime) { Some(self.containerd.look_instance(&key).await) } else { None }
                };
                let net = async { if asked(Domain::Net) { Some(self.net.look_instance(&key).await) } else { None } };
                let files =
                    async { if asked(Domain::Files) { Some(self.files.look_instance(&key).await) } else { None } };
                let (runtime, net, files) = futures::join!(runtime, net, files);
                Sighting::Instance { key, runtime, net, files }
            }
            Key::Image(reference) => {
                let image = self.containerd.look_image(&reference).await;
                Sighting::Image { reference, image }
            }
            Key::Network(key) => {
                let bridge = self.net.look_network(&key).await;
                Sighting::Network { key, bridge }
            }
            Key::Volume(key) => {
                let exists = self.files.look_volume(&key).await;
                Sighting::Volume { key, exists }
            }
            Key::Publication => {
                let (table, ip_forward) = futures::join!(self.net.look_ports(), self.net.look_forwarding());
                Sighting::Publication { table, ip_forward }
            }
            Key::Stray(key @ (StrayKey::Link(_) | StrayKey::Netns(_))) => {
                let found = self.net.look_stray(&key).await;
                Sighting::Stray { key, found }
            }
            Key::Stray(key @ (StrayKey::Snapshot(_) | StrayKey::Lease(_) | StrayKey::Shim { .. })) => {
                let found = self.containerd.look_stray(&key).await;
                Sighting::Stray { key, found }
            }
        }
    }
}

impl Drive for Node {
    async fn look(&self, scope: Scope) -> Sighting {
        match scope {
            Scope::Domain(domain) => self.look_domain(domain).await,
            Scope::Object(key) => self.look_object(key, None).await,
            Scope::Part(key, domain) => self.look_object(key, Some(domain)).await,
        }
    }

    async fn perform(&self, step: Step) -> Outcome {
        match step.domain() {
            Domain::Runtime => self.containerd.perform(step).await,
            Domain::Net | Domain::Ports => self.net.perform(step).await,
            Domain::Files => self.files.perform(step).await,
        }
    }

    fn wakes(&self) -> impl Stream<Item = Wake> + use<> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut streams = vec![self.containerd.wakes().boxed(), self.net.wakes().boxed(), self.files.wakes().boxed()];
        streams.extend(rings.receiver.take().map(StreamExt::boxed));
        select_all(streams)
    }
}

impl Known {
    fn owners(&self, marks: &Marks) -> Owners {
        let tellers = [Some(&self.wanted), self.labelled.as_ref(), Some(&self.filed)];
        let mut all = Tellers::default();
        for teller in tellers.into_iter().flatten() {
            for (key, networks) in &teller.instances {
                all.instances.entry(key.clone()).or_default().extend(networks.iter().cloned());
            }
            all.networks.extend(teller.networks.iter().cloned());
        }
        let mut owners = Owners::new(marks, all.instances, all.networks);
        for (name, network) in &self.wanted.bridges {
            owners.add_bridge(name.clone(), network.clone());
        }
        owners
    }
}

impl Tellers {
    fn of_runtime(seen: &RuntimeSeen) -> Self {
        let mut tellers = Self::default();
        for (key, side) in &seen.instances {
            let records = side.containers.iter().filter_map(|container| container.record.as_ref());
            let networks: BTreeSet<NetworkKey> =
                records.flat_map(|record| &record.attachments).map(|at| at.network.clone()).collect();
            tellers.networks.extend(networks.iter().cloned());
            tellers.instances.insert(key.clone(), networks);
        }
        tellers
    }
}

impl<D: Drive> Drive for Arc<D> {
    fn look(&self, scope: Scope) -> impl Future<Output = Sighting> {
        (**self).look(scope)
    }

    fn perform(&self, step: Step) -> impl Future<Output = Outcome> {
        (**self).perform(step)
    }

    fn wakes(&self) -> impl Stream<Item = Wake> + use<D> {
        (**self).wakes()
    }
}
