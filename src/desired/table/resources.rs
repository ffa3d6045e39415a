//! `deploy.resources`.

use super::{Class, Shape, Table, honoured, refused};

/// `deploy.resources`.
pub(super) static RESOURCES: Table = Table {
    what: "deploy.resources",
    keys: &[
        honoured("limits", Shape::Table(&LIMITS), Class::InPlace),
        refused(
            "reservations",
            Shape::Any,
            "this version does not honour it yet",
            "leave the key out, or use `deploy.resources.limits`",
        ),
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
