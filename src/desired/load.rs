//! # From files to one tree
//!
//! Reads the files of one app and what they include and extend, substitutes, brings each into normal form and merges
//! them.
//!
//! Guarantees: values come from the app's own files and from what the caller passes, never from this process's
//! environment; every file that has a say is in [`Loaded::inputs`], whether it exists or not.
//!
//! Tests: `tests/compose_cases.rs`.

use super::dotenv;
use super::extend::Extend;
use super::finding::Findings;
use super::interpolate::interpolate;
use super::node::{At, Node, Value};
use super::read;
use super::shape::{Normal, clean, merge, settle};
use super::substitute::substitute;
use super::table::{Shape, TOP};
use super::yaml::{self, Parsed};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How many files one app may be made of, each counted as often as it is included.
const FILES_MAX: usize = 256;

/// What to load.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The files, the first one first; its directory is the project's.
    pub files: Vec<PathBuf>,
    /// The text to use in place of the first file's, when it has not been written yet.
    pub text: Option<String>,
    /// Texts to use in place of other files', by path.
    pub texts: BTreeMap<PathBuf, String>,
    /// The name that the caller gives, if it gives one.
    pub name: Option<String>,
    /// The name where nothing else names the app.
    pub default_name: String,
    /// Values from the caller: they win over the `.env` file.
    pub env: BTreeMap<String, String>,
    /// Env files in the place of the project's `.env`; later ones win.
    pub env_files: Option<Vec<PathBuf>>,
    /// The active profiles; `*` stands for all.
    pub profiles: Vec<String>,
    /// What `~` stands for in paths; nothing on a node.
    pub home: Option<String>,
    /// Leave relative paths as they are written.
    pub keep_paths: bool,
    /// Leave env files unread and names without values alone.
    pub keep_environment: bool,
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
    /// Values for substitution, as the files of the app saw them.
    pub env: Env,
    /// What was found.
    pub findings: Findings,
    /// Every file that had a say.
    pub inputs: BTreeSet<PathBuf>,
}

/// Values for substitution, shared by everything that sees the same ones.
pub type Env = Rc<BTreeMap<String, String>>;

/// Where a file is read from, and what it sees.
#[derive(Clone)]
pub(super) struct Scope {
    /// What its relative paths are relative to.
    pub dir: PathBuf,
    /// The values that it sees.
    pub env: Env,
    /// The place that pulled it in, and how.
    pub via: Option<(At, &'static str)>,
    /// The files that led here, itself included.
    pub chain: Vec<PathBuf>,
    /// Whether its services are made from what they extend; not where only some of them are wanted.
    pub extend: bool,
}

/// Loads an app.
pub fn load(request: &Request) -> Loaded {
    let first = request.files.first().cloned().unwrap_or_default();
    let whole = std::path::absolute(&first).unwrap_or(first);
    let dir = whole.parent().map(clean).unwrap_or_default();
    let mut loader =
        Loader { request, files_read: 0, cut: None, findings: Findings::default(), inputs: BTreeSet::new() };
    let env_files = request.env_files.clone().unwrap_or_else(|| vec![dir.join(".env")]);
    let mut env = request.env.clone();
    loader.fill_env(&mut env, &env_files, request.env_files.is_some().then_some(At::default()));
    let mut documents = Vec::new();
    for (number, path) in request.files.iter().enumerate() {
        let text = request.text.clone().filter(|_| number == 0).or_else(|| request.texts.get(path).cloned());
        documents.extend(loader.documents(path, text, None).into_iter().map(|document| (path, document)));
    }
    let name = loader.name(&documents, &env);
    env.entry("COMPOSE_PROJECT_NAME".to_owned()).or_insert_with(|| name.clone());
    let env = Rc::new(env);
    let mut tree: Option<Node> = None;
    for (path, document) in documents {
        let scope = Scope { dir: dir.clone(), env: env.clone(), via: None, chain: vec![clean(path)], extend: true };
        tree = over(tree, loader.document(document, &scope));
    }
    let mut tree = tree.unwrap_or_else(|| Node::map(At::default(), [] as [(String, Node); 0]));
    settle(&mut tree);
    let Loader { findings, inputs, .. } = loader;
    Loaded { tree, name, dir, env, findings, inputs }
}

/// A later tree over an earlier one, where both may be missing.
fn over(base: Option<Node>, over: Option<Node>) -> Option<Node> {
    match (base, over) {
        (Some(base), Some(over)) => Some(merge(base, over)),
        (base, over) => over.or(base),
    }
}

pub(super) struct Loader<'a> {
    request: &'a Request,
    files_read: usize,
    /// The name in a file that could not be read to its end.
    cut: Option<Node>,
    pub findings: Findings,
    pub inputs: BTreeSet<PathBuf>,
}

