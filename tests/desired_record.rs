//! Recorded edits: checked first, whole or absent on disk, and seen by the directory source as the same content.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use stead::desired::record::{Recorded, Refused, apply, remove};
use stead::desired::{Directory, Options, content_digest, recorded};
use stead::model::AppName;

const WEB: &str = "services: {web: {image: web}}\n";

fn name(app: &str) -> AppName {
    AppName::new(app).unwrap()
}

fn record(dir: &Path, app: Option<&str>, text: &str) -> Result<Recorded, Refused> {
    apply(dir, app.map(name).as_ref(), text, &BTreeMap::new())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_edit_is_recorded_and_found_again_by_its_digest() {
    let root = tempfile::tempdir().unwrap();
    let (dir, state) = (root.path().join("desired"), root.path().join("state"));
    fs::create_dir(&dir).unwrap();
    let done = record(&dir, Some("shop"), WEB).unwrap();
    assert!(done.changed && done.file == dir.join("shop.yaml"));
    assert_eq!(names(&dir), ["shop.yaml"], "nothing half-written stays");
    assert!(!record(&dir, Some("shop"), WEB).unwrap().changed);
    let picture = Directory::open(Options { dir, state: state.clone(), ..Options::default() }).read();
    let (generation, digest) = recorded(&state, &name("shop")).unwrap();
    assert_eq!(Some(digest), content_digest(&done.checked));
    assert_eq!(generation, picture.apps[&name("shop")].generation);
}

#[test]
fn a_text_with_faults_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), Some("shop"), WEB).unwrap();
    let refused = record(dir.path(), Some("shop"), "services: {web: {imge: web}}").unwrap_err();
    let Refused::Faults(checked) = refused else { panic!("{refused:?}") };
    assert_eq!(checked.findings[0].place.file, dir.path().join("shop.yaml"));
    assert_eq!(fs::read_to_string(dir.path().join("shop.yaml")).unwrap(), WEB);
}

#[test]
fn the_name_comes_from_the_caller_or_the_text_and_they_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("name: shop\n{WEB}");
    assert!(matches!(record(dir.path(), Some("other"), &text), Err(Refused::OtherName { .. })));
    assert!(matches!(record(dir.path(), None, WEB), Err(Refused::NoName)));
    // A file of another name that declares the app is the one that is edited.
    fs::write(dir.path().join("legacy.yml"), &text).unwrap();
    let done = record(dir.path(), None, &format!("{text}# edited\n")).unwrap();
    assert_eq!(done.file, dir.path().join("legacy.yml"));
    assert_eq!(names(dir.path()), ["legacy.yml"]);
}

#[test]
fn an_edit_of_a_symlink_goes_to_what_it_leads_to() {
    let root = tempfile::tempdir().unwrap();
    let (dir, real) = (root.path().join("desired"), root.path().join("real.yaml"));
    fs::create_dir(&dir).unwrap();
    fs::write(&real, WEB).unwrap();
    symlink(&real, dir.join("shop.yaml")).unwrap();
    record(&dir, Some("shop"), "services: {web: {image: web:2}}\n").unwrap();
    assert!(dir.join("shop.yaml").is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("web:2"));
}

#[test]
fn removing_takes_the_apps_files_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    fs::write(path("shop.yaml"), WEB).unwrap();
    fs::write(path("shop.override.yaml"), "services: {web: {scale: 2}}").unwrap();
    fs::create_dir(path("bare")).unwrap();
    fs::write(path("bare/compose.yaml"), WEB).unwrap();
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/compose.yaml"), WEB).unwrap();
    fs::write(path("full/data"), "precious").unwrap();
    assert_eq!(remove(dir.path(), &name("shop")).unwrap().len(), 2);
    remove(dir.path(), &name("bare")).unwrap();
    remove(dir.path(), &name("full")).unwrap();
    assert_eq!(names(dir.path()), ["full"]);
    assert_eq!(names(&path("full")), ["data"]);
    assert!(matches!(remove(dir.path(), &name("shop")), Err(Refused::NoApp(..))));
}
