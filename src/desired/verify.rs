//! What the reference checks once everything is merged: names that lead nowhere, circles, keys that exclude each other.

use super::finding::{Findings, nearest};
use super::node::{At, Entry, Map, Node};
use std::collections::{BTreeMap, BTreeSet};

/// Checks a completed tree. `off` are the services of which no profile is active: they may be named, not needed.
pub fn verify(tree: &Node, off: &BTreeSet<String>, findings: &mut Findings) {
    let nothing = Map::new();
    let part = |key: &str| tree.get(key).and_then(Node::as_map).unwrap_or(&nothing);
    let mut verify = Verify { findings, services: part("services"), off };
    for (_, entry) in part("services") {
        verify.dependencies(&entry.node);
        verify.modes(&entry.node);
        for (kind, what) in [("secrets", "secret"), ("configs", "config")] {
            verify.grants(entry.node.get(kind), part(kind), what);
        }
    }
    verify.circles();
    for (kind, what) in [("secrets", "secret"), ("configs", "config"), ("volumes", "volume"), ("networks", "network")] {
        for (name, entry) in part(kind) {
            verify.resource(what, name, entry);
        }
    }
}

struct Verify<'a> {
    findings: &'a mut Findings,
    services: &'a Map,
    off: &'a BTreeSet<String>,
}

impl<'a> Verify<'a> {
    /// A service that is named must be there.
    fn known(&mut self, name: &str, at: At, by: &str) -> bool {
        if self.services.contains_key(name) || self.off.contains(name) {
            return true;
        }
        let names = self.services.keys().chain(self.off).map(String::as_str);
        let near = nearest(name, names).map(|near| format!("did you mean `{near}`?"));
        let message = format!("`{by}` names a service `{name}` that does not exist");
        let complaint = self.findings.error(at, message);
        if let Some(near) = near {
            complaint.hint(near);
        }
        false
    }

    fn dependencies(&mut self, service: &'a Node) {
        for (name, entry) in service.get("depends_on").and_then(Node::as_map).into_iter().flatten() {
            if !self.known(name, entry.at, "depends_on") {
                continue;
            }
            let Some(condition) = entry.node.get("condition") else {
                let complaint = self.findings.error(entry.at, format!("the dependency on `{name}` has no condition"));
                complaint.hint("service_started, service_healthy or service_completed_successfully");
                continue;
            };
            let check = self.services.get(name).map(|entry| &entry.node).map(|needed| needed.get("healthcheck"));
            if condition.as_text() == Some("service_healthy") && check == Some(None) {
                let message = format!("it waits until `{name}` is healthy, which has no healthcheck in this file");
                self.findings
                    .warning(condition.at, message)
                    .hint("its image may bring one; otherwise it waits for ever");
            }
        }
    }

    fn modes(&mut self, service: &Node) {
        let entry = |key: &str| service.as_map().and_then(|map| map.get(key));
        if let (Some(mode), Some(networks)) = (entry("network_mode"), entry("networks")) {
            let complaint = self.findings.error(mode.at, "`network_mode` and `networks` exclude each other");
            complaint.note(networks.at, "the other one is here");
        }
        for key in ["network_mode", "ipc", "pid", "uts", "cgroup"] {
            let Some(node) = service.get(key) else { continue };
            if let Some(name) = node.as_text().and_then(|text| text.strip_prefix("service:")) {
                self.known(name, node.at, key);
            }
        }
    }

