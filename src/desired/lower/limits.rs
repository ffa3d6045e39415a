//! Limits, which Compose can say in two places.

use super::Lower;
use crate::desired::node::{Node, Value};
use crate::model::Limits;

impl Lower<'_> {
    pub(super) fn limits(&mut self, service: &Node) -> Limits {
        let limits = service.get("deploy").and_then(|node| node.get("resources")).and_then(|node| node.get("limits"));
        let inner = |key: &str| limits.and_then(|node| node.get(key));
        let memory = self.agreed(("mem_limit", service.get("mem_limit")), ("memory", inner("memory")));
        let cpus = self.agreed(("cpus", service.get("cpus")), ("cpus", inner("cpus")));
        let pids = self.agreed(("pids_limit", service.get("pids_limit")), ("pids", inner("pids")));
        Limits {
            memory: memory.and_then(|node| self.memory(node)),
            milli_cpus: cpus.and_then(|node| self.milli_cpus(node)),
            pids: pids.and_then(|node| self.pids(node)),
        }
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
