//! What the host's resolver file says.

use super::{Options, is_absent};
use crate::drive::fault::{Fault, Said as _};
use crate::model::Resolver;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Reads the host's resolver. Where it names only servers on the host's own loopback, the file behind the stub is read
/// too: an instance cannot reach the host's loopback.
pub(super) fn look(options: &Options) -> Result<Resolver, Fault> {
    let first = read(&options.resolv_conf)?.unwrap_or_default();
    let only_loopback = !first.servers.is_empty() && first.servers.iter().all(IpAddr::is_loopback);
    if !only_loopback {
        return Ok(first);
    }
    Ok(read(&options.resolv_conf_behind_stub)?.unwrap_or(first))
}

fn read(path: &Path) -> Result<Option<Resolver>, Fault> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(parse(&String::from_utf8_lossy(&bytes)))),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).said(|| format!("read {}", path.display())),
    }
}

/// Reads a resolver file the way libc does: the last `search` or `domain` counts, options add up.
fn parse(text: &str) -> Resolver {
    let mut resolver = Resolver::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            // A server behind one interface of the host (`fe80::1%eth0`) is no server inside.
            Some("nameserver") => {
                resolver.servers.extend(words.next().and_then(|server| server.parse::<IpAddr>().ok()))
            }
            Some("search" | "domain") => resolver.search = words.map(str::to_owned).collect(),
            Some("options") => resolver.options.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    resolver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_as_libc_reads_it() {
        let text = "# made by hand\nnameserver 192.0.2.53 ; first\n nameserver\t2001:db8::53\nnameserver fe80::1%eth0\n\
            domain old.example\nsearch example.org  corp.example\noptions ndots:2\noptions timeout:1 rotate\nfoo bar\n";
        let resolver = parse(text);
        let servers: Vec<String> = resolver.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.53", "2001:db8::53"]);
        assert_eq!(resolver.search, ["example.org", "corp.example"]);
        assert_eq!(resolver.options, ["ndots:2", "timeout:1", "rotate"]);
    }
}
