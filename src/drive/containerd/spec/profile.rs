//! A seccomp profile file in the form that the runtime reads: its conditions are decided here.

use crate::drive::containerd::error::CallError;
use crate::model::{SeccompProfile, SeccompRule, SeccompWhere};
use oci_spec::runtime::LinuxSeccomp;
use serde_json::json;
use std::collections::BTreeSet;

/// The filter of a profile for a process with these capabilities (without `CAP_`), on this architecture (Go's name) and
/// this kernel.
pub fn filter(
    profile: &SeccompProfile,
    capabilities: &BTreeSet<String>,
    arch: &str,
    kernel: &str,
) -> Result<LinuxSeccomp, CallError> {
    let counts = |rule: &&SeccompRule| {
        let has = |cap: &String| capabilities.contains(cap.strip_prefix("CAP_").unwrap_or(cap));
        let new_enough =
            |place: &SeccompWhere| place.min_kernel.as_deref().map(|least| version(kernel) >= version(least));
        let (on, off) = (&rule.includes, &rule.excludes);
        on.caps.iter().all(has)
            && (on.arches.is_empty() || on.arches.contains(arch))
            && new_enough(on).unwrap_or(true)
            && !off.caps.iter().any(has)
            && !off.arches.contains(arch)
            && !new_enough(off).unwrap_or(false)
    };
    let syscalls: Vec<_> = profile.syscalls.iter().filter(counts).map(rule).collect();
    let mut architectures = profile.architectures.clone();
    for map in profile.arch_map.iter().filter(|map| map.architecture == native(arch)) {
        architectures.push(map.architecture.clone());
        architectures.extend(map.sub_architectures.iter().cloned());
    }
    let mut whole = json!({"defaultAction": profile.default_action, "syscalls": syscalls});
    let fields = [
        ("defaultErrnoRet", profile.default_errno_ret.map(|errno| json!(errno))),
        ("architectures", (!architectures.is_empty()).then(|| json!(architectures))),
        ("flags", (!profile.flags.is_empty()).then(|| json!(profile.flags))),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            whole[name] = value;
        }
    }
    serde_json::from_value(whole).map_err(|error| CallError::Invalid {
        what: format!("the seccomp profile cannot be used: {error}"),
        hint: Some("look at the file that `security_opt` names".to_owned()),
    })
}

fn rule(rule: &SeccompRule) -> serde_json::Value {
    let names: Vec<&String> = rule.names.iter().chain(&rule.name).collect();
    let mut out = json!({"names": names, "action": rule.action});
    if let Some(errno) = rule.errno_ret {
        out["errnoRet"] = json!(errno);
    }
    if !rule.args.is_empty() {
        out["args"] = json!(rule.args);
    }
    out
}

/// An architecture in libseccomp's name.
fn native(arch: &str) -> &'static str {
    match arch {
        "amd64" => "SCMP_ARCH_X86_64",
        "arm64" => "SCMP_ARCH_AARCH64",
        "s390x" => "SCMP_ARCH_S390X",
        "riscv64" => "SCMP_ARCH_RISCV64",
        "ppc64le" => "SCMP_ARCH_PPC64LE",
        "loong64" => "SCMP_ARCH_LOONGARCH64",
        _ => "",
    }
}

/// The first two numbers of a kernel's version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_where_they_say() {
        let profile: SeccompProfile = serde_json::from_value(json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
            "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
                        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": null}],
            "syscalls": [
                {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": null, "includes": {}, "excludes": {}},
                {"name": "chroot", "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_CHROOT"]}},
                {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]},
                 "args": [{"index": 0, "value": 5, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]},
            ],
        }))
        .expect("a profile");
        let names = |capabilities: &[&str], kernel: &str| {
            let capabilities = capabilities.iter().map(|cap| (*cap).to_owned()).collect();
            let filter = filter(&profile, &capabilities, "amd64", kernel).expect("a filter");
            assert_eq!(filter.architectures().as_ref().map(Vec::len), Some(2));
            filter.syscalls().iter().flatten().flat_map(|rule| rule.names().clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], "6.1.0-13-amd64"), ["read", "ptrace", "clone"]);
        assert_eq!(names(&["SYS_CHROOT", "SYS_ADMIN"], "4.4.0"), ["read", "chroot"]);
        let wrong = SeccompProfile { default_action: "SCMP_ACT_SING".to_owned(), ..profile };
        assert!(filter(&wrong, &BTreeSet::new(), "amd64", "6.1").is_err());
    }
}
