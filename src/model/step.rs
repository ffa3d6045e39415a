//! Steps: the only things that are ever done to the node. One step, one outside effect.
//!
//! A step that destroys carries the identity it was decided on; the driver compares it again at the moment of acting
//! and answers [`Outcome::Moved`](super::Outcome::Moved) if it differs. A step says everything that its driver needs: drivers choose nothing.

use super::identity::{ContainerIdentity, LinkIdentity, NetnsIdentity};
use super::name::{InstanceKey, NetworkKey, SpecDigest, VolumeKey};
use super::ruleset::Ruleset;
use super::seen::{Domain, Exit, Record, Run};
use super::setup::Sealed;
use super::spec::Archive;
use super::time::Timestamp;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Serialize;
use std::net::IpAddr;

/// One outside effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    // images
    /// Imports an OCI archive under a reference, unpacks it, and leaves the GC labels right. Resumable; holds a lease.
    ImportImage {
        /// The reference to give it.
        reference: String,
        /// The archive.
        archive: Archive,
    },
    /// Unpacks the layers of an image whose content is there.
    UnpackImage {
        /// The image.
        reference: String,
    },
    /// Ends the lease of an import that was cut off or has ended.
    DropLease {
        /// The lease.
        id: String,
    },

    /// Ends a shim that containerd has lost, and removes its bundle.
    EndShim {
        /// The container that it was for.
        id: String,
        /// The shim.
        pid: u32,
        /// Its start time in clock ticks.
        start_ticks: u64,
    },

    // the instance in containerd
    /// Prepares the writable snapshot of a container, labelled as the instance's and as a GC root.
    PrepareSnapshot {
        /// The instance.
        instance: InstanceKey,
        /// The snapshot's key.
        key: String,
        /// The chain id to start from.
        parent: String,
    },
    /// Makes the container record with its OCI spec, labels and extension.
    CreateContainer(Box<CreateContainer>),
    /// Makes the task; its process exists afterwards but does not run, and its exit is witnessed from here on.
    CreateTask {
        /// The container.
        container: ContainerIdentity,
    },
    /// Writes the run that is about to start on the container's labels, and clears a stop mark.
    RecordRun {
        /// The container.
        container: ContainerIdentity,
        /// The run.
        run: Run,
    },
    /// Starts a made task.
    StartTask {
        /// The container.
        container: ContainerIdentity,
        /// The process.
        pid: u32,
    },
    /// Writes an exit on the container's labels.
    RecordExit {
        /// The container.
        container: ContainerIdentity,
        /// The exit.
        exit: Exit,
    },
    /// Sends the stop signal, and marks on the container's labels when. (Signal first: a crash in between repeats it.)
    StopTask {
        /// The container.
        container: ContainerIdentity,
        /// The process.
        pid: u32,
        /// Its start time in clock ticks; 0 for a task that was never started.
        start_ticks: u64,
        /// The signal as the user or the image wrote it.
        signal: String,
        /// The time to mark.
        at: Timestamp,
        /// It is stopped for being unhealthy.
        unhealthy: bool,
    },
    /// Sends SIGKILL.
    KillTask {
        /// The container.
        container: ContainerIdentity,
        /// The process; `None` for a task in an unknown state.
        pid: Option<u32>,
    },
    /// Deletes a task that has ended or was never started.
    DeleteTask {
        /// The container.
        container: ContainerIdentity,
        /// The process that it had.
        pid: u32,
    },
    /// Marks the stop of a running task as revoked: it is wanted after all.
    RevokeStop {
        /// The container.
        container: ContainerIdentity,
    },
    /// Makes an in-place change: gives the running task its new limits, then writes the changed record (and the OCI spec
    /// that follows from it) on the container. (Limits first: a crash in between repeats them.)
    UpdateRecord {
        /// The container.
        container: ContainerIdentity,
        /// The instance.
        instance: InstanceKey,
        /// The running process whose limits change.
        limits_of: Option<u32>,
        /// The record as it should be.
        record: Box<Record>,
    },
    /// Deletes a container record without a task.
    DeleteContainer {
        /// The container.
        container: ContainerIdentity,
    },
    /// Removes a snapshot that no container uses.
    RemoveSnapshot {
        /// Its key.
        key: String,
    },

    // the instance's network
    /// Makes a netns file with a fresh namespace (or mounts a fresh one on a file that has lost its own).
    MakeNetns {
        /// Its name under `/run/netns`.
        name: String,
    },
    /// Mounts the netns of a live process on its netns file again, after the file was lost.
    AdoptNetns {
        /// Its name under `/run/netns`.
        name: String,
        /// The process.
        pid: u32,
        /// Its start time in clock ticks.
        start_ticks: u64,
    },
    /// Makes a veth pair with the peer already in the netns, group, MAC and bridge port set.
    MakeLink {
        /// The host-side name.
        name: String,
        /// The netns.
        netns: String,
        /// Its inode.
        inode: u64,
        /// The interface inside.
        interface: String,
        /// Its MAC.
        mac: [u8; 6],
        /// The largest packet of both ends.
        mtu: u32,
        /// The bridge and its index.
        bridge: (String, u32),
    },
    /// Sets the ifalias of a link of ours.
    SetAlias {
        /// The link.
        link: LinkIdentity,
        /// The alias.
        alias: String,
    },
    /// Gives a link of ours its name back.
    RenameLink {
        /// The link.
        link: LinkIdentity,
        /// The name.
        name: String,
    },
    /// Gives a link of ours its largest packet, and its MAC where that matters.
    ShapeLink {
        /// The link.
        link: LinkIdentity,
        /// The largest packet.
        mtu: u32,
        /// The MAC.
        mac: Option<[u8; 6]>,
    },
    /// Gives an interface inside a netns its largest packet and its MAC.
    ShapeInterface {
        /// The netns.
        netns: NetnsIdentity,
        /// The interface.
        interface: String,
        /// The largest packet.
        mtu: u32,
        /// The MAC.
        mac: [u8; 6],
    },
    /// Makes a link a port of a bridge, with hairpin on, and sets it up.
    AttachPort {
        /// The link.
        link: LinkIdentity,
        /// The bridge's index.
        bridge: u32,
    },
    /// Sets `lo` of a netns up.
    LoopbackUp {
        /// The netns.
        netns: NetnsIdentity,
    },
    /// Gives an interface inside a netns exactly this address and sets it up.
    SetAddress {
        /// The netns.
        netns: NetnsIdentity,
        /// The interface.
        interface: String,
        /// The address with its prefix length.
        address: Ipv4Net,
        /// The IPv6 address, or none.
        six: Option<Ipv6Net>,
    },
    /// Sets the default route inside a netns.
    SetDefaultRoute {
        /// The netns.
        netns: NetnsIdentity,
        /// The gateway.
        gateway: IpAddr,
    },
    /// Deletes a link of ours that no live task uses.
    DropLink {
        /// The link.
        link: LinkIdentity,
    },
    /// Removes a netns file that no live task uses.
    DropNetns {
        /// The netns.
        netns: NetnsIdentity,
    },

    // the network
    /// Makes a bridge with group and MAC, up.
    MakeBridge {
        /// Its name.
        name: String,
        /// Its MAC.
        mac: [u8; 6],
        /// The network, for the log.
        network: NetworkKey,
    },
    /// Gives a bridge exactly this address and sets it up.
    SetBridgeAddress {
        /// The bridge.
        link: LinkIdentity,
        /// The address with its prefix length.
        address: Ipv4Net,
        /// The IPv6 address, or none.
        six: Option<Ipv6Net>,
    },
    /// Lets the bridge carry connections from the host's 127.0.0.1 to published ports (the table guards the way back).
    SetRouteLocalnet {
        /// The bridge.
        link: LinkIdentity,
    },

    // the node
    /// Switches forwarding on, of IPv4 or IPv6. (Interfaces that learn of routers go on doing so.)
    EnableForwarding {
        /// IPv6.
        six: bool,
    },
    /// Switches forwarding off again, since nothing of ours needs it any more and it was off before.
    RestoreForwarding {
        /// IPv6.
        six: bool,
    },
    /// Makes our nft table say this, in one transaction; `None` removes it.
    ApplyRuleset {
        /// The table's content.
        ruleset: Option<Ruleset>,
    },

    // files
    /// Writes one of an instance's files, in place when it exists, since it is mounted into the instance.
    WriteFile {
        /// The instance.
        instance: InstanceKey,
        /// Which file.
        file: InstanceFile,
        /// All of its content.
        content: String,
    },
    /// Removes the folder with an instance's files.
    DropFiles {
        /// The instance.
        instance: InstanceKey,
    },
    /// Gives an instance its files of configs and secrets, in memory, and takes away those of an earlier generation.
    SetGrants {
        /// The instance.
        instance: InstanceKey,
        /// The files to write.
        write: Vec<GrantFile>,
        /// The files to remove.
        remove: Vec<String>,
    },
    /// Makes the directory of a named volume.
    MakeVolume {
        /// The volume.
        volume: VolumeKey,
    },
}

