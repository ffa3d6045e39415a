//! What `deploy` says of resources and of how instances are placed, updated and restarted.

use super::{Class, Key, Shape, Table, honoured, meaningless, refused};

/// `deploy.resources`.
pub(super) static RESOURCES: Table = Table {
    what: "deploy.resources",
    keys: &[
        honoured("limits", Shape::Table(&LIMITS), Class::InPlace),
        honoured("reservations", Shape::Table(&RESERVATIONS), Class::InPlace),
    ],
    extensions: true,
};

static LIMITS: Table = Table {
    what: "deploy.resources.limits",
    keys: &[
        honoured("cpus", Shape::Number, Class::InPlace),
        honoured("memory", Shape::Bytes, Class::InPlace),
        honoured("pids", Shape::Int, Class::InPlace),
    ],
    extensions: true,
};

/// Why keys inside a refused one have no class of their own.
const PART: Class = Class::Nothing;

static RESERVATIONS: Table = Table {
    what: "deploy.resources.reservations",
    keys: &[
        meaningless("cpus", Shape::Number, "it says where a cluster puts the service, and there is one node"),
        refused(
            "devices",
            Shape::Tables(&DEVICE_REQUEST),
            "a node without a device plugin cannot hand out devices by what they can do",
            "use `devices` with the device files",
        ),
        refused(
            "generic_resources",
            Shape::Tables(&GENERIC),
            "they say where a cluster puts the service, and there is one node",
            "leave the key out",
        ),
        honoured("memory", Shape::Bytes, Class::InPlace),
    ],
    extensions: true,
};

/// A request for devices by what they can do: of `reservations` and of `gpus`.
pub(in super::super) static DEVICE_REQUEST: Table = Table {
    what: "device request",
    keys: &[
        honoured("capabilities", Shape::Texts, PART),
        honoured("count", Shape::Count, PART),
        honoured("device_ids", Shape::Texts, PART),
        honoured("driver", Shape::Text, PART),
        honoured("options", Shape::Labels, PART),
    ],
    extensions: true,
};

static GENERIC: Table = Table {
    what: "generic resource",
    keys: &[honoured("discrete_resource_spec", Shape::Table(&DISCRETE), PART)],
    extensions: true,
};

static DISCRETE: Table = Table {
    what: "discrete_resource_spec",
    keys: &[honoured("kind", Shape::Text, PART), honoured("value", Shape::Int, PART)],
    extensions: true,
};

/// `deploy.placement`.
pub(super) static PLACEMENT: Table = Table {
    what: "deploy.placement",
    keys: &[
        honoured("constraints", Shape::Texts, PART),
        honoured("max_replicas_per_node", Shape::Int, PART),
        honoured("preferences", Shape::Tables(&PREFERENCE), PART),
    ],
    extensions: true,
};

static PREFERENCE: Table =
    Table { what: "placement preference", keys: &[honoured("spread", Shape::Text, PART)], extensions: true };

/// `deploy.restart_policy`.
pub(super) static RESTART_POLICY: Table = Table {
    what: "deploy.restart_policy",
    keys: &[
        honoured("condition", Shape::Text, Class::InPlace),
        honoured("delay", Shape::Duration, Class::InPlace),
        honoured("max_attempts", Shape::Int, Class::InPlace),
        honoured("window", Shape::Duration, Class::InPlace),
    ],
    extensions: true,
};

/// `deploy.update_config` and `deploy.rollback_config`.
pub(super) static UPDATE_CONFIG: Table = Table { what: "update_config", keys: UPDATE_KEYS, extensions: true };

static UPDATE_KEYS: &[Key] = &[
    honoured("delay", Shape::Duration, PART),
    honoured("failure_action", Shape::Text, PART),
    honoured("max_failure_ratio", Shape::Number, PART),
    honoured("monitor", Shape::Duration, PART),
    honoured("order", Shape::Word(&["start-first", "stop-first"]), PART),
    honoured("parallelism", Shape::Int, PART),
];
