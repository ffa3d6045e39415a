//! An instance's way to its networks: netns, links, addresses, route. Repaired under the running task; never taken from it.

use super::Picture;
use super::instance::{Rung, Scene, act, identity};
use super::target::Target;
use crate::model::{
    Attachment, Blocker, Decision, Desired, InstanceKey, InstanceSpec, InterfaceSeen, Key, LinkIdentity, LinkSeen, MTU,
    NetSide, NetnsIdentity, NetnsSeen, NetworkMode, NetworkSpec, RuntimeSide, Sight, Six, Step, TaskSeen,
};
use ipnet::Ipv4Net;
use std::borrow::Cow;
use std::net::IpAddr;

pub(super) fn link_identity(link: &LinkSeen) -> LinkIdentity {
    LinkIdentity { index: link.index, name: link.name.clone(), alias: link.alias.clone() }
}

/// Everything that a task of this target needs of the network.
pub(super) fn whole(scene: &Scene<'_, '_>, runtime: &RuntimeSide, target: &Target) -> Rung {
    match &target.record.spec.network_mode {
        Some(NetworkMode::Host) => return away(scene),
        Some(NetworkMode::Service(_)) => return away(scene).or_else(|| shared(scene, runtime, &target.record.spec)),
        Some(NetworkMode::None) | None => {}
    }
    let side = match &scene.net {
        Sight::Seen(side) => side,
        Sight::Unseen(blind) => {
            return Some(Decision::Wait(vec![Blocker::Blind {
                what: "the network".to_owned(),
                why: blind.why.clone(),
            }]));
        }
    };
    let guests = guests(scene);
    let live = |side: &RuntimeSide| side.containers.iter().any(|container| container.task.may_live());
    let live = live(runtime) || guests.iter().any(|(_, side)| live(side));
    let netns = match namespace(scene, runtime, side, &guests, live) {
        Ok(netns) => netns,
        Err(decision) => return Some(decision),
    };
    surplus(scene, side, netns, target, live)
        .or_else(|| loopback(scene, netns))
        .or_else(|| target.record.attachments.iter().find_map(|at| attachment(scene, side, netns, at, live)))
        .or_else(|| route(scene, netns, &target.record.attachments))
}

/// What can be repaired while it is not known which tasks live: nothing is made or dropped.
pub(super) fn repair(scene: &Scene<'_, '_>, attachments: &[Attachment]) -> Rung {
    let side = scene.net.seen()?;
    let netns = side.netns.as_ref().filter(|netns| netns.inode != 0)?;
    let existing = attachments.iter().filter(|at| side.links.contains_key(&at.network));
    let existing: Vec<&Attachment> = existing.collect();
    loopback(scene, netns)
        .or_else(|| existing.iter().find_map(|at| attachment(scene, side, netns, at, true)))
        .or_else(|| if existing.len() == attachments.len() { route(scene, netns, attachments) } else { None })
}

/// Takes the network of an instance away; only called when no container of it is left.
pub(super) fn away(scene: &Scene<'_, '_>) -> Rung {
    let side = match &scene.net {
        Sight::Seen(side) => side,
        Sight::Unseen(blind) => {
            return Some(Decision::Wait(vec![Blocker::Blind {
                what: "the network".to_owned(),
                why: blind.why.clone(),
            }]));
        }
    };
    let nothing = side.links.is_empty() && side.netns.is_none();
    let live = |side: &RuntimeSide| side.containers.iter().any(|container| container.task.may_live());
    if let Some((guest, _)) = guests(scene).into_iter().find(|(_, side)| !nothing && live(side)) {
        let (key, what) = (Key::Instance(guest.clone()), format!("to leave the network of {}", scene.key));
        return Some(Decision::Wait(vec![Blocker::On { key, what }]));
    }
    if let Some(link) = side.links.values().next() {
        return Some(act(Step::DropLink { link: link_identity(link) }, "no container of the instance is left"));
    }
    let netns = side.netns.as_ref()?;
    let identity = NetnsIdentity { name: scene.picture.marks.netns(scene.key), inode: netns.inode };
    Some(act(Step::DropNetns { netns: identity }, "no container of the instance is left"))
}

/// The instances that were made to share this one's network, with what containerd has of them.
fn guests<'s>(scene: &Scene<'s, '_>) -> Vec<(&'s InstanceKey, &'s RuntimeSide)> {
    let Some(all) = scene.picture.observed.runtime.seen() else { return Vec::new() };
    let host = scene.key;
    let shares = |side: &RuntimeSide| {
        let mut records = side.containers.iter().filter_map(|container| container.record.as_ref());
        let of = |mode: &Option<NetworkMode>| matches!(mode, Some(NetworkMode::Service(name)) if *name == host.service);
        records.any(|record| of(&record.spec.network_mode))
    };
    let mates = all.instances.iter().filter(|(key, _)| key.app == host.app && key.replica == host.replica);
    mates.filter(|(_, side)| shares(side)).collect()
}

