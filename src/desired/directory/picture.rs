//! One picture from what the files say and what was good before.

use super::super::app::Checked;
use super::super::finding::about_file;
use super::super::lower::Content;
use super::conflict::{self, Side};
use super::scan::Scan;
use super::store::{Good, Store, digest};
use crate::model::{App, AppName, Desired, Finding, Note, Place, Severity, SpecDigest};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is to be shown of one app, before generations.
struct Draft {
    file: PathBuf,
    /// The content that the file has now, if it can be taken.
    now: Option<Content>,
    findings: Vec<Finding>,
}

/// The picture when the directory was seen: each app as its files say, or as it was last good.
pub fn seen(scan: &Scan, checked: Vec<(String, Checked)>, store: &mut Store) -> Desired {
    let mut findings = scan.findings.clone();
    let mut drafts = drafts(checked, store, &mut findings);
    closed(scan, store, &mut drafts);
    settle_conflicts(store, &mut drafts);
    let gone: Vec<AppName> = store.good.keys().filter(|app| !drafts.contains_key(*app)).cloned().collect();
    gone.iter().for_each(|app| store.forget(app));
    let next = store.memory.generation + 1;
    let mut apps = BTreeMap::new();
    for (app, draft) in drafts {
        if let Some(content) = draft.now {
            let digest = digest(&content);
            let same = store.good.get(&app).filter(|good| good.digest == digest);
            let generation = same.map_or(next, |good| good.generation);
            store.keep(&app, Good { file: draft.file.clone(), generation, digest, content });
        }
        let shown = shown(store.good.get(&app), draft.file, draft.findings);
        apps.insert(app, shown);
    }
    Desired { generation: 0, whole: true, apps, findings, pool: None }
}

/// The picture when nothing is known of the directory: everything as it was last good, and nothing may be removed.
pub fn unseen(why: Finding, store: &Store) -> Desired {
    let apps =
        store.good.iter().map(|(app, good)| (app.clone(), shown(Some(good), good.file.clone(), Vec::new()))).collect();
    Desired { generation: 0, whole: false, apps, findings: vec![why], pool: None }
}

/// The digest of a picture, generations aside: another one means another generation.
pub fn picture_digest(desired: &Desired) -> String {
    let apps: Vec<_> = desired
        .apps
        .iter()
        .map(|(name, app)| (name, &app.file, app.known, &app.services, &app.networks, &app.volumes, &app.findings))
        .collect();
    let bytes = serde_json::to_vec(&(desired.whole, apps, &desired.findings)).unwrap_or_default();
    SpecDigest::of(&bytes).as_str().to_owned()
}

fn shown(good: Option<&Good>, file: PathBuf, findings: Vec<Finding>) -> App {
    match good {
        Some(good) => App {
            file,
            generation: good.generation,
            known: true,
            services: good.content.services.clone(),
            networks: good.content.networks.clone(),
            volumes: good.content.volumes.clone(),
            findings,
        },
        None => App {
            file,
            generation: 0,
            known: false,
            services: BTreeMap::new(),
            networks: BTreeMap::new(),
            volumes: Default::default(),
            findings,
        },
    }
}

/// The apps by name. Two files for one app are both told, and neither is taken.
fn drafts(checked: Vec<(String, Checked)>, store: &Store, findings: &mut Vec<Finding>) -> BTreeMap<AppName, Draft> {
    let mut by_app: BTreeMap<AppName, Vec<Checked>> = BTreeMap::new();
    for (stem, checked) in checked {
        match owner(&stem, &checked, store) {
            Some(app) => by_app.entry(app).or_default().push(checked),
            // A file without a usable name has a finding that says so.
            None => findings.extend(checked.findings),
        }
    }
    let mut drafts = BTreeMap::new();
    for (app, mut files) in by_app {
        let draft = if files.len() > 1 { twice(&app, &files, store) } else { single(files.remove(0)) };
        drafts.insert(app, draft);
    }
    drafts
}

fn single(checked: Checked) -> Draft {
    let findings = checked.findings.into_iter().filter(|finding| finding.severity != Severity::Note).collect();
    Draft { file: checked.file, now: checked.content, findings }
}

/// Whose file it is. A bad file belongs to the app that it was last good for.
fn owner(stem: &str, checked: &Checked, store: &Store) -> Option<AppName> {
    if checked.is_good() {
        return checked.app.clone();
    }
    let before = store.good.iter().find(|(_, good)| good.file == checked.file).map(|(app, _)| app.clone());
    before.or_else(|| checked.app.clone()).or_else(|| AppName::new(super::super::load::normal_name(stem)).ok())
}

fn twice(app: &AppName, files: &[Checked], store: &Store) -> Draft {
    let running = store.good.get(app).map(|good| good.file.clone());
    let mut findings = Vec::new();
    for (number, checked) in files.iter().enumerate() {
        let mut finding = about_file(&checked.file, format!("the app `{app}` is declared by {} files", files.len()));
        finding.hint = Some("remove one of them, or give it another `name:`".to_owned());
        for (_, other) in files.iter().enumerate().filter(|(other, _)| *other != number) {
            let place = Place { file: other.file.clone(), line: 1, column: 1 };
            finding.notes.push(Note { place, message: "declared here too".to_owned() });
        }
        findings.push(finding);
    }
    let file = running.unwrap_or_else(|| files.first().map(|one| one.file.clone()).unwrap_or_default());
    Draft { file, now: None, findings }
}

/// Apps whose directory cannot be looked into stay as they are. One that was never good there is still not absent.
fn closed(scan: &Scan, store: &Store, drafts: &mut BTreeMap<AppName, Draft>) {
    for path in &scan.closed {
        let finding = about_file(path, "it cannot be looked into: an app in it stays as it was last good");
        let inside = store.good.iter().filter(|(_, good)| good.file.starts_with(path));
        let mut apps: Vec<(AppName, PathBuf)> = inside.map(|(app, good)| (app.clone(), good.file.clone())).collect();
        if apps.is_empty() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let app = AppName::new(super::super::load::normal_name(name)).ok();
            apps.extend(app.map(|app| (app, path.clone())));
        }
        for (app, file) in apps {
            let findings = vec![finding.clone()];
            drafts.entry(app).or_insert(Draft { file, now: None, findings });
        }
    }
}

fn settle_conflicts(store: &Store, drafts: &mut BTreeMap<AppName, Draft>) {
    let mut sides = BTreeMap::new();
    for (app, draft) in drafts.iter() {
        let before = store.good.get(app).map(|good| good.content.claims.as_slice());
        let now = draft.now.as_ref().map(|content| content.claims.as_slice()).or(before).unwrap_or_default();
        sides.insert(app.clone(), Side { now, before });
    }
    for (app, findings) in conflict::refused(&sides) {
        if let Some(draft) = drafts.get_mut(&app) {
            draft.now = None;
            draft.findings.extend(findings);
        }
    }
}
