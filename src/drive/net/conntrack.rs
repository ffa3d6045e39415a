//! Flows that go on to where an earlier table sent them. A UDP flow keeps its first translation for as long as it has
//! traffic, whatever the table says by now; so it is cut, and its next packet goes by the table.
//!
//! TCP connections are left to end by themselves.

use super::look;
use super::read::Attributes;
use super::wire::{Netfilter, Wire};
use crate::drive::fault::Fault;
use crate::model::{Protocol, Published, Ruleset, Target};
use netlink_packet_core::NLM_F_ACK;
use std::collections::BTreeSet;
use std::net::IpAddr;

const SUBSYSTEM: u16 = 1;
const GET: u16 = 1;
const DELETE: u16 = 2;
const HEADER: usize = 4;
const NESTED: u16 = 0x8000;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;

/// A flow as the kernel tells it, with what names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flow {
    /// Where it was sent.
    to: (IpAddr, u16),
    family: i32,
    /// Who answers.
    answers: Target,
    /// The attributes that a deletion repeats: the same flow, not one like it.
    name: Vec<(u16, Vec<u8>)>,
}

/// Cuts every UDP flow to an address of the host that does not go where the ruleset sends it.
pub(super) fn cut(ruleset: &Ruleset) -> Result<(), Fault> {
    let own: BTreeSet<IpAddr> =
        look::addresses(&mut Wire::route()?, look::ALL)?.into_iter().map(|address| address.address.addr()).collect();
    let local = |address: &IpAddr| own.contains(address) || address.is_loopback();
    let mut wire = Wire::netfilter()?;
    let question = || Netfilter::new(SUBSYSTEM, GET, libc::AF_UNSPEC);
    let flows = match wire.dump(question, "list flows", |_, body| flow(body)) {
        Ok(flows) => flows,
        // A kernel that does not track flows has none to cut.
        Err(fault) if matches!(fault.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => return Ok(()),
        Err(fault) => return Err(fault),
    };
    for flow in flows.into_iter().filter(|flow| local(&flow.to.0) && is_stale(ruleset, flow)) {
        let message = Netfilter::new(SUBSYSTEM, DELETE, flow.family);
        let message = flow.name.iter().fold(message, |message, (kind, value)| message.with(*kind, value));
        match wire.ask(message, NLM_F_ACK, "cut a flow", &mut |_, _| {}) {
            // It ended by itself.
            Err(fault) if fault.errno() == Some(libc::ENOENT) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Whether a flow to a local address would go elsewhere if it began now.
fn is_stale(ruleset: &Ruleset, flow: &Flow) -> bool {
    let (address, port) = flow.to;
    let published = |host_ip| Published { protocol: Protocol::Udp, host_ip, port };
    let targets = ruleset
        .publications
        .get(&published(Some(address)))
        .or_else(|| ruleset.publications.get(&published(None)))
        .filter(|targets| !targets.is_empty());
    match targets {
        Some(targets) => !targets.contains(&flow.answers),
        // Not published (any more): it must not reach an instance.
        None => {
            flow.answers.address != address
                && ruleset.bridges.values().any(|rules| match flow.answers.address {
                    IpAddr::V4(address) => rules.subnet.contains(&address),
                    IpAddr::V6(address) => rules.subnet6.is_some_and(|subnet| subnet.contains(&address)),
                })
        }
    }
}

/// Reads a flow; `None` for one that is not UDP.
fn flow(body: &[u8]) -> Option<Flow> {
    let (mut original, mut reply, mut name) = (None, None, Vec::new());
    for (kind, value) in Attributes::behind(body, HEADER) {
        match kind {
            ORIGINAL => {
                original = Some(tuple(value)?);
                name.push((kind | NESTED, value.to_vec()));
            }
            REPLY => reply = Some(tuple(value)?),
            ID | ZONE => name.push((kind, value.to_vec())),
            _ => {}
        }
    }
    let ((_, to), (answers, _)) = (original?, reply?);
    let family = i32::from(*body.first()?);
    Some(Flow { to, family, answers: Target { address: answers.0, port: answers.1 }, name })
}

/// Source and destination of a UDP tuple.
fn tuple(value: &[u8]) -> Option<((IpAddr, u16), (IpAddr, u16))> {
    const ADDRESSES: u16 = 1;
    const PORTS: u16 = 2;
    let part = |wanted: u16, inner: u16| {
        let (_, part) = Attributes::of(value).find(|(kind, _)| *kind == wanted)?;
        Attributes::of(part).find(|(kind, _)| *kind == inner).map(|(_, value)| value)
    };
    // Sources are odd, destinations even; IPv4 comes first.
    let address = |kind: u16| match part(ADDRESSES, kind) {
        Some(four) => four.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
        None => part(ADDRESSES, kind + 2)?.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)),
    };
    let port = |kind: u16| part(PORTS, kind)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes));
    if i32::from(*part(PORTS, 1)?.first()?) != libc::IPPROTO_UDP {
        return None;
    }
    Some(((address(1)?, port(2)?), (address(2)?, port(3)?)))
}
