//! The default seccomp profile, read from its data file beside this one.

use crate::drive::containerd::error::CallError;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};
use std::collections::BTreeSet;

const PROFILE: &str = include_str!("seccomp.txt");
const EPERM: u32 = 1;

/// One line of the data file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line<'a> {
    errno: Option<u32>,
    cap: Option<&'a str>,
    no_cap: Option<&'a str>,
    arches: Option<Vec<&'a str>>,
    arg: Option<(usize, Test, u64, u64)>,
    names: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Equal,
    NotEqual,
    MaskedEqual,
}

/// The filter for a process with these capabilities (without `CAP_`) on this architecture (Go's name).
pub fn profile(capabilities: &BTreeSet<String>, arch: &str) -> Result<LinuxSeccomp, CallError> {
    let mut plain: BTreeSet<&str> = BTreeSet::new();
    let mut syscalls = Vec::new();
    for text in PROFILE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let line = parse(text).ok_or_else(|| CallError::invalid(format!("seccomp profile: `{text}`")))?;
        if !line.counts(capabilities, arch) {
            continue;
        }
        if line.errno.is_none() && line.arg.is_none() {
            plain.extend(line.names);
        } else {
            syscalls.push(line.rule()?);
        }
    }
    let names: Vec<String> = plain.into_iter().map(str::to_owned).collect();
    let allowed = LinuxSyscallBuilder::default().names(names).action(LinuxSeccompAction::ScmpActAllow).build();
    syscalls.insert(0, allowed.map_err(unbuilt)?);
    let mut filter = LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(EPERM)
        .syscalls(syscalls);
    if let Some(arches) = arches(arch) {
        filter = filter.architectures(arches);
    }
    filter.build().map_err(unbuilt)
}

fn unbuilt(error: oci_spec::OciSpecError) -> CallError {
    CallError::invalid(format!("the seccomp profile cannot be built: {error}"))
}

impl Line<'_> {
    fn counts(&self, capabilities: &BTreeSet<String>, arch: &str) -> bool {
        self.cap.is_none_or(|cap| capabilities.contains(cap))
            && self.no_cap.is_none_or(|cap| !capabilities.contains(cap))
            && self.arches.as_ref().is_none_or(|arches| arches.contains(&arch))
    }

    fn rule(&self) -> Result<LinuxSyscall, CallError> {
        let names: Vec<String> = self.names.iter().map(|name| (*name).to_owned()).collect();
        let mut rule = LinuxSyscallBuilder::default().names(names);
        rule = match self.errno {
            Some(errno) => rule.action(LinuxSeccompAction::ScmpActErrno).errno_ret(errno),
            None => rule.action(LinuxSeccompAction::ScmpActAllow),
        };
        if let Some(arg) = self.arg {
            rule = rule.args(vec![argument(arg)?]);
        }
        rule.build().map_err(unbuilt)
    }
}

fn argument((index, test, value, second): (usize, Test, u64, u64)) -> Result<LinuxSeccompArg, CallError> {
    let op = match test {
        Test::Equal => LinuxSeccompOperator::ScmpCmpEq,
        Test::NotEqual => LinuxSeccompOperator::ScmpCmpNe,
        Test::MaskedEqual => LinuxSeccompOperator::ScmpCmpMaskedEq,
    };
    let arg = LinuxSeccompArgBuilder::default().index(index).value(value).op(op);
    let arg = if test == Test::MaskedEqual { arg.value_two(second) } else { arg };
    arg.build().map_err(unbuilt)
}

fn parse(text: &str) -> Option<Line<'_>> {
    let (head, names) = text.split_once(" : ")?;
    let mut words = head.split_ascii_whitespace();
    let mut line = Line { names: names.split_ascii_whitespace().collect(), ..Line::default() };
    match words.next()? {
        "allow" => {}
        verb => line.errno = Some(verb.strip_prefix("errno=")?.parse().ok()?),
    }
    for word in words {
        if let Some(cap) = word.strip_prefix("cap=") {
            line.cap = Some(cap);
        } else if let Some(cap) = word.strip_prefix("nocap=") {
            line.no_cap = Some(cap);
        } else if let Some(arches) = word.strip_prefix("arch=") {
            line.arches = Some(arches.split(',').collect());
        } else {
            line.arg = Some(parse_test(word.strip_prefix("arg")?)?);
        }
    }
    Some(line)
}

