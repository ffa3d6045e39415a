//! Steps on links of the host: veth pairs, bridge ports, bridges. Each one looks at its link again before it acts.

use super::look::{addresses, links};
use super::netns::{Folder, refuse_resident, resident};
use super::read::{self, Link};
use super::sysctl;
use super::wire::Wire;
use crate::drive::fault::Fault;
use crate::model::{LinkIdentity, Marks, NetnsIdentity, Outcome};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{InfoBridgePort, InfoData, InfoKind, InfoVeth, LinkMessage};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use rtnetlink::{AddressMessageBuilder, LinkBridge, LinkBridgePort, LinkMessageBuilder, LinkUnspec, LinkVeth};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// What `MakeLink` makes.
pub(super) struct Pair<'a> {
    pub(super) name: &'a str,
    pub(super) netns: NetnsIdentity,
    pub(super) interface: &'a str,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    pub(super) bridge: (&'a str, u32),
}

/// Makes a veth pair in one message: name, group, bridge port and the peer in its netns come into being together.
/// (The alias is not taken in that message, and the peer cannot be up in it.)
pub(super) fn make_pair(wire: &mut Wire, marks: &Marks, folder: &Folder, pair: &Pair<'_>) -> Result<Outcome, Fault> {
    let Some(netns) = folder.open_same(&pair.netns)? else { return Ok(Outcome::Moved) };
    let bridge = find(wire, Wanted::Index(pair.bridge.1))?;
    if !bridge.is_some_and(|bridge| bridge.name == pair.bridge.0 && bridge.group == marks.link_group()) {
        return Ok(Outcome::Moved);
    }
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(pair.interface)
        .address(pair.mac.to_vec())
        .mtu(pair.mtu)
        .setns_by_fd(netns.as_raw_fd())
        .build();
    let message = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
        .name(pair.name)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .controller(pair.bridge.1)
        .link_group(marks.link_group())
        .mtu(pair.mtu)
        .up()
        .build();
    create(wire, marks, pair.name, message)
}

/// Makes a bridge with a fixed MAC (else it takes the lowest of its ports', and peers' neighbour entries go stale).
pub(super) fn make_bridge(wire: &mut Wire, marks: &Marks, name: &str, mac: [u8; 6]) -> Result<Outcome, Fault> {
    let message = LinkBridge::new(name).address(mac.to_vec()).link_group(marks.link_group()).build();
    create(wire, marks, name, message)
}

/// Makes a link; one of this name that is ours already counts as made.
fn create(wire: &mut Wire, marks: &Marks, name: &str, message: LinkMessage) -> Result<Outcome, Fault> {
    let made =
        wire.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, &format!("make link {name}"));
    match made {
        Ok(()) => Ok(Outcome::Done),
        Err(fault) if fault.errno() == Some(libc::EEXIST) => match find(wire, Wanted::Name(name))? {
            Some(link) if link.group == marks.link_group() => Ok(Outcome::Already),
            // The name that is taken is not this one, but the one inside the netns.
            None => Err(fault),
            Some(_) => Err(Fault::Refused {
                why: format!("a link named {name} exists and is not ours"),
                hint: "remove or rename it",
            }),
        },
        Err(fault) => Err(fault),
    }
}

/// Sets an alias.
pub(super) fn set_alias(wire: &mut Wire, marks: &Marks, link: &LinkIdentity, alias: &str) -> Result<Outcome, Fault> {
    let Some(there) = same(wire, marks, link)? else { return Ok(Outcome::Moved) };
    if there.alias.as_deref() == Some(alias) {
        return Ok(Outcome::Already);
    }
    let message = LinkUnspec::new_with_index(link.index).alias(alias).build();
    wire.change(RouteNetlinkMessage::SetLink(message), 0, &format!("set the alias of {}", link.name))?;
    Ok(Outcome::Done)
}

/// Gives a link its name back. A kernel before 6.2 renames only what is down; what follows from that is seen by the next
/// look.
pub(super) fn rename(wire: &mut Wire, marks: &Marks, link: &LinkIdentity, name: &str) -> Result<Outcome, Fault> {
    let Some(there) = same(wire, marks, link)? else { return Ok(Outcome::Moved) };
    if there.name == name {
        return Ok(Outcome::Already);
    }
    let message = || LinkUnspec::new_with_index(link.index).name(name).build();
    let what = format!("rename {} to {name}", link.name);
    match wire.change(RouteNetlinkMessage::SetLink(message()), 0, &what) {
        Err(fault) if fault.errno() == Some(libc::EBUSY) => {
            let down = LinkUnspec::new_with_index(link.index).down().build();
            wire.change(RouteNetlinkMessage::SetLink(down), 0, &format!("set {} down", link.name))?;
            wire.change(RouteNetlinkMessage::SetLink(message()), 0, &what)?;
            set_up(wire, &Link { up: false, ..there })
        }
        renamed => renamed.map(|()| Outcome::Done),
    }
}

