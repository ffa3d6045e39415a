//! Resources: what a process may use of the machine. runc maps these onto cgroup v1, v2 and the hybrid layout.

use super::node::Node;
use crate::drive::containerd::error::CallError;
use crate::model::Limits;
use oci_spec::runtime::{
    LinuxCpuBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxMemoryBuilder,
    LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, PosixRlimit, PosixRlimitBuilder, PosixRlimitType,
};

/// A tenth of a second: the period in which a share of CPU time is counted.
const PERIOD_US: u64 = 100_000;
/// The kernel refuses a quota below one ms.
const LEAST_QUOTA_US: i64 = 1000;
/// `no limit`, where a value has to be written to lift one.
const LIFTED: i64 = -1;
/// Open files a process may have at once, and may raise itself to: systemd's defaults.
const OPEN_FILES: (u64, u64) = (1024, 524_288);

/// Character devices that every container has, beside those that the runtime itself adds (ptmx, ttys).
const DEVICES: [(i64, i64); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1)];

/// The resources of a new container. Limits that are not set are not written.
pub fn resources(limits: &Limits, privileged: bool, node: &Node) -> Result<LinuxResources, CallError> {
    build(limits, node, false, device_rules(privileged)?)
}

/// The resources for a running task: limits that are not set any more are lifted.
pub fn update(limits: &Limits, node: &Node) -> Result<LinuxResources, CallError> {
    build(limits, node, true, Vec::new())
}

fn build(
    limits: &Limits,
    node: &Node,
    lift: bool,
    devices: Vec<LinuxDeviceCgroup>,
) -> Result<LinuxResources, CallError> {
    let lifted = lift.then_some(LIFTED);
    let mut resources = LinuxResourcesBuilder::default();
    if !devices.is_empty() {
        resources = resources.devices(devices);
    }
    if let Some(limit) = limits.memory.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)).or(lifted) {
        let mut memory = LinuxMemoryBuilder::default().limit(limit);
        if node.swap {
            // Memory and swap together, as Docker does it: as much swap as memory.
            memory = memory.swap(if limit == LIFTED { LIFTED } else { limit.saturating_mul(2) });
        }
        resources = resources.memory(memory.build().map_err(unbuilt)?);
    }
    let quota = limits.milli_cpus.map(|milli| {
        let period = i64::try_from(PERIOD_US / 1000).unwrap_or(100);
        i64::try_from(milli).unwrap_or(i64::MAX).saturating_mul(period).max(LEAST_QUOTA_US)
    });
    if let Some(quota) = quota.or(lifted) {
        let cpu = LinuxCpuBuilder::default().quota(quota).period(PERIOD_US).build().map_err(unbuilt)?;
        resources = resources.cpu(cpu);
    }
    // Compose writes -1 (and Docker takes 0) for "no limit".
    if let Some(limit) = limits.pids.map(|pids| if pids <= 0 { LIFTED } else { pids }).or(lifted) {
        resources = resources.pids(LinuxPidsBuilder::default().limit(limit).build().map_err(unbuilt)?);
    }
    resources.build().map_err(unbuilt)
}

fn device_rules(privileged: bool) -> Result<Vec<LinuxDeviceCgroup>, CallError> {
    let rule = || LinuxDeviceCgroupBuilder::default().access("rwm".to_owned());
    if privileged {
        return Ok(vec![rule().allow(true).typ(LinuxDeviceType::A).build().map_err(unbuilt)?]);
    }
    let mut rules = vec![rule().allow(false).typ(LinuxDeviceType::A).build().map_err(unbuilt)?];
    for typ in [LinuxDeviceType::C, LinuxDeviceType::B] {
        // Nodes may be made, not opened.
        let make = LinuxDeviceCgroupBuilder::default().allow(true).typ(typ).access("m".to_owned());
        rules.push(make.build().map_err(unbuilt)?);
    }
    for (major, minor) in DEVICES {
        let open = rule().allow(true).typ(LinuxDeviceType::C).major(major).minor(minor);
        rules.push(open.build().map_err(unbuilt)?);
    }
    Ok(rules)
}

