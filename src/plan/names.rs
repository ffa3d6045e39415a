//! What an instance knows of names: its hosts file, resolv.conf and host name.

use super::Picture;
use crate::model::{Attachment, InstanceFiles, InstanceKey, NetworkKey, Resolver, Service};
use std::fmt::Write as _;

/// The files as they should be; `None` for one that cannot be known now and is left as it is.
pub(super) fn files(
    picture: &Picture<'_>,
    key: &InstanceKey,
    hostname: Option<&str>,
    attachments: &[Attachment],
) -> InstanceFiles {
    let hostname = hostname.map_or_else(|| host_name(key), str::to_owned);
    InstanceFiles {
        hosts: hosts(picture, key, &hostname, attachments),
        resolv_conf: picture.observed.files.seen().map(|files| resolv_conf(&files.resolver)),
        hostname: Some(format!("{hostname}\n")),
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
fn hosts(picture: &Picture<'_>, key: &InstanceKey, hostname: &str, attachments: &[Attachment]) -> Option<String> {
    if !picture.desired.apps.get(&key.app).is_some_and(|app| app.known) {
        return None;
    }
    let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    if let Some(at) = attachments.first() {
        let _ = writeln!(text, "{}\t{hostname}", at.address);
    }
    for at in attachments {
        for (peer, service) in picture.members(&at.network) {
            let address =
                if peer == key { at.address } else { picture.allocation().address(peer, &at.network).ok()? };
            let _ = writeln!(text, "{address}\t{}", names(peer, service, &at.network));
        }
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

/// The host's own resolvers, without those that only the host itself can reach.
fn resolv_conf(resolver: &Resolver) -> String {
    let mut text = String::new();
    for server in resolver.servers.iter().filter(|server| !server.is_loopback()) {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !resolver.search.is_empty() {
        let _ = writeln!(text, "search {}", resolver.search.join(" "));
    }
    if !resolver.options.is_empty() {
        let _ = writeln!(text, "options {}", resolver.options.join(" "));
    }
    text
}
