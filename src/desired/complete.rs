//! What a merged tree leaves unsaid: profiles, env files, implied networks and dependencies, names of resources.

use super::dotenv;
use super::finding::Findings;
use super::load::{Loaded, Request};
use super::node::{At, Entry, Map, Node, Value};
use super::read;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Completes a loaded tree in place. Answers the services of which no profile is active.
pub fn complete(loaded: &mut Loaded, request: &Request) -> BTreeSet<String> {
    let mut work = Complete {
        findings: &mut loaded.findings,
        inputs: &mut loaded.inputs,
        env: &loaded.env,
        dir: &loaded.dir,
        request,
        files: BTreeMap::new(),
    };
    let tree = &mut loaded.tree;
    let mut off = BTreeSet::new();
    if let Some(services) = services(tree) {
        off = work.profiles(services);
        for entry in services.values_mut() {
            work.service(&mut entry.node);
        }
    }
    let uses_default = services(tree).is_some_and(|services| services.values().any(uses_default));
    if let (true, Some(top)) = (uses_default, tree.as_map_mut()) {
        let at = At { line: 1, column: 1, ..top.get("services").map(|entry| entry.at).unwrap_or_default() };
        let empty = || Node::new(at, Value::Map(Map::new()));
        let networks = top.or_insert_with("networks", || Entry { at, node: empty() });
        if let Some(networks) = networks.node.as_map_mut() {
            networks.or_insert_with("default", || Entry { at, node: empty() });
        }
    }
    for kind in ["networks", "volumes", "secrets", "configs"] {
        let resources = tree.as_map_mut().and_then(|map| map.get_mut(kind));
        let resources = resources.and_then(|entry| entry.node.as_map_mut());
        for entry in resources.into_iter().flat_map(|resources| resources.values_mut()) {
            work.resource(kind, &mut entry.node);
        }
    }
    off
}

/// Gives every resource the name that the reference gives it.
pub fn name_resources(tree: &mut Node, app: &str) {
    for kind in ["networks", "volumes", "secrets", "configs"] {
        let resources = tree.as_map_mut().and_then(|map| map.get_mut(kind));
        let Some(resources) = resources.and_then(|entry| entry.node.as_map_mut()) else { continue };
        for (key, entry) in resources.iter_mut() {
            name_resource(app, key, &mut entry.node);
        }
    }
}

fn services(tree: &mut Node) -> Option<&mut Map> {
    tree.as_map_mut()?.get_mut("services")?.node.as_map_mut()
}

fn uses_default(entry: &Entry) -> bool {
    entry.node.get("networks").and_then(Node::as_map).is_some_and(|networks| networks.contains_key("default"))
}

/// Gives a resource its name, and the old form of `external` its new one.
fn name_resource(app: &str, key: &str, node: &mut Node) {
    let at = node.at;
    let Some(map) = node.as_map_mut() else { return };
    let mut external = false;
    if let Some(entry) = map.get_mut("external") {
        let old = entry.node.get_text("name").map(str::to_owned);
        external = entry.node.as_bool() != Some(false);
        if entry.node.as_map().is_some() {
            entry.node.value = Value::Bool(true);
        }
        if let Some(name) = old {
            map.or_insert_with("name", || Entry { at, node: Node::text(at, name) });
        }
    }
    let name = if external { key.to_owned() } else { format!("{app}_{key}") };
    map.or_insert_with("name", || Entry { at, node: Node::text(at, name) });
}

struct Complete<'a> {
    findings: &'a mut Findings,
    inputs: &'a mut BTreeSet<PathBuf>,
    env: &'a BTreeMap<String, String>,
    dir: &'a Path,
    request: &'a Request,
    /// Env and label files that have been read: many services share one.
    files: BTreeMap<(PathBuf, bool), Option<dotenv::Pairs>>,
}

