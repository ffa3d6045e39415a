//! The mappings inside a service that say how it is built, watched and run.

use super::{Class, Key, Shape, Table, honoured, refused};

/// Keys inside a refused key, or inside one without a meaning, have no class of their own.
const PART: Class = Class::Nothing;
const NOT_YET: &str = "this version does not honour it yet";
const REMOVE: &str = "leave the key out";

/// `healthcheck`.
pub(super) static HEALTHCHECK: Table = Table { what: "healthcheck", keys: HEALTH_KEYS, extensions: true };

static HEALTH_KEYS: &[Key] = &[
    honoured("disable", Shape::Bool, Class::InPlace),
    honoured("interval", Shape::Duration, Class::InPlace),
    honoured("retries", Shape::Int, Class::InPlace),
    honoured("start_interval", Shape::Duration, Class::InPlace),
    honoured("start_period", Shape::Duration, Class::InPlace),
    honoured("test", Shape::Test, Class::InPlace),
    honoured("timeout", Shape::Duration, Class::InPlace),
];

/// `logging`.
pub(super) static LOGGING: Table = Table {
    what: "logging",
    keys: &[honoured("driver", Shape::Text, Class::InPlace), honoured("options", Shape::Options, Class::InPlace)],
    extensions: true,
};

/// `post_start`, `pre_stop`, and what a watch runs.
pub(super) static HOOK: Table = Table {
    what: "hook",
    keys: &[
        honoured("command", Shape::Command, PART),
        honoured("environment", Shape::Dict, PART),
        honoured("privileged", Shape::Bool, PART),
        honoured("user", Shape::Text, PART),
        honoured("working_dir", Shape::Text, PART),
    ],
    extensions: true,
};

/// `blkio_config`.
pub(super) static BLKIO: Table = Table {
    what: "blkio_config",
    keys: &[
        honoured("device_read_bps", Shape::Tables(&BLKIO_RATE), Class::Recreate),
        honoured("device_read_iops", Shape::Tables(&BLKIO_RATE), Class::Recreate),
        honoured("device_write_bps", Shape::Tables(&BLKIO_RATE), Class::Recreate),
        honoured("device_write_iops", Shape::Tables(&BLKIO_RATE), Class::Recreate),
        honoured("weight", Shape::Int, Class::InPlace),
        honoured("weight_device", Shape::Tables(&BLKIO_WEIGHT), Class::Recreate),
    ],
    extensions: false,
};

static BLKIO_RATE: Table = Table {
    what: "blkio limit",
    keys: &[honoured("path", Shape::Text, Class::Recreate), honoured("rate", Shape::Bytes, Class::Recreate)],
    extensions: false,
};

static BLKIO_WEIGHT: Table = Table {
    what: "blkio weight",
    keys: &[honoured("path", Shape::Text, Class::Recreate), honoured("weight", Shape::Int, Class::Recreate)],
    extensions: false,
};

/// `credential_spec`.
pub(super) static CREDENTIAL_SPEC: Table = Table {
    what: "credential_spec",
    keys: &[
        honoured("config", Shape::Text, PART),
        honoured("file", Shape::Text, PART),
        honoured("registry", Shape::Text, PART),
    ],
    extensions: true,
};

/// `provider`.
pub(super) static PROVIDER: Table = Table {
    what: "provider",
    keys: &[honoured("options", Shape::Any, PART), honoured("type", Shape::Text, PART)],
    extensions: true,
};

/// `develop`.
pub(super) static DEVELOP: Table =
    Table { what: "develop", keys: &[honoured("watch", Shape::Tables(&WATCH), PART)], extensions: true };

static WATCH: Table = Table {
    what: "watch",
    keys: &[
        honoured("action", Shape::Word(&["rebuild", "sync", "restart", "sync+restart", "sync+exec"]), PART),
        honoured("exec", Shape::Table(&HOOK), PART),
        honoured("ignore", Shape::TextOrTexts, PART),
        honoured("include", Shape::TextOrTexts, PART),
        honoured("initial_sync", Shape::Bool, PART),
        honoured("path", Shape::Path, PART),
        honoured("target", Shape::Text, PART),
    ],
    extensions: true,
};

/// `build`.
pub(in super::super) static BUILD: Table = Table { what: "build", keys: BUILD_KEYS, extensions: true };

