//! Configs and secrets: what a service is given as files. Their content is read here, once each, and is never written down.

use super::Lower;
use crate::desired::node::{At, Node};
use crate::desired::read;
use crate::model::{Grant, Sealed, hex};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

/// The largest config or secret: it is kept in memory, once for each instance.
const LARGEST: u64 = 1 << 20;
/// Readable for everybody in the container, as the specification has it.
const MODE: u32 = 0o444;

/// The contents that were read, by kind and name; `None` for one that cannot be had, which has been told.
pub(super) type Contents = BTreeMap<(&'static str, String), Option<(String, Sealed)>>;

impl Lower<'_> {
    /// The files that a service is given, with their places.
    pub(super) fn grants(&mut self, service: &Node) -> Vec<(At, Grant)> {
        let mut out = Vec::new();
        for (kind, folder) in [("configs", "/"), ("secrets", "/run/secrets")] {
            for node in service.get(kind).and_then(Node::as_seq).into_iter().flatten() {
                out.extend(self.grant(kind, folder, node).map(|grant| (node.at, grant)));
            }
        }
        out.sort_by(|(_, one), (_, other)| one.target.cmp(&other.target));
        out
    }

    fn grant(&mut self, kind: &'static str, folder: &str, node: &Node) -> Option<Grant> {
        let source = node.get_text("source")?.to_owned();
        let target = node.get_text("target").filter(|target| !target.is_empty()).unwrap_or(&source);
        let target = crate::desired::shape::clean(&Path::new(folder).join(target)).to_string_lossy().into_owned();
        let uid = self.owner(node.get("uid"));
        let gid = self.owner(node.get("gid"));
        let mode = node.get("mode").and_then(Node::as_int).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(MODE);
        let key = (kind, source.clone());
        if !self.contents.contains_key(&key) {
            let content = self.content(kind, &source);
            self.contents.insert(key.clone(), content);
        }
        let (digest, content) = self.contents.get(&key)?.clone()?;
        let what = format!("{} {source}", kind.trim_end_matches('s'));
        Some(Grant { what, target, digest, uid, gid, mode, content: Some(content) })
    }

    /// A number: there is no list of users to look a name up in before the container is made.
    fn owner(&mut self, node: Option<&Node>) -> u32 {
        let Some((node, text)) = node.and_then(|node| Some((node, node.as_text()?))) else { return 0 };
        text.parse().unwrap_or_else(|_| {
            self.findings.refuse(node.at, format!("\"{text}\" is not a number")).hint("owners are given by number");
            0
        })
    }

    /// The content of a declared config or secret, with its digest.
    fn content(&mut self, kind: &'static str, name: &str) -> Option<(String, Sealed)> {
        // One that is not declared has been told, and so has one without a source.
        let declared = self.tree.get(kind)?.get(name)?;
        let bytes = if let Some(content) = declared.get("content") {
            content.as_text()?.as_bytes().to_vec()
        } else if let Some(node) = declared.get("environment") {
            self.environment_content(node)?
        } else {
            self.file_content(declared.get("file")?)?
        };
        Some((hex(&Sha256::digest(&bytes)), Sealed::new(bytes)))
    }

    fn environment_content(&mut self, node: &Node) -> Option<Vec<u8>> {
        let name = node.as_text()?;
        if let Some(value) = self.env.get(name) {
            return Some(value.as_bytes().to_vec());
        }
        let message = format!("the variable `{name}` has no value");
        let hint = format!("set it in the `.env` file beside the app's file: {name}=...");
        self.findings.refuse(node.at, message).hint(hint);
        None
    }

    fn file_content(&mut self, node: &Node) -> Option<Vec<u8>> {
        let path = self.dir.join(node.as_text()?);
        self.inputs.insert(path.clone());
        let mut bytes = Vec::new();
        let fault = match read::open(&path) {
            Ok(file) => match file.take(LARGEST + 1).read_to_end(&mut bytes) {
                Ok(_) if bytes.len() as u64 <= LARGEST => return Some(bytes),
                Ok(_) => format!("the file has more than {LARGEST} bytes"),
                Err(error) => read::Fault::Io(error).to_string(),
            },
            Err(fault) => fault.to_string(),
        };
        self.findings.refuse(node.at, format!("{}: {fault}", path.display()));
        None
    }
}