/// What stands in the way of an instance that has another one's network: that one's namespace with all of its links.
fn shared(scene: &Scene<'_, '_>, runtime: &RuntimeSide, spec: &InstanceSpec) -> Rung {
    let owner = Desired::shares(scene.key, spec)?;
    let net = scene.picture.observed.net.seen()?;
    let side = net.instances.get(&owner);
    let netns = side.and_then(|side| side.netns.as_ref()).filter(|netns| netns.inode != 0);
    let Some(netns) = netns else {
        let made = runtime.containers.iter().find_map(|container| match container.task {
            TaskSeen::Created { pid } => Some((identity(container), pid)),
            _ => None,
        });
        return Some(match made {
            Some((container, pid)) => {
                act(Step::DeleteTask { container, pid }, "it was made in a netns that is gone, and not started")
            }
            None => wait_for_owner(scene, spec),
        });
    };
    // what runs goes on whatever its network lacks: that is repaired under it, by the other's own steps
    let started = runtime.containers.iter().any(|container| matches!(container.task, TaskSeen::Running { .. }));
    let links = side.map(|side| side.links.len()).unwrap_or_default();
    let wanted = scene.picture.desired.service(&owner).map(|service| service.spec.networks.len());
    let inside = netns.interfaces.values().filter(|inside| inside.up && !inside.addresses.is_empty()).count();
    let whole = netns.loopback_up && wanted.is_none_or(|wanted| links >= wanted && inside >= wanted);
    (!whole && !started).then(|| wait_for_owner(scene, spec))
}

/// The wait of an instance for the one whose network it has.
pub(super) fn wait_for_owner(scene: &Scene<'_, '_>, spec: &InstanceSpec) -> Decision {
    let blocker = match Desired::shares(scene.key, spec) {
        Some(owner) => Blocker::On { key: Key::Instance(owner), what: "to have its network".to_owned() },
        None => Blocker::Blind { what: "the network".to_owned(), why: "no netns yet".to_owned() },
    };
    Decision::Wait(vec![blocker])
}

/// The netns that an instance's processes join: `Some(None)` for the host's, `None` while it is not there.
pub(super) fn joined(scene: &Scene<'_, '_>, spec: &InstanceSpec) -> Option<Option<NetnsIdentity>> {
    if spec.network_mode == Some(NetworkMode::Host) {
        return Some(None);
    }
    let owner = Desired::shares(scene.key, spec).unwrap_or_else(|| scene.key.clone());
    let netns = scene.picture.observed.net.seen()?.instances.get(&owner)?.netns.as_ref()?;
    let identity = NetnsIdentity { name: scene.picture.marks.netns(&owner), inode: netns.inode };
    (netns.inode != 0).then_some(Some(identity))
}

/// The attachments that an instance's hosts file tells of: its own, or those of the one whose network it has. `None`
/// while they are not known.
pub(super) fn names_from<'t>(
    scene: &Scene<'_, '_>,
    spec: &InstanceSpec,
    own: &'t [Attachment],
) -> Option<Cow<'t, [Attachment]>> {
    let Some(owner) = Desired::shares(scene.key, spec) else { return Some(Cow::Borrowed(own)) };
    let picture = scene.picture;
    let service = picture.desired.service(&owner)?;
    picture.allocation().attachments(&owner, &service.spec, picture.marks).ok().map(Cow::Owned)
}

fn namespace<'s>(
    scene: &Scene<'_, '_>,
    runtime: &RuntimeSide,
    side: &'s NetSide,
    guests: &[(&InstanceKey, &RuntimeSide)],
    live: bool,
) -> Result<&'s NetnsSeen, Decision> {
    if let Some(netns) = side.netns.as_ref().filter(|netns| netns.inode != 0) {
        return Ok(netns);
    }
    let name = scene.picture.marks.netns(scene.key);
    let all = || std::iter::once(runtime).chain(guests.iter().map(|(_, side)| *side)).flat_map(|side| &side.containers);
    let running = all().find_map(|container| match container.task {
        TaskSeen::Running { pid, start_ticks } => Some((pid, start_ticks)),
        _ => None,
    });
    let made = runtime.containers.iter().find_map(|container| match container.task {
        TaskSeen::Created { pid } => Some((identity(container), pid)),
        _ => None,
    });
    Err(match (running, made) {
        (Some((pid, start_ticks)), _) => {
            act(Step::AdoptNetns { name, pid, start_ticks }, "the netns file is gone, its process lives")
        }
        (None, Some((container, pid))) => {
            act(Step::DeleteTask { container, pid }, "it was made in a netns that is gone, and not started")
        }
        (None, None) if live => Decision::Wait(vec![Blocker::Stuck {
            what: "the netns file is gone, and the task that may use it cannot be judged".to_owned(),
            hint: "it is looked at again; nothing is rebuilt under a task that may be alive".to_owned(),
        }]),
        (None, None) => act(Step::MakeNetns { name }, "no netns"),
    })
}

