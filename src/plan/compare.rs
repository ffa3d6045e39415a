//! Field by field: what changed between two specs, what each change costs, and the digest of what must not change.

use crate::model::{
    Change, Class, Grant, ImageWant, InstanceKey, InstanceSpec, Limits, Names, NetworkUse, Setup, SpecDigest,
};
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
        setup,
        grants,
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
    diff.setup(&old.setup, setup);
    diff.grants(&old.grants, grants);
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
                .map(|NetworkUse { network, aliases: _, address, address6, mac, interface }| {
                    (network.clone(), *address, *address6, *mac, interface.clone())
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
        let Limits {
            memory,
            milli_cpus,
            pids,
            memory_reservation,
            memory_swap,
            cpu_shares,
            cpu_quota,
            cpu_period,
            cpuset,
            block_weight,
        } = new;
        self.field("mem_limit", &old.memory, memory, Class::InPlace);
        self.field("cpus", &old.milli_cpus, milli_cpus, Class::InPlace);
        self.field("pids_limit", &old.pids, pids, Class::InPlace);
        self.field("mem_reservation", &old.memory_reservation, memory_reservation, Class::InPlace);
        self.field("memswap_limit", &old.memory_swap, memory_swap, Class::InPlace);
        self.field("cpu_shares", &old.cpu_shares, cpu_shares, Class::InPlace);
        self.field("cpu_quota", &old.cpu_quota, cpu_quota, Class::InPlace);
        self.field("cpu_period", &old.cpu_period, cpu_period, Class::InPlace);
        self.field("cpuset", &old.cpuset, cpuset, Class::InPlace);
        self.field("blkio_config.weight", &old.block_weight, block_weight, Class::InPlace);
    }

    fn setup(&mut self, old: &Setup, new: &Setup) {
        let Setup {
            group_add,
            ulimits,
            sysctls,
            shm_size,
            oom_score_adj,
            oom_kill_disable,
            mem_swappiness,
            block_devices,
            devices,
            device_rules,
            security,
            init,
            tty,
            stdin_open,
            domainname,
            annotations,
            namespaces,
            cgroup_parent,
            runtime,
        } = new;
        self.field("group_add", &old.group_add, group_add, Class::Recreate);
        self.field("ulimits", &old.ulimits, ulimits, Class::Recreate);
        self.field("sysctls", &old.sysctls, sysctls, Class::Recreate);
        self.field("shm_size", &old.shm_size, shm_size, Class::Recreate);
        self.field("oom_score_adj", &old.oom_score_adj, oom_score_adj, Class::Recreate);
        self.field("oom_kill_disable", &old.oom_kill_disable, oom_kill_disable, Class::Recreate);
        self.field("mem_swappiness", &old.mem_swappiness, mem_swappiness, Class::Recreate);
        self.field("blkio_config", &old.block_devices, block_devices, Class::Recreate);
        self.field("devices", &old.devices, devices, Class::Recreate);
        self.field("device_cgroup_rules", &old.device_rules, device_rules, Class::Recreate);
        self.field("security_opt", &old.security, security, Class::Recreate);
        self.field("init", &old.init, init, Class::Recreate);
        self.field("tty", &old.tty, tty, Class::Recreate);
        self.field("stdin_open", &old.stdin_open, stdin_open, Class::Recreate);
        self.field("domainname", &old.domainname, domainname, Class::Recreate);
        self.field("annotations", &old.annotations, annotations, Class::Recreate);
        self.field("pid, ipc, uts, cgroup", &old.namespaces, namespaces, Class::Recreate);
        self.field("cgroup_parent", &old.cgroup_parent, cgroup_parent, Class::Recreate);
        self.field("runtime", &old.runtime, runtime, Class::Recreate);
    }

    /// Configs and secrets, one by one; of a content it is only said that it is another one.
    fn grants(&mut self, old: &[Grant], new: &[Grant]) {
        let places = |grants: &[Grant]| grants.iter().map(|grant| grant.target.clone()).collect::<Vec<_>>();
        self.field("configs and secrets", &places(old), &places(new), Class::Recreate);
        for Grant { what, target, digest, uid, gid, mode, content: _ } in new {
            let Some(before) = old.iter().find(|grant| grant.target == *target) else { continue };
            self.field(&format!("{what}: source"), &before.what, what, Class::Recreate);
            if before.digest != *digest {
                let (old, new) = ("a content".to_owned(), "another content".to_owned());
                self.0.push(Change { field: format!("{what}: content"), old, new, class: Class::Recreate });
            }
            let owner = (before.uid, before.gid);
            self.field(&format!("{what}: owner"), &owner, &(*uid, *gid), Class::Recreate);
            self.field(&format!("{what}: mode"), &before.mode, mode, Class::Recreate);
        }
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
