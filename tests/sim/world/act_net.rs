//! Steps on links, namespaces, addresses, routes and the nft table.

use super::act::{done_if, refused};
use super::{Link, Space, World};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::IpAddr;
use stead::model::{CauseKind, InterfaceSeen, LinkIdentity, LinkSeen, MTU, NetnsIdentity, Outcome, Step, TableSeen};

impl World {
    pub(super) fn act_net(&mut self, step: &Step) -> Outcome {
        match step {
            Step::MakeNetns { name } => self.make_netns(name),
            Step::AdoptNetns { name, pid, start_ticks } => self.adopt_netns(name, *pid, *start_ticks),
            Step::MakeLink { .. } => self.make_link(step),
            Step::SetAlias { link, alias } => self.on_link(link, |_, seen| {
                seen.alias = Some(alias.clone());
                Outcome::Done
            }),
            Step::RenameLink { link, name } => {
                if self.link_named(name).is_some() {
                    return refused(CauseKind::Failed, "file exists");
                }
                self.on_link(link, |_, seen| {
                    seen.name.clone_from(name);
                    Outcome::Done
                })
            }
            Step::ShapeLink { link, mtu, mac } => self.on_link(link, |_, seen| {
                seen.mtu = *mtu;
                seen.mac = mac.unwrap_or(seen.mac);
                Outcome::Done
            }),
            Step::ShapeInterface { netns, interface, mtu, mac } => self.on_space(netns, |space| {
                let Some(inside) = space.interfaces.get_mut(interface) else {
                    return Outcome::Moved;
                };
                (inside.mtu, inside.mac) = (*mtu, *mac);
                Outcome::Done
            }),
            Step::AttachPort { link, bridge } => self.attach_port(link, *bridge),
            Step::LoopbackUp { netns } => self.on_space(netns, |space| {
                space.loopback_up = true;
                Outcome::Done
            }),
            Step::SetAddress { netns, interface, address, six } => self.set_address(netns, interface, *address, *six),
            Step::SetDefaultRoute { netns, gateway } => self.on_space(netns, |space| {
                let reaches = |inside: &InterfaceSeen| {
                    let mut all = inside.addresses.iter().map(|at| IpNet::V4(*at));
                    let mut six = inside.addresses6.iter().map(|at| IpNet::V6(*at));
                    inside.up && (all.any(|at| at.contains(gateway)) || six.any(|at| at.contains(gateway)))
                };
                if !space.interfaces.values().any(reaches) {
                    return refused(CauseKind::Failed, "network is unreachable");
                }
                match gateway {
                    IpAddr::V4(gateway) => space.default_gateway = Some(*gateway),
                    IpAddr::V6(gateway) => space.default_gateway6 = Some(*gateway),
                }
                Outcome::Done
            }),
            Step::DropLink { link } => self.drop_link(link),
            Step::DropNetns { netns } => self.drop_netns(netns),
            Step::MakeBridge { name, mac, .. } => self.make_bridge(name, *mac),
            Step::SetBridgeAddress { link, address, six } => self.on_link(link, |_, seen| {
                seen.addresses = vec![*address];
                seen.addresses6 = six.iter().copied().collect();
                seen.up = true;
                Outcome::Done
            }),
            Step::SetRouteLocalnet { link } => self.on_link(link, |_, seen| {
                seen.route_localnet = true;
                Outcome::Done
            }),
            Step::EnableForwarding { six } => self.forward(*six, true),
            Step::RestoreForwarding { six } => self.forward(*six, false),
            other => unreachable!("{} is no step on the network", other.name()),
        }
    }

    pub(super) fn act_ports(&mut self, step: &Step) -> Outcome {
        let Step::ApplyRuleset { ruleset } = step else {
            unreachable!("{} is no step on the port table", step.name());
        };
        self.audit_ruleset(ruleset.as_ref());
        self.net.table = ruleset.clone().map(|ruleset| TableSeen { ruleset, intact: true });
        self.ring_ports("nft event");
        Outcome::Done
    }

    fn forward(&mut self, six: bool, on: bool) -> Outcome {
        *if six { &mut self.net.ip6_forward } else { &mut self.net.ip_forward } = on;
        Outcome::Done
    }