/// Links into networks that the target is not in, and links that are inside under a name that another one needs: they go
/// before any is made.
fn surplus(scene: &Scene<'_, '_>, side: &NetSide, netns: &NetnsSeen, target: &Target, live: bool) -> Rung {
    if live {
        return None;
    }
    side.links.iter().find_map(|(network, link)| {
        let drop = |why: String| Some(act(Step::DropLink { link: link_identity(link) }, why));
        let Some(at) = target.record.attachments.iter().find(|at| at.network == *network) else {
            return drop(format!("{} is not in network {network} any more", scene.key));
        };
        let inside = netns.interfaces.iter().find(|(_, interface)| interface.peer_index == link.index);
        let (name, _) = inside.filter(|(name, _)| **name != at.interface)?;
        drop(format!("it is `{name}` inside, to be `{}`", at.interface))
    })
}

fn netns_identity(scene: &Scene<'_, '_>, netns: &NetnsSeen) -> NetnsIdentity {
    NetnsIdentity { name: scene.picture.marks.netns(scene.key), inode: netns.inode }
}

fn loopback(scene: &Scene<'_, '_>, netns: &NetnsSeen) -> Rung {
    let step = || Step::LoopbackUp { netns: netns_identity(scene, netns) };
    (!netns.loopback_up).then(|| act(step(), "the loopback is down"))
}

fn attachment(scene: &Scene<'_, '_>, side: &NetSide, netns: &NetnsSeen, at: &Attachment, live: bool) -> Rung {
    let network = || Key::Network(at.network.clone());
    let wait = |what: &str| Some(Decision::Wait(vec![Blocker::On { key: network(), what: what.to_owned() }]));
    let net = scene.picture.observed.net.seen()?;
    let Some(bridge) = net.networks.get(&at.network) else {
        return wait("bridge to be made");
    };
    let six = at.six.as_ref().map(|six| six.subnet);
    if !bridge.addresses.iter().any(|address| address.trunc() == at.subnet)
        || six.is_some_and(|subnet| !bridge.addresses6.iter().any(|address| address.trunc() == subnet))
    {
        return wait("bridge to have its address");
    }
    let name = scene.picture.marks.link(scene.key, &at.network);
    let Some(link) = side.links.get(&at.network) else {
        return Some(make_link(scene, netns, at, name, bridge));
    };
    if link.name != name {
        return Some(rename(scene.picture, link, name));
    }
    let inside = netns.interfaces.iter().find(|(_, interface)| interface.peer_index == link.index);
    let Some((interface, inside)) = inside else {
        return Some(lost_peer(link, live));
    };
    let shape = || shape(scene, netns, link, (interface, inside), at);
    port(scene, link, bridge, at).or_else(shape).or_else(|| address(scene, netns, interface, inside, at))
}

fn make_link(scene: &Scene<'_, '_>, netns: &NetnsSeen, at: &Attachment, name: String, bridge: &LinkSeen) -> Decision {
    let foreign = scene.picture.observed.net.seen().is_some_and(|net| net.foreign_links.contains(&name));
    if foreign {
        return Decision::Wait(vec![Blocker::Stuck {
            what: format!("a link named {name} exists and is not ours"),
            hint: format!("remove or rename it: ip link set {name} name OTHER"),
        }]);
    }
    if netns.interfaces.contains_key(&at.interface) {
        return Decision::Wait(vec![Blocker::Stuck {
            what: format!("an interface {} that is not ours is in the netns", at.interface),
            hint: "move it out, or remove it".to_owned(),
        }]);
    }
    let step = Step::MakeLink {
        name,
        netns: scene.picture.marks.netns(scene.key),
        inode: netns.inode,
        interface: at.interface.clone(),
        mac: at.mac,
        mtu: mtu(scene, at).unwrap_or(MTU),
        bridge: (bridge.name.clone(), bridge.index),
    };
    act(step, format!("no link into network {}", at.network))
}

