//! A netlink socket of the calling thread's network namespace: one question, one whole answer.
//!
//! The kernel answers inside `send`, so a blocking socket with a receive deadline is enough, and it closes with the
//! value: no socket is left open in a netns, where it would keep the namespace alive.

use super::read::{Attributes, text};
use crate::drive::fault::{Fault, Said as _};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::TimeVal;
use std::io;

/// The longest wait for one answer. The kernel answers at once unless it waits for its RTNL lock, which a mass
/// deletion by somebody else may hold for seconds.
const ANSWER_WITHIN_SECONDS: i64 = 5;

/// How often a dump that was cut across by a change is begun anew before the look counts as failed.
const DUMP_TRIES: usize = 5;

/// Largest datagram that the kernel puts a dump into (it adapts to the reader, up to 32 KiB).
const BUFFER: usize = 64 * 1024;

const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;

/// One netlink socket.
pub(super) struct Wire {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// One message of an answer: its type and what follows its header.
pub(super) type Each<'a> = &'a mut dyn FnMut(u16, &[u8]);

impl Wire {
    /// Opens a route socket in the calling thread's network namespace.
    pub(super) fn route() -> Result<Self, Fault> {
        Self::open(netlink_sys::protocols::NETLINK_ROUTE)
    }

    /// Opens a netfilter socket in the calling thread's network namespace.
    pub(super) fn netfilter() -> Result<Self, Fault> {
        Self::open(netlink_sys::protocols::NETLINK_NETFILTER)
    }
    fn open(protocol: isize) -> Result<Self, Fault> {
        let opened = || -> io::Result<Socket> {
            let mut socket = Socket::new(protocol)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            // A kernel that cannot narrow a list down lists all; the reader picks its own all the same.
            let _ = socket.set_netlink_get_strict_chk(true);
            setsockopt(&socket, ReceiveTimeout, &TimeVal::new(ANSWER_WITHIN_SECONDS, 0))?;
            Ok(socket)
        };
        Ok(Self { socket: opened().said(|| "open a netlink socket".into())?, sequence: 0, buffer: Vec::new() })
    }

    /// Sends a change and waits for the kernel's word on it.
    pub(super) fn change(&mut self, message: RouteNetlinkMessage, flags: u16, what: &str) -> Result<(), Fault> {
        self.ask(message, NLM_F_ACK | flags, what, &mut |_, _| {})
    }

    /// Asks one question and hands over each message of the answer.
    pub(super) fn ask<M>(&mut self, message: M, flags: u16, what: &str, each: Each<'_>) -> Result<(), Fault>
    where
        M: NetlinkSerializable + Into<NetlinkPayload<M>>,
    {
        self.exchange(message, NLM_F_REQUEST | flags, each).map(drop).map_err(|refusal| refusal.fault(what))
    }

    /// Asks for a whole list. A list that changed while it was read is read again from its beginning.
    pub(super) fn dump<M, L>(
        &mut self,
        message: impl Fn() -> M,
        what: &str,
        read: impl Fn(u16, &[u8]) -> Option<L>,
    ) -> Result<Vec<L>, Fault>
    where
        M: NetlinkSerializable + Into<NetlinkPayload<M>>,
    {
        for _ in 0..DUMP_TRIES {
            let mut list = Vec::new();
            let whole = self
                .exchange(message(), NLM_F_REQUEST | NLM_F_DUMP, &mut |kind, body| list.extend(read(kind, body)))
                .map_err(|refusal| refusal.fault(what))?;
            if whole {
                return Ok(list);
            }
        }
        Err(Fault::Garbled { what: what.to_owned(), why: "the list kept changing while it was read".into() })
    }

    /// Sends one message and reads until the answer is complete. False when the kernel says that the list changed
    /// under the reader.
    fn exchange<M>(&mut self, message: M, flags: u16, each: Each<'_>) -> Result<bool, Refusal>
    where
        M: NetlinkSerializable + Into<NetlinkPayload<M>>,
    {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, message.into());
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let multipart = flags & NLM_F_DUMP == NLM_F_DUMP;
        let acked = flags & NLM_F_ACK != 0;
        let mut whole = true;
        loop {
            self.buffer.clear();
            self.buffer.reserve(BUFFER);
            self.socket.recv(&mut self.buffer, 0)?;
            let mut rest = self.buffer.as_slice();
            while !rest.is_empty() {
                let part = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
                let body = part.payload();
                let next = (part.length() as usize).next_multiple_of(4).min(rest.len());
                rest = &rest[next..];
                if part.sequence_number() != self.sequence {
                    continue;
                }
                whole &= part.flags() & NLM_F_DUMP_INTR == 0;
                match part.message_type() {
                    NLMSG_ERROR | NLMSG_DONE => return verdict(body).map(|()| whole),
                    NLMSG_OVERRUN => return Err(io::Error::from_raw_os_error(libc::ENOBUFS).into()),
                    kind => each(kind, body),
                }
                if !multipart && !acked {
                    return Ok(whole);
                }
            }
        }
    }
}

/// A netfilter message: its subsystem and type, and its attributes, written by hand since only two kinds are sent.
#[derive(Debug, Clone)]
pub(super) struct Netfilter {
    kind: u16,
    body: Vec<u8>,
}

impl Netfilter {
    /// A message of a subsystem without attributes.
    pub(super) fn new(subsystem: u16, message: u16, family: i32) -> Self {
        let family = u8::try_from(family).unwrap_or_default();
        Self { kind: subsystem << 8 | message, body: vec![family, 0, 0, 0] }
    }

    /// Adds an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        const HEADER: usize = 4;
        let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
        self.body.extend_from_slice(&length.to_ne_bytes());
        self.body.extend_from_slice(&kind.to_ne_bytes());
        self.body.extend_from_slice(value);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
        self
    }
}

impl NetlinkSerializable for Netfilter {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..self.body.len()].copy_from_slice(&self.body);
    }
}

impl From<Netfilter> for NetlinkPayload<Netfilter> {
    fn from(message: Netfilter) -> Self {
        Self::InnerMessage(message)
    }
}

/// A refusal: the kernel's error number, with its own words where it has some.
struct Refusal {
    source: io::Error,
    sentence: Option<String>,
}

impl From<io::Error> for Refusal {
    fn from(source: io::Error) -> Self {
        Self { source, sentence: None }
    }
}

impl Refusal {
    fn fault(self, what: &str) -> Fault {
        match (self.source.kind(), self.sentence) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, _) => Fault::Silent { what: what.to_owned() },
            (_, None) => Fault::Os { what: what.to_owned(), source: self.source },
            (_, Some(sentence)) => Fault::Os { what: format!("{what} ({sentence})"), source: self.source },
        }
    }
}

/// Reads the error number at the head of an acknowledgement, and the kernel's sentence behind it.
fn verdict(body: &[u8]) -> Result<(), Refusal> {
    const SENTENCE: u16 = 1;
    const ECHOED_HEADER: usize = 4 + 16;
    let code = body.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if code == 0 {
        return Ok(());
    }
    let sentence = body
        .get(ECHOED_HEADER..)
        .and_then(|tail| Attributes::of(tail).find(|(kind, _)| *kind == SENTENCE))
        .map(|(_, words)| text(words));
    Err(Refusal { source: io::Error::from_raw_os_error(-code), sentence })
}
