//! Whether this kernel has what the driver needs, tried in a network namespace of its own that goes away with its
//! thread: nothing outside of it is touched.

use super::nft::Nft;
use super::render::Table;
use super::wire::Wire;
use crate::drive::fault::{Fault, Said as _};
use crate::drive::thread;
use crate::model::{AgentName, BridgeRules, Protocol, Published, Ruleset, Target};
use ipnet::Ipv4Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use nix::sched::{CloneFlags, unshare};
use rtnetlink::{LinkBridge, LinkVeth};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// What was tried, and why it does not work if it does not.
pub type Tried = (&'static str, Option<Fault>);

/// Tries network namespaces, bridges, veth pairs, and a table like ours: maps, NAT, connection tracking.
pub async fn probe(agent: &AgentName) -> Vec<Tried> {
    let nft = Nft::new(agent);
    let tried = thread::run("try what the network needs", move || {
        let own = unshare(CloneFlags::CLONE_NEWNET).said(|| "make a network namespace".into());
        if let Err(fault) = own {
            return Ok(vec![(NAMESPACES, Some(fault))]); // on the host's own nothing is tried
        }
        let bridge = make(LinkBridge::new("bridge").build());
        let veth = make(LinkVeth::new("veth", "peer").build());
        let table = table(&nft);
        Ok(vec![(NAMESPACES, None), ("bridges", bridge.err()), ("veth pairs", veth.err()), (TABLE, table.err())])
    });
    tried.await.unwrap_or_else(|fault| vec![(NAMESPACES, Some(fault))])
}

const NAMESPACES: &str = "network namespaces";
const TABLE: &str = "nft tables with maps, NAT and connection tracking";

fn make(link: LinkMessage) -> Result<(), Fault> {
    Wire::route()?.change(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL, "make a link")
}

/// Loads a table with one of everything. The program is run by this thread, so it sees this thread's namespace.
fn table(nft: &Nft) -> Result<(), Fault> {
    let script = Table::of(&example()).script(nft.table());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.said(|| "start a runtime for nft".into())?;
    runtime.block_on(nft.run(&["-f", "-"], &script)).map(drop)
}

fn example() -> Ruleset {
    let address = |last| Ipv4Addr::new(192, 0, 2, last);
    let subnet = Ipv4Net::new_assert(address(0), 24);
    let target = |last| Target { address: address(last).into(), port: 80 };
    let published = |protocol, port| Published { protocol, host_ip: None, port };
    Ruleset {
        bridges: BTreeMap::from([("bridge".to_owned(), BridgeRules { subnet, subnet6: None, internal: false })]),
        publications: BTreeMap::from([
            (published(Protocol::Tcp, 80), BTreeSet::from([target(2)])),
            (published(Protocol::Udp, 53), BTreeSet::from([target(2), target(3)])),
        ]),
        ..Ruleset::default()
    }
}