/// What a network's links carry at most, where that is known.
fn mtu(scene: &Scene<'_, '_>, at: &Attachment) -> Option<u32> {
    scene.picture.desired.network(&at.network).map(NetworkSpec::link_mtu)
}

/// Gives a link its name back, unless somebody else has it.
pub(super) fn rename(picture: &Picture<'_>, link: &LinkSeen, name: String) -> Decision {
    if picture.observed.net.seen().is_some_and(|net| net.foreign_links.contains(&name)) {
        return Decision::Wait(vec![Blocker::Stuck {
            what: format!("a link named {name} exists and is not ours"),
            hint: format!("remove or rename it: ip link set {name} name OTHER"),
        }]);
    }
    let why = format!("it is named {}", link.name);
    act(Step::RenameLink { link: link_identity(link), name }, why)
}

/// MTU of both ends, and the MAC inside.
fn shape(
    scene: &Scene<'_, '_>,
    netns: &NetnsSeen,
    link: &LinkSeen,
    (name, inside): (&str, &InterfaceSeen),
    at: &Attachment,
) -> Rung {
    let mtu = mtu(scene, at);
    if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu) {
        let step = Step::ShapeLink { link: link_identity(link), mtu, mac: None };
        return Some(act(step, format!("its MTU is {}, to be {mtu}", link.mtu)));
    }
    let (mtu, mac) = (mtu.unwrap_or(inside.mtu), at.mac);
    let step = || Step::ShapeInterface { netns: netns_identity(scene, netns), interface: name.to_owned(), mtu, mac };
    let why = || format!("{name} has another {}", if inside.mac == mac { "MTU" } else { "MAC" });
    (inside.mtu != mtu || inside.mac != mac).then(|| act(step(), why()))
}

/// The host side is there, its other end is not in the netns.
fn lost_peer(link: &LinkSeen, live: bool) -> Decision {
    if live {
        return Decision::Wait(vec![Blocker::Stuck {
            what: format!("the other end of link {} is not in the instance's netns", link.name),
            hint: "somebody moved it; it is made again when the instance restarts".to_owned(),
        }]);
    }
    act(Step::DropLink { link: link_identity(link) }, "its other end is not in the netns")
}

/// The host side: alias, bridge port, up.
fn port(scene: &Scene<'_, '_>, link: &LinkSeen, bridge: &LinkSeen, at: &Attachment) -> Rung {
    let alias = scene.picture.marks.link_alias(scene.key, &at.network);
    if link.alias.as_deref() != Some(alias.as_str()) {
        return Some(act(Step::SetAlias { link: link_identity(link), alias }, "the link has no alias yet"));
    }
    let why = if link.controller != Some(bridge.index) {
        format!("it is no port of {}", bridge.name)
    } else if !link.up {
        "it is down".to_owned()
    } else if !link.hairpin {
        "hairpin is off".to_owned()
    } else {
        return None;
    };
    Some(act(Step::AttachPort { link: link_identity(link), bridge: bridge.index }, why))
}

fn address(scene: &Scene<'_, '_>, netns: &NetnsSeen, name: &str, inside: &InterfaceSeen, at: &Attachment) -> Rung {
    let Ok(wanted) = Ipv4Net::new(at.address, at.subnet.prefix_len()) else {
        return None;
    };
    let six = at.six.as_ref().and_then(Six::interface);
    if inside.up && inside.addresses == [wanted] && inside.addresses6.iter().eq(six.iter()) {
        return None;
    }
    let both = six.map(|six| format!(" and {six}")).unwrap_or_default();
    let why = if inside.up { format!("{name} has not exactly {wanted}{both}") } else { format!("{name} is down") };
    let (netns, interface) = (netns_identity(scene, netns), name.to_owned());
    let step = Step::SetAddress { netns, interface, address: wanted, six };
    Some(act(step, why))
}

fn route(scene: &Scene<'_, '_>, netns: &NetnsSeen, attachments: &[Attachment]) -> Rung {
    let four = attachments.iter().find_map(|at| at.gateway);
    let six = attachments.iter().find_map(|at| at.six.as_ref()?.gateway);
    let four = four.filter(|gateway| netns.default_gateway != Some(*gateway)).map(IpAddr::V4);
    let six = six.filter(|gateway| netns.default_gateway6 != Some(*gateway)).map(IpAddr::V6);
    let gateway = four.or(six)?;
    let step = Step::SetDefaultRoute { netns: netns_identity(scene, netns), gateway };
    Some(act(step, format!("no default route by {gateway}")))
}
