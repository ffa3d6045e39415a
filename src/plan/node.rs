//! Images, networks, volumes, the port table, and strays: everything that is not an instance.

use super::instance::{Rung, act};
use super::wire::{link_identity, rename};
use super::{Picture, ports};
use crate::model::TableSeen;
use crate::model::{
    Archive, Blocker, Decision, ImageSeen, ImageUse, Key, LinkSeen, NetSeen, NetnsIdentity, NetworkKey, NetworkSpec,
    Ruleset, Sight, Step, StrayKey, VolumeKey,
};
use ipnet::{Ipv4Net, Ipv6Net};

fn blind(what: &str, why: &str) -> Decision {
    Decision::Wait(vec![Blocker::Blind { what: what.to_owned(), why: why.to_owned() }])
}

fn stuck(what: String, hint: &str) -> Decision {
    Decision::Wait(vec![Blocker::Stuck { what, hint: hint.to_owned() }])
}

pub(super) fn image(picture: &Picture<'_>, reference: &str) -> Decision {
    let runtime = match &picture.observed.runtime {
        Sight::Seen(runtime) => runtime,
        Sight::Unseen(blind) => return Decision::Wait(vec![Blocker::RuntimeUnavailable { why: blind.why.clone() }]),
    };
    let wanted = picture.images().get(reference);
    let archive = wanted.and_then(|archive| archive.as_ref());
    let import = |archive: &Archive, why: &str| {
        act(Step::ImportImage { reference: reference.to_owned(), archive: archive.clone() }, why)
    };
    let lease = |image: &ImageSeen| {
        let step = Step::DropLease { id: picture.marks.lease(reference) };
        image.lease.then(|| act(step, "its import has ended"))
    };
    match (runtime.images.get(reference), wanted) {
        (Some(image), None) => lease(image).unwrap_or(Decision::Settled),
        (None, None) => Decision::Settled,
        (None, Some(Some(archive))) => import(archive, "it is not in containerd"),
        (None, Some(None)) => stuck(
            format!("image {reference} is not in containerd"),
            "import it: stead image import FILE, or name an OCI archive: x-stead: {archive: ./FILE}",
        ),
        (Some(image), Some(_)) => match (archive, &image.usable) {
            (Some(archive), _) if archive.digest != image.digest => import(archive, "the archive holds another image"),
            (_, ImageUse::Ready { .. }) => lease(image).unwrap_or(Decision::Settled),
            (_, ImageUse::Packed) => act(Step::UnpackImage { reference: reference.to_owned() }, "it is not unpacked"),
            (Some(archive), ImageUse::Incomplete) => import(archive, "parts of its content are missing"),
            (None, ImageUse::Incomplete) => stuck(
                format!("parts of image {reference} are missing in containerd"),
                "import it again: stead image import FILE",
            ),
            (_, ImageUse::WrongPlatform { has }) => stuck(
                format!("image {reference} is not for this machine, only for {}", has.join(", ")),
                "use an image that has this platform",
            ),
        },
    }
}

pub(super) fn volume(picture: &Picture<'_>, key: &VolumeKey) -> Decision {
    match &picture.observed.files {
        Sight::Unseen(why) => blind("files", &why.why),
        // a volume that is not wanted any more is kept: only a person removes data
        Sight::Seen(files) if files.volumes.contains(key) => Decision::Settled,
        Sight::Seen(_) => act(Step::MakeVolume { volume: key.clone() }, "no directory"),
    }
}

