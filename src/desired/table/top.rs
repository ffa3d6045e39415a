//! The top level, networks and volumes.

use super::service::SERVICE;
use super::{Class, Key, Shape, Table, honoured, meaningless, refused};

/// A Compose file.
pub static TOP: Table = Table {
    what: "top-level",
    keys: &[
        refused("configs", Shape::Any, "this version does not honour it yet", "bind-mount the file under `volumes`"),
        refused("include", Shape::Any, "this version does not honour it yet", "put both into one file"),
        refused("models", Shape::Any, "a node runs containers, not models", "run the model's server as a service"),
        honoured("name", Shape::Text, Class::Recreate),
        honoured("networks", Shape::Names(&NETWORK, true), Class::Recreate),
        refused("secrets", Shape::Any, "this version does not honour it yet", "bind-mount the file under `volumes`"),
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
pub(in super::super) static NETWORK: Table = Table { what: "network", keys: NETWORK_KEYS, extensions: true };

static NETWORK_KEYS: &[Key] = &[
    meaningless("attachable", Shape::Bool, "only services of this app join its networks"),
    honoured("driver", Shape::Text, Class::Recreate),
    refused("driver_opts", Shape::Any, "there is one kind of network, a bridge", "leave the key out"),
    honoured("enable_ipv4", Shape::Bool, Class::Recreate),
    honoured("enable_ipv6", Shape::Bool, Class::Recreate),
    refused("external", Shape::Any, "a network belongs to one app on a node", "declare it without `external`"),
    honoured("internal", Shape::Bool, Class::Recreate),
    honoured("ipam", Shape::Table(&IPAM), Class::Recreate),
    meaningless("labels", Shape::Dict, "a network has no labels on a node"),
    meaningless("name", Shape::Text, "the bridge's name is derived from the app's and the network's"),
];

static IPAM: Table = Table {
    what: "ipam",
    keys: &[
        honoured("config", Shape::Tables(&IPAM_CONFIG), Class::Recreate),
        honoured("driver", Shape::Text, Class::Recreate),
        refused("options", Shape::Any, "there is one way to give addresses", "leave the key out"),
    ],
    extensions: true,
};

static IPAM_CONFIG: Table = Table {
    what: "ipam.config",
    keys: &[
        refused("aux_addresses", Shape::Any, "this version does not honour it yet", "leave the key out"),
        honoured("gateway", Shape::Text, Class::Recreate),
        refused("ip_range", Shape::Text, "addresses are given from the whole subnet", "use a smaller `subnet`"),
        honoured("subnet", Shape::Text, Class::Recreate),
    ],
    extensions: true,
};

/// A volume.
pub(in super::super) static VOLUME: Table = Table { what: "volume", keys: VOLUME_KEYS, extensions: true };

static VOLUME_KEYS: &[Key] = &[
    honoured("driver", Shape::Text, Class::Recreate),
    refused("driver_opts", Shape::Any, "a volume is a directory on the node", "bind-mount what the options name"),
    refused("external", Shape::Any, "a volume belongs to one app on a node", "bind-mount its directory"),
    meaningless("labels", Shape::Dict, "a volume is a directory"),
    meaningless("name", Shape::Text, "the directory's name is derived from the app's and the volume's"),
];
