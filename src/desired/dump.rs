//! The normalised model as JSON, in the form in which the reference prints it.

use super::node::{Node, Value};
use super::table::{Shape, TOP, Table};
use super::units::duration_text;
use serde_json::{Map as JsonMap, Value as Json, json};

/// Keys of which a zero says something else than their absence.
const ZERO_COUNTS: &[&str] = &[
    "attach",
    "enable_ipv4",
    "enable_ipv6",
    "init",
    "max_attempts",
    "mode",
    "parallelism",
    "replicas",
    "retries",
    "scale",
];

/// A completed tree as JSON.
pub fn dump(tree: &Node, name: &str) -> Json {
    let Json::Object(mut top) = table(&TOP, tree, true) else { return Json::Null };
    top.remove("version");
    top.insert("name".to_owned(), json!(name));
    for (key, extra) in [("services", "command"), ("services", "entrypoint"), ("networks", "ipam")] {
        let empty = if key == "services" { Json::Null } else { json!({}) };
        for (_, one) in top.get_mut(key).and_then(Json::as_object_mut).into_iter().flatten() {
            if let Some(one) = one.as_object_mut() {
                one.entry(extra).or_insert_with(|| empty.clone());
            }
        }
    }
    top.entry("services").or_insert_with(|| json!({}));
    Json::Object(top)
}

/// A value in its shape; nothing when it is the zero value that is left out.
fn value(key: &str, shape: Shape, node: &Node) -> Option<Json> {
    let zero = ZERO_COUNTS.contains(&key);
    let json = match (shape, shape.keys(), &node.value) {
        (Shape::Table(_) | Shape::TableOrNull(_), Some(inner), _) => {
            return Some(with_parts(key, table(inner, node, false)));
        }
        (Shape::External, ..) => plain(node),
        (Shape::Build, Some(inner), _) => return Some(table(inner, node, false)),
        (_, Some(inner), Value::Seq(items)) => {
            items.iter().map(|node| with_parts(key, table(inner, node, false))).collect()
        }
        (_, Some(inner), Value::Map(map)) => {
            let one = |node: &Node| if node.as_map().is_some() { table(inner, node, false) } else { plain(node) };
            Json::Object(map.iter().map(|(name, entry)| (name.clone(), one(&entry.node))).collect())
        }
        (Shape::ExtraHosts, ..) => return hosts(node),
        (Shape::Bytes, ..) => node.as_int().filter(|bytes| *bytes != 0).map(|bytes| json!(bytes.to_string()))?,
        (Shape::Duration, ..) => json!(duration_text(node.as_int()?)),
        (Shape::FileMode, ..) => json!(format!("{:04o}", node.as_int()?)),
        (Shape::Command, ..) => match &node.value {
            Value::Seq(items) => Json::Array(items.iter().map(plain).collect()),
            _ => Json::Null,
        },
        _ => plain(node),
    };
    let counts = zero || matches!(shape, Shape::Command | Shape::Duration);
    (counts || !is_zero(&json)).then_some(json)
}

fn is_zero(json: &Json) -> bool {
    match json {
        Json::Null => true,
        Json::Bool(value) => !value,
        Json::Number(value) => value.as_f64() == Some(0.0),
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(map) => map.is_empty(),
    }
}

/// A mapping with known keys. Extensions are printed at the top level, ours everywhere.
fn table(table: &'static Table, node: &Node, top: bool) -> Json {
    let mut out = JsonMap::new();
    for (name, entry) in node.as_map().into_iter().flatten() {
        let json = match table.key(name) {
            Some(key) => value(name, key.shape, &entry.node),
            None => top.then(|| plain(&entry.node)),
        };
        if let Some(json) = json {
            out.insert(renamed(table, name), json);
        }
    }
    // These two are true unless somebody says otherwise.
    for (what, key) in [("bind", "create_host_path"), ("env file", "required")] {
        if table.what == what {
            out.remove(key);
            if node.get(key).and_then(Node::as_bool) == Some(false) {
                out.insert(key.to_owned(), Json::Bool(false));
            }
        }
    }
    if table.what == "dependency" {
        let required = node.get("required").and_then(Node::as_bool).unwrap_or(true);
        out.insert("required".to_owned(), Json::Bool(required));
    }
    Json::Object(out)
}

/// The reference prints some keys with a capital.
fn renamed(table: &Table, name: &str) -> String {
    match (table.what, name) {
        ("blkio limit" | "blkio weight", name) => {
            let mut chars = name.chars();
            chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
        }
        (_, name) => name.to_owned(),
    }
}

/// Parts that are always printed.
fn with_parts(key: &str, mut json: Json) -> Json {
    let parts: &[(&str, Json)] = match key {
        "deploy" => &[("placement", json!({})), ("resources", json!({}))],
        "watch" => &[("exec", json!({"command": null}))],
        _ => &[],
    };
    if let Some(map) = json.as_object_mut() {
        for (part, empty) in parts {
            map.entry(*part).or_insert_with(|| empty.clone());
        }
    }
    json
}

/// Hosts as a sorted list.
fn hosts(node: &Node) -> Option<Json> {
    let mut lines = Vec::new();
    for (host, entry) in node.as_map()? {
        let addresses = entry.node.as_seq().unwrap_or_default();
        lines.extend(addresses.iter().filter_map(|ip| Some(format!("{host}={}", ip.as_text()?))));
    }
    lines.sort();
    Some(json!(lines)).filter(|json| !is_zero(json))
}

/// A value as it is.
fn plain(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        // Whole numbers are printed without a point.
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => json!(*value as i64),
        Value::Float(value) => json!(value),
        Value::Odd(text) | Value::Text(text) => json!(text),
        Value::Seq(items) => Json::Array(items.iter().map(plain).collect()),
        Value::Map(map) => Json::Object(map.iter().map(|(name, entry)| (name.clone(), plain(&entry.node))).collect()),
    }
}