fn parse_test(text: &str) -> Option<(usize, Test, u64, u64)> {
    let index = text.get(..1)?.parse().ok()?;
    let rest = text.get(1..)?;
    if let Some(value) = rest.strip_prefix("==") {
        Some((index, Test::Equal, number(value)?, 0))
    } else if let Some(value) = rest.strip_prefix("!=") {
        Some((index, Test::NotEqual, number(value)?, 0))
    } else {
        let (mask, value) = rest.strip_prefix('&')?.split_once("==")?;
        Some((index, Test::MaskedEqual, number(mask)?, number(value)?))
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The architecture with those whose programs it also runs: a filter without them could be stepped around.
fn arches(arch: &str) -> Option<Vec<Arch>> {
    Some(match arch {
        "amd64" => vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32],
        "arm64" => vec![Arch::ScmpArchAarch64, Arch::ScmpArchArm],
        "s390x" => vec![Arch::ScmpArchS390x, Arch::ScmpArchS390],
        "riscv64" => vec![Arch::ScmpArchRiscv64],
        _ => return None, // the native one alone
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(capabilities: &[&str], arch: &str) -> Vec<LinuxSyscall> {
        let capabilities = capabilities.iter().map(|cap| (*cap).to_owned()).collect();
        profile(&capabilities, arch).expect("the data file is well formed").syscalls().clone().expect("has rules")
    }

    fn allows_plainly(rules: &[LinuxSyscall], name: &str) -> bool {
        rules.iter().any(|rule| {
            rule.names().iter().any(|known| known == name)
                && rule.action() == LinuxSeccompAction::ScmpActAllow
                && rule.args().is_none()
        })
    }

    #[test]
    fn every_line_of_the_data_file_is_understood_and_no_name_is_twice_under_the_same_conditions() {
        let mut seen = BTreeSet::new();
        for text in PROFILE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let line = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert!(!line.names.is_empty(), "{text}");
            for name in &line.names {
                let conditions = text.split(" : ").next();
                assert!(seen.insert((conditions, *name)), "{name} is there twice");
            }
        }
    }

    #[test]
    fn namespaces_need_sys_admin() {
        let bare = rules(&[], "amd64");
        assert!(
            !allows_plainly(&bare, "unshare") && !allows_plainly(&bare, "clone") && !allows_plainly(&bare, "mount")
        );
        let clone = bare.iter().find(|rule| rule.names() == &["clone".to_owned()]).expect("with a mask");
        let arg = &clone.args().as_ref().expect("one argument")[0];
        assert_eq!((arg.index(), arg.value(), arg.value_two()), (0, 0x7e02_0000, Some(0)));
        let clone3 = bare.iter().find(|rule| rule.names() == &["clone3".to_owned()]).expect("answered");
        assert_eq!((clone3.action(), clone3.errno_ret()), (LinuxSeccompAction::ScmpActErrno, Some(38)));
        let admin = rules(&["SYS_ADMIN"], "amd64");
        assert!(allows_plainly(&admin, "unshare") && allows_plainly(&admin, "clone3"));
    }

    #[test]
    fn conditions_are_kept_apart() {
        let bare = rules(&[], "amd64");
        assert!(allows_plainly(&bare, "arch_prctl") && !allows_plainly(&bare, "cacheflush"));
        assert!(!allows_plainly(&bare, "socket") && !allows_plainly(&bare, "personality"));
        assert!(!allows_plainly(&bare, "io_uring_setup") && !allows_plainly(&bare, "keyctl"));
        assert!(allows_plainly(&rules(&["SYS_CHROOT"], "arm64"), "chroot"));
        assert_eq!(bare.iter().filter(|rule| rule.names() == &["personality".to_owned()]).count(), 5);
    }
}