pub(super) fn network(picture: &Picture<'_>, key: &NetworkKey) -> Decision {
    let net = match &picture.observed.net {
        Sight::Seen(net) => net,
        Sight::Unseen(why) => return blind("the network", &why.why),
    };
    let link = net.networks.get(key);
    let Some(spec) = picture.desired.network(key) else {
        return match link {
            Some(link) if picture.desired.may_remove(&key.app) => network_away(picture, key, link),
            _ => Decision::Settled,
        };
    };
    let subnet = match picture.allocation().subnet(key) {
        Ok(subnet) => subnet,
        Err(blocker) => return Decision::Wait(vec![blocker]),
    };
    let Some(link) = link else {
        return bridge(picture, key);
    };
    let gateway = picture.allocation().gateway(key).unwrap_or_else(|| subnet.network());
    let Ok(address) = Ipv4Net::new(gateway, subnet.prefix_len()) else {
        return Decision::Settled;
    };
    let six = picture.allocation().subnet6(key);
    let six = six.and_then(|(subnet, gateway)| Ipv6Net::new(gateway, subnet.prefix_len()).ok());
    let alias = picture.marks.bridge_alias(key);
    if link.alias.as_deref() != Some(alias.as_str()) {
        return act(Step::SetAlias { link: link_identity(link), alias }, "the bridge has no alias yet");
    }
    bridge_shape(picture, key, link, spec).or_else(|| bridge_address(picture, key, link, address, six)).unwrap_or_else(
        || {
            if link.route_localnet {
                return Decision::Settled;
            }
            act(
                Step::SetRouteLocalnet { link: link_identity(link) },
                "published ports are not reachable from 127.0.0.1",
            )
        },
    )
}

fn bridge(picture: &Picture<'_>, key: &NetworkKey) -> Decision {
    let name = picture.bridge_name(key);
    if picture.observed.net.seen().is_some_and(|net| net.foreign_links.contains(&name)) {
        return stuck(format!("a link named {name} exists and is not ours"), "remove or rename it");
    }
    let mac = bridge_mac(picture, key);
    act(Step::MakeBridge { name, mac, network: key.clone() }, "no bridge")
}

fn bridge_mac(picture: &Picture<'_>, key: &NetworkKey) -> [u8; 6] {
    picture.marks.mac(&format!("bridge\0{key}"))
}

/// Name, MAC and MTU of a bridge.
fn bridge_shape(picture: &Picture<'_>, key: &NetworkKey, link: &LinkSeen, spec: &NetworkSpec) -> Rung {
    let name = picture.bridge_name(key);
    if link.name != name {
        return Some(rename(picture, link, name));
    }
    let (mtu, mac) = (spec.link_mtu(), bridge_mac(picture, key));
    let why = if link.mac != mac { "it has another MAC" } else { "it has another MTU" };
    let step = || Step::ShapeLink { link: link_identity(link), mtu, mac: Some(mac) };
    (link.mtu != mtu || link.mac != mac).then(|| act(step(), why))
}

/// The bridge's address changes only when no instance lives in the old subnet any more.
fn bridge_address(
    picture: &Picture<'_>,
    key: &NetworkKey,
    link: &LinkSeen,
    address: Ipv4Net,
    six: Option<Ipv6Net>,
) -> Rung {
    if link.up && link.addresses == [address] && link.addresses6.iter().eq(six.iter()) {
        return None;
    }
    let moves = !link.addresses.is_empty() && !link.addresses.iter().any(|have| have.trunc() == address.trunc());
    if moves {
        match picture.live_elsewhere(key, address.trunc()) {
            Sight::Unseen(blind) => {
                return Some(Decision::Wait(vec![Blocker::RuntimeUnavailable { why: blind.why.clone() }]));
            }
            Sight::Seen(Some(instance)) => {
                let what = "to leave the old subnet".to_owned();
                return Some(Decision::Wait(vec![Blocker::On { key: Key::Instance(instance), what }]));
            }
            Sight::Seen(None) => {}
        }
    }
    let both = six.map(|six| format!(" and {six}")).unwrap_or_default();
    let why = if link.up { format!("it has not exactly {address}{both}") } else { "it is down".to_owned() };
    Some(act(Step::SetBridgeAddress { link: link_identity(link), address, six }, why))
}

fn network_away(picture: &Picture<'_>, key: &NetworkKey, link: &LinkSeen) -> Decision {
    let net = picture.observed.net.seen();
    let user = net.and_then(|net| net.instances.iter().find(|(_, side)| side.links.contains_key(key)));
    match user {
        Some((instance, _)) => Decision::Wait(vec![Blocker::On {
            key: Key::Instance(instance.clone()),
            what: format!("to leave network {key}"),
        }]),
        None => act(Step::DropLink { link: link_identity(link) }, format!("network {key} is not wanted any more")),
    }
}