    fn grants(&mut self, list: Option<&Node>, declared: &Map, what: &str) {
        for node in list.and_then(Node::as_seq).into_iter().flatten() {
            let Some(source) = node.get("source") else {
                self.findings.error(node.at, format!("the {what} has no `source`"));
                continue;
            };
            let name = source.as_text().unwrap_or_default();
            if declared.contains_key(name) {
                continue;
            }
            let near = nearest(name, declared.keys().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
            let hint = near.unwrap_or_else(|| format!("declare it at the top level: {what}s: {{{name}: ...}}"));
            self.findings.error(source.at, format!("the {what} `{name}` is used but never declared")).hint(hint);
        }
    }

    /// One resource: what is made by others says nothing else, and a content has one source.
    fn resource(&mut self, what: &str, name: &str, entry: &Entry) {
        let Some(map) = entry.node.as_map() else { return };
        let external = map.get("external").filter(|entry| entry.node.as_bool() != Some(false));
        if let Some(external) = external {
            let clash =
                map.iter().find(|(key, _)| !["external", "name"].contains(&key.as_str()) && !key.starts_with("x-"));
            if let Some((key, entry)) = clash {
                let message = format!("the {what} `{name}` is external, so `{key}` cannot be set");
                self.findings.error(entry.at, message).note(external.at, "made by others, says this");
            }
            return;
        }
        if !["secret", "config"].contains(&what) {
            return;
        }
        let sources: Vec<(&str, At)> =
            ["file", "environment", "content"].into_iter().filter_map(|key| Some((key, map.get(key)?.at))).collect();
        match sources.as_slice() {
            [] if !map.contains_key("driver") => {
                let complaint = self.findings.refuse(entry.at, format!("the {what} `{name}` has no source"));
                complaint.hint("give it a `file`, or take it from the `environment`");
            }
            [first, .., last] => {
                let (later, earlier) = if last.1 > first.1 { (last, first) } else { (first, last) };
                let message = format!("a {what} has one source, not `{}` and `{}`", earlier.0, later.0);
                self.findings.error(later.1, message).note(earlier.1, "the other one is here");
            }
            _ => {}
        }
    }

    /// Services that wait for each other in a circle, each circle told once.
    fn circles(&mut self) {
        let mut state: BTreeMap<&str, Visit> = BTreeMap::new();
        for name in self.services.keys() {
            if state.contains_key(name.as_str()) {
                continue;
            }
            // A walk with its own stack: a chain may be as long as there are services.
            let mut path: Vec<(&str, Vec<(&str, At)>)> = vec![(name, self.needs(name))];
            state.insert(name, Visit::Open);
            while let Some((here, todo)) = path.last_mut() {
                let Some((next, at)) = todo.pop() else {
                    state.insert(*here, Visit::Done);
                    path.pop();
                    continue;
                };
                match state.get(next) {
                    Some(Visit::Done) => {}
                    Some(Visit::Open) => {
                        let names: Vec<&str> = path.iter().map(|(name, _)| *name).collect();
                        let begin = names.iter().position(|name| *name == next).unwrap_or(0);
                        let round = [&names[begin..], &[next]].concat();
                        // The first service of the circle is where a reader begins.
                        let first = round.get(1).and_then(|second| self.place(next, second)).unwrap_or(at);
                        let message = format!("services wait for each other: {}", round.join(" -> "));
                        self.findings.error(first, message);
                    }
                    None => {
                        state.insert(next, Visit::Open);
                        let needs = self.needs(next);
                        path.push((next, needs));
                    }
                }
            }
        }
    }

    /// What a service needs, the last one first.
    fn needs(&self, name: &str) -> Vec<(&'a str, At)> {
        let services: &'a Map = self.services;
        let depends = services.get(name).and_then(|entry| entry.node.get("depends_on")).and_then(Node::as_map);
        let mut needs: Vec<(&'a str, At)> = depends
            .into_iter()
            .flatten()
            .filter(|(name, _)| services.contains_key(name.as_str()))
            .map(|(name, entry)| (name.as_str(), entry.at))
            .collect();
        needs.reverse();
        needs
    }

    fn place(&self, service: &str, needs: &str) -> Option<At> {
        Some(self.services.get(service)?.node.get("depends_on")?.as_map()?.get(needs)?.at)
    }
}

enum Visit {
    Open,
    Done,
}
