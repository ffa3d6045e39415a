//! What a service needs, how its health is found out, and what follows its end.

use super::Lower;
use crate::desired::finding::nearest;
use crate::desired::node::{At, Entry, Node, Value};
use crate::model::{
    AppName, Condition, HealthCheck, InstanceSpec, Need, Probe, Restart, RestartCondition, RestartPolicy, Service,
    ServiceName,
};
use std::collections::BTreeMap;

/// A need with its place and the service that has it.
pub(super) type PlacedNeed = (At, ServiceName, Need);

/// The conditions of `x-stead.needs`, with Compose's own words for them.
const CONDITIONS: [(&str, Condition); 6] = [
    ("started", Condition::Started),
    ("healthy", Condition::Healthy),
    ("completed", Condition::Completed),
    ("service_started", Condition::Started),
    ("service_healthy", Condition::Healthy),
    ("service_completed_successfully", Condition::Completed),
];

fn condition(text: &str) -> Option<Condition> {
    CONDITIONS.iter().find(|(word, _)| *word == text).map(|(_, condition)| *condition)
}

impl Lower<'_> {
    /// What another service has to be before this one starts: of its own app, then of others.
    pub(super) fn needs(&mut self, name: &str, service: &Node) -> Vec<Need> {
        let (Some(app), Ok(from)) = (self.app.clone(), ServiceName::new(name)) else { return Vec::new() };
        let mut needs: Vec<Need> = Vec::new();
        for (needed, entry) in service.get("depends_on").and_then(Node::as_map).into_iter().flatten() {
            let word = entry.node.get_text("condition").unwrap_or("service_started");
            let flag = |key: &str| entry.node.get(key).and_then(Node::as_bool);
            let (Ok(needed), Some(condition)) = (ServiceName::new(needed.as_str()), condition(word)) else { continue };
            // of an optional one that is not there, nothing is waited for
            let optional = flag("required") == Some(false);
            if optional && !self.services.contains(needed.as_str()) {
                continue;
            }
            let restart = flag("restart") == Some(true);
            let need = Need { app: app.clone(), service: needed, condition, optional, restart };
            self.needed.push((entry.at, from.clone(), need.clone()));
            needs.push(need);
        }
        for (at, need) in self.needs_of_others(service) {
            if need.app == app && need.service == from {
                self.findings.error(at, format!("the service `{name}` needs itself"));
                continue;
            }
            self.needed.push((at, from.clone(), need.clone()));
            needs.push(need);
        }
        needs.sort();
        needs.dedup();
        needs
    }

    /// `x-stead: {needs: [app/service: condition]}`; a name alone stands for `started`.
    fn needs_of_others(&mut self, service: &Node) -> Vec<(At, Need)> {
        let Some(list) = service.get("x-stead").and_then(|node| node.get("needs")) else { return Vec::new() };
        let hint = "needs: [app/service: started], or healthy, or completed";
        let Some(items) = list.as_seq() else {
            self.findings.error(list.at, format!("`needs` is a list, not {}", list.kind())).hint(hint);
            return Vec::new();
        };
        let mut needs = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(name) => needs.extend(self.need(name, item.at, None)),
                Value::Map(map) => {
                    for (name, entry) in map {
                        needs.extend(self.need(name, entry.at, Some(&entry.node)));
                    }
                }
                _ => {
                    self.findings.error(item.at, format!("a need is a name, not {}", item.kind())).hint(hint);
                }
            }
        }
        needs
    }

    fn need(&mut self, name: &str, at: At, node: Option<&Node>) -> Option<(At, Need)> {
        let parts = name.split_once('/').map(|(app, service)| (AppName::new(app), ServiceName::new(service)));
        let Some((Ok(app), Ok(service))) = parts else {
            self.findings.error(at, format!("\"{name}\" is not a service of an app")).hint("write it as app/service");
            return None;
        };
        let word = node.map_or(Some("started"), Node::as_text).unwrap_or_default();
        let Some(condition) = condition(word) else {
            let words = CONDITIONS.map(|(word, _)| word);
            let hint = match nearest(word, words) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "it is started, healthy or completed".to_owned(),
            };
            let at = node.map_or(at, |node| node.at);
            self.findings.error(at, format!("\"{word}\" is not a condition")).hint(hint);
            return None;
        };
        Some((at, Need { app, service, condition, optional: false, restart: false }))
    }

    /// Conditions that can never hold, of services in this file.
    pub(super) fn needs_can_hold(&mut self, services: &BTreeMap<ServiceName, Service>) {
        for (at, _, need) in self.needed.clone() {
            let needed = services.get(&need.service).filter(|_| self.app.as_ref() == Some(&need.app));
            if let Some(service) = needed {
                self.can_hold(at, &need, &service.spec);
            }
        }
    }

    fn can_hold(&mut self, at: At, need: &Need, spec: &InstanceSpec) {
        let always = match &spec.restart_policy {
            Some(policy) => policy.condition == RestartCondition::Any && policy.max_attempts.is_none(),
            None => matches!(spec.restart, Some(Restart::Always | Restart::UnlessStopped)),
        };
        match need.condition {
            Condition::Healthy if spec.health.is_none() => {
                let message = format!("`{}` has no health check, so it never counts as healthy", need.service);
                let complaint = self.findings.refuse(at, message);
                complaint.hint("give it a `healthcheck` here: one that its image brings is not read");
            }
            Condition::Completed if always => {
                let message = format!("`{}` is always restarted, so it never completes", need.service);
                self.findings.refuse(at, message).hint("give it `restart: on-failure`, or no policy");
            }
            _ => {}
        }
    }

    /// `healthcheck` and the probes of `x-stead`.
    pub(super) fn health(&mut self, service: &Node) -> Option<HealthCheck> {
        let check = service.get("healthcheck");
        let inner = |key: &str| check.and_then(|check| check.get(key));
        let words: Vec<&str> =
            inner("test").and_then(Node::as_seq).into_iter().flatten().filter_map(Node::as_text).collect();
        if inner("disable").and_then(Node::as_bool) == Some(true) || words.first() == Some(&"NONE") {
            return None;
        }
        let own = self.own_probe(service);
        let restart = self.on_unhealthy(service);
        let probe = match (own, words.as_slice()) {
            (Some((at, _)), [_, ..]) => {
                let complaint = self.findings.error(at, "a service has one health check, and this is the second");
                complaint.note(inner("test").map_or(at, |node| node.at), "the other one is here");
                return None;
            }
            (Some((_, probe)), []) => probe,
            (None, ["CMD", program @ ..]) if !program.is_empty() => {
                Probe::Exec(program.iter().map(|&word| word.to_owned()).collect())
            }
            (None, ["CMD-SHELL", line]) => Probe::Exec(["/bin/sh", "-c", line].map(str::to_owned).to_vec()),
            (None, [_, ..]) => {
                let at = inner("test").map_or_else(At::default, |node| node.at);
                self.findings.error(at, "the health check has nothing to run").hint("[\"CMD\", program, argument...]");
                return None;
            }
            (None, []) => {
                let check = check?;
                let complaint = self.findings.refuse(check.at, "the health check has no `test`");
                complaint.hint("write one, or use x-stead: {http: ...}; one that the image brings is not read");
                return None;
            }
        };
        let millis = |node: Option<&Node>| {
            let millis = node?.as_int().and_then(|nanos| u64::try_from(nanos / 1_000_000).ok())?;
            (millis > 0).then_some(millis)
        };
        let retries = inner("retries").and_then(Node::as_int).and_then(|count| u32::try_from(count).ok());
        Some(HealthCheck {
            probe,
            interval_ms: millis(inner("interval")),
            timeout_ms: millis(inner("timeout")),
            retries: retries.filter(|count| *count > 0),
            start_period_ms: millis(inner("start_period")),
            start_interval_ms: millis(inner("start_interval")),
            restart,
        })
    }

    /// The probe that the agent runs itself, if there is one.
    fn own_probe(&mut self, service: &Node) -> Option<(At, Probe)> {
        let own = service.get("x-stead")?.as_map()?;
        let found: Vec<(&str, &Entry)> =
            ["http", "tcp", "grpc"].into_iter().filter_map(|kind| Some((kind, own.get(kind)?))).collect();
        if let [(_, first), (kind, second), ..] = found.as_slice() {
            let complaint = self.findings.error(second.at, format!("`{kind}` is a second probe, and there can be one"));
            complaint.note(first.at, "the first one is here");
        }
        let (kind, entry) = found.first()?;
        let node = &entry.node;
        let Some(port) = node.get("port").and_then(Node::as_int).and_then(|port| u16::try_from(port).ok()) else {
            let complaint = self.findings.error(entry.at, format!("`{kind}` needs a `port` from 1 to 65535"));
            complaint.hint("the port in the container");
            return None;
        };
        let probe = match *kind {
            "http" => {
                let path = node.get_text("path").unwrap_or("/").to_owned();
                if !path.starts_with('/') || path.chars().any(|c| c.is_control() || c == ' ') {
                    let at = node.get("path").map_or(entry.at, |node| node.at);
                    self.findings.error(at, "a path begins with / and has no blanks");
                }
                let status = node.get("status").and_then(Node::as_int).and_then(|status| u16::try_from(status).ok());
                Probe::Http { port, path, status }
            }
            "tcp" => Probe::Tcp { port },
            _ => Probe::Grpc { port, service: node.get_text("service").unwrap_or_default().to_owned() },
        };
        Some((entry.at, probe))
    }

    fn on_unhealthy(&mut self, service: &Node) -> bool {
        let node = service.get("x-stead").and_then(|node| node.get("on_unhealthy"));
        node.and_then(Node::as_text) == Some("restart")
    }

    /// `deploy.restart_policy`.
    pub(super) fn restart_policy(&mut self, service: &Node) -> Option<RestartPolicy> {
        let policy = service.get("deploy")?.get("restart_policy")?;
        let condition = match policy.get("condition") {
            None => RestartCondition::Any,
            Some(node) => match node.as_text().unwrap_or_default() {
                "none" => RestartCondition::None,
                "on-failure" => RestartCondition::OnFailure,
                "any" => RestartCondition::Any,
                other => {
                    let message = format!("\"{other}\" is not a condition of a restart policy");
                    self.findings.error(node.at, message).hint("it is none, on-failure or any");
                    return None;
                }
            },
        };
        let millis = |key: &str| {
            let nanos = policy.get(key).and_then(Node::as_int)?;
            u64::try_from(nanos / 1_000_000).ok()
        };
        let attempts = policy.get("max_attempts").and_then(Node::as_int).and_then(|count| u32::try_from(count).ok());
        Some(RestartPolicy {
            condition,
            delay_ms: millis("delay"),
            // as in Compose, none is no limit
            max_attempts: attempts.filter(|count| *count > 0),
            window_ms: millis("window"),
        })
    }
}
