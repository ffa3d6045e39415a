//! The promises of `plan`, checked on generated desired states and on nodes in any state (DESIGN section 9, item 2).
//!
//! Every case is made from a tape of choices, so that a failure shrinks to the simplest desired state and the least damage
//! that still fail. Failures that were found once are kept in `plan_properties.proptest-regressions`.

mod sim;

use proptest::prelude::*;
use sim::damage::picture::{blindfold, garble};
use sim::damage::{self, Kind};
use sim::judge;
use sim::matching::differences;
use sim::rng::{Choices, Tape};
use sim::walk::{bound, decisions, provide, settle, stocked};
use sim::want::{Size, desired, edit};
use sim::world::World;
use std::collections::BTreeMap;
use stead::model::{Decision, Desired, Hold, InstanceFile, Key, Step, Timestamp};
use stead::plan::{Holds, Picture, decide};

/// A tape that shows what it makes.
#[derive(Clone)]
struct Story(Vec<u32>);

impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (world, desired, happened) = any_node(&mut Tape(&self.0));
        writeln!(f, "{happened:#?}\nwanted: {desired:#?}\nseen: {:#?}", world.see())
    }
}

fn tape() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 0..24)
}

fn story() -> impl Strategy<Value = Story> {
    proptest::collection::vec(any::<u32>(), 0..160).prop_map(Story)
}