impl Complete<'_> {
    /// Takes out the services of which no profile is active, after looking who needs them.
    fn profiles(&mut self, services: &mut Map) -> BTreeSet<String> {
        let active = &self.request.profiles;
        let on = |entry: &Entry| {
            let profiles = entry.node.get("profiles").and_then(Node::as_seq).unwrap_or_default();
            let wanted = |node: &Node| active.iter().any(|one| Some(one.as_str()) == node.as_text() || one == "*");
            profiles.is_empty() || profiles.iter().any(wanted)
        };
        let off: BTreeSet<String> =
            services.iter().filter(|(_, entry)| !on(entry)).map(|(name, _)| name.clone()).collect();
        services.retain(|name, _| !off.contains(name));
        for (name, entry) in services.iter() {
            for (needed, dependency) in entry.node.get("depends_on").and_then(Node::as_map).into_iter().flatten() {
                let required = dependency.node.get("required").and_then(Node::as_bool) != Some(false);
                if required && off.contains(needed) {
                    let message = format!("the service `{name}` needs `{needed}`, of which no profile is active");
                    let complaint = self.findings.error(dependency.at, message);
                    complaint.hint("give both the same profiles, or say `required: false`");
                }
            }
        }
        off
    }

    fn service(&mut self, node: &mut Node) {
        if !self.request.keep_environment {
            self.environment(node);
            self.label_files(node);
        }
        let at = node.at;
        self.build(node);
        let implied = implied(node);
        let Some(map) = node.as_map_mut() else { return };
        if !implied.is_empty() {
            let entry = || Entry { at, node: Node::new(at, Value::Map(Map::new())) };
            let depends = map.or_insert_with("depends_on", entry);
            if let Some(depends) = depends.node.as_map_mut() {
                for (name, dependency) in implied {
                    depends.or_insert_with(&name, || dependency);
                }
            }
        }
        let depends = map.get_mut("depends_on").and_then(|entry| entry.node.as_map_mut());
        for entry in depends.into_iter().flat_map(|depends| depends.values_mut()) {
            let at = entry.at;
            if let Some(dependency) = entry.node.as_map_mut() {
                let required = || Entry { at, node: Node::new(at, Value::Bool(true)) };
                dependency.or_insert_with("required", required);
            }
        }
        let networks = map.get("networks").and_then(|entry| entry.node.as_map()).is_some_and(|map| !map.is_empty());
        if !networks && !map.contains_key("network_mode") && !map.contains_key("provider") {
            let attachment = Node::map(at, [("default", Node::new(at, Value::Null))]);
            let place = map.get("networks").map_or(at, |entry| entry.at);
            map.insert("networks".to_owned(), Entry { at: place, node: attachment });
        }
    }

    /// What a build leaves unsaid, and values for its arguments: one without a value vanishes.
    fn build(&mut self, node: &mut Node) {
        let Some(build) = node.as_map_mut().and_then(|map| map.get_mut("build")) else { return };
        let at = build.node.at;
        let Some(map) = build.node.as_map_mut() else { return };
        if !map.contains_key("context") {
            let context = if self.request.keep_paths { ".".into() } else { self.dir.to_string_lossy().into_owned() };
            map.insert("context".to_owned(), Entry { at, node: Node::text(at, context) });
        }
        if !map.contains_key("dockerfile") && !map.contains_key("dockerfile_inline") {
            map.insert("dockerfile".to_owned(), Entry { at, node: Node::text(at, "Dockerfile") });
        }
        if let Some(args) = map.get_mut("args").and_then(|entry| entry.node.as_map_mut()) {
            fill(args, self.env);
            args.retain(|_, entry| entry.node.value != Value::Null);
        }
    }

    /// What the env files say, under what `environment` says; names without a value take one from the app's values.
    fn environment(&mut self, node: &mut Node) {
        if node.get("env_file").is_none() {
            let own = node.as_map_mut().and_then(|map| map.get_mut("environment"));
            if let Some(own) = own.and_then(|entry| entry.node.as_map_mut()) {
                fill(own, self.env);
            }
            return;
        }
        let mut whole = Map::new();
        for file in node.get("env_file").and_then(Node::as_seq).into_iter().flatten() {
            let Some(path) = file.get("path") else { continue };
            let at = path.at;
            let required = file.get("required").and_then(Node::as_bool) != Some(false);
            let raw = file.get_text("format") == Some("raw");
            let before: BTreeMap<String, String> = whole
                .iter()
                .filter_map(|(name, entry): (&String, &Entry)| Some((name.clone(), entry.node.as_text()?.to_owned())))
                .collect();
            for (name, value) in self.pairs(&path.clone(), required, raw, &before) {
                let value = value.or_else(|| self.env.get(&name).cloned());
                // A name alone that nobody knows is not there at all.
                if let Some(value) = value {
                    whole.insert(name, Entry { at, node: Node::text(at, value) });
                }
            }
        }
        let at = node.at;
        let Some(map) = node.as_map_mut() else { return };
        if let Some(own) = map.get_mut("environment").and_then(|entry| entry.node.as_map_mut()) {
            fill(own, self.env);
            whole.extend(std::mem::take(own));
        }
        if !whole.is_empty() {
            let place = map.get("environment").map_or(at, |entry| entry.at);
            map.insert("environment".to_owned(), Entry { at: place, node: Node::new(place, Value::Map(whole)) });
        }
    }

    /// What the label files say, under what `labels` says.
    fn label_files(&mut self, node: &mut Node) {
        let mut whole = Map::new();
        for path in node.get("label_file").and_then(Node::as_seq).into_iter().flatten() {
            for (name, value) in self.pairs(&path.clone(), true, false, &BTreeMap::new()) {
                let value = Node::text(path.at, value.unwrap_or_default());
                whole.insert(name, Entry { at: path.at, node: value });
            }
        }
        let at = node.at;
        let (false, Some(map)) = (whole.is_empty(), node.as_map_mut()) else { return };
        if let Some(own) = map.get_mut("labels").and_then(|entry| entry.node.as_map_mut()) {
            whole.extend(std::mem::take(own));
        }
        let place = map.get("labels").map_or(at, |entry| entry.at);
        map.insert("labels".to_owned(), Entry { at: place, node: Node::new(place, Value::Map(whole)) });
    }

    /// The pairs of a file that a service names. References in it see the app's values, then the names before them.
    fn pairs(&mut self, path: &Node, required: bool, raw: bool, before: &BTreeMap<String, String>) -> dotenv::Pairs {
        let file = self.dir.join(path.as_text().unwrap_or_default());
        let key = (file.clone(), raw);
        if let Some(known) = self.files.get(&key).filter(|_| before.is_empty()) {
            return known.clone().unwrap_or_default();
        }
        self.inputs.insert(file.clone());
        let text = match read::text(&file) {
            Ok(text) => text,
            Err(read::Fault::Missing) if !required => return Vec::new(),
            Err(fault) => {
                self.findings.error(path.at, format!("{}: {fault}", file.display()));
                return Vec::new();
            }
        };
        let lookup = |name: &str| self.env.get(name).or_else(|| before.get(name)).cloned();
        let (pairs, faults) = if raw { dotenv::parse_raw(&text) } else { dotenv::parse(&text, &lookup) };
        if let Some(first) = faults.first() {
            let number = self.findings.files.add(&file, text.into(), None);
            let message = format!("line {} of {}: {}", first.line, file.display(), first.message);
            let complaint = self.findings.error(path.at, message);
            for fault in &faults {
                complaint.note(At { file: number, line: fault.line, column: fault.column }, fault.message.clone());
            }
        }
        if before.is_empty() {
            self.files.insert(key, Some(pairs.clone()));
        }
        pairs
    }

    /// Paths in the options of a volume that is a bind mount in disguise.
    fn resource(&mut self, kind: &str, node: &mut Node) {
        let local = matches!(node.get_text("driver"), None | Some("local"));
        if kind != "volumes" || !local || self.request.keep_paths {
            return;
        }
        let options = node.as_map_mut().and_then(|map| map.get_mut("driver_opts"));
        let Some(options) = options.and_then(|entry| entry.node.as_map_mut()) else { return };
        let bind =
            options.get("o").and_then(|entry| entry.node.as_text()).is_some_and(|o| o.split(',').any(|o| o == "bind"));
        if let (true, Some(device)) = (bind, options.get_mut("device"))
            && let Value::Text(path) = &mut device.node.value
        {
            *path = super::shape::clean(&self.dir.join(path.as_str())).to_string_lossy().into_owned();
        }
    }
}