/// Everything that a container record is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CreateContainer {
    /// Its id.
    pub id: String,
    /// The instance.
    pub instance: InstanceKey,
    /// The digest for its label.
    pub digest: SpecDigest,
    /// Which attempt at this digest.
    pub attempt: u32,
    /// Its snapshot's key.
    pub snapshot: String,
    /// The netns that its processes join; `None` for the host's.
    pub netns: Option<NetnsIdentity>,
    /// What it is made from.
    pub record: Record,
}

/// A file of a config or a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrantFile {
    /// Its name, which tells its content and owner.
    pub name: String,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
    /// All of its content.
    pub content: Sealed,
}

/// A file that is mounted into an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceFile {
    /// `/etc/hosts`.
    Hosts,
    /// `/etc/resolv.conf`.
    ResolvConf,
    /// `/etc/hostname`.
    Hostname,
}

impl InstanceFile {
    /// Its file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::ResolvConf => "resolv.conf",
            Self::Hostname => "hostname",
        }
    }
}

impl Step {
    /// The domain that the step changes, and that is looked at after it.
    pub fn domain(&self) -> Domain {
        match self {
            Self::ImportImage { .. }
            | Self::UnpackImage { .. }
            | Self::DropLease { .. }
            | Self::EndShim { .. }
            | Self::PrepareSnapshot { .. }
            | Self::CreateContainer(_)
            | Self::CreateTask { .. }
            | Self::RecordRun { .. }
            | Self::StartTask { .. }
            | Self::RecordExit { .. }
            | Self::StopTask { .. }
            | Self::KillTask { .. }
            | Self::DeleteTask { .. }
            | Self::RevokeStop { .. }
            | Self::UpdateRecord { .. }
            | Self::DeleteContainer { .. }
            | Self::RemoveSnapshot { .. } => Domain::Runtime,
            Self::MakeNetns { .. }
            | Self::AdoptNetns { .. }
            | Self::MakeLink { .. }
            | Self::SetAlias { .. }
            | Self::RenameLink { .. }
            | Self::ShapeLink { .. }
            | Self::ShapeInterface { .. }
            | Self::AttachPort { .. }
            | Self::LoopbackUp { .. }
            | Self::SetAddress { .. }
            | Self::SetDefaultRoute { .. }
            | Self::DropLink { .. }
            | Self::DropNetns { .. }
            | Self::MakeBridge { .. }
            | Self::SetBridgeAddress { .. }
            | Self::SetRouteLocalnet { .. }
            | Self::EnableForwarding { .. }
            | Self::RestoreForwarding { .. } => Domain::Net,
            Self::ApplyRuleset { .. } => Domain::Ports,
            Self::WriteFile { .. } | Self::SetGrants { .. } | Self::DropFiles { .. } | Self::MakeVolume { .. } => {
                Domain::Files
            }
        }
    }

