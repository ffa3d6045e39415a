//! What most tests on a node begin with: the image, things of other people that look like ours, and ways to read status.

use super::containerd::Version;
use super::image::{BUSYBOX, busybox_archive};
use super::node::Node;
use super::picture::Picture;
use serde_json::Value;
use std::ops::{Deref, DerefMut};

/// A node with the image imported and with look-alikes planted.
pub struct Scene {
    node: Node,
    foreign: Picture,
}

impl Scene {
    /// Sets it up.
    pub fn new(version: Version) -> Self {
        let node = Node::new(version);
        let archive = busybox_archive(&node.dir);
        node.ctr("stead", &format!("images import {}", archive.display()));
        plant_lookalikes(&node);
        let foreign = Picture::of(node.enter(), "stead").only(is_foreign);
        assert!(foreign.lines() > 10, "the look-alikes must be seen: {foreign:?}");
        Self { node, foreign }
    }

    /// The picture of everything, look-alikes and all.
    pub fn picture(&self) -> Picture {
        Picture::of(self.node.enter(), "stead")
    }

    /// The look-alikes are as they were planted, to the last handle and pid.
    #[track_caller]
    pub fn assert_foreign_untouched(&self) {
        self.foreign.assert_same(&self.picture().only(is_foreign), "things of other people");
    }
}

impl Deref for Scene {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for Scene {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}

fn is_foreign(line: &str) -> bool {
    ["f0f0f0", "foreign", "steadfast"].iter().any(|mark| line.contains(mark))
}

/// A bridge, a veth, netns, nft tables, containers and a task that are named almost as ours, and are not ours.
fn plant_lookalikes(node: &Node) {
    node.sh(&format!(
        "ip link add stf0f0f0f0f0f0 type bridge
         ip link set stf0f0f0f0f0f0 up alias foreign:web/web/1/default
         ip address add 10.213.7.1/24 dev stf0f0f0f0f0f0
         ip netns add stead-foreign
         ip netns add steadf0f0f0f0f0f0
         ip link add stf0f0f0f0f0f1 type veth peer name eth0 netns stead-foreign
         ip link set stf0f0f0f0f0f1 master stf0f0f0f0f0f0 up
         ip -n stead-foreign address add 10.213.7.2/24 dev eth0
         ip -n stead-foreign link set eth0 up
         nft add table inet steadfast
         nft 'add chain inet steadfast input {{ type filter hook input priority 10; }}'
         nft add rule inet steadfast input counter
         nft add table ip stead-foreign
         ctr -n stead run -d {BUSYBOX} web-web-1-f0f0f0f0 sleep inf
         ctr -n stead containers create --label stead/foreign=yes {BUSYBOX} web-web-2-f0f0f0f0 sleep inf"
    ));
}

/// All instances of a status document, by `app/service/n`.
pub fn instances(status: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for app in status["apps"].as_array().into_iter().flatten() {
        for service in app["services"].as_array().into_iter().flatten() {
            for instance in service["instances"].as_array().into_iter().flatten() {
                found.push((instance["instance"].as_str().unwrap_or("?").to_owned(), instance.clone()));
            }
        }
    }
    found
}

/// One instance of a status document.
pub fn instance(status: &Value, name: &str) -> Result<Value, String> {
    let found = instances(status).into_iter().find(|(found, _)| found == name);
    found.map(|(_, instance)| instance).ok_or_else(|| format!("status tells of no instance {name}"))
}

/// Succeeds when exactly this many instances are there, and all run.
pub fn running(status: &Value, count: usize) -> Result<(), String> {
    let all = instances(status);
    let running = all.iter().filter(|(_, instance)| instance["state"] == "running").count();
    if all.len() == count && running == count {
        Ok(())
    } else {
        Err(format!("{running} of {} run, {count} should", all.len()))
    }
}

/// The pid of a running instance, by status.
#[track_caller]
pub fn pid(status: &Value, name: &str) -> u32 {
    let instance = instance(status, name).unwrap_or_else(|why| panic!("{why}"));
    instance["pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok())
        .unwrap_or_else(|| panic!("{name} has no pid: {instance}"))
}

/// The sum of the writes to the outside that the agent has counted since it started.
pub fn writes(status: &Value) -> u64 {
    let counters = &status["agent"]["counters"];
    ["containerd_writes", "net_writes", "nft_writes", "file_writes"]
        .iter()
        .map(|name| counters[*name].as_u64().unwrap_or_else(|| panic!("status has no counter {name}: {counters}")))
        .sum()
}
