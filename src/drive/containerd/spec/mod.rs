//! # spec: the OCI runtime spec of an instance
//!
//! From a [`Record`], the image's config and this node's limits. The defaults that the user did not write are put in
//! here and nowhere else; they are Docker's, with no-new-privileges on.
//!
//! Guarantees: the same input gives the same spec; what this node does not let the agent give is lowered, and told.
//! Never: a call to containerd, a mount.
//!
//! Tests: beside each part and in `tests.rs`; on a real runtime in `tests/driver_containerd.rs`.

mod capabilities;
mod limits;
mod mounts;
mod node;
mod rootfs;
mod seccomp;
#[cfg(test)]
mod tests;
mod user;

pub use limits::update as limits_update;
pub use node::Node;
pub use rootfs::RootFs;

use super::documents::{Config, Process as ImageProcess};
use super::error::CallError;
use crate::model::{InstanceKey, InstanceSpec, Record};
use oci_spec::runtime::{
    Linux, LinuxBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType, Process, ProcessBuilder,
    RootBuilder, Spec, SpecBuilder, get_default_maskedpaths, get_default_readonly_paths,
};
use prost_types::Any;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A host name's length limit in the kernel, less the terminating zero.
const HOSTNAME: usize = 63;

/// What a spec needs beside the record: places on this node, and its limits.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The instance.
    pub instance: &'a InstanceKey,
    /// Its netns; `None` for the host's.
    pub netns: Option<PathBuf>,
    /// The folder with its hosts, resolv.conf and hostname.
    pub files: PathBuf,
    /// The folder of its app's volumes.
    pub volumes: PathBuf,
    /// Its cgroup.
    pub cgroup: String,
    /// The node.
    pub node: Node,
}

/// A spec, and what of it was lowered.
#[derive(Debug)]
pub struct Built {
    /// The spec.
    pub spec: Spec,
    /// One sentence for each thing that is less than it should be.
    pub clamped: Vec<String>,
}

/// Builds the spec of an instance.
pub fn build(record: &Record, config: &Config, root: &RootFs, around: &Surroundings<'_>) -> Result<Built, CallError> {
    let spec = &record.spec;
    let mut clamped = Vec::new();
    let hostname = hostname(spec, around.instance);
    let available = &around.node.capabilities;
    let granted = capabilities::granted(spec.privileged, &spec.cap_add, &spec.cap_drop, available, &mut clamped)?;
    let image = config.config.clone().unwrap_or_default();
    let process = process(spec, &image, root, around, &hostname, &granted, &mut clamped)?;
    let built = SpecBuilder::default()
        .version("1.0.2".to_owned())
        .root(RootBuilder::default().path("rootfs").readonly(spec.read_only).build().map_err(unbuilt)?)
        .process(process)
        .hostname(hostname)
        .mounts(mounts::all(spec, around)?)
        .linux(linux(spec, around, &granted)?)
        .annotations(HashMap::new())
        .build()
        .map_err(unbuilt)?;
    Ok(Built { spec: built, clamped })
}

fn process(
    spec: &InstanceSpec,
    image: &ImageProcess,
    root: &RootFs,
    around: &Surroundings<'_>,
    hostname: &str,
    granted: &BTreeSet<String>,
    clamped: &mut Vec<String>,
) -> Result<Process, CallError> {
    let user = spec.user.as_deref().or(image.user.as_deref()).unwrap_or("");
    let cwd = spec.working_dir.as_deref().or(image.working_dir.as_deref()).filter(|dir| !dir.is_empty());
    ProcessBuilder::default()
        .terminal(false)
        .user(user::find(user, root)?)
        .args(arguments(spec, image)?)
        .env(environment(spec, image, hostname))
        .cwd(cwd.unwrap_or("/"))
        .capabilities(capabilities::sets(granted)?)
        .rlimits(limits::rlimits(&around.node, clamped)?)
        .oom_score_adj(limits::oom_score_adj(&around.node, clamped))
        .no_new_privileges(!spec.privileged)
        .build()
        .map_err(unbuilt)
}

