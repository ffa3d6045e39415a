//! Pictures that no node would give: parts of a picture that contradict each other, go missing, or point nowhere.

use super::super::rng::Choices;
use stead::model::{
    ContainerSeen, Exit, ExitStatus, ImageUse, Observed, Run, Sight, SpecDigest, Stopping, StrayKey, TaskSeen,
    Timestamp,
};

/// Garbles a picture in a few places.
pub fn garble(observed: &mut Observed, choices: &mut impl Choices) {
    for _ in 0..choices.below(6) {
        match choices.below(4) {
            0 | 1 => garble_runtime(observed, choices),
            2 => garble_net(observed, choices),
            _ => garble_rest(observed, choices),
        }
    }
}

/// Blinds any of the domains.
pub fn blindfold(observed: &mut Observed, choices: &mut impl Choices) {
    if choices.chance(500) {
        observed.runtime = Sight::unseen("blind");
    }
    if choices.chance(400) {
        observed.net = Sight::unseen("blind");
    }
    if choices.chance(300) {
        observed.ports = Sight::unseen("blind");
    }
    if choices.chance(300) {
        observed.files = Sight::unseen("blind");
    }
}

fn garble_runtime(observed: &mut Observed, choices: &mut impl Choices) {
    let Some(runtime) = observed.runtime.seen_mut() else {
        return;
    };
    if choices.chance(100) {
        runtime.boot = "another boot".to_owned();
    }
    if choices.chance(100) {
        let usable = ImageUse::WrongPlatform { has: vec!["arm64".to_owned()] };
        runtime.images.values_mut().for_each(|image| image.usable = usable.clone());
    }
    let many = runtime.instances.len() as u64;
    let Some(side) = runtime.instances.values_mut().nth(choices.below(many) as usize) else {
        return;
    };
    if choices.chance(150) {
        side.snapshots.clear();
    }
    let many = side.containers.len() as u64;
    let Some(container) = side.containers.get_mut(choices.below(many) as usize) else {
        return;
    };
    garble_container(container, choices);
    if choices.chance(200) {
        let copy = ContainerSeen { id: format!("{}-y", container.id), ..container.clone() };
        side.containers.push(copy);
    }
}

fn garble_container(container: &mut ContainerSeen, choices: &mut impl Choices) {
    let pid = 1 + choices.below(5000) as u32;
    let at = Timestamp(choices.below(4) * 900_000_000_000);
    match choices.below(11) {
        0 => container.task = TaskSeen::None,
        1 => container.task = TaskSeen::Created { pid },
        2 => container.task = TaskSeen::Running { pid, start_ticks: choices.below(1000) },
        3 => container.task = TaskSeen::Stopped(Exit { pid, status: ExitStatus::Code(3), at }),
        4 => container.task = TaskSeen::Unknown { why: "hung".to_owned() },
        5 => container.record = None,
        6 => container.digest = SpecDigest::from_label("not a digest"),
        7 => container.wedged = !container.wedged,
        8 => {
            let failures = if choices.chance(500) { u32::MAX } else { choices.below(3) as u32 };
            container.run =
                Some(Run { boot: "boot-1".to_owned(), pid, at, count: u32::MAX, failures, ..Run::default() });
        }
        9 => container.exit = Some(Exit { pid, status: ExitStatus::Unknown, at }),
        _ => container.stopping = Some(Stopping { at, revoked: choices.chance(500), unhealthy: false }),
    }
}

fn garble_net(observed: &mut Observed, choices: &mut impl Choices) {
    let Some(net) = observed.net.seen_mut() else {
        return;
    };
    let many = net.instances.len() as u64;
    let at = choices.below(many) as usize;
    match choices.below(6) {
        0 => net.networks.values_mut().for_each(|bridge| bridge.addresses.clear()),
        1 => {
            net.networks.pop_first();
        }
        2 => net.instances.values_mut().skip(at).take(1).for_each(|side| side.netns = None),
        3 => net.instances.values_mut().skip(at).take(1).for_each(|side| side.links.clear()),
        4 => {
            let netns = net.instances.values_mut().skip(at).filter_map(|side| side.netns.as_mut());
            netns.take(1).for_each(|netns| netns.inode = 0);
        }
        _ => {
            let sides = net.instances.values_mut().skip(at).take(1);
            let links = sides.flat_map(|side| side.links.values_mut());
            links.for_each(|link| link.controller = Some(1 + choices.below(9) as u32));
        }
    }
}

fn garble_rest(observed: &mut Observed, choices: &mut impl Choices) {
    match choices.below(3) {
        0 => {
            if let Some(files) = observed.files.seen_mut() {
                files.resolver.servers.push(std::net::IpAddr::from([127, 0, 0, 53]));
                files.volumes.clear();
            }
        }
        1 => {
            if let Some(runtime) = observed.runtime.seen_mut() {
                runtime.strays.insert(StrayKey::Snapshot("gone".to_owned()));
            }
        }
        _ => {
            if let Some(Some(table)) = observed.ports.seen_mut() {
                table.intact = !table.intact;
            }
        }
    }
}
