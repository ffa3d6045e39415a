//! Desired states and edits of them, as the source would deliver them: conflict-free, with only what is used.

use super::rng::Choices;
use super::world::{APPS, NETWORKS, REPLICAS, SERVICES, VOLUMES, app, network, service};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use stead::model::{
    App, AppName, Archive, Desired, ImageWant, InstanceSpec, Limits, Mount, MountSource, NetworkName, NetworkSpec,
    NetworkUse, Place, Port, Protocol, Published, Restart, Service, VolumeName,
};

/// An image that is in containerd, unpacked.
pub const READY: &str = "img/ready:1";
/// An image that is in containerd, packed.
pub const PACKED: &str = "img/packed:1";
/// An image that comes out of an archive.
pub const ARCHIVED: &str = "img/archived:1";
/// An image that is nowhere.
pub const MISSING: &str = "img/missing:1";
/// The contents that the archive can have.
pub const CONTENTS: [&str; 2] = ["sha256:aaaa", "sha256:bbbb"];

/// How much a generator may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub apps: usize,
    pub services: usize,
    pub replicas: u32,
    /// Images that cannot be had are asked for too.
    pub poison: bool,
}

impl Size {
    /// Small enough for twenty thousand runs.
    pub const SMALL: Self = Self { apps: 2, services: 2, replicas: 2, poison: true };
}

/// The archive's place.
pub fn archive_path() -> PathBuf {
    PathBuf::from("/srv/archived.tar")
}

