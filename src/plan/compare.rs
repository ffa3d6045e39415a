//! Field by field: what changed between two specs, what each change costs, and the digest of what must not change.

use crate::model::{Change, Class, ImageWant, InstanceKey, InstanceSpec, Limits, Names, NetworkUse, SpecDigest};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// Every field that differs, with its class.
///
/// Both specs are destructured without `..`: a new field does not compile until somebody has decided its class.
pub fn changes(old: &InstanceSpec, new: &InstanceSpec) -> Vec<Change> {
    let InstanceSpec {
        image,
        entrypoint,
        command,
        environment,
        user,
        working_dir,
        hostname,
        labels,
        container_name,
        restart,
        stop_signal,
        stop_grace_ms,
        ports,
        networks,
        network_mode,
        names,
        mounts,
        read_only,
        privileged,
        cap_add,
        cap_drop,
        limits,
        needs,
        health,
        restart_policy,
        restarted,
        stopped,
    } = new;
    let mut diff = Diff(Vec::new());
    diff.image(&old.image, image);
    diff.field("entrypoint", &old.entrypoint, entrypoint, Class::Recreate);
    diff.field("command", &old.command, command, Class::Recreate);
    diff.field("environment", &old.environment, environment, Class::Recreate);
    diff.field("user", &old.user, user, Class::Recreate);
    diff.field("working_dir", &old.working_dir, working_dir, Class::Recreate);
    diff.field("hostname", &old.hostname, hostname, Class::Recreate);
    diff.field("labels", &old.labels, labels, Class::InPlace);
    diff.field("container_name", &old.container_name, container_name, Class::InPlace);
    diff.field("restart", &old.restart, restart, Class::InPlace);
    diff.field("stop_signal", &old.stop_signal, stop_signal, Class::InPlace);
    diff.field("stop_grace_period", &old.stop_grace_ms, stop_grace_ms, Class::InPlace);
    diff.field("ports", &old.ports, ports, Class::InPlace);
    diff.networks(&old.networks, networks);
    diff.field("network_mode", &old.network_mode, network_mode, Class::Recreate);
    diff.names(&old.names, names);
    diff.field("volumes", &old.mounts, mounts, Class::Recreate);
    diff.field("read_only", &old.read_only, read_only, Class::Recreate);
    diff.field("privileged", &old.privileged, privileged, Class::Recreate);
    diff.field("cap_add", &old.cap_add, cap_add, Class::Recreate);
    diff.field("cap_drop", &old.cap_drop, cap_drop, Class::Recreate);
    diff.limits(&old.limits, limits);
    diff.field("depends_on", &old.needs, needs, Class::InPlace);
    diff.field("healthcheck", &old.health, health, Class::InPlace);
    diff.field("deploy.restart_policy", &old.restart_policy, restart_policy, Class::InPlace);
    diff.field("x-stead.restarted", &old.restarted, restarted, Class::InPlace);
    diff.field("x-stead.stopped", &old.stopped, stopped, Class::InPlace);
    diff.0
}

struct Diff(Vec<Change>);

impl Diff {
    fn field<T: PartialEq + Debug>(&mut self, field: &str, old: &T, new: &T, class: Class) {
        if old != new {
            let (old, new) = (format!("{old:?}"), format!("{new:?}"));
            self.0.push(Change { field: field.to_owned(), old, new, class });
        }
    }

    /// Where an archive lies does not matter; what is in it does.
    fn image(&mut self, old: &ImageWant, new: &ImageWant) {
        let ImageWant { reference, archive } = new;
        let digest = |archive: &Option<crate::model::Archive>| archive.as_ref().map(|a| a.digest.clone());
        self.field("image", &old.reference, reference, Class::Recreate);
        self.field("x-stead.archive", &digest(&old.archive), &digest(archive), Class::Recreate);
        let place = |archive: &Option<crate::model::Archive>| archive.as_ref().map(|a| a.path.clone());
        self.field("x-stead.archive.path", &place(&old.archive), &place(archive), Class::InPlace);
    }

    /// Leaving or joining a network, or another address there, takes the network from the process: that is a new one.
    fn networks(&mut self, old: &[NetworkUse], new: &[NetworkUse]) {
        let places = |uses: &[NetworkUse]| {
            uses.iter()
                .map(|NetworkUse { network, aliases: _, address, mac, interface }| {
                    (network.clone(), *address, *mac, interface.clone())
                })
                .collect::<Vec<_>>()
        };
        let aliases = |uses: &[NetworkUse]| uses.iter().map(|u| u.aliases.clone()).collect::<Vec<BTreeSet<String>>>();
        self.field("networks", &places(old), &places(new), Class::Recreate);
        if places(old) == places(new) {
            self.field("networks.aliases", &aliases(old), &aliases(new), Class::InPlace);
        }
    }

    /// Files that are mounted into it, written in place.
    fn names(&mut self, old: &Names, new: &Names) {
        let Names { servers, search, options, hosts } = new;
        self.field("dns", &old.servers, servers, Class::InPlace);
        self.field("dns_search", &old.search, search, Class::InPlace);
        self.field("dns_opt", &old.options, options, Class::InPlace);
        self.field("extra_hosts", &old.hosts, hosts, Class::InPlace);
    }

    fn limits(&mut self, old: &Limits, new: &Limits) {
        let Limits { memory, milli_cpus, pids } = new;
        self.field("mem_limit", &old.memory, memory, Class::InPlace);
        self.field("cpus", &old.milli_cpus, milli_cpus, Class::InPlace);
        self.field("pids_limit", &old.pids, pids, Class::InPlace);
    }
}

/// The digest of an instance: its key, and every field whose change means another container.
///
/// It covers what was written and resolved, never our defaults; fields that change in place are left out.
pub fn digest(key: &InstanceKey, spec: &InstanceSpec) -> SpecDigest {
    #[derive(Serialize)]
    struct Identity<'a> {
        instance: &'a InstanceKey,
        spec: InstanceSpec,
    }
    let identity = Identity { instance: key, spec: without_in_place(spec) };
    let bytes = serde_json::to_vec(&identity).unwrap_or_default();
    SpecDigest::of(&bytes)
}

fn without_in_place(spec: &InstanceSpec) -> InstanceSpec {
    let mut kept = spec.clone();
    kept.labels.clear();
    kept.container_name = None;
    kept.restart = None;
    kept.stop_signal = None;
    kept.stop_grace_ms = None;
    kept.ports.clear();
    kept.names = Names::default();
    kept.limits = Limits::default();
    kept.needs.clear();
    (kept.health, kept.restart_policy) = (None, None);
    (kept.restarted, kept.stopped) = (None, false);
    for network in &mut kept.networks {
        network.aliases.clear();
    }
    if let Some(archive) = &mut kept.image.archive {
        archive.path.clear();
    }
    kept
}
