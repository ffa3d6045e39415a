//! Reasons with field, old and new value: why a container is replaced.

use super::compare;
use super::target::Target;
use crate::model::{Change, Class, ContainerSeen, Why};

/// Why a container has to go for a target.
pub(super) fn why_replaced(text: String, container: &ContainerSeen, by: Option<&Target>) -> Why {
    let (Some(target), Some(record)) = (by, &container.record) else {
        return Why::because(text);
    };
    let mut changes = compare::changes(&record.spec, &target.record.spec);
    changes.retain(|change| change.class == Class::Recreate);
    if record.attachments != target.record.attachments {
        changes.push(Change {
            field: "network".to_owned(),
            old: attachments(&record.attachments),
            new: attachments(&target.record.attachments),
            class: Class::Recreate,
        });
    }
    if changes.is_empty() && record.image_digest != target.record.image_digest {
        let (old, new) = (record.image_digest.clone(), target.record.image_digest.clone());
        changes.push(Change { field: "image digest".to_owned(), old, new, class: Class::Recreate });
    }
    let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
    let text = if fields.is_empty() { text } else { format!("changed: {}", fields.join(", ")) };
    Why { text, changes }
}

fn attachments(all: &[crate::model::Attachment]) -> String {
    let one = |at: &crate::model::Attachment| {
        let via = at.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        format!("{} {}/{}{via}", at.network.network, at.address, at.subnet.prefix_len())
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}