/// A spec that runs an image and nothing else.
pub fn plain(reference: &str) -> InstanceSpec {
    let json = format!(r#"{{"image":{{"reference":"{reference}"}}}}"#);
    serde_json::from_str(&json).expect("a spec needs an image only")
}

fn image(choices: &mut impl Choices, size: Size) -> ImageWant {
    let archived = |content: usize| {
        let archive = Archive { path: archive_path(), digest: CONTENTS[content].to_owned() };
        ImageWant { reference: ARCHIVED.to_owned(), archive: Some(archive) }
    };
    let plain = |reference: &str| ImageWant { reference: reference.to_owned(), archive: None };
    match choices.below(if size.poison { 9 } else { 8 }) {
        0..4 => plain(READY),
        4..6 => plain(PACKED),
        6..8 => archived(0),
        _ => plain(MISSING),
    }
}

fn port(choices: &mut impl Choices) -> Port {
    let host = [Some(8080), Some(8081), Some(9000), None];
    let protocol = if choices.chance(200) { Protocol::Udp } else { Protocol::Tcp };
    let host_ip = choices.chance(150).then_some(Ipv4Addr::LOCALHOST.into());
    Port { host_ip, host: *choices.pick(&host), container: *choices.pick(&[80, 81]), protocol, from: BTreeSet::new() }
}

fn networks(choices: &mut impl Choices) -> Vec<NetworkUse> {
    let name = |name: &str| NetworkName::new(name).expect("a valid network name");
    let with = |name| NetworkUse::plain(name);
    let order: &[&str] = match choices.below(8) {
        0..5 => &NETWORKS[..1],
        5 => &NETWORKS,
        6 => &NETWORKS[1..],
        _ => &[],
    };
    let mut uses: Vec<NetworkUse> = order.iter().map(|of| with(name(of))).collect();
    if let Some(first) = uses.first_mut().filter(|_| choices.chance(150)) {
        first.aliases.insert("front".to_owned());
    }
    uses
}

fn restart(choices: &mut impl Choices) -> Option<Restart> {
    match choices.below(6) {
        0..3 => Some(Restart::Always),
        3 => Some(Restart::UnlessStopped),
        4 => Some(Restart::OnFailure { max: choices.chance(500).then_some(2) }),
        _ => None,
    }
}

/// A service.
pub fn a_service(choices: &mut impl Choices, size: Size) -> Service {
    let mut spec = plain(READY);
    spec.image = image(choices, size);
    spec.restart = restart(choices);
    spec.networks = networks(choices);
    spec.command = choices.chance(400).then(|| vec!["serve".to_owned(), choices.below(3).to_string()]);
    spec.stop_grace_ms = choices.chance(500).then(|| choices.between(0, 3) * 500);
    if !spec.networks.is_empty() && choices.chance(600) {
        spec.ports.push(port(choices));
    }
    if choices.chance(300) {
        let volume = VolumeName::new(*choices.pick(&VOLUMES)).expect("a valid volume name");
        spec.mounts.push(Mount {
            target: "/data".to_owned(),
            source: MountSource::Volume(volume),
            read_only: false,
            settings: Default::default(),
        });
    }
    if choices.chance(200) {
        spec.limits = Limits { memory: Some(1 << choices.between(24, 26)), ..Limits::default() };
    }
    let replicas = 1 + choices.below(u64::from(size.replicas)) as u32;
    Service { place: Place::default(), replicas, spec }
}

fn an_app(choices: &mut impl Choices, name: &str, size: Size) -> App {
    let many = 1 + choices.below(size.services as u64) as usize;
    let services = SERVICES.iter().take(many).map(|of| (service(of), a_service(choices, size)));
    let services: BTreeMap<_, _> = services.collect();
    let networks = NETWORKS.iter().map(|of| (network(name, of).network, a_network(choices, name, of))).collect();
    App {
        file: PathBuf::from(format!("{name}.yaml")),
        generation: 1,
        known: true,
        services,
        networks,
        volumes: BTreeSet::new(),
        findings: Vec::new(),
    }
}

fn a_network(choices: &mut impl Choices, app_name: &str, of: &str) -> NetworkSpec {
    let number = APPS.iter().position(|name| *name == app_name).unwrap_or_default() * 2
        + NETWORKS.iter().position(|name| *name == of).unwrap_or_default();
    let subnet = |base: u8| {
        let text = format!("172.{base}.{number}.0/24");
        text.parse().expect("a valid subnet")
    };
    match choices.below(8) {
        0..5 => NetworkSpec::default(),
        5 => NetworkSpec { subnet: Some(subnet(20)), ..NetworkSpec::default() },
        6 => NetworkSpec { subnet: Some(subnet(21)), ..NetworkSpec::default() },
        _ => NetworkSpec { internal: true, ..NetworkSpec::default() },
    }
}

/// A desired state.
pub fn desired(choices: &mut impl Choices, size: Size) -> Desired {
    let mut desired = Desired { generation: 1, whole: true, ..Desired::default() };
    let many = 1 + choices.below(size.apps as u64) as usize;
    for name in APPS.iter().take(many) {
        desired.apps.insert(app(name), an_app(choices, name, size));
    }
    lawful(&mut desired);
    desired
}

/// One edit, of the kinds that people make.
pub fn edit(choices: &mut impl Choices, of: &Desired, size: Size) -> Desired {
    let mut desired = of.clone();
    desired.generation += 1;
    let generation = desired.generation;
    let name = *choices.pick(&APPS[..size.apps.min(APPS.len())]);
    let key = app(name);
    if !desired.apps.contains_key(&key) || choices.chance(60) {
        desired.apps.insert(key.clone(), an_app(choices, name, size));
    } else if choices.chance(120) {
        desired.apps.remove(&key);
    } else if let Some(app) = desired.apps.get_mut(&key) {
        edit_app(choices, name, app, size);
    }
    if let Some(app) = desired.apps.get_mut(&key) {
        app.generation = generation;
    }
    lawful(&mut desired);
    desired
}

fn edit_app(choices: &mut impl Choices, name: &str, app: &mut App, size: Size) {
    let services: Vec<_> = app.services.keys().cloned().collect();
    let Some(of) = (!services.is_empty()).then(|| choices.pick(&services).clone()) else {
        return;
    };
    if choices.chance(100) {
        app.services.remove(&of);
        return;
    }
    if choices.chance(150) {
        let network = *choices.pick(&NETWORKS);
        app.networks.insert(super::world::network(name, network).network, a_network(choices, name, network));
        return;
    }
    let Some(found) = app.services.get_mut(&of) else {
        return;
    };
    let fresh = a_service(choices, size);
    match choices.below(11) {
        0 => found.replicas = 1 + choices.below(u64::from(size.replicas)) as u32,
        1 => found.spec.command = Some(vec!["serve".to_owned(), choices.below(3).to_string()]),
        2 => found.spec.ports = fresh.spec.ports,
        3 => found.spec.networks = fresh.spec.networks,
        4 => found.spec.limits = fresh.spec.limits,
        5 => found.spec.image = fresh.spec.image,
        6 => found.spec.restart = fresh.spec.restart,
        7 => found.spec.mounts = fresh.spec.mounts,
        8 => found.spec.stop_grace_ms = fresh.spec.stop_grace_ms,
        9 => found.replicas = REPLICAS.min(size.replicas),
        _ => *found = fresh,
    }
}

/// What the source guarantees: no host port of two services, no port without a network, only what is used.
pub fn lawful(desired: &mut Desired) {
    let mut taken: BTreeSet<Published> = BTreeSet::new();
    for app in desired.apps.values_mut() {
        for service in app.services.values_mut() {
            if service.spec.networks.is_empty() {
                service.spec.ports.clear();
            }
            service.spec.ports.retain(|port| {
                let Some(number) = port.host else {
                    return true;
                };
                let at = |host_ip| Published { protocol: port.protocol, host_ip, port: number };
                let clash = taken.iter().any(|other| {
                    other.port == number
                        && other.protocol == port.protocol
                        && (other.host_ip.is_none() || port.host_ip.is_none() || other.host_ip == port.host_ip)
                });
                !clash && taken.insert(at(port.host_ip))
            });
        }
        tidy_app(app);
    }
}

fn tidy_app(app: &mut App) {
    let used: BTreeSet<NetworkName> =
        app.services.values().flat_map(|service| &service.spec.networks).map(|at| at.network.clone()).collect();
    app.networks.retain(|name, _| used.contains(name));
    for name in used {
        app.networks.entry(name).or_default();
    }
    let mounts = app.services.values().flat_map(|service| &service.spec.mounts);
    app.volumes = mounts
        .filter_map(|mount| match &mount.source {
            MountSource::Volume(volume) => Some(volume.clone()),
            MountSource::Bind { .. } | MountSource::Tmpfs { .. } => None,
        })
        .collect();
}

/// What was, for an app whose file cannot be read and whose last known good is lost.
pub fn unknown(desired: &Desired, name: &AppName) -> Desired {
    let mut desired = desired.clone();
    if let Some(app) = desired.apps.get_mut(name) {
        app.known = false;
        app.services.clear();
        app.networks.clear();
        app.volumes.clear();
    }
    desired
}