    /// The step without the times it carries: two of them are the same request.
    pub fn without_time(&self) -> Self {
        let mut step = self.clone();
        match &mut step {
            Self::RecordRun { run, .. } => run.at = Timestamp(0),
            Self::RecordExit { exit, .. } => exit.at = Timestamp(0),
            Self::StopTask { at, .. } => *at = Timestamp(0),
            _ => {}
        }
        step
    }

    /// The step's name, for logs and counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ImportImage { .. } => "import-image",
            Self::UnpackImage { .. } => "unpack-image",
            Self::DropLease { .. } => "drop-lease",
            Self::EndShim { .. } => "end-shim",
            Self::PrepareSnapshot { .. } => "prepare-snapshot",
            Self::CreateContainer(_) => "create-container",
            Self::CreateTask { .. } => "create-task",
            Self::RecordRun { .. } => "record-run",
            Self::StartTask { .. } => "start-task",
            Self::RecordExit { .. } => "record-exit",
            Self::StopTask { .. } => "stop-task",
            Self::KillTask { .. } => "kill-task",
            Self::DeleteTask { .. } => "delete-task",
            Self::RevokeStop { .. } => "revoke-stop",
            Self::UpdateRecord { .. } => "update-record",
            Self::DeleteContainer { .. } => "delete-container",
            Self::RemoveSnapshot { .. } => "remove-snapshot",
            Self::MakeNetns { .. } => "make-netns",
            Self::AdoptNetns { .. } => "adopt-netns",
            Self::MakeLink { .. } => "make-link",
            Self::SetAlias { .. } => "set-alias",
            Self::RenameLink { .. } => "rename-link",
            Self::ShapeLink { .. } => "shape-link",
            Self::ShapeInterface { .. } => "shape-interface",
            Self::AttachPort { .. } => "attach-port",
            Self::LoopbackUp { .. } => "loopback-up",
            Self::SetAddress { .. } => "set-address",
            Self::SetDefaultRoute { .. } => "set-default-route",
            Self::DropLink { .. } => "drop-link",
            Self::DropNetns { .. } => "drop-netns",
            Self::MakeBridge { .. } => "make-bridge",
            Self::SetBridgeAddress { .. } => "set-bridge-address",
            Self::SetRouteLocalnet { .. } => "set-route-localnet",
            Self::EnableForwarding { .. } => "enable-forwarding",
            Self::RestoreForwarding { .. } => "restore-forwarding",
            Self::ApplyRuleset { .. } => "apply-ruleset",
            Self::WriteFile { .. } => "write-file",
            Self::SetGrants { .. } => "set-grants",
            Self::DropFiles { .. } => "drop-files",
            Self::MakeVolume { .. } => "make-volume",
        }
    }
}
