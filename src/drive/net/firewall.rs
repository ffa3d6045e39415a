//! Other firewalls, looked at and never touched: an accept in our table does not overrule a drop in another.

use super::nft::Nft;
use crate::drive::fault::Fault;
use crate::model::AgentName;
use serde::Deserialize;

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    chain: Option<Chain>,
}

#[derive(Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

/// The base chains of others that drop forwarded packets by policy, as `family table chain`.
pub async fn forward_drops(agent: &AgentName) -> Result<Vec<String>, Fault> {
    let json = Nft::new(agent).run(&["-j", "list", "chains"], "").await?;
    let listing: Listing = serde_json::from_slice(&json).map_err(|error| Fault::Refused {
        why: format!("nft's list of chains cannot be read: {error}"),
        hint: "check `nft -j list chains`",
    })?;
    let chains = listing.nftables.into_iter().filter_map(|item| item.chain);
    let drops = chains.filter(|chain| {
        chain.hook.as_deref() == Some("forward")
            && chain.policy.as_deref() == Some("drop")
            && !(chain.family == "inet" && chain.table == agent.as_str())
    });
    Ok(drops.map(|chain| format!("{} {} {}", chain.family, chain.table, chain.name)).collect())
}
