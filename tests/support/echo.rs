//! A server for tests, built as a static binary: answers TCP and UDP on port 7 with its host name and the peer's address,
//! and ends with the code that a client names as `exit N`.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};

fn answer(peer: std::net::SocketAddr) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} {}\n", name.trim(), peer.ip())
}

fn main() {
    let udp = UdpSocket::bind("0.0.0.0:7").expect("UDP port 7 is free");
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((_, peer)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(answer(peer).as_bytes(), peer);
        }
    });
    let tcp = TcpListener::bind("0.0.0.0:7").expect("TCP port 7 is free");
    for stream in tcp.incoming() {
        let Ok(mut stream) = stream else { continue };
        let Ok(peer) = stream.peer_addr() else { continue };
        let _ = stream.set_read_timeout(Some(std::time::Duration::from_millis(300)));
        let mut buffer = [0; 64];
        let length = stream.read(&mut buffer).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if let Some(code) = text.strip_prefix("exit ").and_then(|code| code.trim().parse().ok()) {
            std::process::exit(code);
        }
        let _ = stream.write_all(answer(peer).as_bytes());
    }
}
