//! A netlink socket that only listens: every message of its groups, with the netns that it came from.

use super::read::Messages;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::RcvBufForce};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd as _;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Room for a burst: a bridge with a thousand ports going down is about this much.
const KERNEL_BUFFER: usize = 4 << 20;

/// The largest datagram that these groups send is far below this.
const DATAGRAM: usize = 32 << 10;

/// How many datagrams are taken in before the events among them are told: a flood must not hold them back.
const AT_ONCE: usize = 256;

/// Whether everything was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    All,
    /// The kernel dropped messages, since we were too slow.
    WithGaps,
}

/// One message: the id of its netns when that is another one, its type, and what follows its header.
pub(super) type Each<'a> = &'a mut (dyn FnMut(Option<u32>, u16, &[u8]) + Send);

/// A listening socket.
pub(super) struct Listener {
    socket: AsyncFd<Socket>,
}

impl Listener {
    /// Joins groups, of this netns alone or of all that have an id here (every netns that a veth of this one leads to
    /// gets one by itself).
    pub(super) fn open(protocol: isize, groups: &[u32], all_netns: bool) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        setsockopt(&socket, RcvBufForce, &KERNEL_BUFFER)?;
        if all_netns {
            socket.set_listen_all_namespaces(true)?;
        }
        for group in groups {
            socket.add_membership(*group)?;
        }
        #[expect(deprecated, reason = "a socket that owns its one descriptor is what the unsafe successor asks for")]
        let socket = AsyncFd::with_interest(socket, Interest::READABLE)?;
        Ok(Self { socket })
    }

    /// Waits for messages, and hands over those that are there.
    pub(super) async fn hear(&mut self, each: Each<'_>) -> io::Result<Heard> {
        let mut guard = self.socket.readable().await?;
        for _ in 0..AT_ONCE {
            match guard.try_io(|socket| datagram(socket.get_ref(), each)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(Heard::WithGaps),
                Ok(Err(error)) => return Err(error),
                Err(_nothing_more) => break,
            }
        }
        Ok(Heard::All)
    }
}

/// Takes one datagram in.
fn datagram(socket: &Socket, each: Each<'_>) -> io::Result<()> {
    const NETNS_ID: i32 = 8;
    let mut buffer = vec![0; DATAGRAM];
    let mut control = nix::cmsg_space!(i32);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let netns = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Unknown(other)
            if other.cmsg_header.cmsg_level == libc::SOL_NETLINK && other.cmsg_header.cmsg_type == NETNS_ID =>
        {
            other.data_bytes.first_chunk::<4>().map(|id| u32::from_ne_bytes(*id))
        }
        _ => None,
    });
    let length = received.bytes;
    for (kind, body) in Messages::of(&buffer[..length]) {
        each(netns, kind, body);
    }
    Ok(())
}
