//! Servers that say who they are, and clients that ask.

use super::within;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Long enough for a busy machine; a closed port is found closed only after it.
pub const PATIENCE: Duration = Duration::from_millis(600);

/// Answers every connection and every datagram with a name, until the test ends.
pub fn serve(netns: Option<&str>, at: &str, name: &str) {
    let open = || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
    let (tcp, udp) = netns.map_or_else(open, |netns| within(netns, open));
    let (by_tcp, by_udp) = (name.to_owned(), name.to_owned());
    std::thread::spawn(move || {
        tcp.incoming().for_each(|stream| drop(stream.and_then(|mut stream| stream.write_all(by_tcp.as_bytes()))));
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 16];
        while let Ok((_, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(by_udp.as_bytes(), from);
        }
    });
}

/// Who answers at a TCP address, seen from a netns (or the node itself).
pub fn tcp(netns: Option<&str>, to: &str) -> Option<String> {
    let to: SocketAddr = to.parse().unwrap();
    let ask = move || {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    netns.map_or_else(ask, |netns| within(netns, ask))
}

/// Who answers at a UDP address.
pub fn udp(netns: Option<&str>, to: &str) -> Option<String> {
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let open = || UdpSocket::bind(any).unwrap();
    ask_udp(&netns.map_or_else(open, |netns| within(netns, open)), to)
}

/// Asks up to three times, as clients do: neighbours that are not known yet cost datagrams.
pub fn ask_udp(socket: &UdpSocket, to: &str) -> Option<String> {
    const TRIES: u32 = 3;
    socket.set_read_timeout(Some(PATIENCE / TRIES)).unwrap();
    (0..TRIES).find_map(|_| {
        socket.send_to(b"?", to).ok()?;
        let mut answer = [0; 64];
        let length = socket.recv(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    })
}

/// Both protocols, which have to agree.
pub fn who(netns: Option<&str>, to: &str) -> Option<String> {
    let answer = tcp(netns, to);
    assert_eq!(udp(netns, to), answer, "TCP and UDP differ from {netns:?} to {to}");
    answer
}