/// Gives names without a value the app's.
fn fill(map: &mut Map, env: &BTreeMap<String, String>) {
    for (name, entry) in map.iter_mut().filter(|(_, entry)| entry.node.value == Value::Null) {
        if let Some(value) = env.get(name) {
            entry.node.value = Value::Text(value.clone());
        }
    }
}

/// Dependencies that other keys imply: links and shared namespaces restart with their service, volumes do not.
fn implied(service: &Node) -> Vec<(String, Entry)> {
    let mut out = Vec::new();
    let mut add = |at: At, name: &str, restart: bool| {
        let truth = || Node::new(at, Value::Bool(true));
        let mut fields = vec![("condition", Node::text(at, "service_started")), ("required", truth())];
        if restart {
            fields.push(("restart", truth()));
        }
        out.push((name.to_owned(), Entry { at, node: Node::map(at, fields) }));
    };
    for node in service.get("links").and_then(Node::as_seq).into_iter().flatten() {
        add(node.at, node.as_text().unwrap_or_default().split(':').next().unwrap_or_default(), true);
    }
    for key in ["network_mode", "ipc", "pid", "uts", "cgroup"] {
        if let Some(node) = service.get(key)
            && let Some(name) = node.as_text().and_then(|text| text.strip_prefix("service:"))
        {
            add(node.at, name, true);
        }
    }
    for node in service.get("volumes_from").and_then(Node::as_seq).into_iter().flatten() {
        let text = node.as_text().unwrap_or_default();
        if !text.starts_with("container:") {
            add(node.at, text.split(':').next().unwrap_or_default(), false);
        }
    }
    out
}
