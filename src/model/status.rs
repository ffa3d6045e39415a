//! The status document: what the agent tells of itself and of every instance. Stable: fields are only ever added.

use super::report::Finding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The agent.
    pub agent: AgentStatus,
    /// Every app that is wanted or still there.
    pub apps: Vec<AppStatus>,
    /// What is wrong with the desired state beside the apps.
    #[serde(default)]
    pub errors: Vec<ErrorStatus>,
    /// Objects other than instances that are not settled.
    #[serde(default)]
    pub unsettled: Vec<ObjectStatus>,
}

/// The agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its version.
    pub version: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// That process's start in clock ticks since boot: with the pid, its identity.
    #[serde(default)]
    pub start_ticks: u64,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When this document was written, RFC 3339.
    #[serde(default)]
    pub written_at: String,
    /// The directory that it keeps true.
    #[serde(default)]
    pub desired_state: String,
    /// The file with values for substitution that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    /// Where subnets come from, where it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether its process runs, at the time of reading.
    #[serde(default)]
    pub running: bool,
    /// The desired state's generation.
    pub generation: u64,
    /// `connected`, `resyncing` or `unavailable`.
    pub runtime: String,
    /// Whether everything is as that generation wants it.
    pub settled: bool,
    /// How often the outside was touched since the start.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// How often each step was done since the start, by `name/outcome`.
    #[serde(default)]
    pub steps: BTreeMap<String, u64>,
}

/// An app.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AppStatus {
    /// Its name.
    pub app: String,
    /// The file that asks for it; empty when none does any more.
    pub file: String,
    /// The generation in which its present content was first seen.
    pub generation: u64,
    /// Whether everything of it is as wanted.
    pub settled: bool,
    /// What is wrong with its file as it is now.
    pub errors: Vec<ErrorStatus>,
    /// Its services.
    pub services: Vec<ServiceStatus>,
    /// Its networks.
    pub networks: Vec<NetworkStatus>,
    /// Its named volumes.
    pub volumes: Vec<VolumeStatus>,
}

/// A finding as status tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErrorStatus {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl From<&Finding> for ErrorStatus {
    fn from(finding: &Finding) -> Self {
        Self {
            file: finding.place.file.display().to_string(),
            line: finding.place.line,
            column: finding.place.column,
            message: finding.message.clone(),
            hint: finding.hint.clone(),
        }
    }
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub service: String,
    /// How many instances are wanted.
    pub desired: u32,
    /// How many run.
    pub running: u32,
    /// How many of those are healthy; a service without a health check counts every running one.
    pub healthy: u32,
    /// Whether an instance of an older generation is there.
    pub updating: bool,
    /// The instances.
    pub instances: Vec<InstanceStatus>,
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// `app/service/replica`.
    pub instance: String,
    /// Its container.
    pub container_id: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// When its run started, RFC 3339.
    pub started_at: Option<String>,
    /// `pending pulling creating starting running stopping stopped exited completed backoff blocked degraded unknown`.
    pub state: String,
    /// `none`: no health check.
    pub health: String,
    /// How often it was started again.
    pub restarts: u32,
    /// How its last run ended; none while it is not known.
    pub exit_code: Option<u32>,
    /// Why there is no code, when a run has ended: `unknown` or `reboot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// The image's reference.
    pub image: String,
    /// The digest that it runs.
    pub image_digest: Option<String>,
    /// Its addresses.
    pub addresses: Vec<AddressStatus>,
    /// Its published ports.
    pub ports: Vec<PortStatus>,
    /// What it waits for.
    pub waiting: Vec<WaitingStatus>,
    /// What went wrong last, while it matters.
    pub last_error: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Settings that were cut to what this machine allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<String>,
    /// The file, line and column that ask for it.
    #[serde(default)]
    pub asked_by: Option<String>,
}

/// An address of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AddressStatus {
    /// The network.
    pub network: String,
    /// The address.
    pub ip: String,
    /// The MAC.
    pub mac: String,
}

/// A published port of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortStatus {
    /// The host address; `0.0.0.0` for all of them.
    pub host_ip: String,
    /// The port on the host.
    pub host: u16,
    /// The port in the container.
    pub container: u16,
    /// The protocol.
    pub protocol: String,
}

/// Something that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitingStatus {
    /// What.
    pub on: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// When it is tried again, RFC 3339; none when an event decides.
    pub next_attempt: Option<String>,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// Its name.
    pub network: String,
    /// Its bridge.
    pub bridge: String,
    /// Its subnets.
    pub subnets: Vec<String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingStatus>,
}

/// A named volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub volume: String,
    /// Its directory.
    pub path: String,
}

/// An object that is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// What.
    pub object: String,
    /// What it waits for, or is being done.
    pub waiting: Vec<WaitingStatus>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The steps of each object: what `explain` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timelines {
    /// By object.
    pub objects: BTreeMap<String, Vec<TimelineStatus>>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TimelineStatus {
    /// When it began, RFC 3339.
    pub at: String,
    /// The step.
    pub step: String,
    /// Why.
    pub why: String,
    /// How it went.
    pub outcome: String,
    /// How long it took.
    pub took_ms: u64,
    /// The error.
    pub error: Option<String>,
}
