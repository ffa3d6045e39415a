//! A picture of everything on a node that an agent could have made or touched, as lines that can be compared.

use super::containerd::SOCKET;
use super::enter::Enter;
use containerd_client::services::v1::{self as api, snapshots::ListSnapshotsRequest, snapshots::snapshots_client};
use containerd_client::tonic::{Request, metadata::MetadataValue};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What is on a node, section by section. Every line is `what it is called` + tab + `what tells this one from another
/// of the same name` (index, pid and start time, creation time, inode, handle).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Picture {
    sections: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Picture {
    /// Takes the picture of a node, of everything in it and of one containerd namespace.
    pub fn of(node: Enter, namespace: &str) -> Self {
        let mut picture = Self::default();
        picture.take_network(node);
        picture.take_nft(node);
        picture.take_processes(node);
        picture.take_files(node);
        if node.path(SOCKET).exists() {
            picture.take_containerd(node, namespace);
        }
        picture
    }

    /// The same without what tells two of one name apart: for comparing end states that were reached in two ways.
    pub fn shape(&self) -> Self {
        self.shape_of(|_| true)
    }

    /// The shape of the sections that a condition chooses; the others as they are.
    pub fn shape_of(&self, chosen: impl Fn(&str) -> bool) -> Self {
        let strip = |line: &String| line.split('\t').next().unwrap().to_owned();
        let mut picture = self.clone();
        for (_, lines) in picture.sections.iter_mut().filter(|(name, _)| chosen(name)) {
            *lines = lines.iter().map(strip).collect();
        }
        picture
    }

    /// The picture without some sections.
    pub fn without(&self, sections: &[&str]) -> Self {
        let mut picture = self.clone();
        picture.sections.retain(|name, _| !sections.contains(name));
        picture
    }

    /// The lines that a condition chooses.
    pub fn only(&self, chosen: impl Fn(&str) -> bool) -> Self {
        let keep =
            |lines: &BTreeSet<String>| lines.iter().filter(|line| chosen(line)).cloned().collect::<BTreeSet<_>>();
        let mut sections: BTreeMap<_, _> = self.sections.iter().map(|(name, lines)| (*name, keep(lines))).collect();
        sections.retain(|_, lines| !lines.is_empty());
        Self { sections }
    }

    /// How many lines it has.
    pub fn lines(&self) -> usize {
        self.sections.values().map(BTreeSet::len).sum()
    }

    /// The lines of a section.
    pub fn section(&self, name: &str) -> Vec<&str> {
        self.sections.get(name).into_iter().flatten().map(String::as_str).collect()
    }

    /// What differs from another picture, a line each; nothing if they are equal.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<_> = self.sections.keys().chain(other.sections.keys()).collect();
        let none = BTreeSet::new();
        let mut lines = Vec::new();
        for name in names {
            let (old, new) = (self.sections.get(name).unwrap_or(&none), other.sections.get(name).unwrap_or(&none));
            lines.extend(old.difference(new).map(|line| format!("{name}: - {line}")));
            lines.extend(new.difference(old).map(|line| format!("{name}: + {line}")));
        }
        lines
    }

    /// Panics with the differences if there are any.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, when: &str) {
        let differences = self.differences(other);
        assert!(differences.is_empty(), "{when}: the node differs (- before, + after)\n{}", differences.join("\n"));
    }

    fn put(&mut self, section: &'static str, line: String) {
        self.sections.entry(section).or_default().insert(line);
    }

    fn take_network(&mut self, node: Enter) {
        let separator = "@@@";
        let text = node.sh(&format!(
            "ip -j -d link; echo {separator}; ip -j address; echo {separator}; ip -j route; echo {separator}; \
             cat /proc/sys/net/ipv4/ip_forward"
        ));
        let parts: Vec<&str> = text.split(separator).collect();
        self.take_links("links", parts[0]);
        self.take_addresses("addresses", parts[1]);
        self.take_routes("routes", parts[2]);
        self.put("ip_forward", parts[3].trim().to_owned());
        for entry in fs::read_dir(node.path("/run/netns")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let inode = fs::metadata(entry.path()).map_or(0, |metadata| metadata.ino());
            self.put("netns", format!("{name}\tinode {inode}"));
            let inner = node.try_sh(&format!(
                "ip -n {name} -j -d link; echo {separator}; ip -n {name} -j address; echo {separator}; ip -n {name} -j route"
            ));
            let text = String::from_utf8_lossy(&inner.stdout).into_owned();
            let parts: Vec<&str> = text.split(separator).collect();
            if let [links, addresses, routes] = parts[..] {
                let mut part = Self::default();
                part.take_links("links", links);
                part.take_addresses("addresses", addresses);
                part.take_routes("routes", routes);
                for (kind, lines) in part.sections {
                    for line in lines {
                        self.put("netns-content", format!("{name} {kind}: {line}"));
                    }
                }
            }
        }
    }

    fn take_links(&mut self, section: &'static str, json: &str) {
        let links: Value = serde_json::from_str(json).unwrap_or(Value::Null);
        let name_of = |index: &Value| {
            let found = links.as_array().into_iter().flatten().find(|link| &link["ifindex"] == index);
            found.map_or(Value::Null, |link| link["ifname"].clone())
        };
        for link in links.as_array().into_iter().flatten() {
            let up = link["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
            let controller = if link["master"].is_number() { name_of(&link["master"]) } else { link["master"].clone() };
            self.put(
                section,
                format!(
                    "{} {} alias={} group={} up={up} master={controller} hairpin={}\tindex {} mac {}",
                    link["ifname"].as_str().unwrap_or("?"),
                    link["linkinfo"]["info_kind"].as_str().unwrap_or("-"),
                    link["ifalias"].as_str().unwrap_or("-"),
                    link["group"],
                    link["linkinfo"]["info_slave_data"]["hairpin"],
                    link["ifindex"],
                    link["address"].as_str().unwrap_or("-"),
                ),
            );
        }
    }

    fn take_addresses(&mut self, section: &'static str, json: &str) {
        let links: Value = serde_json::from_str(json).unwrap_or(Value::Null);
        for link in links.as_array().into_iter().flatten() {
            // IPv6 link-local addresses come and go by themselves with the link's state.
            for address in link["addr_info"].as_array().into_iter().flatten().filter(|info| info["scope"] != "link") {
                self.put(
                    section,
                    format!("{} {}/{}", link["ifname"].as_str().unwrap_or("?"), address["local"], address["prefixlen"]),
                );
            }
        }
    }

    fn take_routes(&mut self, section: &'static str, json: &str) {
        let routes: Value = serde_json::from_str(json).unwrap_or(Value::Null);
        for route in routes.as_array().into_iter().flatten() {
            self.put(section, format!("{} via {} dev {}", route["dst"], route["gateway"], route["dev"]));
        }
    }

    fn take_nft(&mut self, node: Enter) {
        let plain = node.sh("nft -s list ruleset");
        let handles = node.sh("nft -s -a list ruleset");
        let mut table = String::from("-");
        for (line, with_handle) in plain.lines().zip(handles.lines()) {
            if line.starts_with("table ") {
                table = line.trim_end_matches([' ', '{']).to_owned();
            }
            let handle = with_handle.rsplit_once("# handle ").map_or("", |(_, handle)| handle);
            if !line.trim().is_empty() {
                self.put("nft", format!("{table}: {}\thandle {handle}", line.trim_end().replace('\t', "  ")));
            }
        }
    }

    fn take_processes(&mut self, node: Enter) {
        for process in node.processes().into_iter().filter(|process| process.command.contains("containerd-shim")) {
            let words: Vec<&str> = process.command.split(' ').collect();
            let id = words.iter().position(|word| *word == "-id").and_then(|at| words.get(at + 1)).unwrap_or(&"?");
            let ticks = node.start_ticks(process.pid).unwrap_or(0);
            self.put("shims", format!("{id}\tpid {} started {ticks}", process.pid));
        }
    }

    fn take_files(&mut self, node: Enter) {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", node.holder)).unwrap_or_default();
        for line in mounts.lines() {
            let point = line.split(' ').nth(4).unwrap_or("?");
            let kind = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or("?");
            self.put("mounts", format!("{point} {kind}"));
        }
        for root in ["/run/stead", "/var/lib/stead", "/var/log/stead", "/run/containerd/io.containerd.runtime.v2.task"]
        {
            self.take_directory(&node.path(root), root);
        }
        for entry in fs::read_dir(node.path("/sys/fs/cgroup/memory/stead")).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                self.put("cgroups", entry.file_name().to_string_lossy().into_owned());
            }
        }
    }

    fn take_directory(&mut self, seen_at: &Path, inside: &str) {
        for entry in fs::read_dir(seen_at).into_iter().flatten().flatten() {
            let path = format!("{inside}/{}", entry.file_name().to_string_lossy());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                self.put("files", format!("{path}/"));
                let bundle = path.starts_with("/run/containerd/") && path.matches('/').count() > 4;
                if !bundle {
                    self.take_directory(&entry.path(), &path);
                }
            } else {
                self.put("files", path);
            }
        }
    }

    fn take_containerd(&mut self, node: Enter, namespace: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
        let lines = runtime.block_on(containerd_lines(&node.path(SOCKET), namespace)).unwrap_or_else(|status| {
            panic!("containerd does not answer: {status}");
        });
        for (section, mut line) in lines {
            if let Some((_, pid)) = line.rsplit_once("\tpid ").filter(|_| section == "tasks") {
                let ticks = pid.parse().ok().and_then(|pid| node.start_ticks(pid)).unwrap_or(0);
                let _ = write!(line, " started {ticks}");
            }
            self.put(section, line);
        }
    }
}