    fn on_link(&mut self, link: &LinkIdentity, change: impl FnOnce(&mut Self, &mut LinkSeen) -> Outcome) -> Outcome {
        let Some(mut found) = self.identified_link(link).cloned() else {
            return Outcome::Moved;
        };
        let before = found.seen.clone();
        let outcome = change(self, &mut found.seen);
        if found.seen != before {
            let index = found.seen.index;
            self.net.links.insert(index, found);
            self.ring_link(index, "link event");
        }
        outcome
    }

    fn identified_link(&self, link: &LinkIdentity) -> Option<&Link> {
        let found = self.net.links.get(&link.index)?;
        (found.seen.name == link.name && found.seen.alias == link.alias && found.ours).then_some(found)
    }

    fn on_space(&mut self, netns: &NetnsIdentity, change: impl FnOnce(&mut Space) -> Outcome) -> Outcome {
        if self.net.files.get(&netns.name) != Some(&netns.inode) {
            return Outcome::Moved;
        }
        let Some(space) = self.net.spaces.get_mut(&netns.inode) else {
            return Outcome::Moved;
        };
        let outcome = change(space);
        self.ring_netns(&netns.name, "link event inside");
        outcome
    }

    fn make_netns(&mut self, name: &str) -> Outcome {
        if self.net.files.get(name).is_some_and(|inode| *inode != 0) {
            return Outcome::Already;
        }
        let inode = self.fresh_inode();
        self.net.spaces.insert(inode, Space::default());
        self.net.files.insert(name.to_owned(), inode);
        self.count_netns(name, "make-netns");
        self.ring_netns(name, "netns event");
        Outcome::Done
    }

    fn adopt_netns(&mut self, name: &str, pid: u32, start_ticks: u64) -> Outcome {
        if self.net.files.get(name).is_some_and(|inode| *inode != 0) {
            return Outcome::Already;
        }
        let lives = |task: &&super::Task| task.pid == pid && task.start_ticks == start_ticks && task.exit.is_none();
        let mut tasks = self.runtime.containers.values().filter_map(|container| container.task.as_ref());
        let Some(space) = tasks.find(lives).map(|task| task.space) else {
            return Outcome::Moved;
        };
        self.net.files.insert(name.to_owned(), space);
        self.ring_netns(name, "netns event");
        Outcome::Done
    }

    fn make_link(&mut self, step: &Step) -> Outcome {
        let Step::MakeLink { name, netns, inode, interface, mac, mtu, bridge } = step else {
            unreachable!("the caller has matched it");
        };
        if self.net.files.get(netns) != Some(inode) || !self.net.spaces.contains_key(inode) {
            return Outcome::Moved;
        }
        match self.link_named(name) {
            Some(link) if link.ours => return Outcome::Already,
            Some(_) => return refused(CauseKind::Failed, "file exists"),
            None => {}
        }
        let bridge_is = |link: &Link| link.seen.bridge && link.seen.name == bridge.0;
        if !self.net.links.get(&bridge.1).is_some_and(bridge_is) {
            return Outcome::Moved;
        }
        if self.net.spaces[inode].interfaces.contains_key(interface) {
            return refused(CauseKind::Failed, "file exists");
        }
        let (index, inside_index) = (self.fresh_index(), self.fresh_index());
        let inside = InterfaceSeen {
            index: inside_index,
            peer_index: index,
            up: false,
            mac: *mac,
            mtu: *mtu,
            addresses: vec![],
            addresses6: vec![],
        };
        let space = self.net.spaces.get_mut(inode).expect("it was found above");
        space.interfaces.insert(interface.clone(), inside);
        let seen = LinkSeen {
            index,
            name: name.clone(),
            alias: None,
            bridge: false,
            up: true,
            controller: Some(bridge.1),
            hairpin: false,
            mac: [0xfe, mac[1], mac[2], mac[3], mac[4], mac[5]],
            mtu: *mtu,
            addresses: vec![],
            addresses6: vec![],
            route_localnet: false,
        };
        self.net.links.insert(index, Link { seen, ours: true, peer: Some((*inode, interface.clone())) });
        if let Some((instance, _)) = self.registry.link_owner(name).cloned() {
            self.audit.count(&instance, "make-link");
        }
        self.ring_link(index, "link event");
        Outcome::Done
    }