pub(super) fn publication(picture: &Picture<'_>) -> Decision {
    let net = match &picture.observed.net {
        Sight::Seen(net) => net,
        Sight::Unseen(why) => return blind("the network", &why.why),
    };
    let table = match &picture.observed.ports {
        Sight::Seen(table) => table,
        Sight::Unseen(why) => return blind("the nft table", &why.why),
    };
    let wanted = match ports::ruleset(picture, net, table.as_ref()) {
        Ok(wanted) => wanted,
        Err(blocker) => return Decision::Wait(vec![blocker]),
    };
    if let Some(restore) = restore(net, table.as_ref(), wanted.as_ref()) {
        return restore;
    }
    match (table, wanted) {
        (None, None) => Decision::Settled,
        (Some(_), None) => act(Step::ApplyRuleset { ruleset: None }, "nothing needs the table any more"),
        (have, Some(wanted)) => {
            let why = match have {
                None => "no table",
                Some(have) if have.ruleset != wanted => "other networks or ports",
                Some(have) if !have.intact => "somebody changed the table",
                Some(_) => return forward(net, &wanted).unwrap_or(Decision::Settled),
            };
            act(Step::ApplyRuleset { ruleset: Some(wanted) }, why)
        }
    }
}

/// Forwarding, once the table says how it was before.
fn forward(net: &NetSeen, wanted: &Ruleset) -> Rung {
    let needed = ports::needs_forwarding(wanted);
    if needed.0 && !net.ip_forward {
        return Some(act(Step::EnableForwarding { six: false }, "net.ipv4.ip_forward is off"));
    }
    (needed.1 && !net.ip6_forward)
        .then(|| act(Step::EnableForwarding { six: true }, "net.ipv6.conf.all.forwarding is off"))
}

/// Forwarding that is not needed any more goes back to off before the table forgets that it was. It stays on while
/// somebody else has a bridge, who may have come to need it.
fn restore(net: &NetSeen, have: Option<&TableSeen>, wanted: Option<&Ruleset>) -> Rung {
    let was_off = have?.ruleset.forwarding_was_off;
    let needed = wanted.map(ports::needs_forwarding).unwrap_or_default();
    let why = "nothing needs forwarding any more, and it was off before";
    let step = |six| Some(act(Step::RestoreForwarding { six }, why));
    match net.foreign_bridges {
        false if was_off.0 && !needed.0 && net.ip_forward => step(false),
        false if was_off.1 && !needed.1 && net.ip6_forward => step(true),
        _ => None,
    }
}

pub(super) fn stray(picture: &Picture<'_>, key: &StrayKey) -> Decision {
    let may_go = picture.desired.whole && picture.desired.apps.values().all(|app| app.known);
    let (Sight::Seen(runtime), true) = (&picture.observed.runtime, may_go) else {
        return Decision::Wait(vec![Blocker::Blind {
            what: format!("the owner of {key}"),
            why: "containerd or the desired state is not whole".to_owned(),
        }]);
    };
    let why = "nothing leads to it any more";
    match key {
        StrayKey::Snapshot(_) | StrayKey::Lease(_) | StrayKey::Shim { .. } if !runtime.strays.contains(key) => {
            Decision::Settled
        }
        StrayKey::Snapshot(key) => act(Step::RemoveSnapshot { key: key.clone() }, why),
        StrayKey::Shim { id, pid, start_ticks } => {
            act(Step::EndShim { id: id.clone(), pid: *pid, start_ticks: *start_ticks }, "containerd has lost it")
        }
        StrayKey::Lease(id) => {
            let user = picture.images().keys().find(|reference| picture.marks.lease(reference) == *id);
            match user.filter(|reference| !runtime.images.contains_key(*reference)) {
                Some(reference) => Decision::Wait(vec![Blocker::On {
                    key: Key::Image(reference.clone()),
                    what: "its import to end".to_owned(),
                }]),
                None => act(Step::DropLease { id: id.clone() }, why),
            }
        }
        StrayKey::Link(name) => {
            let link = picture.observed.net.seen().and_then(|net| net.stray_links.get(name));
            link.map_or(Decision::Settled, |link| act(Step::DropLink { link: link_identity(link) }, why))
        }
        StrayKey::Netns(name) => {
            let inode = picture.observed.net.seen().and_then(|net| net.stray_netns.get(name));
            inode.map_or(Decision::Settled, |inode| {
                act(Step::DropNetns { netns: NetnsIdentity { name: name.clone(), inode: *inode } }, why)
            })
        }
    }
}