static BUILD_KEYS: &[Key] = &[
    honoured("additional_contexts", Shape::Contexts, PART),
    honoured("args", Shape::Args, PART),
    honoured("cache_from", Shape::Texts, PART),
    honoured("cache_to", Shape::Texts, PART),
    honoured("context", Shape::Context, PART),
    honoured("dockerfile", Shape::Text, PART),
    honoured("dockerfile_inline", Shape::Text, PART),
    honoured("entitlements", Shape::Texts, PART),
    honoured("extra_hosts", Shape::ExtraHosts, PART),
    honoured("isolation", Shape::Text, PART),
    honoured("labels", Shape::Labels, PART),
    honoured("network", Shape::Text, PART),
    honoured("no_cache", Shape::Bool, PART),
    honoured("platforms", Shape::Texts, PART),
    honoured("privileged", Shape::Bool, PART),
    honoured("provenance", Shape::BoolOrText, PART),
    honoured("pull", Shape::Bool, PART),
    honoured("sbom", Shape::BoolOrText, PART),
    honoured("secrets", Shape::Grants(false), PART),
    honoured("shm_size", Shape::Bytes, PART),
    honoured("ssh", Shape::Ssh, PART),
    honoured("tags", Shape::Texts, PART),
    honoured("target", Shape::Text, PART),
    honoured("ulimits", Shape::Ulimits, PART),
];

/// A device that a container gets.
pub(in super::super) static DEVICE: Table = Table {
    what: "device",
    keys: &[
        honoured("permissions", Shape::Text, Class::Recreate),
        honoured("source", Shape::Text, Class::Recreate),
        honoured("target", Shape::Text, Class::Recreate),
    ],
    extensions: true,
};

/// A config or secret that a service gets.
pub(in super::super) static GRANT: Table = Table {
    what: "config or secret of a service",
    keys: &[
        honoured("gid", Shape::Text, Class::Recreate),
        honoured("mode", Shape::FileMode, Class::Recreate),
        honoured("source", Shape::Text, Class::Recreate),
        honoured("target", Shape::Text, Class::Recreate),
        honoured("uid", Shape::Text, Class::Recreate),
    ],
    extensions: true,
};

/// A limit with two values.
pub(in super::super) static ULIMIT: Table = Table {
    what: "ulimit",
    keys: &[honoured("hard", Shape::Int, Class::Recreate), honoured("soft", Shape::Int, Class::Recreate)],
    extensions: true,
};

/// One dependency of a service.
pub(in super::super) static DEPENDENCY: Table = Table {
    what: "dependency",
    keys: &[
        honoured("condition", Shape::Word(CONDITIONS), Class::InPlace),
        honoured("required", Shape::Bool, Class::InPlace),
        honoured("restart", Shape::Bool, Class::InPlace),
    ],
    extensions: true,
};

static CONDITIONS: &[&str] = &["service_started", "service_healthy", "service_completed_successfully"];

/// One env file of a service.
pub(in super::super) static ENV_FILE: Table = Table {
    what: "env file",
    keys: &[
        honoured("format", Shape::Text, Class::Recreate),
        honoured("path", Shape::Path, Class::Recreate),
        honoured("required", Shape::Bool, Class::Recreate),
    ],
    extensions: false,
};

/// `extends`.
pub(in super::super) static EXTENDS: Table = Table {
    what: "extends",
    keys: &[honoured("file", Shape::Path, PART), honoured("service", Shape::Text, PART)],
    extensions: false,
};

/// One file that another includes.
pub(in super::super) static INCLUDE: Table = Table {
    what: "include",
    keys: &[
        honoured("env_file", Shape::Paths, PART),
        honoured("path", Shape::Paths, PART),
        honoured("project_directory", Shape::Path, PART),
    ],
    extensions: false,
};

/// What a service asks of a model.
pub(in super::super) static MODEL_USE: Table = Table {
    what: "model of a service",
    keys: &[honoured("endpoint_var", Shape::Text, PART), honoured("model_var", Shape::Text, PART)],
    extensions: true,
};

/// `external` in its old form.
pub(in super::super) static EXTERNAL: Table =
    Table { what: "external", keys: &[honoured("name", Shape::Text, PART)], extensions: true };

/// A model.
pub(super) static MODEL: Table = Table {
    what: "model",
    keys: &[
        refused("context_size", Shape::Int, NOT_YET, REMOVE),
        honoured("model", Shape::Text, PART),
        honoured("name", Shape::Text, PART),
        refused("runtime_flags", Shape::Texts, NOT_YET, REMOVE),
    ],
    extensions: true,
};