    fn attach_port(&mut self, link: &LinkIdentity, bridge: u32) -> Outcome {
        if self.identified_link(link).is_none() || !self.net.links.get(&bridge).is_some_and(|link| link.seen.bridge) {
            return Outcome::Moved;
        }
        self.on_link(link, |_, seen| {
            seen.controller = Some(bridge);
            seen.hairpin = true;
            seen.up = true;
            Outcome::Done
        })
    }

    fn set_address(
        &mut self,
        netns: &NetnsIdentity,
        interface: &str,
        address: Ipv4Net,
        six: Option<Ipv6Net>,
    ) -> Outcome {
        self.on_space(netns, |space| {
            let Some(inside) = space.interfaces.get_mut(interface) else {
                return Outcome::Moved;
            };
            inside.addresses = vec![address];
            inside.addresses6 = six.into_iter().collect();
            inside.up = true;
            let gateway = space.default_gateway;
            // a route goes with the last address that it is reached by
            let reached =
                |inside: &InterfaceSeen| inside.addresses.iter().any(|at| gateway.is_some_and(|g| at.contains(&g)));
            if !space.interfaces.values().any(reached) {
                space.default_gateway = None;
            }
            Outcome::Done
        })
    }

    fn drop_link(&mut self, link: &LinkIdentity) -> Outcome {
        let Some(found) = self.net.links.get(&link.index) else {
            return Outcome::Already;
        };
        if found.seen.name != link.name || found.seen.alias != link.alias {
            return Outcome::Moved;
        }
        let found = found.clone();
        self.audit_link_removal(&found);
        self.remove_link(link.index);
        if let Some((instance, _)) = self.registry.link_owner(&link.name).cloned() {
            self.audit.count(&instance, "drop-link");
        }
        if let Some(network) = self.registry.bridge_owner(&link.name).cloned() {
            self.audit.count(&network, "drop-bridge");
        }
        Outcome::Done
    }

    fn drop_netns(&mut self, netns: &NetnsIdentity) -> Outcome {
        match self.net.files.get(&netns.name) {
            None => return Outcome::Already,
            Some(inode) if *inode != netns.inode => return Outcome::Moved,
            Some(_) => {}
        }
        self.audit_netns_removal(netns);
        self.net.files.remove(&netns.name);
        self.count_netns(&netns.name, "drop-netns");
        self.ring_netns(&netns.name, "netns event");
        self.collect_spaces();
        Outcome::Done
    }

    fn make_bridge(&mut self, name: &str, mac: [u8; 6]) -> Outcome {
        match self.link_named(name) {
            Some(link) if link.ours => return Outcome::Already,
            Some(_) => return refused(CauseKind::Failed, "file exists"),
            None => {}
        }
        let index = self.fresh_index();
        let seen = LinkSeen {
            index,
            name: name.to_owned(),
            alias: None,
            bridge: true,
            up: true,
            controller: None,
            hairpin: false,
            mac,
            mtu: MTU,
            addresses: vec![],
            addresses6: vec![],
            route_localnet: false,
        };
        self.net.links.insert(index, Link { seen, ours: true, peer: None });
        if let Some(network) = self.registry.bridge_owner(name).cloned() {
            self.audit.count(&network, "make-bridge");
        }
        self.ring_link(index, "link event");
        Outcome::Done
    }

    fn count_netns(&mut self, name: &str, what: &'static str) {
        if let Some(instance) = self.registry.netns_owner(name).cloned() {
            self.audit.count(&instance, what);
        }
    }

    /// Whether an image's lease is held: an import that was cut off.
    pub fn lease_held(&self, reference: &str) -> bool {
        self.runtime.leases.contains(&self.registry.marks.lease(reference))
    }

    /// Takes an address of a netns away, with its route.
    pub fn lose_address(&mut self, inode: u64, interface: &str) -> bool {
        let Some(space) = self.net.spaces.get_mut(&inode) else {
            return false;
        };
        space.default_gateway = None;
        let Some(inside) = space.interfaces.get_mut(interface) else {
            return false;
        };
        let had = !inside.addresses.is_empty();
        inside.addresses.clear();
        done_if(had) == Outcome::Done
    }
}