/// Rlimits, as far as the agent may set them.
pub fn rlimits(node: &Node, clamped: &mut Vec<String>) -> Result<Vec<PosixRlimit>, CallError> {
    let (soft, wanted) = OPEN_FILES;
    let hard = if node.may_raise() { wanted } else { wanted.min(node.open_files) };
    if hard < wanted {
        clamped.push(format!("open files: {hard} instead of {wanted}, the agent's own hard limit"));
    }
    let limit = PosixRlimitBuilder::default().typ(PosixRlimitType::RlimitNofile).soft(soft.min(hard)).hard(hard);
    Ok(vec![limit.build().map_err(unbuilt)?])
}

/// The OOM score adjustment: 0, so that nothing is inherited from containerd, as far as the agent may set it.
pub fn oom_score_adj(node: &Node, clamped: &mut Vec<String>) -> i32 {
    if node.may_raise() || node.oom_score_adj <= 0 {
        return 0;
    }
    clamped.push(format!("OOM score: {} instead of 0, the agent's own", node.oom_score_adj));
    node.oom_score_adj
}

fn unbuilt(error: oci_spec::OciSpecError) -> CallError {
    CallError::invalid(format!("the limits cannot be built: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::containerd::spec::node::Node;
    use std::collections::BTreeSet;

    pub fn node() -> Node {
        Node {
            capabilities: BTreeSet::new(),
            open_files: 20_000,
            oom_score_adj: 100,
            unified: false,
            swap: true,
            arch: "amd64".to_owned(),
        }
    }

    fn json(resources: &LinuxResources) -> serde_json::Value {
        serde_json::to_value(resources).expect("is JSON")
    }

    #[test]
    fn limits_are_written_when_set_and_lifted_on_update_when_not() {
        let limits = Limits { memory: Some(64 << 20), milli_cpus: Some(250), pids: Some(50) };
        let set = json(&update(&limits, &node()).expect("builds"));
        assert_eq!(set["memory"]["limit"], 64 << 20);
        assert_eq!(set["memory"]["swap"], 128 << 20);
        assert_eq!((&set["cpu"]["quota"], &set["cpu"]["period"]), (&25_000.into(), &100_000.into()));
        assert_eq!(set["pids"]["limit"], 50);
        let lifted = json(&update(&Limits::default(), &node()).expect("builds"));
        assert_eq!((&lifted["memory"]["limit"], &lifted["memory"]["swap"]), (&(-1).into(), &(-1).into()));
        assert_eq!((&lifted["cpu"]["quota"], &lifted["pids"]["limit"]), (&(-1).into(), &(-1).into()));
        let fresh = json(&resources(&Limits::default(), false, &node()).expect("builds"));
        assert!(fresh.get("memory").is_none() && fresh.get("cpu").is_none() && fresh.get("pids").is_none());
    }

    #[test]
    fn what_the_agent_may_not_set_is_clamped_and_told() {
        let mut clamped = Vec::new();
        let limits = rlimits(&node(), &mut clamped).expect("builds");
        assert_eq!((limits[0].soft(), limits[0].hard()), (1024, 20_000));
        assert_eq!(oom_score_adj(&node(), &mut clamped), 100);
        assert_eq!(clamped.len(), 2);
        let able = Node { capabilities: BTreeSet::from(["SYS_RESOURCE".to_owned()]), ..node() };
        let mut clamped = Vec::new();
        assert_eq!(rlimits(&able, &mut clamped).expect("builds")[0].hard(), 524_288);
        assert_eq!((oom_score_adj(&able, &mut clamped), clamped.len()), (0, 0));
    }

    #[test]
    fn devices_are_denied_but_for_the_harmless_ones() {
        let rules = device_rules(false).expect("builds");
        assert!(!rules[0].allow() && rules[0].typ() == Some(LinuxDeviceType::A));
        assert_eq!(rules.len(), 3 + DEVICES.len());
        let rules = device_rules(true).expect("builds");
        assert!(rules.len() == 1 && rules[0].allow());
    }
}
