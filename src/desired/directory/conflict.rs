//! What only one app of a node can have. The newcomer is refused, not the one that runs.
//!
//! Who is first is decided by the last known good contents: whoever holds a port there keeps it. Between two newcomers
//! the name decides, so that the answer is the same in every order and after every restart.

use super::super::lower::{Claim, Claimed};
use super::circle;
use crate::model::{AppName, Finding, Note, Severity};
use std::collections::{BTreeMap, BTreeSet};

/// One app's side of it.
pub struct Side<'a> {
    /// What the file asks for now (or the last known good, when the file is bad).
    pub now: &'a [Claim],
    /// What the last known good content asks for; nothing when there is none.
    pub before: Option<&'a [Claim]>,
}

/// The apps whose present content cannot be taken, with the reasons. The others, and the refused ones' last known good
/// contents, have no conflict among them.
pub fn refused(sides: &BTreeMap<AppName, Side<'_>>) -> BTreeMap<AppName, Vec<Finding>> {
    let mut refused: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    // Each round refuses at least one more app, so there are at most as many rounds as apps.
    loop {
        let fallen = refused.keys().cloned().collect();
        let mut losers = round(sides, &fallen);
        if losers.is_empty() {
            losers = circle::refused(sides, &fallen);
        }
        if losers.is_empty() {
            return refused;
        }
        for (app, findings) in losers {
            refused.entry(app).or_default().extend(findings);
        }
    }
}

fn round(sides: &BTreeMap<AppName, Side<'_>>, fallen: &BTreeSet<AppName>) -> BTreeMap<AppName, Vec<Finding>> {
    let current = |app: &AppName, side: &Side<'_>| -> Vec<Claim> {
        let claims = if fallen.contains(app) { side.before.unwrap_or_default() } else { side.now };
        claims.to_vec()
    };
    let all: Vec<(&AppName, Vec<Claim>)> = sides.iter().map(|(app, side)| (app, current(app, side))).collect();
    let mut losers: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    let mut seen: BTreeMap<(u8, u16), Vec<(&AppName, &Claim)>> = BTreeMap::new();
    for (app, claims) in &all {
        for claim in claims {
            for (other, theirs) in seen.entry(bucket(&claim.what)).or_default().iter() {
                if other != app && clash(&claim.what, &theirs.what) {
                    let (loser, its, winner, kept) = judge(sides, fallen, (app, claim), (other, theirs));
                    losers.entry(loser.clone()).or_default().push(finding(its, winner, kept));
                }
            }
        }
        for claim in claims {
            seen.entry(bucket(&claim.what)).or_default().push((app, claim));
        }
    }
    losers
}

/// Where claims that can clash meet.
fn bucket(what: &Claimed) -> (u8, u16) {
    match what {
        Claimed::Port { port, .. } => (0, *port),
        Claimed::Subnet(_) => (1, 0),
        Claimed::Subnet6(_) => (4, 0),
        Claimed::Bridge(_) => (2, 0),
        Claimed::Need { .. } => (3, 0),
    }
}

fn clash(a: &Claimed, b: &Claimed) -> bool {
    match (a, b) {
        (
            Claimed::Port { protocol, host_ip, port },
            Claimed::Port { protocol: protocol_b, host_ip: ip_b, port: port_b },
        ) => protocol == protocol_b && port == port_b && (host_ip.is_none() || ip_b.is_none() || host_ip == ip_b),
        (Claimed::Subnet(a), Claimed::Subnet(b)) => a.contains(b) || b.contains(a),
        (Claimed::Subnet6(a), Claimed::Subnet6(b)) => a.contains(b) || b.contains(a),
        (Claimed::Bridge(a), Claimed::Bridge(b)) => a == b,
        _ => false,
    }
}

type Party<'a> = (&'a AppName, &'a Claim);

/// Who gives way: first one that has fallen back already stays; then the one that held the thing before stays; then the
/// one whose name comes first. The answer is (loser, its claim, winner, the winner's claim).
fn judge<'a>(
    sides: &BTreeMap<AppName, Side<'_>>,
    fallen: &BTreeSet<AppName>,
    a: Party<'a>,
    b: Party<'a>,
) -> (&'a AppName, &'a Claim, &'a AppName, &'a Claim) {
    let held = |(app, claim): Party<'_>| {
        let before = sides.get(app).and_then(|side| side.before).unwrap_or_default();
        before.iter().any(|other| other.what == claim.what)
    };
    let rank = |party: Party<'_>| (!fallen.contains(party.0), !held(party));
    let a_wins = (rank(a), a.0) < (rank(b), b.0);
    let (winner, loser) = if a_wins { (a, b) } else { (b, a) };
    (loser.0, loser.1, winner.0, winner.1)
}

fn finding(claim: &Claim, winner: &AppName, kept: &Claim) -> Finding {
    let (message, hint) = match (&claim.what, &kept.what) {
        (Claimed::Port { protocol, port, .. }, _) => (
            format!("the host port {port}/{} belongs to the app `{winner}`", protocol.as_str()),
            "publish another host port, or free that one first",
        ),
        (Claimed::Subnet(subnet), Claimed::Subnet(other)) => {
            (format!("the subnet {subnet} overlaps {other} of the app `{winner}`"), "choose another subnet, or none")
        }
        (Claimed::Bridge(name), _) => (
            format!("the bridge `{name}` belongs to the app `{winner}`"),
            "give the network another bridge name, or none",
        ),
        // needs never clash with anything: see `circle`
        (Claimed::Need { app, service, .. }, _) => (format!("{app}/{service} is needed"), "leave the need out"),
        (Claimed::Subnet6(subnet), Claimed::Subnet6(other)) => {
            (format!("the subnet {subnet} overlaps {other} of the app `{winner}`"), "choose another subnet, or none")
        }
        (Claimed::Subnet6(subnet), _) => {
            (format!("the subnet {subnet} belongs to the app `{winner}`"), "choose another")
        }
        (Claimed::Subnet(subnet), _) => {
            (format!("the subnet {subnet} belongs to the app `{winner}`"), "choose another")
        }
    };
    Finding {
        severity: Severity::Error,
        place: claim.place.clone(),
        message,
        hint: Some(hint.to_owned()),
        notes: vec![Note { place: kept.place.clone(), message: format!("`{winner}` asks for it here") }],
        source_line: claim.line.clone(),
    }
}
