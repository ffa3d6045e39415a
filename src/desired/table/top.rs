//! The top level, networks and volumes.

use super::runtime::MODEL;
use super::service::SERVICE;
use super::{Class, Key, Shape, Table, honoured, meaningless, refused};

/// A Compose file.
pub static TOP: Table = Table {
    what: "top-level",
    keys: &[
        honoured("configs", Shape::Names(&CONFIG, false), Class::Recreate),
        honoured("include", Shape::Includes, Class::Nothing),
        refused(
            "models",
            Shape::Names(&MODEL, false),
            "a node runs containers, not models",
            "run the model's server as a service",
        ),
        honoured("name", Shape::Text, Class::Recreate),
        honoured("networks", Shape::Names(&NETWORK, true), Class::Recreate),
        honoured("secrets", Shape::Names(&SECRET, false), Class::Recreate),
        honoured("services", Shape::Names(&SERVICE, false), Class::Recreate),
        meaningless("version", Shape::Text, "there is one version of the Compose Specification"),
        honoured("volumes", Shape::Names(&VOLUME, true), Class::Recreate),
        honoured("x-stead", Shape::Table(&STEAD), Class::Nothing),
    ],
    extensions: true,
};

/// What is ours beyond Compose, on the file as a whole: nothing yet.
static STEAD: Table = Table { what: "top-level x-stead", keys: &[], extensions: false };

/// A network.
static NETWORK: Table = Table { what: "network", keys: NETWORK_KEYS, extensions: true };

static NETWORK_KEYS: &[Key] = &[
    meaningless("attachable", Shape::Bool, "only services of this app join its networks"),
    honoured("driver", Shape::Text, Class::Recreate),
    honoured("driver_opts", Shape::Options, Class::InPlace),
    honoured("enable_ipv4", Shape::Bool, Class::Recreate),
    honoured("enable_ipv6", Shape::Bool, Class::Recreate),
    refused("external", Shape::External, "a network belongs to one app on a node", "declare it without `external`"),
    honoured("internal", Shape::Bool, Class::Recreate),
    honoured("ipam", Shape::Table(&IPAM), Class::Recreate),
    meaningless("labels", Shape::Labels, "a network has no labels on a node"),
    meaningless("name", Shape::Text, "the bridge's name is derived from the app's and the network's"),
];

static IPAM: Table = Table {
    what: "ipam",
    keys: &[
        honoured("config", Shape::Tables(&IPAM_CONFIG), Class::Recreate),
        honoured("driver", Shape::Text, Class::Recreate),
        refused("options", Shape::Options, "there is one way to give addresses", "leave the key out"),
    ],
    extensions: true,
};

static IPAM_CONFIG: Table = Table {
    what: "ipam.config",
    keys: &[
        honoured("aux_addresses", Shape::Options, Class::Nothing),
        honoured("gateway", Shape::Text, Class::Recreate),
        honoured("ip_range", Shape::Text, Class::Nothing),
        honoured("subnet", Shape::Text, Class::Recreate),
    ],
    extensions: true,
};

/// A volume.
pub(super) static VOLUME: Table = Table { what: "volume", keys: VOLUME_KEYS, extensions: true };

static VOLUME_KEYS: &[Key] = &[
    honoured("driver", Shape::Text, Class::Recreate),
    refused("driver_opts", Shape::Options, "a volume is a directory on the node", "bind-mount what the options name"),
    refused("external", Shape::External, "a volume belongs to one app on a node", "bind-mount its directory"),
    meaningless("labels", Shape::Labels, "a volume is a directory"),
    meaningless("name", Shape::Text, "the directory's name is derived from the app's and the volume's"),
];

/// A config.
static CONFIG: Table = Table { what: "config", keys: CONFIG_KEYS, extensions: true };

static CONFIG_KEYS: &[Key] = &[
    honoured("content", Shape::Text, Class::Recreate),
    honoured("environment", Shape::Text, Class::Recreate),
    refused("external", Shape::External, OWN, "give its content by `file`, `content` or `environment`"),
    honoured("file", Shape::Path, Class::Recreate),
    meaningless("labels", Shape::Labels, "a config is a file"),
    meaningless("name", Shape::Text, "a config belongs to its app"),
    refused("template_driver", Shape::Text, "there are no templates on a node", "write the content out"),
];

/// A secret.
static SECRET: Table = Table { what: "secret", keys: SECRET_KEYS, extensions: true };

static SECRET_KEYS: &[Key] = &[
    refused("driver", Shape::Text, "there is no store of secrets on a node", "use `file` or `environment`"),
    refused("driver_opts", Shape::Options, "there is no store of secrets on a node", "use `file` or `environment`"),
    honoured("environment", Shape::Text, Class::Recreate),
    refused("external", Shape::External, OWN, "give it by `file` or `environment`"),
    honoured("file", Shape::Path, Class::Recreate),
    meaningless("labels", Shape::Labels, "a secret is a file"),
    meaningless("name", Shape::Text, "a secret belongs to its app"),
    refused("template_driver", Shape::Text, "there are no templates on a node", "write the content out"),
];

const OWN: &str = "a node has no store of its own for it";