/// A request in a containerd namespace.
fn in_namespace<T>(message: T, namespace: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(std::time::Duration::from_secs(10));
    let value = MetadataValue::try_from(namespace).expect("a namespace is ASCII");
    request.metadata_mut().insert("containerd-namespace", value);
    request
}

async fn containerd_lines(
    socket: &Path,
    namespace: &str,
) -> Result<Vec<(&'static str, String)>, containerd_client::tonic::Status> {
    let unavailable = |error| containerd_client::tonic::Status::unavailable(format!("{error}"));
    let channel = containerd_client::connect(socket).await.map_err(unavailable)?;
    let mut lines = Vec::new();
    let mut containers = api::containers_client::ContainersClient::new(channel.clone());
    let request = in_namespace(api::ListContainersRequest { filters: vec![] }, namespace);
    for container in containers.list(request).await?.into_inner().containers {
        let made = container.created_at.map_or(String::new(), |at| format!("{}.{:09}", at.seconds, at.nanos));
        lines.push((
            "containers",
            format!("{} image={} snapshot={}\tmade {made}", container.id, container.image, container.snapshot_key),
        ));
    }
    let mut tasks = api::tasks_client::TasksClient::new(channel.clone());
    let request = in_namespace(api::ListTasksRequest { filter: String::new() }, namespace);
    for task in tasks.list(request).await?.into_inner().tasks {
        lines.push(("tasks", format!("{} {}\tpid {}", task.id, task.status().as_str_name(), task.pid)));
    }
    let mut images = api::images_client::ImagesClient::new(channel.clone());
    let request = in_namespace(api::ListImagesRequest { filters: vec![] }, namespace);
    for image in images.list(request).await?.into_inner().images {
        let digest = image.target.map_or(String::new(), |target| target.digest);
        lines.push(("images", format!("{} {digest}", image.name)));
    }
    let mut leases = api::leases_client::LeasesClient::new(channel.clone());
    let request = in_namespace(api::ListRequest { filters: vec![] }, namespace);
    for lease in leases.list(request).await?.into_inner().leases {
        lines.push(("leases", lease.id));
    }
    let mut snapshots = snapshots_client::SnapshotsClient::new(channel);
    let message = ListSnapshotsRequest { snapshotter: "overlayfs".to_owned(), filters: vec![] };
    let mut stream = snapshots.list(in_namespace(message, namespace)).await?.into_inner();
    while let Some(part) = stream.message().await? {
        for info in part.info {
            let made = info.created_at.as_ref().map_or(String::new(), |at| format!("{}.{:09}", at.seconds, at.nanos));
            lines.push((
                "snapshots",
                format!("{} on {} {}\tmade {made}", info.name, info.parent, info.kind().as_str_name()),
            ));
        }
    }
    Ok(lines)
}