/// A node that was once driven some way toward one desired state, then damaged, and the desired state that counts now.
fn any_node(choices: &mut Tape<'_>) -> (World, Desired, Vec<String>) {
    let mut story = Vec::new();
    let size = Size::SMALL;
    let mut world = stocked();
    let first = desired(choices, size);
    provide(&mut world, &first);
    let stop_after = if choices.chance(500) { u64::MAX } else { choices.below(120) };
    match settle(&mut world, &first, choices, stop_after.min(400)) {
        Ok(walk) => story.push(format!("settled after {} steps", walk.steps)),
        Err(cut) => story.push(format!("cut off: {cut}")),
    }
    let mut now = first;
    for _ in 0..choices.below(3) {
        now = edit(choices, &now, size);
        provide(&mut world, &now);
        let stop_after = choices.below(40);
        match settle(&mut world, &now, choices, stop_after) {
            Ok(walk) => story.push(format!("edited, settled: {:?}", walk.lines)),
            Err(cut) => story.push(format!("edited, cut off: {cut}")),
        }
    }
    for _ in 0..choices.below(6) {
        let kind = *choices.pick(&Kind::ALL);
        story.extend(damage::strike(&mut world, choices, kind));
    }
    if choices.chance(400) {
        now = edit(choices, &now, size);
        provide(&mut world, &now);
    }
    world.audit.violations.clear();
    (world, now, story)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// From any node, doing what is decided ends with the node as desired, within the bound, breaking no promise.
    #[test]
    fn progress_within_a_linear_bound(story in story(), order in any::<u64>()) {
        let (mut world, desired, _) = any_node(&mut Tape(&story.0));
        let bound = bound(&desired, &world.see());
        let mut order = sim::rng::Rng::new(order);
        let walk = settle(&mut world, &desired, &mut order, bound).map_err(TestCaseError::fail)?;
        let wrong = differences(&world, &desired);
        let open: Vec<_> = walk.decisions.iter().filter(|(_, decision)| **decision != Decision::Settled).collect();
        prop_assert!(wrong.is_empty(), "{wrong:#?}\nafter {:#?}\nopen: {open:?}", walk.lines);
        prop_assert!(world.audit.violations.is_empty(), "{:#?}\nafter {:#?}", world.audit.violations, walk.lines);
    }

    /// `Settled` for every object means that the node is as desired.
    #[test]
    fn settled_means_as_desired(story in story()) {
        let (world, desired, _) = any_node(&mut Tape(&story.0));
        let all = decisions(&desired, &world.see(), &world);
        let settled = all.values().all(|decision| *decision == Decision::Settled);
        let wrong = differences(&world, &desired);
        prop_assert!(!settled || wrong.is_empty(), "settled, but {wrong:#?}");
    }

    /// On any picture, also on one that contradicts itself: every decision has a reason, names only what is ours, spares
    /// what may live, and starts nothing before its network is whole.
    #[test]
    fn every_decision_is_lawful(story in story(), garbling in tape()) {
        let (world, desired, _) = any_node(&mut Tape(&story.0));
        let mut observed = world.see();
        garble(&mut observed, &mut Tape(&garbling));
        for (key, decision) in decisions(&desired, &observed, &world) {
            judge::is_explained(&key, &decision).map_err(TestCaseError::fail)?;
            if let Decision::Do(step, _) = &decision {
                judge::is_ours(&world.registry.marks, &observed, &key, step).map_err(TestCaseError::fail)?;
                judge::spares_the_living(&observed, &key, step).map_err(TestCaseError::fail)?;
                judge::starts_when_wired(&observed, &key, step).map_err(TestCaseError::fail)?;
            }
        }
    }

    /// What is not seen is not absent: with any domain blind nothing in it is decided, and nothing that depends on it is
    /// destroyed or rebuilt.
    #[test]
    fn blind_destroys_nothing(story in story(), garbling in tape(), blinding in tape()) {
        let (world, desired, _) = any_node(&mut Tape(&story.0));
        let mut observed = world.see();
        garble(&mut observed, &mut Tape(&garbling));
        blindfold(&mut observed, &mut Tape(&blinding));
        for (key, decision) in decisions(&desired, &observed, &world) {
            if let Decision::Do(step, _) = &decision {
                judge::is_blind_safe(&desired, &observed, &key, step).map_err(TestCaseError::fail)?;
            }
        }
    }

    /// An app that is not known, or a source that is not whole, loses nothing.
    #[test]
    fn the_unknown_is_kept(story in story()) {
        let (world, desired, _) = any_node(&mut Tape(&story.0));
        let mut unknown = Desired { whole: false, ..Desired::default() };
        prop_assert!(destroys(&unknown, &world).is_none(), "{:?}", destroys(&unknown, &world));
        unknown.whole = true;
        for name in desired.apps.keys() {
            let unknown = sim::want::unknown(&desired, name);
            let destroyed = destroys(&unknown, &world).filter(|key| key.app() == Some(name));
            prop_assert!(destroyed.is_none(), "{destroyed:?}");
        }
    }

    /// The order in which a list happens to be told does not matter, and neither does asking twice.
    #[test]
    fn order_of_lists_does_not_matter(story in story()) {
        let (world, desired, _) = any_node(&mut Tape(&story.0));
        let observed = world.see();
        let mut turned = observed.clone();
        if let Some(runtime) = turned.runtime.seen_mut() {
            for side in runtime.instances.values_mut() {
                side.containers.reverse();
                side.snapshots.reverse();
            }
        }
        if let Some(net) = turned.net.seen_mut() {
            net.host_routes.reverse();
        }
        let settled = |all: &BTreeMap<Key, Decision>| all.iter().map(|(key, of)| (key.clone(), *of == Decision::Settled)).collect::<Vec<_>>();
        let (first, second) = (decisions(&desired, &observed, &world), decisions(&desired, &turned, &world));
        prop_assert_eq!(settled(&first), settled(&second));
        prop_assert_eq!(first, decisions(&desired, &observed, &world));
    }

    /// Holds change when, never what: a held object does the same step or waits, and nobody else notices.
    #[test]
    fn holds_change_when_never_what(story in story(), held in any::<prop::sample::Index>(), other_step in any::<bool>()) {
        let (world, desired, _) = any_node(&mut Tape(&story.0));
        let observed = world.see();
        let free = decisions(&desired, &observed, &world);
        let key = held.get(&free.keys().cloned().collect::<Vec<_>>()).clone();
        let step = match (&free[&key], other_step) {
            (Decision::Do(step, _), false) => step.name(),
            _ => "another-step",
        };
        let now = world.wall();
        let until = Timestamp(now.0 + 5000);
        let hold = Hold { step: step.to_owned(), failures: 3, error: "no".to_owned(), hint: None, since: now, until };
        let holds = Holds::from([(key.clone(), hold)]);
        let picture = Picture::new(&desired, &observed, &world.registry.marks);
        for (of, free) in &free {
            let held = decide(&picture, of, &holds, now);
            let waits = *of == key && matches!(held, Decision::Wait(_));
            prop_assert!(held == *free || waits, "{of}: {free:?} became {held:?}");
            let later = decide(&picture, of, &holds, until);
            prop_assert_eq!(&later, &decide(&picture, of, &Holds::new(), until));
        }
    }

    /// An edit touches what it changes: everything else gets no step but a hosts file that names the peers anew.
    #[test]
    fn the_unchanged_is_not_touched(story in story(), change in tape()) {
        let mut choices = Tape(&story.0);
        let size = Size { poison: false, ..Size::SMALL };
        let first = desired(&mut choices, size);
        let mut world = stocked();
        provide(&mut world, &first);
        settle(&mut world, &first, &mut choices, 1000).map_err(TestCaseError::fail)?;
        let mut change = Tape(&change);
        let second = edit(&mut change, &first, size);
        let observed = world.see();
        for (key, service) in second.instances() {
            let same_app = first.apps.get(&key.app).zip(second.apps.get(&key.app)).is_some_and(|(a, b)| a.networks == b.networks);
            if !same_app || first.service(&key) != Some(service) {
                continue;
            }
            let key = Key::Instance(key);
            let decision = &decisions(&second, &observed, &world)[&key];
            let hosts = matches!(decision, Decision::Do(step, _) if matches!(**step, Step::WriteFile { file: InstanceFile::Hosts, .. }));
            prop_assert!(*decision == Decision::Settled || hosts, "{key}: {decision:?}");
        }
    }

    /// There and back again is the same as never having left.
    #[test]
    fn there_and_back_again(story in story(), change in tape()) {
        let mut choices = Tape(&story.0);
        let size = Size { poison: false, ..Size::SMALL };
        let first = desired(&mut choices, size);
        let mut world = stocked();
        provide(&mut world, &first);
        settle(&mut world, &first, &mut choices, 1000).map_err(TestCaseError::fail)?;
        let at_first = essence(&world);
        let second = edit(&mut Tape(&change), &first, size);
        provide(&mut world, &second);
        settle(&mut world, &second, &mut choices, 1000).map_err(TestCaseError::fail)?;
        provide(&mut world, &first);
        settle(&mut world, &first, &mut choices, 1000).map_err(TestCaseError::fail)?;
        prop_assert_eq!(at_first, essence(&world));
        prop_assert!(world.audit.violations.is_empty(), "{:?}", world.audit.violations);
    }
}

