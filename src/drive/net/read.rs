//! Reads the few attributes that matter out of the kernel's messages, and steps over all others: an attribute of a
//! foreign link that no library knows yet must not make the whole look blind.

use ipnet::IpNet;
use std::net::IpAddr;

/// The attributes of a message, one after another; ends at the first one that does not fit.
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes in these bytes.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The attributes behind a fixed header of this length.
    pub(super) fn behind(body: &'a [u8], header: usize) -> Self {
        Self(body.get(header..).unwrap_or_default())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const FLAGS: u16 = 0xc000;
        let length = usize::from(u16::from_ne_bytes(*self.0.first_chunk::<2>()?));
        let kind = u16::from_ne_bytes(self.0.get(2..4)?.try_into().ok()?) & !FLAGS;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The messages of a datagram: the type of each, and what follows its header; ends at the first one that does not fit.
pub(super) struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// The messages in these bytes.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const HEADER: usize = 16;
        let length = number(self.0, 0)? as usize;
        let kind = u16::from_ne_bytes(self.0.get(4..6)?.try_into().ok()?);
        let body = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    }
}

/// The number of the link that a link or address message is about.
pub(super) fn index(body: &[u8]) -> Option<u32> {
    number(body, 4)
}

/// Whether a message about settings is about all links at once, as `net.ipv4.ip_forward` is.
pub(super) fn netconf_of_all(body: &[u8]) -> bool {
    const HEADER: usize = 4;
    const NETCONFA_IFINDEX: u16 = 1;
    const ALL: u32 = -1_i32 as u32;
    Attributes::behind(body, HEADER).any(|(kind, value)| kind == NETCONFA_IFINDEX && number(value, 0) == Some(ALL))
}

/// Text up to its terminating zero.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// The four bytes at an offset, in the machine's order.
fn number(value: &[u8], offset: usize) -> Option<u32> {
    value.get(offset..)?.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// An address, by its length.
fn ip(value: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
    four().or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
}

/// A link as a message tells it.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) alias: Option<String>,
    pub(super) group: u32,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) kind: String,
    pub(super) controller: Option<u32>,
    pub(super) hairpin: bool,
    /// The index of the other end.
    pub(super) peer: u32,
    /// What the host calls the other end's netns; `None` when it is in the same one.
    pub(super) peer_nsid: Option<u32>,
    pub(super) route_localnet: bool,
}

