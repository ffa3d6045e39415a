//! Limits, which Compose can say in two places.

use super::Lower;
use crate::desired::node::{Node, Value};
use crate::model::Limits;

impl Lower<'_> {
    pub(super) fn limits(&mut self, service: &Node) -> Limits {
        let limits = service.get("deploy").and_then(|node| node.get("resources")).and_then(|node| node.get("limits"));
        let inner = |key: &str| limits.and_then(|node| node.get(key));
        let reserved =
            service.get("deploy").and_then(|node| node.get("resources")).and_then(|node| node.get("reservations"));
        let reserved = reserved.and_then(|node| node.get("memory"));
        let reservation = self.agreed(("mem_reservation", service.get("mem_reservation")), ("memory", reserved));
        let memory = self.agreed(("mem_limit", service.get("mem_limit")), ("memory", inner("memory")));
        let cpus = self.agreed(("cpus", service.get("cpus")), ("cpus", inner("cpus")));
        let pids = self.agreed(("pids_limit", service.get("pids_limit")), ("pids", inner("pids")));
        let weight = service.get("blkio_config").and_then(|node| node.get("weight"));
        let any = i128::from(i64::MAX);
        let limits = Limits {
            memory: memory.and_then(|node| self.memory(node)),
            milli_cpus: cpus.and_then(|node| self.milli_cpus(node)),
            pids: pids.and_then(|node| self.pids(node)),
            memory_reservation: reservation.and_then(|node| self.within(node, 0, any)).filter(|bytes| *bytes > 0),
            memory_swap: service.get("memswap_limit").and_then(|node| self.within(node, -1, any)).filter(|n| *n != 0),
            cpu_shares: service.get("cpu_shares").and_then(|node| self.within(node, 0, 262_144)).filter(|n| *n > 0),
            cpu_quota: service.get("cpu_quota").and_then(|node| self.within(node, -1, any)).filter(|n| *n > 0),
            cpu_period: service.get("cpu_period").and_then(|node| self.within(node, 0, 1_000_000)).filter(|n| *n > 0),
            cpuset: service.get("cpuset").and_then(|node| self.cpuset(node)),
            block_weight: weight.and_then(|node| self.within(node, 0, 1000)).filter(|n| *n > 0),
        };
        self.together(service, &limits);
        limits
    }

    /// Limits that only make sense with each other.
    fn together(&mut self, service: &Node, limits: &Limits) {
        let at = |key: &str| service.get(key).map(|node| node.at).unwrap_or(service.at);
        if limits.milli_cpus.is_some() && (limits.cpu_quota.is_some() || limits.cpu_period.is_some()) {
            let key = if limits.cpu_quota.is_some() { "cpu_quota" } else { "cpu_period" };
            let complaint = self.findings.refuse(at(key), format!("`cpus` and `{key}` say the same in two ways"));
            complaint.hint("give one of them");
        }
        if limits.cpu_quota.is_some_and(|quota| quota < 1000) {
            self.findings.refuse(at("cpu_quota"), "a quota is at least 1000 microseconds");
        }
        if limits.cpu_period.is_some_and(|period| period < 1000) {
            self.findings.refuse(at("cpu_period"), "a period is 1000 to 1000000 microseconds");
        }
        if limits.cpu_shares.is_some_and(|shares| shares < 2) {
            self.findings.refuse(at("cpu_shares"), "shares are 2 to 262144");
        }
        if limits.block_weight.is_some_and(|weight| weight < 10) {
            self.findings.refuse(at("blkio_config"), "a weight is 10 to 1000");
        }
        let least = limits.memory.and_then(|bytes| i64::try_from(bytes).ok());
        match (limits.memory_swap, least) {
            (Some(_), None) => {
                let complaint = self.findings.refuse(at("memswap_limit"), "`memswap_limit` needs a `mem_limit`");
                complaint.hint("it is memory and swap together");
            }
            (Some(swap), Some(memory)) if swap != -1 && swap < memory => {
                let message = "`memswap_limit` is memory and swap together, so it is not below `mem_limit`";
                self.findings.refuse(at("memswap_limit"), message);
            }
            _ => {}
        }
        if limits.memory_reservation > limits.memory && limits.memory.is_some() {
            self.findings.refuse(at("mem_reservation"), "more memory is reserved than `mem_limit` allows");
        }
    }

    /// `0-2,5`: numbers and ranges.
    fn cpuset(&mut self, node: &Node) -> Option<String> {
        let text = node.as_text().filter(|text| !text.is_empty())?;
        let range = |part: &str| match part.trim().split_once('-') {
            Some((first, last)) => Some(first.parse::<u16>().ok()? <= last.parse().ok()?),
            None => part.trim().parse::<u16>().ok().map(|_| true),
        };
        if text.split(',').all(|part| range(part) == Some(true)) {
            return Some(text.replace(' ', ""));
        }
        self.findings.refuse(node.at, format!("\"{text}\" is not a set of CPUs")).hint("like `0-2,5`");
        None
    }

    /// One value from two places; both may be there only if they say the same.
    fn agreed<'n>(&mut self, one: (&str, Option<&'n Node>), other: (&str, Option<&'n Node>)) -> Option<&'n Node> {
        if let (Some(a), Some(b)) = (one.1, other.1)
            && a.value != b.value
        {
            let message = format!("`{}` and `deploy.resources.limits.{}` disagree", one.0, other.0);
            self.findings.error(a.at, message).note(b.at, "the other value is here").hint("give one of them");
        }
        one.1.or(other.1)
    }

    fn memory(&mut self, node: &Node) -> Option<u64> {
        match node.as_int().map(u64::try_from) {
            Some(Ok(0)) | None => None,
            Some(Ok(bytes)) if bytes < 6 << 20 => {
                let message = "no container starts with less than 6 MiB of memory";
                self.findings.refuse(node.at, message).hint("give it more, or leave the limit out");
                None
            }
            Some(Ok(bytes)) => Some(bytes),
            Some(Err(_)) => None,
        }
    }

    fn milli_cpus(&mut self, node: &Node) -> Option<u64> {
        let Value::Float(cpus) = node.value else { return None };
        if cpus == 0.0 {
            return None;
        }
        if !(0.001..=100_000.0).contains(&cpus) {
            self.findings
                .error(node.at, format!("{cpus} is not a number of CPUs"))
                .hint("0.5 is half of one CPU's time");
            return None;
        }
        Some((cpus * 1000.0).round() as u64)
    }

    fn pids(&mut self, node: &Node) -> Option<i64> {
        match node.as_int().and_then(|value| i64::try_from(value).ok()) {
            // Compose's two ways to say "no limit".
            Some(0 | -1) | None => None,
            Some(value) if value < -1 => {
                self.findings.error(node.at, format!("{value} is not a number of processes"));
                None
            }
            Some(value) => Some(value),
        }
    }
}
