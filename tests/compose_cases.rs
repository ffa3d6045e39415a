//! The cases of the reference loader: the same normal form for every valid file, the right line for every invalid one.
//!
//! The cases lie beside the repository (`../shared/compose-cases`); where they are not at hand, the test says so and the
//! language is held by `tests/compose_language.rs` alone. Deliberate differences are in `tests/compose/deviations.txt`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use stead::desired::{Request, check, config, request_for};
use stead::model::Severity;

fn cases(kind: &str) -> Option<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = root.ancestors().map(|dir| dir.join("shared/compose-cases").join(kind)).find(|dir| dir.is_dir());
    let Some(dir) = dir else {
        eprintln!("skipped: shared/compose-cases/{kind} is not beside this repository or above it");
        return None;
    };
    let mut cases: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    Some(cases)
}

/// `NAME: reason` for each case in which another answer is meant.
fn deviations(kind: &str) -> BTreeMap<String, String> {
    include_str!("compose/deviations.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix(kind)?.strip_prefix('/')?.split_once(": "))
        .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
        .collect()
}

fn texts(case: &Value, key: &str) -> Vec<String> {
    case[key].as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn request(dir: &Path, case: &Value) -> Request {
    let paths = |key: &str| -> Vec<PathBuf> { texts(case, key).iter().map(|name| dir.join(name)).collect() };
    let env = case["env"].as_object().into_iter().flatten();
    Request {
        files: paths("files"),
        name: case["name"].as_str().map(str::to_owned),
        default_name: dir.file_name().unwrap().to_string_lossy().into_owned(),
        env: env.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect(),
        env_files: case.get("env_files").map(|_| paths("env_files")),
        profiles: texts(case, "profiles"),
        home: Some("/home/user".to_owned()),
        keep_paths: case["resolve_paths"] == Value::Bool(false),
        keep_environment: case["resolve_environment"] == Value::Bool(false),
        ..Request::default()
    }
}

/// One form for both sides: paths under the cases' own root, numbers as they count.
fn comparable(value: &Value, root: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(root, "/handout")),
        Value::Number(number) => Value::String(number.as_f64().unwrap().to_string()),
        Value::Array(items) => items.iter().map(|item| comparable(item, root)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), comparable(value, root))).collect(),
        other => other.clone(),
    }
}

/// The places where two documents differ.
fn differences(at: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let none = Value::String("<nothing>".to_owned());
                differences(&format!("{at}.{key}"), a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none), out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| differences(&format!("{at}[{i}]"), a, b, out));
        }
        _ if ours == theirs => {}
        _ => out.push(format!("{at}: {ours} instead of {theirs}")),
    }
}

#[test]
fn every_valid_case_has_the_normal_form_of_the_reference() {
    let Some(cases) = cases("valid") else { return };
    let deviations = deviations("valid");
    let mut wrong = Vec::new();
    for dir in &cases {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let read = |file: &str| serde_json::from_str::<Value>(&fs::read_to_string(dir.join(file)).unwrap()).unwrap();
        let (model, findings) = config(&request(dir, &read("case.json")));
        let Some(model) = model else {
            let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
            wrong.push(format!(
                "{name}: refused: {:#?}",
                errors.map(|f| (f.place.line, &f.message)).collect::<Vec<_>>()
            ));
            continue;
        };
        let root = dir.parent().unwrap().to_string_lossy().into_owned();
        let mut out = Vec::new();
        differences("", &comparable(&model, &root), &comparable(&read("expected.json"), &root), &mut out);
        match (out.is_empty(), deviations.get(&name)) {
            (false, None) => wrong.push(format!("{name}:\n  {}", out.join("\n  "))),
            (true, Some(reason)) => wrong.push(format!("{name}: does not deviate any more ({reason})")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn the_fault_of_every_invalid_case_is_found_on_its_line() {
    let Some(cases) = cases("invalid") else { return };
    let deviations = deviations("invalid");
    let mut wrong = Vec::new();
    for dir in &cases {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let why = fs::read_to_string(dir.join("why.txt")).unwrap();
        let line: u32 = why.lines().find_map(|line| line.strip_prefix("line: ")).unwrap().trim().parse().unwrap();
        let file = dir.join("compose.yaml");
        // What the reference rejects is an error of the file, whatever a node honours of it; the rest is our own wish.
        let findings = match why.contains("reference: rejects") {
            true => {
                let (model, findings) = config(&request_for(&file));
                assert!(model.is_none(), "{name}: a model of a file that is wrong: {findings:#?}");
                findings.into_iter().filter(|finding| finding.severity == Severity::Error).collect()
            }
            false => check(&request_for(&file)).findings,
        };
        let found = findings.iter().any(|finding| {
            let places = std::iter::once(&finding.place).chain(finding.notes.iter().map(|note| &note.place));
            let here = places.into_iter().any(|place| place.file == file && place.line == line);
            here && !finding.message.contains("is not honoured here")
        });
        let told: Vec<String> = findings
            .iter()
            .map(|finding| format!("{}:{}: {}", finding.place.line, finding.place.column, finding.message))
            .collect();
        match (found, deviations.get(&name)) {
            (false, None) => wrong.push(format!("{name}: line {line} wanted\n    {why}    told: {told:#?}")),
            (true, Some(reason)) => wrong.push(format!("{name}: does not deviate any more ({reason})")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