impl Loader<'_> {
    /// Adds what env files say to values that win over them. A file that was asked for has to be there.
    fn fill_env(&mut self, env: &mut BTreeMap<String, String>, paths: &[PathBuf], asked: Option<At>) {
        let given: BTreeSet<String> = env.keys().cloned().collect();
        for path in paths {
            self.inputs.insert(path.clone());
            let text = match read::text(path) {
                Ok(text) => text,
                Err(read::Fault::Missing) if asked.is_none() => continue,
                Err(fault) => {
                    self.unreadable(path, &fault, asked.filter(|at| at.line > 0));
                    continue;
                }
            };
            let (pairs, faults) = dotenv::parse(&text, &|name: &str| env.get(name).cloned());
            let file = self.findings.files.add(path, text.into(), None);
            for fault in faults {
                self.findings.error(At { file, line: fault.line, column: fault.column }, fault.message);
            }
            for (name, value) in pairs {
                if let Some(value) = value.filter(|_| !given.contains(&name)) {
                    env.insert(name, value);
                }
            }
        }
    }

    /// Tells that a file cannot be read: where it was asked for, or in the file itself.
    fn unreadable(&mut self, path: &Path, fault: &read::Fault, asked: Option<At>) {
        let (line, column) = fault.place();
        // The quoted line is the only one known: it is placed where it stands in the file.
        let padded = "\n".repeat((line as usize).saturating_sub(1)) + &fault.source_line().unwrap_or_default();
        let file = self.findings.files.add(path, padded.into(), None);
        let here = At { file, line, column };
        let complaint = match asked {
            Some(asked) => {
                let complaint = self.findings.error(asked, format!("{}: {fault}", path.display()));
                if line > 1 || fault.source_line().is_some() {
                    complaint.note(here, "here");
                }
                complaint
            }
            None => self.findings.error(here, fault.to_string()),
        };
        if let Some(hint) = fault.hint() {
            complaint.hint(hint);
        }
    }

    /// The documents of a file, not yet substituted.
    fn documents(&mut self, path: &Path, text: Option<String>, via: Option<(At, &'static str)>) -> Vec<Node> {
        self.inputs.insert(path.to_owned());
        self.files_read += 1;
        if self.files_read > FILES_MAX {
            let at = via.map(|(at, _)| at).unwrap_or_default();
            self.findings.error(at, format!("the app is made of more than {FILES_MAX} files"));
            return Vec::new();
        }
        let text = match text.map_or_else(|| read::text(path), |text| read::decode(text.into_bytes())) {
            Ok(text) => text,
            Err(fault) => {
                self.unreadable(path, &fault, via.map(|(at, _)| at));
                return Vec::new();
            }
        };
        let file = self.findings.files.add(path, text.as_str().into(), via);
        let start = At { file, line: 1, column: 1 };
        let Parsed { documents, cut } = yaml::parse(&text, file, &mut self.findings);
        if let Some(cut) = cut {
            // The rest would be found wanting for what was not read; its name is all that counts.
            self.cut = cut.as_map().and_then(|map| map.get("name")).map(|entry| entry.node.clone()).or(self.cut.take());
        }
        if documents.iter().all(|node| node.value == Value::Null) {
            if !self.findings.any_error() {
                let message = match text.trim() {
                    "" => "the file is empty",
                    _ => "the file holds nothing but comments",
                };
                self.findings.error(start, message);
            }
            return Vec::new();
        }
        documents.into_iter().filter(|node| node.value != Value::Null).collect()
    }

    /// The name, by precedence: the caller's, `COMPOSE_PROJECT_NAME`, the last `name:` of the files, the default.
    fn name(&mut self, documents: &[(&PathBuf, Node)], env: &BTreeMap<String, String>) -> String {
        if let Some(name) = self.request.name.as_ref().or_else(|| env.get("COMPOSE_PROJECT_NAME")) {
            return name.clone();
        }
        let written = documents.iter().rev().find_map(|(_, node)| {
            let entry = node.as_map()?.get("name")?;
            Some((entry.node.at, entry.node.as_text()?.to_owned()))
        });
        let cut = self.cut.as_ref().and_then(|node| Some((node.at, node.as_text()?.to_owned())));
        let Some((at, text)) = written.or(cut) else { return normal_name(&self.request.default_name) };
        let name = normal_name(&substitute(&text, &|name: &str| env.get(name).cloned()).text);
        if name.is_empty() {
            let message = format!("nothing is left of the name \"{text}\": every character of it is dropped");
            self.findings.error(at, message).hint("a name is a-z, 0-9, - and _");
        }
        name
    }

    /// All documents of a file that another names, merged.
    pub fn file(&mut self, path: &Path, scope: &Scope) -> Option<Node> {
        let mut tree = None;
        for document in self.documents(path, None, scope.via) {
            tree = over(tree, self.document(document, scope));
        }
        tree
    }

    /// One document: substituted, in normal form, over what it includes, with its services made from what they extend.
    fn document(&mut self, mut document: Node, scope: &Scope) -> Option<Node> {
        if !matches!(document.value, Value::Map(_)) {
            let message = format!("a Compose file is a mapping, not {}", document.kind());
            self.findings.error(document.at, message).hint("it begins with `services:`");
            return None;
        }
        if let (Some(kind), Some(_), None) =
            (document.get("kind"), document.get("apiVersion"), document.get("services"))
        {
            self.findings
                .error(kind.at, "this is a Kubernetes manifest, not a Compose file")
                .hint("describe it by `services:`");
            return None;
        }
        interpolate(&mut document, &|name: &str| scope.env.get(name).cloned(), &mut self.findings);
        let mut normal = Normal {
            findings: &mut self.findings,
            base: &scope.dir,
            home: self.request.home.as_deref(),
            resolve: !self.request.keep_paths,
            key: document.at,
        };
        let mut document = normal.normal("the file", Shape::Table(&TOP), document)?;
        let includes = document.as_map_mut().and_then(|map| map.remove("include"));
        let mut base = None;
        if let Some(Value::Seq(includes)) = includes.map(|entry| entry.node.value) {
            for include in includes {
                base = over(base, self.include(&include, scope));
            }
        }
        let mut tree = over(base, Some(document))?;
        if scope.extend {
            Extend::new(self, scope).all(&mut tree);
        }
        Some(tree)
    }

    /// What one entry of `include` brings.
    fn include(&mut self, include: &Node, scope: &Scope) -> Option<Node> {
        let paths: Vec<(At, PathBuf)> =
            texts(include.get("path")).map(|(at, path)| (at, scope.dir.join(path))).collect();
        let (_, first) = paths.first()?;
        let dir = match include.get_text("project_directory") {
            Some(dir) => scope.dir.join(dir),
            None => first.parent().map(Path::to_owned).unwrap_or_default(),
        };
        let mut env = (*scope.env).clone();
        match include.get("env_file") {
            Some(node) => {
                let files: Vec<PathBuf> = texts(Some(node)).map(|(_, path)| scope.dir.join(path)).collect();
                self.fill_env(&mut env, &files, Some(node.at));
            }
            None => self.fill_env(&mut env, &[dir.join(".env")], None),
        }
        let env = Rc::new(env);
        let mut tree = None;
        for (at, path) in paths {
            let path = clean(&path);
            if scope.chain.iter().any(|before| std::path::absolute(before).ok() == std::path::absolute(&path).ok()) {
                self.findings.error(at, format!("{} includes itself, directly or by others", path.display()));
                continue;
            }
            let mut chain = scope.chain.clone();
            chain.push(path.clone());
            let via = Some((at, "included from here"));
            let inner = Scope { dir: dir.clone(), env: env.clone(), via, chain, extend: true };
            tree = over(tree, self.file(&path, &inner));
        }
        tree
    }
}

/// The texts of a list node, with their places.
fn texts(node: Option<&Node>) -> impl Iterator<Item = (At, &str)> {
    let items = node.and_then(Node::as_seq).unwrap_or_default();
    items.iter().filter_map(|item| Some((item.at, item.as_text()?)))
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
