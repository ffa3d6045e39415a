//! # From files to one tree
//!
//! Reads the files of one app, substitutes, brings each into normal form and merges them.
//!
//! Guarantees: values come from the app's own files and from what the caller passes, never from this process's
//! environment; every file that has a say is in [`Loaded::inputs`], whether it exists or not.
//!
//! Tests: `tests/compose_cases.rs`.

use super::dotenv;
use super::finding::Findings;
use super::interpolate::interpolate;
use super::node::{At, Node, Value};
use super::read;
use super::shape::{Normal, merge, settle};
use super::substitute::substitute;
use super::table::{Shape, TOP};
use super::yaml;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What to load.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The files, the first one first; its directory is the project's.
    pub files: Vec<PathBuf>,
    /// The text to use in place of the first file's, when it has not been written yet.
    pub text: Option<String>,
    /// The name that the caller gives, if it gives one.
    pub name: Option<String>,
    /// The name where nothing else names the app.
    pub default_name: String,
    /// Values from the caller: they win over the `.env` file.
    pub env: BTreeMap<String, String>,
}

/// What came of it.
#[derive(Debug)]
pub struct Loaded {
    /// The merged tree in normal form, as far as it could be made.
    pub tree: Node,
    /// The app's name before it is checked.
    pub name: String,
    /// The project directory.
    pub dir: PathBuf,
    /// What was found.
    pub findings: Findings,
    /// Every file that had a say.
    pub inputs: BTreeSet<PathBuf>,
}

/// Loads an app.
pub fn load(request: &Request) -> Loaded {
    let first = request.files.first().cloned().unwrap_or_default();
    let dir = first.parent().map(Path::to_owned).unwrap_or_default();
    let mut loader =
        Loader { request, dir, env: request.env.clone(), findings: Findings::default(), inputs: BTreeSet::new() };
    loader.project_env();
    let mut documents = Vec::new();
    for (number, path) in request.files.iter().enumerate() {
        let text = request.text.clone().filter(|_| number == 0);
        documents.extend(loader.documents(path, text));
    }
    let name = loader.name(&documents);
    loader.env.entry("COMPOSE_PROJECT_NAME".to_owned()).or_insert_with(|| name.clone());
    let tree = loader.tree(documents);
    let Loader { dir, findings, inputs, .. } = loader;
    Loaded { tree, name, dir, findings, inputs }
}

struct Loader<'a> {
    request: &'a Request,
    dir: PathBuf,
    env: BTreeMap<String, String>,
    findings: Findings,
    inputs: BTreeSet<PathBuf>,
}

impl Loader<'_> {
    /// The `.env` file beside the first file, if there is one.
    fn project_env(&mut self) {
        let path = self.dir.join(".env");
        self.inputs.insert(path.clone());
        let text = match read::text(&path) {
            Ok(text) => text,
            Err(read::Fault::Missing) => return,
            Err(fault) => return self.unreadable(&path, &fault),
        };
        let outer = |name: &str| self.env.get(name).cloned();
        let (pairs, faults) = dotenv::parse(&text, &outer);
        let file = self.findings.files.add(&path, text.into(), None);
        for fault in faults {
            self.findings.error(At { file, line: fault.line, column: fault.column }, fault.message);
        }
        let given: BTreeSet<String> = self.env.keys().cloned().collect();
        for (name, value) in pairs {
            if let Some(value) = value.filter(|_| !given.contains(&name)) {
                self.env.insert(name, value);
            }
        }
    }

    fn unreadable(&mut self, path: &Path, fault: &read::Fault) {
        let text = fault.source_line().unwrap_or_default();
        let (line, column) = fault.place();
        // The quoted line is the only one known: it is placed where it stands in the file.
        let padded = "\n".repeat((line as usize).saturating_sub(1)) + &text;
        let file = self.findings.files.add(path, padded.into(), None);
        let complaint = self.findings.error(At { file, line, column }, fault.to_string());
        if let Some(hint) = fault.hint() {
            complaint.hint(hint);
        }
    }

    /// The documents of a file, not yet substituted.
    fn documents(&mut self, path: &Path, text: Option<String>) -> Vec<Node> {
        self.inputs.insert(path.to_owned());
        let text = match text.map_or_else(|| read::text(path), |text| read::decode(text.into_bytes())) {
            Ok(text) => text,
            Err(fault) => {
                self.unreadable(path, &fault);
                return Vec::new();
            }
        };
        let file = self.findings.files.add(path, text.as_str().into(), None);
        let start = At { file, line: 1, column: 1 };
        let documents = yaml::parse(&text, file, &mut self.findings);
        if documents.iter().all(|node| node.value == Value::Null) {
            if !self.findings.any_error() {
                let message =
                    if text.trim().is_empty() { "the file is empty" } else { "the file holds nothing but comments" };
                self.findings.error(start, message);
            }
            return Vec::new();
        }
        documents.into_iter().filter(|node| node.value != Value::Null).collect()
    }

    /// The name, by precedence: the caller's, the last `name:` of the files, the default.
    fn name(&mut self, documents: &[Node]) -> String {
        if let Some(name) = &self.request.name {
            return name.clone();
        }
        let written = documents.iter().rev().find_map(|node| {
            let entry = node.as_map()?.get("name")?;
            Some((entry.node.at, entry.node.as_text()?.to_owned()))
        });
        match written {
            Some((at, text)) => {
                let name = normal_name(&substitute(&text, &|name: &str| self.env.get(name).cloned()).text);
                if name.is_empty() {
                    let message = format!("nothing is left of the name \"{text}\": every character of it is dropped");
                    self.findings.error(at, message).hint("a name is a-z, 0-9, - and _");
                }
                name
            }
            None => normal_name(&self.request.default_name),
        }
    }

    fn tree(&mut self, documents: Vec<Node>) -> Node {
        let mut tree: Option<Node> = None;
        for mut document in documents {
            if !matches!(document.value, Value::Map(_)) {
                let message = format!("a Compose file is a mapping, not {}", document.kind());
                self.findings.error(document.at, message).hint("it begins with `services:`");
                continue;
            }
            let env = &self.env;
            interpolate(&mut document, &|name: &str| env.get(name).cloned(), &mut self.findings);
            let mut normal = Normal { findings: &mut self.findings, base: &self.dir };
            let Some(document) = normal.normal("the file", Shape::Table(&TOP), document) else { continue };
            tree = Some(match tree {
                Some(base) => merge(base, document),
                None => document,
            });
        }
        let mut tree = tree.unwrap_or_else(|| Node::map(At::default(), [] as [(String, Node); 0]));
        settle(&mut tree);
        tree
    }
}

/// A text made into a project name: lower case, what may not be in it dropped, no `_` and `-` in front.
pub fn normal_name(text: &str) -> String {
    let kept: String = text
        .to_lowercase()
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(*c))
        .collect();
    kept.trim_start_matches(['_', '-']).to_owned()
}