/// Gives a link its largest packet, and its MAC where one is named.
pub(super) fn shape(
    wire: &mut Wire,
    marks: &Marks,
    link: &LinkIdentity,
    mtu: u32,
    mac: Option<[u8; 6]>,
) -> Result<Outcome, Fault> {
    match same(wire, marks, link)? {
        Some(there) => shaped(wire, &there, mtu, mac),
        None => Ok(Outcome::Moved),
    }
}

/// The same for a link that has been found.
pub(super) fn shaped(wire: &mut Wire, link: &Link, mtu: u32, mac: Option<[u8; 6]>) -> Result<Outcome, Fault> {
    if link.mtu == mtu && mac.is_none_or(|mac| mac == link.mac) {
        return Ok(Outcome::Already);
    }
    let mut message = LinkUnspec::new_with_index(link.index).mtu(mtu);
    if let Some(mac) = mac {
        message = message.address(mac.to_vec());
    }
    wire.change(RouteNetlinkMessage::SetLink(message.build()), 0, &format!("set MTU and MAC of {}", link.name))?;
    Ok(Outcome::Done)
}

/// Makes a link a port of a bridge, up, with hairpin on: an instance can then reach its own published ports.
pub(super) fn attach(wire: &mut Wire, marks: &Marks, link: &LinkIdentity, bridge: u32) -> Result<Outcome, Fault> {
    let Some(there) = same(wire, marks, link)? else { return Ok(Outcome::Moved) };
    if there.controller == Some(bridge) && there.up && there.hairpin {
        return Ok(Outcome::Already);
    }
    if there.controller != Some(bridge) || !there.up {
        let message = LinkUnspec::new_with_index(link.index).controller(bridge).up().build();
        wire.change(RouteNetlinkMessage::SetLink(message), 0, &format!("make {} a bridge port", link.name))?;
    }
    // A port's own settings are taken only once it is a port.
    let port = LinkBridgePort::new(link.index).append_info_data(InfoBridgePort::HairpinMode(true)).build();
    wire.change(RouteNetlinkMessage::NewLink(port), 0, &format!("switch hairpin on for {}", link.name))?;
    Ok(Outcome::Done)
}

/// Gives a bridge exactly one address, and sets it up.
pub(super) fn bridge_address(
    wire: &mut Wire,
    marks: &Marks,
    link: &LinkIdentity,
    address: Ipv4Net,
    six: Option<Ipv6Net>,
) -> Result<Outcome, Fault> {
    let Some(there) = same(wire, marks, link)? else { return Ok(Outcome::Moved) };
    exactly(wire, &there, address, six)
}

/// Lets a bridge carry connections from 127.0.0.1.
pub(super) fn route_localnet(wire: &mut Wire, marks: &Marks, link: &LinkIdentity) -> Result<Outcome, Fault> {
    match same(wire, marks, link)? {
        Some(there) => sysctl::enable_route_localnet(&there.name),
        None => Ok(Outcome::Moved),
    }
}

/// Deletes a link that nobody needs: no process lives at its other end, no port is attached to it.
pub(super) fn drop_link(wire: &mut Wire, marks: &Marks, link: &LinkIdentity) -> Result<Outcome, Fault> {
    if find(wire, Wanted::Index(link.index))?.is_none() {
        return Ok(Outcome::Already);
    }
    let Some(there) = same(wire, marks, link)? else { return Ok(Outcome::Moved) };
    if let Some(port) = links(wire)?.into_iter().find(|port| port.controller == Some(link.index)) {
        return Err(Fault::Refused {
            why: format!("{} is still a port of {}", port.name, link.name),
            hint: "a bridge goes after its last port; detach a port that is not ours: ip link set PORT nomaster",
        });
    }
    if let Some(peer) = there.peer_nsid {
        let mut blind = None;
        let lives = resident(|_, path| match nsid(wire, path) {
            Ok(id) => id == Some(peer),
            Err(fault) => {
                blind.get_or_insert(fault);
                false
            }
        });
        refuse_resident(&link.name, lives)?;
        // One namespace that could not be asked may be the one.
        blind.map_or(Ok(()), Err)?;
    }
    let message = LinkUnspec::new_with_index(link.index).build();
    match wire.change(RouteNetlinkMessage::DelLink(message), 0, &format!("delete link {}", link.name)) {
        Ok(()) => Ok(Outcome::Done),
        Err(fault) if fault.errno() == Some(libc::ENODEV) => Ok(Outcome::Already),
        Err(fault) => Err(fault),
    }
}

