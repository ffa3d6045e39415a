//! Resources: what a process may use of the machine. runc maps these onto cgroup v1, v2 and the hybrid layout.

use super::devices;
use super::node::Node;
use crate::drive::containerd::error::CallError;
use crate::model::{BlockDevices, InstanceSpec, Limits, Setup, Ulimit};
use oci_spec::runtime::{
    LinuxBlockIo, LinuxBlockIoBuilder, LinuxCpu, LinuxCpuBuilder, LinuxMemory, LinuxMemoryBuilder, LinuxPids,
    LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, LinuxThrottleDevice, LinuxThrottleDeviceBuilder,
    LinuxWeightDeviceBuilder, PosixRlimit, PosixRlimitBuilder, PosixRlimitType,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A tenth of a second: the period in which a share of CPU time is counted.
const PERIOD_US: u64 = 100_000;
/// The kernel refuses a quota below one ms.
const LEAST_QUOTA_US: i64 = 1000;
/// `no limit`, where a value has to be written to lift one.
const LIFTED: i64 = -1;
/// Open files a process may have at once, and may raise itself to: systemd's defaults.
const OPEN_FILES: (u64, u64) = (1024, 524_288);
/// The weight of a group that was given none.
const USUAL_WEIGHT: u16 = 100;

/// The resources of a new container. Limits that are not set are not written.
pub fn resources(spec: &InstanceSpec, node: &Node, clamped: &mut Vec<String>) -> Result<LinuxResources, CallError> {
    let limits = &spec.limits;
    let mut resources = LinuxResourcesBuilder::default().devices(devices::rules(spec)?);
    if let Some(memory) = memory(limits, None, Some(&spec.setup), node, clamped)? {
        resources = resources.memory(memory);
    }
    if let Some(cpu) = cpu(limits, None, node)? {
        resources = resources.cpu(cpu);
    }
    if let Some(block_io) = block_io(limits, None, Some(&spec.setup.block_devices), node, clamped)? {
        resources = resources.block_io(block_io);
    }
    if let Some(pids) = pids(limits, None)? {
        resources = resources.pids(pids);
    }
    resources.build().map_err(unbuilt)
}

/// The resources for a running task: limits that were set and are not any more are lifted.
pub fn update(limits: &Limits, old: &Limits, node: &Node) -> Result<LinuxResources, CallError> {
    let (mut resources, mut clamped) = (LinuxResourcesBuilder::default(), Vec::new());
    if let Some(memory) = memory(limits, Some(old), None, node, &mut clamped)? {
        resources = resources.memory(memory);
    }
    if let Some(cpu) = cpu(limits, Some(old), node)? {
        resources = resources.cpu(cpu);
    }
    if let Some(block_io) = block_io(limits, Some(old), None, node, &mut clamped)? {
        resources = resources.block_io(block_io);
    }
    if let Some(pids) = pids(limits, Some(old))? {
        resources = resources.pids(pids);
    }
    resources.build().map_err(unbuilt)
}

/// A value, or the one that lifts it when there was one before.
fn or_lifted<T, O>(
    value: Option<T>,
    old: Option<&Limits>,
    field: impl Fn(&Limits) -> Option<O>,
    lifted: T,
) -> Option<T> {
    value.or_else(|| old.and_then(field).map(|_| lifted))
}

fn memory(
    limits: &Limits,
    old: Option<&Limits>,
    setup: Option<&Setup>,
    node: &Node,
    clamped: &mut Vec<String>,
) -> Result<Option<LinuxMemory>, CallError> {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let limit = or_lifted(limits.memory.map(signed), old, |old| old.memory, LIFTED);
    let mut memory = LinuxMemoryBuilder::default();
    let mut any = false;
    if let Some(limit) = limit {
        memory = memory.limit(limit);
        any = true;
        if node.swap {
            // Memory and swap together, as Docker does it where nothing is said: as much swap as memory.
            let usual = if limit == LIFTED { LIFTED } else { limit.saturating_mul(2) };
            memory = memory.swap(limits.memory_swap.unwrap_or(usual));
        } else if limits.memory_swap.is_some() {
            clamped.push("memory and swap: the kernel does not count swap for a cgroup".to_owned());
        }
    }
    // In v2 nothing lifts a reservation but the smallest one.
    let none = if node.unified { 1 } else { LIFTED };
    let reserved = limits.memory_reservation.map(signed);
    if let Some(bytes) = or_lifted(reserved, old, |old| old.memory_reservation, none) {
        memory = memory.reservation(bytes);
        any = true;
    }
    if let Some(setup) = setup {
        if let Some(swappiness) = setup.mem_swappiness {
            if node.swappiness {
                memory = memory.swappiness(swappiness);
                any = true;
            } else {
                clamped.push("swappiness: this kernel has none for a cgroup".to_owned());
            }
        }
        if setup.oom_kill_disable {
            if node.oom_control {
                memory = memory.disable_oom_killer(true);
                any = true;
            } else {
                clamped.push("out of memory: this kernel cannot hold a cgroup instead of killing in it".to_owned());
            }
        }
    }
    any.then(|| memory.build().map_err(unbuilt)).transpose()
}

fn cpu(limits: &Limits, old: Option<&Limits>, node: &Node) -> Result<Option<LinuxCpu>, CallError> {
    let of_cpus = limits.milli_cpus.map(|milli| {
        let period = i64::try_from(PERIOD_US / 1000).unwrap_or(100);
        i64::try_from(milli).unwrap_or(i64::MAX).saturating_mul(period).max(LEAST_QUOTA_US)
    });
    let had_quota = |old: &Limits| old.cpu_quota.or(old.milli_cpus.map(|_| LIFTED));
    let had_period = |old: &Limits| old.cpu_period;
    let mut cpu = LinuxCpuBuilder::default();
    let quota = or_lifted(of_cpus.or(limits.cpu_quota), old, had_quota, LIFTED);
    // A quota without a period is one of the usual period, whatever it was before.
    let period = limits.cpu_period.or(quota.map(|_| PERIOD_US));
    let period = or_lifted(period, old, had_period, PERIOD_US);
    let shares = or_lifted(limits.cpu_shares, old, |old| old.cpu_shares, usual_shares(node));
    let cpus = or_lifted(limits.cpuset.clone(), old, |old| old.cpuset.clone(), node.cpus.clone());
    if quota.is_none() && period.is_none() && shares.is_none() && cpus.is_none() {
        return Ok(None);
    }
    if let Some(quota) = quota {
        cpu = cpu.quota(quota);
    }
    if let Some(period) = period {
        cpu = cpu.period(period);
    }
    if let Some(shares) = shares {
        cpu = cpu.shares(shares);
    }
    if let Some(cpus) = cpus {
        cpu = cpu.cpus(cpus);
    }
    cpu.build().map(Some).map_err(unbuilt)
}

/// The shares of a group that was given none: runc counts them in v1's way, and v2's usual weight is another one.
fn usual_shares(node: &Node) -> u64 {
    if node.unified { 2598 } else { 1024 }
}

fn block_io(
    limits: &Limits,
    old: Option<&Limits>,
    devices: Option<&BlockDevices>,
    node: &Node,
    clamped: &mut Vec<String>,
) -> Result<Option<LinuxBlockIo>, CallError> {
    let weight = or_lifted(limits.block_weight, old, |old| old.block_weight, USUAL_WEIGHT);
    let none = BlockDevices::default();
    let devices = devices.unwrap_or(&none);
    let weighted = weight.is_some() || !devices.weights.is_empty();
    if weighted && !node.block_weight {
        clamped.push("block I/O weight: no scheduler of this kernel knows weights".to_owned());
    }
    if !(weighted && node.block_weight) && devices.is_empty() {
        return Ok(None);
    }
    let mut io = LinuxBlockIoBuilder::default();
    if let Some(weight) = weight.filter(|_| node.block_weight) {
        io = io.weight(weight);
    }
    if !devices.weights.is_empty() && node.block_weight {
        let mut weights = Vec::new();
        for (path, weight) in &devices.weights {
            let (major, minor) = super::devices::block_numbers(path)?;
            let device = LinuxWeightDeviceBuilder::default().major(major).minor(minor).weight(*weight);
            weights.push(device.build().map_err(unbuilt)?);
        }
        io = io.weight_device(weights);
    }
    io = io
        .throttle_read_bps_device(throttles(&devices.read_bps)?)
        .throttle_write_bps_device(throttles(&devices.write_bps)?)
        .throttle_read_iops_device(throttles(&devices.read_iops)?)
        .throttle_write_iops_device(throttles(&devices.write_iops)?);
    io.build().map(Some).map_err(unbuilt)
}

fn throttles(limits: &BTreeMap<PathBuf, u64>) -> Result<Vec<LinuxThrottleDevice>, CallError> {
    let one = |(path, rate): (&PathBuf, &u64)| {
        let (major, minor) = super::devices::block_numbers(path)?;
        LinuxThrottleDeviceBuilder::default().major(major).minor(minor).rate(*rate).build().map_err(unbuilt)
    };
    limits.iter().map(one).collect()
}

fn pids(limits: &Limits, old: Option<&Limits>) -> Result<Option<LinuxPids>, CallError> {
    // Compose writes -1 (and Docker takes 0) for "no limit".
    let wanted = limits.pids.map(|pids| if pids <= 0 { LIFTED } else { pids });
    let limit = or_lifted(wanted, old, |old| old.pids, LIFTED);
    limit.map(|limit| LinuxPidsBuilder::default().limit(limit).build().map_err(unbuilt)).transpose()
}

/// Rlimits, as far as the agent may set them.
pub fn rlimits(
    wanted: &BTreeMap<String, Ulimit>,
    node: &Node,
    clamped: &mut Vec<String>,
) -> Result<Vec<PosixRlimit>, CallError> {
    let mut limits: BTreeMap<&str, (u64, u64)> = BTreeMap::from([("nofile", OPEN_FILES)]);
    let number = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    limits.extend(wanted.iter().map(|(name, limit)| (name.as_str(), (number(limit.soft), number(limit.hard)))));
    let mut out = Vec::with_capacity(limits.len());
    for (name, (soft, hard)) in limits {
        let own = node.rlimits.get(name).copied().filter(|_| !node.may_raise()).unwrap_or(u64::MAX);
        if hard > own {
            let text = |value: u64| if value == u64::MAX { "no limit".to_owned() } else { value.to_string() };
            let what = if name == "nofile" { "open files" } else { name };
            clamped.push(format!("{what}: {} instead of {}, the agent's own hard limit", text(own), text(hard)));
        }
        let typ = format!("RLIMIT_{}", name.to_ascii_uppercase()).parse::<PosixRlimitType>();
        let typ = typ.map_err(|_| CallError::invalid(format!("there is no limit `{name}`")))?;
        let hard = hard.min(own);
        let limit = PosixRlimitBuilder::default().typ(typ).soft(soft.min(hard)).hard(hard);
        out.push(limit.build().map_err(unbuilt)?);
    }
    Ok(out)
}

/// The OOM score adjustment: 0 where nothing is said, so that nothing is inherited from containerd, as far as the agent
/// may set it.
pub fn oom_score_adj(wanted: Option<i32>, node: &Node, clamped: &mut Vec<String>) -> i32 {
    let wanted = wanted.unwrap_or(0);
    if node.may_raise() || node.oom_score_adj <= wanted {
        return wanted;
    }
    clamped.push(format!("OOM score: {} instead of {wanted}, the agent's own", node.oom_score_adj));
    node.oom_score_adj
}

fn unbuilt(error: oci_spec::OciSpecError) -> CallError {
    CallError::invalid(format!("the limits cannot be built: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn node() -> Node {
        Node {
            rlimits: BTreeMap::from([("nofile".to_owned(), 20_000), ("core".to_owned(), u64::MAX)]),
            oom_score_adj: 100,
            swap: true,
            block_weight: true,
            cpus: "0-3".to_owned(),
            arch: "amd64".to_owned(),
            ..Node::default()
        }
    }

    fn json(resources: &LinuxResources) -> serde_json::Value {
        serde_json::to_value(resources).expect("is JSON")
    }

    fn fresh(spec: serde_json::Value, node: &Node) -> (serde_json::Value, Vec<String>) {
        let mut whole = serde_json::json!({"image": {"reference": "docker.io/library/web:latest"}});
        whole.as_object_mut().expect("an object").extend(spec.as_object().cloned().expect("an object"));
        let mut clamped = Vec::new();
        let spec: InstanceSpec = serde_json::from_value(whole).expect("a spec");
        (json(&resources(&spec, node, &mut clamped).expect("builds")), clamped)
    }

    #[test]
    fn limits_are_written_when_set_and_lifted_on_update_when_not() {
        let limits = Limits {
            memory: Some(64 << 20),
            milli_cpus: Some(250),
            pids: Some(50),
            memory_reservation: Some(32 << 20),
            cpu_shares: Some(512),
            cpuset: Some("0".to_owned()),
            block_weight: Some(300),
            ..Limits::default()
        };
        let none = Limits::default();
        let set = json(&update(&limits, &none, &node()).expect("builds"));
        assert_eq!(set["memory"], serde_json::json!({"limit": 64 << 20, "swap": 128 << 20, "reservation": 32 << 20}));
        assert_eq!(set["cpu"], serde_json::json!({"quota": 25_000, "period": 100_000, "shares": 512, "cpus": "0"}));
        assert_eq!((&set["pids"]["limit"], &set["blockIO"]["weight"]), (&50.into(), &300.into()));
        let lifted = json(&update(&none, &limits, &node()).expect("builds"));
        assert_eq!(lifted["memory"], serde_json::json!({"limit": -1, "swap": -1, "reservation": -1}));
        assert_eq!(lifted["cpu"], serde_json::json!({"quota": -1, "period": 100_000, "shares": 1024, "cpus": "0-3"}));
        assert_eq!((&lifted["pids"]["limit"], &lifted["blockIO"]["weight"]), (&(-1).into(), &100.into()));
        let (fresh, _) = fresh(serde_json::json!({}), &node());
        assert!(["memory", "cpu", "pids", "blockIO"].iter().all(|key| fresh.get(key).is_none()), "{fresh}");
    }

    #[test]
    fn v2_lifts_in_its_own_units() {
        let limits = Limits { memory_reservation: Some(1 << 20), cpu_shares: Some(2), ..Limits::default() };
        let unified = Node { unified: true, ..node() };
        let lifted = json(&update(&Limits::default(), &limits, &unified).expect("builds"));
        // runc turns shares into a weight of 1 + (shares - 2) * 9999 / 262142; 100 is what v2 starts with
        let shares = lifted["cpu"]["shares"].as_u64().expect("a number");
        assert_eq!(1 + (shares - 2) * 9999 / 262_142, 100);
        assert_eq!(lifted["memory"]["reservation"], 1);
    }

    #[test]
    fn quota_period_and_swap_are_as_written() {
        let limits = serde_json::json!({"limits": {
            "memory": 64 << 20, "memory_swap": -1, "cpu_quota": 50_000, "cpu_period": 200_000}});
        let (set, clamped) = fresh(limits.clone(), &node());
        assert_eq!(
            (&set["memory"]["swap"], &set["cpu"]["quota"], &set["cpu"]["period"]),
            (&(-1).into(), &50_000.into(), &200_000.into())
        );
        assert!(clamped.is_empty());
        let (set, clamped) = fresh(limits, &Node { swap: false, ..node() });
        assert!(set["memory"].get("swap").is_none() && clamped.len() == 1);
    }

    #[test]
    fn what_a_kernel_does_not_know_is_left_out_and_told() {
        let asked = serde_json::json!({
            "setup": {"mem_swappiness": 10, "oom_kill_disable": true}, "limits": {"block_weight": 200}});
        let able = Node { swappiness: true, oom_control: true, ..node() };
        let (set, clamped) = fresh(asked.clone(), &able);
        assert_eq!(set["memory"], serde_json::json!({"swappiness": 10, "disableOOMKiller": true}));
        assert!(set["blockIO"]["weight"] == 200 && clamped.is_empty());
        let (set, clamped) = fresh(asked, &Node { block_weight: false, ..node() });
        assert!(set.get("memory").is_none() && set.get("blockIO").is_none() && clamped.len() == 3, "{clamped:?}");
    }

    #[test]
    fn what_the_agent_may_not_set_is_clamped_and_told() {
        let mut clamped = Vec::new();
        let none = BTreeMap::new();
        let limits = rlimits(&none, &node(), &mut clamped).expect("builds");
        assert_eq!((limits[0].soft(), limits[0].hard()), (1024, 20_000));
        assert_eq!(oom_score_adj(None, &node(), &mut clamped), 100);
        assert_eq!(clamped.len(), 2);
        let able = Node { capabilities: BTreeSet::from(["SYS_RESOURCE".to_owned()]), ..node() };
        let mut clamped = Vec::new();
        assert_eq!(rlimits(&none, &able, &mut clamped).expect("builds")[0].hard(), 524_288);
        assert_eq!((oom_score_adj(Some(-500), &able, &mut clamped), clamped.len()), (-500, 0));
        assert_eq!((oom_score_adj(Some(500), &node(), &mut clamped), clamped.len()), (500, 0));
        let wanted = BTreeMap::from([
            ("nofile".to_owned(), Ulimit { soft: 10, hard: 20 }),
            ("core".to_owned(), Ulimit { soft: 0, hard: -1 }),
        ]);
        let limits = rlimits(&wanted, &node(), &mut clamped).expect("builds");
        let numbers: Vec<_> = limits.iter().map(|limit| (limit.typ(), limit.soft(), limit.hard())).collect();
        assert_eq!(numbers, [(PosixRlimitType::RlimitCore, 0, u64::MAX), (PosixRlimitType::RlimitNofile, 10, 20)]);
        assert!(clamped.is_empty());
    }
}
