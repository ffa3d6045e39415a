//! The table of keys against the official schema and against its own document.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use serde_json::{Map, Value};
use std::fs;
use std::path::Path;
use stead::desired::table::{SERVICE, TOP, Table, markdown};

/// Where the mapping with keys of its own is in a part of the schema: behind references, in one of several forms, in the
/// items of a list, or behind free names.
fn mapping<'a>(part: &'a Value, root: &'a Value) -> Option<&'a Value> {
    if let Some(name) = part["$ref"].as_str() {
        return mapping(&root["definitions"][name.rsplit('/').next().unwrap()], root);
    }
    if part["properties"].is_object() {
        return Some(part);
    }
    if let Some(forms) = part["oneOf"].as_array() {
        return forms.iter().find_map(|form| mapping(form, root));
    }
    let free = part["patternProperties"].as_object().into_iter().flatten().filter(|(name, _)| *name != "^x-");
    free.map(|(_, part)| part).chain(part.get("items")).find_map(|part| mapping(part, root))
}

fn compare(path: &str, table: &Table, part: &Value, root: &Value, wrong: &mut Vec<String>) {
    let schema: &Map<String, Value> = part["properties"].as_object().unwrap();
    let ours = || table.keys.iter().filter(|key| key.name != "x-stead");
    let unknown = ours().filter(|key| !schema.contains_key(key.name));
    wrong.extend(unknown.map(|key| format!("{path}.{}: not in the schema", key.name)));
    wrong.extend(
        schema.keys().filter(|key| table.key(key).is_none()).map(|key| format!("{path}.{key}: not in the table")),
    );
    if !table.keys.is_sorted_by_key(|key| key.name) {
        wrong.push(format!("{path}: the keys are not in order"));
    }
    if part["additionalProperties"] == Value::Bool(false) {
        let extensions = !part["patternProperties"]["^x-"].is_null();
        if extensions != table.extensions {
            wrong.push(format!("{path}: x- keys are {} by the schema", if extensions { "taken" } else { "refused" }));
        }
    }
    for key in ours() {
        let path = format!("{path}.{}", key.name);
        match (schema.get(key.name).and_then(|part| mapping(part, root)), key.shape.keys()) {
            (Some(part), Some(table)) => compare(&path, table, part, root, wrong),
            (Some(_), None) => wrong.push(format!("{path}: the schema knows keys in it")),
            (None, Some(_)) => wrong.push(format!("{path}: the schema knows no keys in it")),
            (None, None) => {}
        }
    }
}

#[test]
fn every_key_of_the_schema_is_in_the_table_and_no_other() {
    assert_eq!(SERVICE.keys.iter().filter(|key| key.name != "x-stead").count(), 92);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.ancestors().map(|dir| dir.join("shared/compose-spec.json")).find(|file| file.is_file());
    let Some(file) = file else {
        eprintln!("skipped in part: shared/compose-spec.json is not beside this repository or above it");
        return;
    };
    let schema: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let mut wrong = Vec::new();
    compare("", &TOP, &schema, &schema, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_document_is_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/compose.md");
    let text = markdown();
    if fs::read_to_string(&file).ok().as_deref() != Some(&text) {
        let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compose.md");
        fs::write(&fresh, text).unwrap();
        panic!("docs/compose.md is not what the table says: cp {} {}", fresh.display(), file.display());
    }
}
