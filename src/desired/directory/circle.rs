//! Services of several apps that wait for each other in a circle. The newcomer is refused, with the whole way round.

use super::super::lower::{Claim, Claimed};
use super::conflict::Side;
use crate::model::{AppName, Finding, Note, ServiceName, Severity};
use std::collections::{BTreeMap, BTreeSet};

type Of = (AppName, ServiceName);
type Edges<'a> = BTreeMap<Of, Vec<(Of, &'a Claim)>>;

/// The app that has to give way for one circle, with the finding; nothing when there is none. (Circles inside one app are
/// found when its file is read.)
pub fn refused(sides: &BTreeMap<AppName, Side<'_>>, fallen: &BTreeSet<AppName>) -> BTreeMap<AppName, Vec<Finding>> {
    let mut edges: Edges<'_> = BTreeMap::new();
    for (app, side) in sides {
        for claim in if fallen.contains(app) { side.before.unwrap_or_default() } else { side.now } {
            if let Claimed::Need { from, app: to, service } = &claim.what {
                let to = (to.clone(), service.clone());
                edges.entry((app.clone(), from.clone())).or_default().push((to, claim));
            }
        }
    }
    let Some(round) = circle(&edges) else { return BTreeMap::new() };
    let new = |(of, claim): &&(Of, &Claim)| {
        let before = sides.get(&of.0).and_then(|side| side.before).unwrap_or_default();
        !fallen.contains(&of.0) && !before.iter().any(|other| other.what == claim.what)
    };
    let open = |(of, _): &&(Of, &Claim)| !fallen.contains(&of.0);
    let loser = round.iter().find(new).or_else(|| round.iter().rev().find(open));
    let Some((of, claim)) = loser else { return BTreeMap::new() };
    BTreeMap::from([(of.0.clone(), vec![finding(&round, of, claim)])])
}

/// One circle, as the services on it with the need that leads on from each.
fn circle<'a>(edges: &Edges<'a>) -> Option<Vec<(Of, &'a Claim)>> {
    let mut done: BTreeSet<&Of> = BTreeSet::new();
    for start in edges.keys() {
        // a walk with its own stack: the way here, and at each place how many needs have been tried
        let mut path: Vec<(&Of, usize)> = vec![(start, 0)];
        while let Some((here, tried)) = path.last_mut() {
            let next = edges.get(*here).and_then(|all| all.get(*tried));
            *tried += 1;
            let Some((to, _)) = next else {
                done.insert(*here);
                path.pop();
                continue;
            };
            if let Some(begin) = path.iter().position(|(on, _)| *on == to) {
                let step = |(of, tried): &(&Of, usize)| Some(((*of).clone(), edges.get(*of)?.get(tried - 1)?.1));
                return path[begin..].iter().map(step).collect();
            }
            if !done.contains(to) {
                path.push((to, 0));
            }
        }
    }
    None
}

fn finding(round: &[(Of, &Claim)], of: &Of, claim: &Claim) -> Finding {
    let begin = round.iter().position(|(on, _)| on == of).unwrap_or(0);
    let order = || round.iter().cycle().skip(begin).take(round.len());
    let names: Vec<String> =
        order().chain(order().take(1)).map(|((app, service), _)| format!("{app}/{service}")).collect();
    let note = |(_, claim): &(Of, &Claim)| match &claim.what {
        Claimed::Need { app, service, .. } => {
            Some(Note { place: claim.place.clone(), message: format!("and {app}/{service} is needed here") })
        }
        _ => None,
    };
    Finding {
        severity: Severity::Error,
        place: claim.place.clone(),
        message: format!("services wait for each other: {}", names.join(" -> ")),
        hint: Some("leave one of these needs out".to_owned()),
        notes: order().skip(1).filter_map(note).collect(),
        source_line: claim.line.clone(),
    }
}
