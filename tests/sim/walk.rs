//! The planner on the world without the loop: look, decide, do, in any order, until nothing is left to do.

use super::rng::Choices;
use super::want::{ARCHIVED, CONTENTS, PACKED, READY, archive_path};
use super::world::{Extent, Image, Registry, World};
use std::collections::BTreeMap;
use std::rc::Rc;
use stead::model::{Blocker, Decision, Desired, ImageUse, Key, Observed, Outcome, Step};
use stead::plan::{Holds, Picture, decide};

thread_local! {
    static REGISTRY: Rc<Registry> = Rc::new(Registry::new());
}

/// The names of the universe, made once.
pub fn registry() -> Rc<Registry> {
    REGISTRY.with(Rc::clone)
}

/// A node with images, an archive, name servers and a link of its own.
pub fn stocked() -> World {
    let mut world = World::new(registry());
    let digest = |text: &str| format!("sha256:{text}");
    let ready = ImageUse::Ready { chain_id: "chain-ready".to_owned(), stop_signal: None };
    world.runtime.images.insert(READY.to_owned(), Image { digest: digest("ready"), usable: ready });
    world.runtime.images.insert(PACKED.to_owned(), Image { digest: digest("packed"), usable: ImageUse::Packed });
    world.archives.insert(archive_path(), CONTENTS[0].to_owned());
    world.files.resolver.servers.push(std::net::IpAddr::from([192, 0, 2, 53]));
    world.add_link("eth0", false, false);
    world.net.host_routes.push(("192.0.2.0/24".parse().expect("a valid route"), "eth0".to_owned()));
    world.rings.clear();
    world
}

/// The image that a desired state's archives must hold.
pub fn provide(world: &mut World, desired: &Desired) {
    let archives = desired.instances().filter_map(|(_, service)| service.spec.image.archive.clone());
    for archive in archives {
        world.archives.insert(archive.path, archive.digest);
    }
    let _ = ARCHIVED;
}

/// What a walk did.
#[derive(Debug, Default)]
pub struct Walk {
    /// How many steps.
    pub steps: u64,
    /// Each of them.
    pub lines: Vec<String>,
    /// The decisions at the end.
    pub decisions: BTreeMap<Key, Decision>,
}

impl Walk {
    /// Whether every object is settled.
    pub fn settled(&self) -> bool {
        self.decisions.values().all(|decision| *decision == Decision::Settled)
    }
}

/// Every object's decision on a picture.
pub fn decisions(desired: &Desired, observed: &Observed, world: &World) -> BTreeMap<Key, Decision> {
    let picture = Picture::new(desired, observed, &world.registry.marks);
    let holds = Holds::new();
    picture.keys().into_iter().map(|key| (key.clone(), decide(&picture, &key, &holds, world.wall()))).collect()
}

/// Walks until nothing can be done, or until the bound is passed.
pub fn settle(world: &mut World, desired: &Desired, choices: &mut impl Choices, bound: u64) -> Result<Walk, String> {
    let mut walk = Walk::default();
    loop {
        let now = decisions(desired, &world.see(), world);
        let steps: Vec<(&Key, &Step)> = now.iter().filter_map(|(key, decision)| step_of(key, decision)).collect();
        if !steps.is_empty() {
            let (key, step) = steps[choices.below(steps.len() as u64) as usize];
            world.judge_request(Some(desired), step);
            let step = step.clone();
            let outcome = world.act(&step, Extent::Whole);
            walk.steps += 1;
            walk.lines.push(format!("{key}: {} -> {}", step.name(), outcome.word()));
            let stands = matches!(outcome, Outcome::Refused(_) | Outcome::Unsure(_) | Outcome::Moved);
            if walk.steps > bound || stands {
                let last: Vec<_> = walk.lines.iter().rev().take(12).rev().cloned().collect();
                return Err(format!(
                    "{} steps, bound {bound}, {outcome:?}; the last ones:\n{}",
                    walk.steps,
                    last.join("\n")
                ));
            }
            world.advance(world.now + 1);
            continue;
        }
        let next = now.values().filter_map(next_time).min();
        match next {
            Some(at) => {
                let later = world.now + at.saturating_sub(world.wall().0).max(1);
                world.advance(later);
            }
            None if world.next_time().is_some() => {
                let later = world.next_time().unwrap_or_default();
                world.advance(later);
            }
            None => {
                walk.decisions = now;
                return Ok(walk);
            }
        }
    }
}

fn step_of<'d>(key: &'d Key, decision: &'d Decision) -> Option<(&'d Key, &'d Step)> {
    match decision {
        Decision::Do(step, _) => Some((key, step)),
        Decision::Wait(_) | Decision::Settled => None,
    }
}

fn next_time(decision: &Decision) -> Option<u64> {
    let Decision::Wait(blockers) = decision else {
        return None;
    };
    let until = |blocker: &Blocker| if let Blocker::Until { at, .. } = blocker { Some(at.0) } else { None };
    blockers.iter().filter_map(until).min()
}

/// The progress bound of DESIGN section 9: linear in what is there and what is wanted.
///
/// - an instance: 3 files; netns, lo, route; 5 for each attachment (drop, make, alias, port, address); snapshot, record;
///   task, run, start, in-place change
/// - a container that is there: stop, kill, exit, task, record, and a run's label or a stop mark
/// - a snapshot, a stray: its removal; a network: make, alias, address, localnet, drop; an image: import or unpack, lease
/// - hosts files are written again when an address moves (once for each member of the network), and the table when an
///   address or a bridge comes or goes
pub fn bound(desired: &Desired, observed: &Observed) -> u64 {
    let runtime = observed.runtime.seen();
    let sides = || runtime.into_iter().flat_map(|all| all.instances.values());
    let containers: u64 = sides().map(|side| side.containers.len() as u64).sum();
    let snapshots: u64 = sides().map(|side| side.snapshots.len() as u64).sum();
    let wanted: u64 = desired.instances().count() as u64;
    let attached: u64 = desired.instances().map(|(_, service)| service.spec.networks.len() as u64).sum();
    let net = observed.net.seen();
    let seen_instances = net.map_or(0, |net| net.instances.len()) as u64;
    let links: u64 = net.map_or(0, |net| net.instances.values().map(|side| side.links.len()).sum::<usize>()) as u64;
    let files = observed.files.seen().map_or(0, |files| files.instances.len()) as u64;
    let networks = (desired.networks().count() + net.map_or(0, |net| net.networks.len())) as u64;
    let strays = (net.map_or(0, |net| net.strays.len()) + runtime.map_or(0, |runtime| runtime.strays.len())) as u64;
    let images = runtime.map_or(0, |runtime| runtime.images.len()) as u64 + 2;
    let volumes = desired.volumes().count() as u64;
    let moves = attached + links + networks;
    14 * wanted + 5 * attached + 6 * containers + snapshots + links + 2 * seen_instances + files
        + 5 * networks + strays + 2 * images + volumes
        + moves // hosts
        + 2 * moves + 3 // the table and forwarding
}
