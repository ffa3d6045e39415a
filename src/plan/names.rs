//! What an instance knows of names: its hosts file, resolv.conf and host name.

use super::Picture;
use crate::model::{
    Attachment, HostAddress, InstanceFiles, InstanceKey, InstanceSpec, Names, NetworkKey, NetworkMode, Resolver,
    Service,
};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// The files as they should be; `None` for one that cannot be known now and is left as it is.
pub(super) fn files(
    picture: &Picture<'_>,
    key: &InstanceKey,
    spec: &InstanceSpec,
    attachments: &[Attachment],
) -> InstanceFiles {
    let hostname = spec.hostname.clone().unwrap_or_else(|| host_name(key));
    let with_host = spec.network_mode == Some(NetworkMode::Host);
    let resolver = picture.observed.files.seen().map(|files| &files.resolver);
    InstanceFiles {
        hosts: hosts(picture, key, &hostname, spec, attachments),
        resolv_conf: resolver.map(|resolver| resolv_conf(resolver, &spec.names, with_host)),
        hostname: Some(format!("{hostname}\n")),
        ..InstanceFiles::default()
    }
}

/// The host name of an instance that is given none.
pub fn host_name(key: &InstanceKey) -> String {
    let mut name = format!("{}-{}-{}", key.app, key.service, key.replica).replace(['_', '.'], "-");
    name.truncate(63);
    name
}

/// Every instance in the same networks by all of its names. `None` while an address of one of them, or what
/// their file says, is not known.
fn hosts(
    picture: &Picture<'_>,
    key: &InstanceKey,
    hostname: &str,
    spec: &InstanceSpec,
    attachments: &[Attachment],
) -> Option<String> {
    if !picture.desired.apps.get(&key.app).is_some_and(|app| app.known) {
        return None;
    }
    let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    if let Some(at) = attachments.first() {
        let _ = writeln!(text, "{}\t{hostname}", at.address);
        if let Some(six) = &at.six {
            let _ = writeln!(text, "{}\t{hostname}", six.address);
        }
    }
    for at in attachments {
        for (peer, service) in picture.members(&at.network) {
            let address =
                if peer == key { at.address } else { picture.allocation().address(peer, &at.network).ok()? };
            let names = names(peer, service, &at.network);
            let _ = writeln!(text, "{address}\t{names}");
            if let Some(six) = picture.allocation().address6(peer, &service.spec, &at.network) {
                let _ = writeln!(text, "{six}\t{names}");
            }
        }
    }
    let gateway = match spec.network_mode {
        Some(NetworkMode::Host) => Some(Ipv4Addr::LOCALHOST),
        _ => attachments
            .iter()
            .find_map(|at| at.gateway)
            .or_else(|| attachments.first().and_then(|at| picture.allocation().gateway(&at.network))),
    };
    for (name, addresses) in &spec.names.hosts {
        let addresses = addresses.iter().filter_map(|address| match address {
            HostAddress::At(address) => Some(*address),
            HostAddress::HostGateway => gateway.map(IpAddr::V4),
        });
        addresses.for_each(|address| {
            let _ = writeln!(text, "{address}\t{name}");
        });
    }
    Some(text)
}

fn names(peer: &InstanceKey, service: &Service, network: &NetworkKey) -> String {
    let mut names = vec![peer.service.to_string()];
    let uses = service.spec.networks.iter().filter(|at| at.network == network.network);
    names.extend(uses.flat_map(|at| at.aliases.iter().cloned()));
    names.extend(service.spec.container_name.clone());
    names.push(host_name(peer));
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names.join(" ")
}

/// What the file says, and for what it does not say the host's own, without the servers that only the host itself can
/// reach.
fn resolv_conf(resolver: &Resolver, names: &Names, with_host: bool) -> String {
    let mut text = String::new();
    let reached = |server: &&IpAddr| with_host || !server.is_loopback();
    let servers: Vec<&IpAddr> = match names.servers.as_slice() {
        [] => resolver.servers.iter().filter(reached).collect(),
        own => own.iter().collect(),
    };
    for server in servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    let search = if names.search.is_empty() { &resolver.search } else { &names.search };
    if !search.is_empty() && *search != ["."] {
        let _ = writeln!(text, "search {}", search.join(" "));
    }
    let options = if names.options.is_empty() { &resolver.options } else { &names.options };
    if !options.is_empty() {
        let _ = writeln!(text, "options {}", options.join(" "));
    }
    text
}