/// Entrypoint and command: a written entrypoint drops the image's command too.
fn arguments(spec: &InstanceSpec, image: &ImageProcess) -> Result<Vec<String>, CallError> {
    let (entrypoint, image_command) = match &spec.entrypoint {
        Some(written) => (written.clone(), Vec::new()),
        None => (image.entrypoint.clone().unwrap_or_default(), image.cmd.clone().unwrap_or_default()),
    };
    let command = spec.command.clone().unwrap_or(image_command);
    let arguments: Vec<String> = entrypoint.into_iter().chain(command).collect();
    if arguments.first().is_none_or(String::is_empty) {
        return Err(CallError::Invalid {
            what: "there is nothing to run: neither the image nor the file names a command".to_owned(),
            hint: Some("write `command:` or `entrypoint:` on the service".to_owned()),
        });
    }
    Ok(arguments)
}

/// The default path, the host name, the image's variables, the user's: the later one of a name wins, in place.
fn environment(spec: &InstanceSpec, image: &ImageProcess, hostname: &str) -> Vec<String> {
    let mut all: Vec<(String, String)> =
        vec![("PATH".to_owned(), DEFAULT_PATH.to_owned()), ("HOSTNAME".to_owned(), hostname.to_owned())];
    let of_image = image.env.iter().flatten().map(|line| match line.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (line.clone(), String::new()),
    });
    let of_user = spec.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    for (name, value) in of_image.chain(of_user) {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some(slot) => slot.1 = value,
            None => all.push((name, value)),
        }
    }
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The program that a spec runs, when it is not in the root filesystem (and no mount could bring it in).
pub fn missing_program(spec: Option<&Any>, root: &RootFs) -> Option<String> {
    let spec: Spec = serde_json::from_slice(&spec?.value).ok()?;
    let process = spec.process().as_ref()?;
    let program = process.args().as_ref()?.first()?;
    let path = process.env().iter().flatten().find_map(|line| line.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    let places: Vec<String> = match program.contains('/') {
        true => vec![process.cwd().join(program).to_string_lossy().into_owned()],
        false => path.split(':').map(|folder| format!("{folder}/{program}")).collect(),
    };
    let mounts = spec.mounts().as_deref().unwrap_or_default();
    let mounted = |place: &String| mounts.iter().any(|mount| Path::new(place).starts_with(mount.destination()));
    let there = places.iter().any(|place| mounted(place) || root.has(place).unwrap_or(true));
    (!there).then(|| program.clone())
}

/// The host name: as written, or the instance's name as far as it fits.
pub fn hostname(spec: &InstanceSpec, instance: &InstanceKey) -> String {
    spec.hostname.clone().unwrap_or_else(|| {
        let mut name = format!("{}-{}-{}", instance.app, instance.service, instance.replica);
        name.truncate(HOSTNAME);
        name.trim_end_matches(['-', '.', '_']).to_owned()
    })
}

fn linux(spec: &InstanceSpec, around: &Surroundings<'_>, granted: &BTreeSet<String>) -> Result<Linux, CallError> {
    let linux = LinuxBuilder::default()
        .cgroups_path(&around.cgroup)
        .namespaces(namespaces(around)?)
        .resources(limits::resources(&spec.limits, spec.privileged, &around.node)?);
    let linux = if spec.privileged {
        linux.devices(mounts::host_devices()).masked_paths(Vec::new()).readonly_paths(Vec::new())
    } else {
        linux
            .masked_paths(masked_paths())
            .readonly_paths(get_default_readonly_paths())
            .seccomp(seccomp::profile(granted, &around.node.arch)?)
    };
    linux.build().map_err(unbuilt)
}

/// What is hidden from an unprivileged process: the usual paths, and the later additions to them.
fn masked_paths() -> Vec<String> {
    let mut paths = get_default_maskedpaths();
    paths.extend(["/proc/interrupts", "/sys/devices/virtual/powercap"].map(str::to_owned));
    paths
}

fn namespaces(around: &Surroundings<'_>) -> Result<Vec<LinuxNamespace>, CallError> {
    use LinuxNamespaceType::{Cgroup, Ipc, Mount, Network, Pid, Uts};
    let mut own = vec![Pid, Ipc, Uts, Mount];
    if around.node.unified {
        own.push(Cgroup);
    }
    let mut namespaces = Vec::with_capacity(own.len() + 1);
    for typ in own {
        namespaces.push(LinuxNamespaceBuilder::default().typ(typ).build().map_err(unbuilt)?);
    }
    if let Some(netns) = &around.netns {
        let network = LinuxNamespaceBuilder::default().typ(Network).path(netns);
        namespaces.push(network.build().map_err(unbuilt)?);
    }
    Ok(namespaces)
}

fn unbuilt(error: oci_spec::OciSpecError) -> CallError {
    CallError::invalid(format!("the OCI spec cannot be built: {error}"))
}
