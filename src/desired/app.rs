//! One app's files, read and lowered: what `validate`, `plan` and the directory source share.

use super::complete::{complete, name_resources};
use super::dump::dump;
use super::finding::about_file;
use super::load::{Loaded, Request, load, normal_name};
use super::lower::{Content, lower};
use super::verify::verify;
use crate::model::{App, AppName, Finding, Severity};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What came of an app's files.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The first file.
    pub file: PathBuf,
    /// The app, when its name can be told.
    pub app: Option<AppName>,
    /// What it asks for; nothing when a finding is an error.
    pub content: Option<Content>,
    /// Everything there is to say, notes included.
    pub findings: Vec<Finding>,
    /// Every file that had a say, whether it exists or not.
    pub inputs: BTreeSet<PathBuf>,
}

impl Checked {
    /// Whether the files can be taken.
    pub fn is_good(&self) -> bool {
        self.content.is_some()
    }

    /// The app as the model has it, in a generation.
    pub fn into_app(self, generation: u64) -> App {
        let known = self.content.is_some();
        let Content { services, networks, volumes, .. } = self.content.unwrap_or_default();
        App { file: self.file, generation, known, services, networks, volumes, findings: self.findings }
    }
}

/// Reads and lowers the files of one app, the first one first.
pub fn check(request: &Request) -> Checked {
    let file = request.files.first().cloned().unwrap_or_default();
    let (loaded, content) = work(request);
    let Loaded { name, findings, inputs, .. } = loaded;
    let mut findings = findings.finish(true);
    let app = match AppName::new(name) {
        Ok(app) => Some(app),
        Err(error) => {
            let mut finding = about_file(&file, error.to_string());
            finding.hint = Some("give the app a name: `name: ...` as the first line".to_owned());
            findings.push(finding);
            None
        }
    };
    let good = app.is_some() && findings.iter().all(|finding| finding.severity != Severity::Error);
    Checked { file, app, content: good.then_some(content), findings, inputs }
}

/// The normalised model of an app's files as JSON, with the findings. There is a model unless the files are wrong; what
/// only a node refuses is a warning here.
pub fn config(request: &Request) -> (Option<serde_json::Value>, Vec<Finding>) {
    let (loaded, _) = work(request);
    let Loaded { mut tree, name, findings, .. } = loaded;
    name_resources(&mut tree, &name);
    let model = (!findings.any_error()).then(|| dump(&tree, &name));
    (model, findings.finish(false))
}

/// Loads, completes and lowers. A tree with faults is lowered all the same, so that one look tells everything.
fn work(request: &Request) -> (Loaded, Content) {
    let mut loaded = load(request);
    let off = complete(&mut loaded, request);
    let Loaded { tree, name, dir, env, findings, inputs, .. } = &mut loaded;
    verify(tree, &off, findings);
    let content = lower(tree, (name, dir), env, findings, inputs);
    (loaded, content)
}

/// The request for a file by itself, as `validate`, `config` and `plan` take it: with the override that lies beside it.
pub fn request_for(file: &Path) -> Request {
    let mut files = vec![file.to_owned()];
    files.extend(beside(file));
    Request { files, default_name: default_name(file), ..Request::default() }
}

/// The name that a file gives its app: its own without the ending, or its directory's where it is called `compose.yaml`.
pub fn default_name(file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if !["compose", "docker-compose"].contains(&stem.as_str()) {
        return normal_name(&stem);
    }
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let dir = whole.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    normal_name(&dir.unwrap_or_default())
}

/// The override file beside a file, if there is one.
fn beside(file: &Path) -> Option<PathBuf> {
    let stem = file.file_stem()?.to_str()?;
    if stem.ends_with(".override") {
        return None;
    }
    ["yaml", "yml"]
        .into_iter()
        .map(|ending| file.with_file_name(format!("{stem}.override.{ending}")))
        .find(|path| path.symlink_metadata().is_ok())
}

/// Reads a file of `NAME=value` lines: the agent's own values for substitution. The error is a finding with its place.
pub fn env_file(path: &Path) -> Result<std::collections::BTreeMap<String, String>, Box<Finding>> {
    let text = super::read::text(path).map_err(|fault| Box::new(about_file(path, fault.to_string())))?;
    let (pairs, faults) = super::dotenv::parse(&text, &|_: &str| None);
    match faults.into_iter().next() {
        Some(fault) => {
            let mut finding = about_file(path, fault.message);
            finding.place.line = fault.line;
            Err(Box::new(finding))
        }
        None => Ok(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()),
    }
}