/// Reads a link message. `None` for one of another family (a bridge's word on its port) or a torn one.
pub(super) fn link(body: &[u8]) -> Option<Link> {
    const HEADER: usize = 16;
    const INFO_KIND: u16 = 1;
    const INFO_SLAVE_KIND: u16 = 4;
    const INFO_SLAVE_DATA: u16 = 5;
    const BRPORT_MODE: u16 = 4;
    if i32::from(*body.first()?) != libc::AF_UNSPEC {
        return None;
    }
    let mut link = Link { index: number(body, 4)?, ..Link::default() };
    link.up = number(body, 8)? & libc::IFF_UP as u32 != 0;
    for (kind, value) in Attributes::behind(body, HEADER) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_IFALIAS => link.alias = Some(text(value)).filter(|alias| !alias.is_empty()),
            libc::IFLA_GROUP => link.group = number(value, 0)?,
            libc::IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            libc::IFLA_MTU => link.mtu = number(value, 0)?,
            libc::IFLA_MASTER => link.controller = number(value, 0),
            libc::IFLA_LINK => link.peer = number(value, 0)?,
            libc::IFLA_LINK_NETNSID => link.peer_nsid = number(value, 0).filter(|id| *id != u32::MAX),
            libc::IFLA_AF_SPEC => link.route_localnet = route_localnet(value),
            libc::IFLA_LINKINFO => {
                let mut port_of_bridge = false;
                for (kind, value) in Attributes::of(value) {
                    match kind {
                        INFO_KIND => link.kind = text(value),
                        INFO_SLAVE_KIND => port_of_bridge = text(value) == "bridge",
                        INFO_SLAVE_DATA if port_of_bridge => {
                            link.hairpin =
                                Attributes::of(value).any(|(kind, on)| kind == BRPORT_MODE && on.first() == Some(&1));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(link)
}

/// The one IPv4 setting that matters, out of the array of all of them.
fn route_localnet(families: &[u8]) -> bool {
    const INET_CONF: u16 = 1;
    const ROUTE_LOCALNET: usize = 26;
    Attributes::of(families)
        .filter(|(family, _)| i32::from(*family) == libc::AF_INET)
        .flat_map(|(_, inet)| Attributes::of(inet))
        .any(|(kind, conf)| kind == INET_CONF && number(conf, (ROUTE_LOCALNET - 1) * 4) == Some(1))
}

/// An address as a message tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    pub(super) index: u32,
    pub(super) address: IpNet,
}

/// Reads an address message; `None` for another family, and for IPv6 addresses that are the link's own or will pass.
pub(super) fn address(body: &[u8]) -> Option<Address> {
    const HEADER: usize = 8;
    const PERMANENT: u8 = 0x80;
    let six = match i32::from(*body.first()?) {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    let (prefix, flags) = (*body.get(1)?, *body.get(2)?);
    let (mut own, mut other) = (None, None);
    for (kind, value) in Attributes::behind(body, HEADER) {
        match kind {
            libc::IFA_LOCAL => own = ip(value),
            libc::IFA_ADDRESS => other = ip(value),
            _ => {}
        }
    }
    let address = own.or(other)?;
    let link_local = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if six && (flags & PERMANENT == 0 || link_local(&address)) {
        return None;
    }
    Some(Address { index: number(body, 4)?, address: IpNet::new(address, prefix).ok()? })
}

/// A route as a message tells it.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) destination: IpNet,
    pub(super) table: u32,
    /// `RTN_*`.
    pub(super) kind: u8,
    pub(super) metric: u32,
    pub(super) gateway: Option<IpAddr>,
    /// The interface; of a multipath route, its first one.
    pub(super) interface: Option<u32>,
}

/// Reads a route message; `None` for another family, and for a cached clone.
pub(super) fn route(body: &[u8]) -> Option<Route> {
    const HEADER: usize = 12;
    const CLONED: u32 = 0x200;
    let mut destination = match i32::from(*body.first()?) {
        libc::AF_INET => IpAddr::from([0; 4]),
        libc::AF_INET6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    if number(body, 8)? & CLONED != 0 {
        return None;
    }
    let prefix = *body.get(1)?;
    let mut route = Route {
        destination: IpNet::default(),
        table: u32::from(*body.get(4)?),
        kind: *body.get(7)?,
        metric: 0,
        gateway: None,
        interface: None,
    };
    for (kind, value) in Attributes::behind(body, HEADER) {
        match kind {
            libc::RTA_DST => destination = ip(value)?,
            libc::RTA_TABLE => route.table = number(value, 0)?,
            libc::RTA_PRIORITY => route.metric = number(value, 0)?,
            libc::RTA_GATEWAY => route.gateway = ip(value),
            libc::RTA_OIF => route.interface = number(value, 0),
            libc::RTA_MULTIPATH => route.interface = number(value, 4),
            _ => {}
        }
    }
    route.destination = IpNet::new(destination, prefix).ok()?.trunc();
    Some(route)
}

/// Whether an event about an address or a route can be about one of ours: IPv6 makes addresses and routes of each link's
/// own accord, and tells of them.
pub(super) fn concerns(kind: u16, body: &[u8]) -> bool {
    match kind {
        libc::RTM_NEWADDR | libc::RTM_DELADDR => address(body).is_some(),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            route(body).is_some_and(|route| route.destination.addr().is_ipv4() || route.destination.prefix_len() == 0)
        }
        _ => true,
    }
}

/// Reads the id in an answer to "what is this netns called here".
pub(super) fn nsid(body: &[u8]) -> Option<u32> {
    const HEADER: usize = 4;
    const NSID: u16 = 1;
    Attributes::behind(body, HEADER)
        .find(|(kind, _)| *kind == NSID)
        .and_then(|(_, value)| number(value, 0))
        .filter(|id| *id != u32::MAX)
}
