//! Files of configs and secrets: they are there before the container is made, and those of an earlier generation go.

use super::instance::{Rung, Scene, act};
use super::target::Target;
use crate::model::{Blocker, Decision, Grant, GrantFile, Sealed, Step};
use std::collections::BTreeMap;

/// The step that gives the instance what its target asks for. Files that are there stay untouched.
pub(super) fn current(scene: &Scene<'_, '_>, target: &Target) -> Rung {
    let have = scene.files.seen()?.map(|files| &files.grants);
    let wanted: BTreeMap<String, &Grant> =
        target.record.spec.grants.iter().map(|grant| (grant.file(), grant)).collect();
    let missing = wanted.iter().filter(|(name, _)| have.is_none_or(|have| !have.contains(*name)));
    let mut write = Vec::new();
    for (name, grant) in missing {
        let Some(content) = content(scene, grant) else {
            return Some(Decision::Wait(vec![Blocker::Stuck {
                what: format!("the content of the {} is not at hand", grant.what),
                hint: "it is kept in memory only: it comes back with the file that it is from, as it was".to_owned(),
            }]));
        };
        write.push(GrantFile { name: name.clone(), uid: grant.uid, gid: grant.gid, mode: grant.mode, content });
    }
    let remove: Vec<String> = have.into_iter().flatten().filter(|name| !wanted.contains_key(*name)).cloned().collect();
    if write.is_empty() && remove.is_empty() {
        return None;
    }
    let why = match write.is_empty() {
        true => "files of an earlier generation are left",
        false => "files of configs and secrets are missing",
    };
    Some(act(Step::SetGrants { instance: scene.key.clone(), write, remove }, why))
}

/// A content: of the wanted generation, which may be another one than the target's.
fn content(scene: &Scene<'_, '_>, grant: &Grant) -> Option<Sealed> {
    let wanted = scene.picture.desired.service(scene.key)?;
    wanted.spec.grants.iter().find(|other| other.digest == grant.digest)?.content.clone()
}
