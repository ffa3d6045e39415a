//! `user[:group]` against the image's own `/etc/passwd` and `/etc/group`.

use super::rootfs::RootFs;
use crate::drive::containerd::error::CallError;
use oci_spec::runtime::{User, UserBuilder};

/// A passwd file of some thousand users; what is beyond is not read.
const LIMIT: u64 = 1 << 20;

/// Finds the ids of a process, supplementary groups included.
pub fn find(wanted: &str, further: &[String], root: &RootFs) -> Result<User, CallError> {
    let read = |path: &str| {
        let bytes = root.read(path, LIMIT).map_err(|error| CallError::local(format!("{path} of the image"), error))?;
        Ok::<_, CallError>(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
    };
    let group = read("/etc/group")?;
    let ids = resolve(wanted, &read("/etc/passwd")?, &group)?;
    let further: Vec<u32> = further.iter().map(|name| group_number(name, &group)).collect::<Result<_, _>>()?;
    // The primary group stands among the supplementary ones too, so that giving up the one does not lose both.
    let mut groups = vec![ids.gid];
    for gid in ids.groups.into_iter().chain(further) {
        if !groups.contains(&gid) {
            groups.push(gid);
        }
    }
    UserBuilder::default()
        .uid(ids.uid)
        .gid(ids.gid)
        .additional_gids(groups)
        .build()
        .map_err(|error| CallError::invalid(format!("user `{wanted}`: {error}")))
}

#[derive(Debug, PartialEq, Eq)]
struct Ids {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

fn resolve(wanted: &str, passwd: &str, group: &str) -> Result<Ids, CallError> {
    let (user, wanted_group) = match wanted.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (wanted, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    // A name is looked for before a number, as a user may be called 1000.
    let entry = entries(passwd, 4).find(|fields| fields[0] == user).or_else(|| {
        user.parse::<u32>().ok()?;
        entries(passwd, 4).find(|fields| fields[2] == user)
    });
    let numbers = entry.as_ref().and_then(|fields| Some((fields[2].parse().ok()?, fields[3].parse().ok()?)));
    let (uid, own_gid) = match (numbers, user.parse::<u32>()) {
        (Some(ids), _) => ids,
        (None, Ok(uid)) => (uid, 0),
        (None, Err(_)) => return Err(unknown("user", user)),
    };
    if let Some(name) = wanted_group {
        return Ok(Ids { uid, gid: group_number(name, group)?, groups: Vec::new() });
    }
    let name = entry.map(|fields| fields[0]);
    let groups = entries(group, 4)
        .filter(|fields| name.is_some_and(|name| fields[3].split(',').any(|member| member == name)))
        .filter_map(|fields| fields[2].parse().ok())
        .collect();
    Ok(Ids { uid, gid: own_gid, groups })
}

/// A group by name, or by number.
fn group_number(name: &str, group: &str) -> Result<u32, CallError> {
    let found = entries(group, 3).find(|fields| fields[0] == name).and_then(|fields| fields[2].parse().ok());
    found.or_else(|| name.parse().ok()).ok_or_else(|| unknown("group", name))
}

/// The lines with at least this many fields.
fn entries(text: &str, least: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.trim().split(':').collect::<Vec<_>>()).filter(move |fields| fields.len() >= least)
}

fn unknown(kind: &str, name: &str) -> CallError {
    CallError::Invalid {
        what: format!("the image has no {kind} `{name}`"),
        hint: Some(format!("use a number, or a {kind} that is in the image's /etc")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102:Web:/:/bin/false\n1234:x:7:8::/:\n\nbroken\n";
    const GROUP: &str = "root:x:0:\nweb:x:102:\nlog:x:50:web,root\nmail:x:51:other\n";

    fn ids(wanted: &str) -> (u32, u32, Vec<u32>) {
        let ids = resolve(wanted, PASSWD, GROUP).unwrap_or_else(|error| panic!("{wanted}: {error}"));
        (ids.uid, ids.gid, ids.groups)
    }

    #[test]
    fn names_and_numbers_are_found_with_their_groups() {
        assert_eq!(ids("web"), (101, 102, vec![50]));
        assert_eq!(ids("101"), (101, 102, vec![50]));
        assert_eq!(ids("web:mail"), (101, 51, vec![]));
        assert_eq!(ids("web:7777"), (101, 7777, vec![]));
        assert_eq!(ids("5000"), (5000, 0, vec![]));
        assert_eq!(ids("5000:5001"), (5000, 5001, vec![]));
        assert_eq!(ids(""), (0, 0, vec![50]));
        assert_eq!(ids("1234"), (7, 8, vec![]), "a name before a number");
    }

    #[test]
    fn an_unknown_name_is_refused_with_a_way_out() {
        for wanted in ["nobody", "web:nogroup"] {
            let error = resolve(wanted, PASSWD, GROUP).expect_err("is not there");
            assert!(matches!(&error, CallError::Invalid { hint: Some(_), .. }), "{error}");
        }
    }
}
