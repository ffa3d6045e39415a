//! How an instance lives beside others: what it needs before it starts, how its health is asked for, what follows an exit.

use super::name::{AppName, ServiceName};
use super::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Another service that has to be in some condition before this one is started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Its app.
    pub app: AppName,
    /// The service.
    pub service: ServiceName,
    /// The condition.
    pub condition: Condition,
    /// Without it, and after its failure, this one is started all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// When it was made anew or restarted on request, this one is restarted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.service)
    }
}

/// What is expected of a needed service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// It runs, or it has run to a good end.
    Started,
    /// It runs and its health check succeeds.
    Healthy,
    /// It has run to a good end.
    Completed,
}

impl Condition {
    /// What is waited for, as a clause after the instance's name.
    pub fn awaited(self) -> &'static str {
        match self {
            Self::Started => "to be started",
            Self::Healthy => "to be healthy",
            Self::Completed => "to complete",
        }
    }
}

/// How it is found out whether an instance is healthy. Times in milliseconds; ours where not set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// What is done.
    pub probe: Probe,
    /// From the end of one probe to the next; 30 s where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// How long one may take; 30 s where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How many failures in a row make it unhealthy; 3 where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// How long after the start failures do not count yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_period_ms: Option<u64>,
    /// Between two probes until the first success; 5 s where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_interval_ms: Option<u64>,
    /// Restart it when it is unhealthy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}

/// One way to ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// A program inside the instance that ends with 0.
    Exec(Vec<String>),
    /// A GET that is answered with this status, or any from 200 to 399.
    Http {
        /// The port.
        port: u16,
        /// The path with its query.
        path: String,
        /// The one good status, where there is only one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
    },
    /// A connection that is accepted.
    Tcp {
        /// The port.
        port: u16,
    },
    /// `grpc.health.v1.Health/Check` that answers SERVING.
    Grpc {
        /// The port.
        port: u16,
        /// The service that is asked for; the whole server where it is empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        service: String,
    },
}

/// Whether an instance is healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// No probe has succeeded yet, and not enough have failed.
    Starting,
    /// The last probes succeeded, or not enough failed since.
    Healthy,
    /// As many in a row as the check allows have failed.
    Unhealthy,
}

impl Health {
    /// The word for status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// What the probes of one run have found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthSeen {
    /// The verdict.
    pub health: Health,
    /// Since when.
    pub since: Timestamp,
    /// What the last failed probe said, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
}

/// `deploy.restart_policy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestartPolicy {
    /// After which exits.
    pub condition: RestartCondition,
    /// The least wait before a restart, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// How many restarts in a row; without end where not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// How long a run has to last to count as a good one, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
}

/// After which exits a policy restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCondition {
    /// None.
    None,
    /// Failures.
    OnFailure,
    /// All.
    Any,
}