/// An object that something would be taken from.
fn destroys(desired: &Desired, world: &World) -> Option<Key> {
    let all = decisions(desired, &world.see(), world);
    let takes = |decision: &Decision| {
        matches!(decision, Decision::Do(step, _) if matches!(**step,
            Step::DeleteContainer { .. } | Step::StopTask { .. } | Step::DropFiles { .. } | Step::DropNetns { .. }))
    };
    all.into_iter().find(|(key, decision)| key.app().is_some() && takes(decision)).map(|(key, _)| key)
}

/// A node without what differs from one making to the next: ids, times, indexes, chosen addresses and ports.
fn essence(world: &World) -> Vec<String> {
    let mut lines = Vec::new();
    for container in world.runtime.containers.values() {
        let record = container
            .record
            .as_ref()
            .map(|record| (&record.spec, record.attachments.iter().map(|at| &at.interface).collect::<Vec<_>>()));
        let runs = container.task.as_ref().map(|task| task.runs());
        lines.push(format!("{:?} {record:?} runs: {runs:?}", container.instance));
    }
    lines.sort();
    lines.extend(world.net.files.keys().map(|name| format!("netns {name}")));
    let mut links: Vec<_> =
        world.net.links.values().map(|link| format!("link {} {:?}", link.seen.name, link.seen.alias)).collect();
    links.sort();
    lines.extend(links);
    let table = world.net.table.as_ref().map(|table| &table.ruleset);
    let ports = table.into_iter().flat_map(|ruleset| &ruleset.publications);
    lines.extend(
        ports.filter(|(at, _)| at.port < 49_152).map(|(at, targets)| format!("{at:?} to {} targets", targets.len())),
    );
    lines.extend(world.files.instances.keys().map(|key| format!("files of {key}")));
    lines
}
