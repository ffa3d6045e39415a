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
mod devices;
mod limits;
mod mounts;
mod node;
mod profile;
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
use crate::model::{InstanceKey, InstanceSpec, Ipc, Record, Seccomp};
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
    /// The program that is the first process of a container with an init.
    pub helper: PathBuf,
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
    let namespaces = &spec.setup.namespaces;
    let hostname = match namespaces.host_uts {
        true => around.node.hostname.clone(),
        false => hostname(spec, around.instance),
    };
    let available = &around.node.capabilities;
    let granted = capabilities::granted(spec.privileged, &spec.cap_add, &spec.cap_drop, available, &mut clamped)?;
    let image = config.config.clone().unwrap_or_default();
    let process = process(spec, &image, root, around, &hostname, &granted, &mut clamped)?;
    let annotations = spec.setup.annotations.clone().into_iter().collect::<HashMap<_, _>>();
    let builder = SpecBuilder::default()
        .version("1.0.2".to_owned())
        .root(RootBuilder::default().path("rootfs").readonly(spec.read_only).build().map_err(unbuilt)?)
        .process(process)
        .mounts(mounts::all(spec, around)?)
        .linux(linux(spec, around, &granted, &mut clamped)?)
        .annotations(annotations);
    let mut built = builder.build().map_err(unbuilt)?;
    built.set_hostname((!namespaces.host_uts).then_some(hostname));
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
    let security = &spec.setup.security;
    let process = ProcessBuilder::default()
        .terminal(spec.setup.tty)
        .user(user::find(user, &spec.setup.group_add, root)?)
        .args(arguments(spec, image)?)
        .env(environment(spec, image, hostname))
        .cwd(cwd.unwrap_or("/"))
        .capabilities(capabilities::sets(granted)?)
        .rlimits(limits::rlimits(&spec.setup.ulimits, &around.node, clamped)?)
        .oom_score_adj(limits::oom_score_adj(spec.setup.oom_score_adj, &around.node, clamped))
        .no_new_privileges(security.no_new_privileges.unwrap_or(!spec.privileged));
    let process = match &security.apparmor {
        None => process,
        Some(profile) if around.node.apparmor => process.apparmor_profile(profile.clone()),
        Some(profile) => {
            return Err(CallError::Invalid {
                what: format!("the AppArmor profile `{profile}` cannot be used: this kernel has no AppArmor"),
                hint: Some("start the node's kernel with AppArmor, or leave the option out".to_owned()),
            });
        }
    };
    process.build().map_err(unbuilt)
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
    let init = spec.setup.init.then(|| [mounts::INIT.to_owned(), "--".to_owned()]);
    Ok(init.into_iter().flatten().chain(arguments).collect())
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
    let mut arguments = process.args().as_ref()?.iter();
    // The program that an init runs comes after its dashes.
    let program = arguments.next().filter(|first| *first != mounts::INIT).or_else(|| arguments.nth(1))?;
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

fn linux(
    spec: &InstanceSpec,
    around: &Surroundings<'_>,
    granted: &BTreeSet<String>,
    clamped: &mut Vec<String>,
) -> Result<Linux, CallError> {
    let mut linux = LinuxBuilder::default()
        .cgroups_path(&around.cgroup)
        .namespaces(namespaces(spec, around)?)
        .resources(limits::resources(spec, &around.node, clamped)?);
    let devices = devices::files(spec)?;
    if !devices.is_empty() {
        linux = linux.devices(devices);
    }
    let mut sysctls: HashMap<String, String> = spec.setup.sysctls.clone().into_iter().collect();
    // The runtimes of today have no field for it.
    sysctls.extend(spec.setup.domainname.clone().map(|name| ("kernel.domainname".to_owned(), name)));
    if !sysctls.is_empty() {
        linux = linux.sysctl(sysctls);
    }
    if let Some(propagation) = mounts::root_propagation(spec) {
        linux = linux.rootfs_propagation(propagation.to_owned());
    }
    linux = match spec.privileged || spec.setup.security.system_paths {
        true => linux.masked_paths(Vec::new()).readonly_paths(Vec::new()),
        false => linux.masked_paths(masked_paths()).readonly_paths(get_default_readonly_paths()),
    };
    let (arch, kernel) = (&around.node.arch, &around.node.kernel);
    linux = match &spec.setup.security.seccomp {
        Some(Seccomp::Unconfined) => linux,
        Some(Seccomp::Profile(profile)) => linux.seccomp(profile::filter(profile, granted, arch, kernel)?),
        None if spec.privileged => linux,
        None => linux.seccomp(seccomp::profile(granted, arch)?),
    };
    linux.build().map_err(unbuilt)
}

/// What is hidden from an unprivileged process: the usual paths, and the later additions to them.
fn masked_paths() -> Vec<String> {
    let mut paths = get_default_maskedpaths();
    paths.extend(["/proc/interrupts", "/sys/devices/virtual/powercap"].map(str::to_owned));
    paths
}

fn namespaces(spec: &InstanceSpec, around: &Surroundings<'_>) -> Result<Vec<LinuxNamespace>, CallError> {
    use LinuxNamespaceType::{Cgroup, Ipc as IpcType, Mount, Network, Pid, Uts};
    let written = &spec.setup.namespaces;
    let mut own = vec![Mount];
    let others = [
        (Pid, !written.host_pid),
        (IpcType, written.ipc != Some(Ipc::Host)),
        (Uts, !written.host_uts),
        (Cgroup, written.private_cgroup.unwrap_or(around.node.unified)),
    ];
    own.extend(others.iter().filter(|(_, own)| *own).map(|(typ, _)| *typ));
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
