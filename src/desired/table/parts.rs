//! The mappings inside a service.

use super::resources::{PLACEMENT, RESOURCES, RESTART_POLICY, UPDATE_CONFIG};
use super::{Class, Key, Shape, Table, honoured, meaningless, refused};

/// What is ours beyond Compose, on a service.
pub(super) static STEAD: Table = Table {
    what: "x-stead",
    keys: &[
        honoured("archive", Shape::Text, Class::Recreate),
        honoured("needs", Shape::Any, Class::InPlace),
        honoured("restarted", Shape::Text, Class::InPlace),
        honoured("stopped", Shape::Bool, Class::InPlace),
    ],
    extensions: false,
};

/// `deploy`.
pub(super) static DEPLOY: Table = Table { what: "deploy", keys: DEPLOY_KEYS, extensions: true };

static DEPLOY_KEYS: &[Key] = &[
    refused("endpoint_mode", Shape::Text, "a node publishes ports one way", "leave the key out"),
    meaningless("labels", Shape::Labels, "they describe the service to a cluster, not the container"),
    honoured("mode", Shape::Text, Class::Nothing),
    refused("placement", Shape::Table(&PLACEMENT), "there is one node", "leave the key out"),
    honoured("replicas", Shape::Int, Class::Nothing),
    honoured("resources", Shape::Table(&RESOURCES), Class::InPlace),
    honoured("restart_policy", Shape::Table(&RESTART_POLICY), Class::InPlace),
    refused(
        "rollback_config",
        Shape::Table(&UPDATE_CONFIG),
        "the way back is the file as it was before",
        "leave the key out",
    ),
    refused("update_config", Shape::Table(&UPDATE_CONFIG), "this version does not honour it yet", "leave the key out"),
];

/// A long-form port.
pub(in super::super) static PORT: Table = Table { what: "port", keys: PORT_KEYS, extensions: true };

static PORT_KEYS: &[Key] = &[
    meaningless("app_protocol", Shape::Text, "it is a hint for proxies"),
    honoured("host_ip", Shape::Text, Class::InPlace),
    honoured("mode", Shape::Text, Class::InPlace),
    meaningless("name", Shape::Text, "it is for people"),
    honoured("protocol", Shape::Text, Class::InPlace),
    honoured("published", Shape::Any, Class::InPlace),
    honoured("target", Shape::Int, Class::InPlace),
    honoured("x-stead", Shape::Table(&PORT_STEAD), Class::InPlace),
];

/// What is ours beyond Compose, on a port.
static PORT_STEAD: Table =
    Table { what: "x-stead of a port", keys: &[honoured("from", Shape::Texts, Class::InPlace)], extensions: false };

/// A long-form mount.
pub(in super::super) static MOUNT: Table = Table { what: "mount", keys: MOUNT_KEYS, extensions: true };

static MOUNT_KEYS: &[Key] = &[
    honoured("bind", Shape::Table(&MOUNT_BIND), Class::Recreate),
    meaningless("consistency", Shape::Text, "it matters where files cross into a virtual machine"),
    refused("image", Shape::Table(&MOUNT_IMAGE), "this version does not mount images", "leave the mount out"),
    honoured("read_only", Shape::Bool, Class::Recreate),
    honoured("source", Shape::Text, Class::Recreate),
    honoured("target", Shape::Text, Class::Recreate),
    honoured("tmpfs", Shape::Table(&MOUNT_TMPFS), Class::Recreate),
    honoured("type", Shape::Word(&["bind", "volume", "tmpfs", "cluster", "npipe", "image"]), Class::Recreate),
    honoured("volume", Shape::Table(&MOUNT_VOLUME), Class::Recreate),
];

static MOUNT_BIND: Table = Table {
    what: "bind",
    keys: &[
        honoured("create_host_path", Shape::Bool, Class::Recreate),
        honoured("propagation", Shape::Text, Class::Recreate),
        honoured("recursive", Shape::Word(&["enabled", "disabled", "writable", "readonly"]), Class::Recreate),
        meaningless("selinux", Shape::Word(&["z", "Z"]), "files are not relabelled"),
    ],
    extensions: true,
};

static MOUNT_VOLUME: Table = Table {
    what: "volume",
    keys: &[
        meaningless("labels", Shape::Labels, "a volume is a directory"),
        honoured("nocopy", Shape::Bool, Class::Recreate),
        honoured("subpath", Shape::Text, Class::Recreate),
    ],
    extensions: true,
};

static MOUNT_TMPFS: Table = Table {
    what: "tmpfs",
    keys: &[honoured("mode", Shape::Int, Class::Recreate), honoured("size", Shape::Bytes, Class::Recreate)],
    extensions: true,
};

static MOUNT_IMAGE: Table =
    Table { what: "image", keys: &[honoured("subpath", Shape::Text, Class::Recreate)], extensions: true };

/// A network that a service is in.
pub(in super::super) static ATTACHMENT: Table =
    Table { what: "network of a service", keys: ATTACHMENT_KEYS, extensions: true };

static ATTACHMENT_KEYS: &[Key] = &[
    honoured("aliases", Shape::Texts, Class::InPlace),
    refused("driver_opts", Shape::Options, "there is one kind of network, a bridge", "leave the key out"),
    honoured("gw_priority", Shape::Number, Class::Recreate),
    honoured("interface_name", Shape::Text, Class::Recreate),
    honoured("ipv4_address", Shape::Text, Class::Recreate),
    honoured("ipv6_address", Shape::Text, Class::Recreate),
    refused("link_local_ips", Shape::Texts, "an interface has the addresses of its network", "leave the key out"),
    honoured("mac_address", Shape::Text, Class::Recreate),
    honoured("priority", Shape::Number, Class::Recreate),
];
