//! `security_opt`: how a process is confined.

use super::Lower;
use super::setup::texts;
use crate::desired::node::Node;
use crate::desired::read;
use crate::model::{Seccomp, SeccompProfile, Security};

impl Lower<'_> {
    pub(super) fn security(&mut self, service: &Node) -> Security {
        let mut security = Security::default();
        for (node, text) in texts(service.get("security_opt")) {
            self.option(node, text, &mut security);
        }
        security
    }

    /// `NAME`, `NAME:VALUE` or `NAME=VALUE`.
    fn option(&mut self, node: &Node, text: &str, out: &mut Security) {
        let (name, value) = text.split_once(['=', ':']).unwrap_or((text, ""));
        match (name, value) {
            ("no-new-privileges", "" | "true") => out.no_new_privileges = Some(true),
            ("no-new-privileges", "false") => out.no_new_privileges = Some(false),
            ("seccomp", "unconfined") => out.seccomp = Some(Seccomp::Unconfined),
            // The default one, by its name.
            ("seccomp", "builtin") => out.seccomp = None,
            ("seccomp", path) if !path.is_empty() => {
                out.seccomp = self.profile(node, path).map(|profile| Seccomp::Profile(Box::new(profile)));
            }
            // No profile of ours is in force, so there is nothing to be freed from.
            ("apparmor", "unconfined") => out.apparmor = None,
            ("apparmor", profile) if !profile.is_empty() => out.apparmor = Some(profile.to_owned()),
            ("systempaths", "unconfined") => out.system_paths = true,
            ("label", "disable") => {
                self.findings.remark(node.at, "`label:disable` has no meaning on a node: nothing is labelled");
            }
            ("label", _) => {
                let message = "SELinux labels are not honoured here: files and processes are not labelled";
                self.findings.refuse(node.at, message).hint("leave the option out");
            }
            _ => {
                let message = format!("`{text}` is not a security option that is honoured here");
                let hint = "there are no-new-privileges, seccomp=FILE, seccomp=unconfined, apparmor=PROFILE, systempaths=unconfined";
                self.findings.refuse(node.at, message).hint(hint);
            }
        }
    }

    fn profile(&mut self, node: &Node, path: &str) -> Option<SeccompProfile> {
        let path = crate::desired::shape::clean(&self.dir.join(path));
        self.inputs.insert(path.clone());
        let text = match read::text(&path) {
            Ok(text) => text,
            Err(fault) => {
                self.findings.refuse(node.at, format!("{}: {fault}", path.display()));
                return None;
            }
        };
        match serde_json::from_str::<SeccompProfile>(&text) {
            Ok(profile) if profile.default_action.starts_with("SCMP_ACT_") => Some(profile),
            Ok(_) => {
                let message = format!("{} is not a seccomp profile: it has no `defaultAction`", path.display());
                self.findings.refuse(node.at, message);
                None
            }
            Err(error) => {
                self.findings.refuse(node.at, format!("{} is not a seccomp profile: {error}", path.display()));
                None
            }
        }
    }
}
