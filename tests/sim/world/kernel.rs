//! What the kernel does by itself: processes end, namespaces without a holder go, and their veths after them.

use super::{Happening, World};
use std::collections::BTreeSet;
use stead::model::{Exit, ExitStatus};

/// The host side of a veth goes this long after its netns (it is asynchronous on Linux).
const VETH_LINGERS: u64 = 16;

impl World {
    /// Lets time pass to `now` and does everything of the world's own that is due; calls and plans are given back.
    pub fn advance(&mut self, now: u64) -> Option<Happening> {
        self.now = self.now.max(now);
        while let Some(what) = self.next_due() {
            match what {
                Happening::ProcessEnds { pid, boot, code } => self.process_ends(pid, boot, code),
                Happening::LinkGone { index } => self.link_gone(index),
                other => return Some(other),
            }
        }
        None
    }

    pub(super) fn process_will_end(&mut self, pid: u32, after: u64, code: u32) {
        let boot = self.boot;
        self.plan(self.now + after, Happening::ProcessEnds { pid, boot, code });
    }

    /// A process ends, whatever made it.
    pub fn process_ends(&mut self, pid: u32, boot: u32, code: u32) {
        if boot != self.boot {
            return;
        }
        let at = self.wall();
        let alive = self.runtime.containers.iter_mut().find_map(|(id, container)| {
            let instance = container.instance.clone();
            let task = container.task.as_mut().filter(|task| task.pid == pid && task.exit.is_none())?;
            task.exit = Some(Exit { pid, status: ExitStatus::Code(code), at });
            Some((id.clone(), instance))
        });
        let Some((id, instance)) = alive else {
            return;
        };
        self.process_gone(&id, pid, code);
        if let Some(instance) = instance {
            self.audit.count(&instance, "task-ended");
            if self.runtime.daemon == super::Daemon::Up {
                self.ring_instance(&instance, "task exit");
            }
        }
        self.collect_spaces();
    }

    /// The books on a process that is gone: the truth, and what the living agent's witness saw.
    pub(super) fn process_gone(&mut self, id: &str, pid: u32, code: u32) {
        let at = self.wall();
        self.audit.truth.insert((id.to_owned(), pid, self.boot), code);
        if !self.witnesses.remove(&(id.to_owned(), pid)) {
            return;
        }
        let status = if self.exit_info { ExitStatus::Code(code) } else { ExitStatus::Unknown };
        self.witnessed.insert((id.to_owned(), pid), Exit { pid, status, at });
        if let Some(instance) = self.runtime.containers.get(id).and_then(|container| container.instance.clone()) {
            self.ring_instance(&instance, "exit witnessed");
        }
    }

    /// Ends a task's process if it lives, and removes the task.
    pub(super) fn remove_task(&mut self, id: &str) {
        let Some(task) = self.runtime.containers.get_mut(id).and_then(|container| container.task.take()) else {
            return;
        };
        if task.exit.is_none() {
            self.process_gone(id, task.pid, 137);
        }
        self.collect_spaces();
    }

    /// Namespaces that no file and no process holds are gone; the host sides of their veths follow.
    pub fn collect_spaces(&mut self) {
        let mut held: BTreeSet<u64> = self.net.files.values().copied().collect();
        let tasks = self.runtime.containers.values().filter_map(|container| container.task.as_ref());
        held.extend(tasks.filter(|task| task.exit.is_none()).map(|task| task.space));
        let gone: Vec<u64> = self.net.spaces.keys().filter(|inode| !held.contains(inode)).copied().collect();
        for inode in gone {
            self.net.spaces.remove(&inode);
            let peers =
                self.net.links.iter().filter(|(_, link)| link.peer.as_ref().is_some_and(|peer| peer.0 == inode));
            let peers: Vec<u32> = peers.map(|(index, _)| *index).collect();
            for index in peers {
                self.plan(self.now + VETH_LINGERS, Happening::LinkGone { index });
            }
        }
    }

    fn link_gone(&mut self, index: u32) {
        let peer = self.net.links.get(&index).and_then(|link| link.peer.as_ref());
        if peer.is_some_and(|(inode, _)| !self.net.spaces.contains_key(inode)) {
            self.remove_link(index);
        }
    }

    /// Removes a host link with its other end; a bridge's ports stay without a master.
    pub fn remove_link(&mut self, index: u32) {
        self.ring_link(index, "link event");
        let Some(link) = self.net.links.remove(&index) else {
            return;
        };
        if let Some((inode, interface)) = &link.peer {
            self.lose_address(*inode, interface);
            if let Some(space) = self.net.spaces.get_mut(inode) {
                space.interfaces.remove(interface);
            }
        }
        let ports = self.net.links.iter_mut().filter(|(_, port)| port.seen.controller == Some(index));
        let ports: Vec<u32> = ports
            .map(|(index, port)| {
                port.seen.controller = None;
                port.seen.hairpin = false;
                *index
            })
            .collect();
        for port in ports {
            self.ring_link(port, "link event");
        }
    }

    /// Loses the power: everything that is not on disk is gone.
    pub fn reboot(&mut self) {
        let ids: Vec<String> = self.runtime.containers.keys().cloned().collect();
        for id in ids {
            if let Some(container) = self.runtime.containers.get_mut(&id) {
                container.task = None;
                container.wedge = false;
                container.wedge_known = false;
                if let Some(instance) = container.instance.clone() {
                    self.audit.shake(&instance);
                }
            }
        }
        self.boot += 1;
        self.next_pid = 1000;
        self.witnesses.clear();
        self.witnessed.clear();
        self.net.files.clear();
        self.net.spaces.clear();
        self.net.links.retain(|_, link| !link.ours && link.peer.is_none());
        self.net.ip_forward = false;
        self.net.table = None;
        self.files.instances.clear();
        self.runtime.daemon = super::Daemon::Up;
    }
}
