//! Steps inside a netns. The calling thread moves into it and is of no further use.

use super::links::{Wanted, exactly, find, set_up, shaped};
use super::netns::{Folder, enter};
use super::wire::Wire;
use crate::drive::fault::Fault;
use crate::model::{NetnsIdentity, Outcome};
use ipnet::{Ipv4Net, Ipv6Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteProtocol;
use rtnetlink::RouteMessageBuilder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The protocol number on our routes (`ip route` prints it), as every routing daemon has one.
const ROUTE_PROTOCOL: u8 = 77;

/// Sets `lo` up.
pub(super) fn loopback_up(folder: &Folder, netns: &NetnsIdentity) -> Result<Outcome, Fault> {
    within(folder, netns, |wire| match find(wire, Wanted::Name("lo"))? {
        Some(link) => set_up(wire, &link),
        None => Ok(Outcome::Moved),
    })
}

/// Gives an interface exactly this address and sets it up.
pub(super) fn set_address(
    folder: &Folder,
    netns: &NetnsIdentity,
    interface: &str,
    address: Ipv4Net,
    six: Option<Ipv6Net>,
) -> Result<Outcome, Fault> {
    within(folder, netns, |wire| match find(wire, Wanted::Name(interface))? {
        Some(link) => exactly(wire, &link, address, six),
        None => Ok(Outcome::Moved),
    })
}

/// Gives an interface its largest packet and its MAC.
pub(super) fn shape(
    folder: &Folder,
    netns: &NetnsIdentity,
    interface: &str,
    mtu: u32,
    mac: [u8; 6],
) -> Result<Outcome, Fault> {
    within(folder, netns, |wire| match find(wire, Wanted::Name(interface))? {
        Some(link) => shaped(wire, &link, mtu, Some(mac)),
        None => Ok(Outcome::Moved),
    })
}

/// Sets the default route of metric 0, which is the one that is used.
pub(super) fn set_default_route(folder: &Folder, netns: &NetnsIdentity, gateway: IpAddr) -> Result<Outcome, Fault> {
    within(folder, netns, |wire| {
        let protocol = RouteProtocol::from(ROUTE_PROTOCOL);
        let route = match gateway {
            IpAddr::V4(gateway) => RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).protocol(protocol).build(),
            // IPv6 would add a second default route beside another: that one goes.
            IpAddr::V6(gateway) => {
                let other = RouteMessageBuilder::<Ipv6Addr>::new().build();
                match wire.change(RouteNetlinkMessage::DelRoute(other), 0, "remove the default route") {
                    Err(fault) if fault.errno() != Some(libc::ESRCH) => return Err(fault),
                    _ => {}
                }
                RouteMessageBuilder::<Ipv6Addr>::new().gateway(gateway).protocol(protocol).build()
            }
        };
        let what = format!("set the default route by {gateway}");
        wire.change(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE, &what)?;
        Ok(Outcome::Done)
    })
}

fn within(
    folder: &Folder,
    netns: &NetnsIdentity,
    work: impl FnOnce(&mut Wire) -> Result<Outcome, Fault>,
) -> Result<Outcome, Fault> {
    let Some(handle) = folder.open_same(netns)? else { return Ok(Outcome::Moved) };
    enter(&handle)?;
    work(&mut Wire::route()?)
}