/// What the calling thread's netns calls the one at this path; `None` when it has no name for it, or it is gone.
fn nsid(wire: &mut Wire, path: &Path) -> Result<Option<u32>, Fault> {
    // A process that has ended by now is no resident.
    let Ok(file) = File::open(path) else { return Ok(None) };
    let descriptor = u32::try_from(file.as_raw_fd()).unwrap_or_default();
    let mut message = NsidMessage::default();
    message.attributes.push(NsidAttribute::Fd(descriptor));
    let mut id = None;
    wire.ask(RouteNetlinkMessage::GetNsId(message), 0, "ask for a netns id", &mut |_, body| id = read::nsid(body))?;
    Ok(id)
}

/// Gives an interface exactly one IPv4 address, and one IPv6 address or none, and sets it up.
pub(super) fn exactly(wire: &mut Wire, link: &Link, address: Ipv4Net, six: Option<Ipv6Net>) -> Result<Outcome, Fault> {
    let wanted: Vec<IpNet> = std::iter::once(IpNet::V4(address)).chain(six.map(IpNet::V6)).collect();
    let have = addresses(wire, link.index)?.into_iter().filter(|address| address.index == link.index);
    let (right, wrong): (Vec<_>, Vec<_>) = have.partition(|address| wanted.contains(&address.address));
    if link.up && right.len() == wanted.len() && wrong.is_empty() {
        return Ok(Outcome::Already);
    }
    // Wrong ones go first: with the first address of a prefix its secondary ones go too, and ours could be one.
    for address in wrong {
        let message = address_message(link.index, address.address);
        let gone = wire.change(
            RouteNetlinkMessage::DelAddress(message),
            0,
            &format!("remove {} from {}", address.address, link.name),
        );
        match gone {
            Err(fault) if fault.errno() != Some(libc::EADDRNOTAVAIL) => return Err(fault),
            _ => {}
        }
    }
    // Before its addresses: IPv6 ones are taken only by what is up, or are lost when it goes down.
    if six.is_some() {
        sysctl::allow_ipv6(&link.name)?;
    }
    set_up(wire, link)?;
    for address in wanted {
        wire.change(
            RouteNetlinkMessage::NewAddress(address_message(link.index, address)),
            NLM_F_CREATE | NLM_F_REPLACE,
            &format!("add {address} to {}", link.name),
        )?;
    }
    Ok(Outcome::Done)
}

/// Sets a link up.
pub(super) fn set_up(wire: &mut Wire, link: &Link) -> Result<Outcome, Fault> {
    if link.up {
        return Ok(Outcome::Already);
    }
    let message = LinkUnspec::new_with_index(link.index).up().build();
    wire.change(RouteNetlinkMessage::SetLink(message), 0, &format!("set {} up", link.name))?;
    Ok(Outcome::Done)
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    match address {
        IpNet::V4(net) => {
            AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(net.addr(), net.prefix_len()).build()
        }
        IpNet::V6(net) => {
            let mut message =
                AddressMessageBuilder::<Ipv6Addr>::new().index(index).address(net.addr(), net.prefix_len()).build();
            // It is ours alone by the way it was chosen, and usable at once.
            message.header.flags |= AddressHeaderFlags::Nodad;
            message
        }
    }
}

/// The link that a step was decided on, if it is still that one and still ours.
fn same(wire: &mut Wire, marks: &Marks, link: &LinkIdentity) -> Result<Option<Link>, Fault> {
    let there = find(wire, Wanted::Index(link.index))?;
    Ok(there.filter(|there| there.name == link.name && there.alias == link.alias && there.group == marks.link_group()))
}

/// Which link.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// By index.
    Index(u32),
    /// By name.
    Name(&'a str),
}

/// One link; `None` when there is none.
pub(super) fn find(wire: &mut Wire, wanted: Wanted<'_>) -> Result<Option<Link>, Fault> {
    let message = match wanted {
        Wanted::Index(index) => LinkUnspec::new_with_index(index).build(),
        Wanted::Name(name) => LinkUnspec::new_with_name(name).build(),
    };
    let mut link = None;
    let found =
        wire.ask(RouteNetlinkMessage::GetLink(message), 0, "look at a link", &mut |_, body| link = read::link(body));
    match found {
        Ok(()) => Ok(link),
        Err(fault) if fault.errno() == Some(libc::ENODEV) => Ok(None),
        Err(fault) => Err(fault),
    }
}
