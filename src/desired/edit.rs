//! One value set, or taken out, in a YAML text: line by line, so that comments and everything else stay as they are.
//!
//! It works on mappings in block style, as people and this program write them; whatever else is in the way is named with
//! its line, and nothing is changed.

use super::finding::Findings;
use super::node::{Map, Node, Value};
use super::yaml;

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct InTheWay {
    /// The line.
    pub line: u32,
    /// What is there.
    pub what: String,
}

fn in_the_way(line: u32, what: impl Into<String>) -> InTheWay {
    InTheWay { line, what: what.into() }
}

/// A value as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    Text(String),
    /// A number.
    Number(u32),
    /// True or false.
    Flag(bool),
}

impl Scalar {
    fn written(&self) -> String {
        match self {
            // JSON's quoted text is YAML's too; a dollar begins no substitution
            Self::Text(text) => serde_json::to_string(&text.replace('$', "$$")).unwrap_or_default(),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
        }
    }
}

/// Sets the value at a path of keys, making the mappings on the way.
pub fn set(text: &str, path: &[&str], value: &Scalar) -> Result<String, InTheWay> {
    let root = root(text)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(root) = root else {
        lines.extend(nested(path, 0, value));
        return Ok(joined(&lines));
    };
    let (mut map, mut indent) = (mapping(&root, &lines)?, 0);
    for (depth, key) in path.iter().enumerate() {
        let Some(entry) = map.get(key) else {
            // before the first key, whose column is the mapping's
            let (line, _) = first(map).ok_or_else(|| in_the_way(1, "an empty mapping in braces"))?;
            lines.splice(line - 1..line - 1, nested(&path[depth..], indent, value));
            return Ok(joined(&lines));
        };
        let (line, column) = (entry.at.line as usize, entry.at.column as usize);
        begins_line(&lines, line, column)?;
        if depth + 1 == path.len() {
            replace(&mut lines, &entry.node, (line, column), key, value)?;
            return Ok(joined(&lines));
        }
        if entry.node.value == Value::Null {
            lines.splice(line..line, nested(&path[depth + 1..], column - 1 + 2, value));
            return Ok(joined(&lines));
        }
        map = mapping(&entry.node, &lines)?;
        indent = first(map).map_or(column + 1, |(_, column)| column - 1);
    }
    Ok(joined(&lines))
}

/// Takes out the value at a path of keys, and the mappings that are empty then. The same text where there is none.
pub fn unset(text: &str, path: &[&str]) -> Result<String, InTheWay> {
    let Some(root) = root(text)? else { return Ok(text.to_owned()) };
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (mut map, mut alone) = (mapping(&root, &lines)?, None);
    for (depth, key) in path.iter().enumerate() {
        let Some(entry) = map.get(key) else { return Ok(text.to_owned()) };
        let (line, column) = (entry.at.line as usize, entry.at.column as usize);
        begins_line(&lines, line, column)?;
        // the outermost key that has nothing else in it goes with the value
        alone = if map.len() == 1 { alone.or(Some(line)) } else { Some(line) };
        if depth + 1 == path.len() {
            if entry.node.at.line as usize != line || matches!(entry.node.value, Value::Map(_) | Value::Seq(_)) {
                return Err(in_the_way(entry.at.line, format!("`{key}` is more than one line")));
            }
            let from = alone.unwrap_or(line);
            return Ok(joined(&[&lines[..from - 1], &lines[line..]].concat()));
        }
        map = mapping(&entry.node, &lines)?;
    }
    Ok(text.to_owned())
}

/// Whether two texts say the same but for the value at a path: what an alias shares could have changed with it.
pub fn same_beside(before: &str, after: &str, path: &[&str]) -> bool {
    let plain = |text: &str| root(text).map(|root| root.map(|node| without(&node, path)));
    let empty = |tree: &Option<Plain>| matches!(tree, None | Some(Plain::Nothing));
    match (plain(before), plain(after)) {
        (Ok(before), Ok(after)) => before == after || empty(&before) && empty(&after),
        _ => false,
    }
}

/// A tree without places.
#[derive(Debug, PartialEq)]
enum Plain {
    Nothing,
    Scalar(Option<String>, bool),
    Seq(Vec<Plain>),
    Map(Vec<(String, Plain)>),
}

/// A tree without places, and without the value at a path and what held only that.
fn without(node: &Node, path: &[&str]) -> Plain {
    match &node.value {
        Value::Null => Plain::Nothing,
        Value::Map(map) => {
            let below = |key: &str| path.split_first().filter(|(first, _)| **first == key).map(|(_, rest)| rest);
            let kept = map.iter().filter_map(|(key, entry)| match below(key) {
                Some([]) => None,
                Some(rest) => Some((key.clone(), without(&entry.node, rest))).filter(|(_, one)| *one != Plain::Nothing),
                None => Some((key.clone(), without(&entry.node, &[]))),
            });
            let kept: Vec<_> = kept.collect();
            if kept.is_empty() && !path.is_empty() { Plain::Nothing } else { Plain::Map(kept) }
        }
        Value::Seq(items) => Plain::Seq(items.iter().map(|item| without(item, &[])).collect()),
        _ => Plain::Scalar(node.scalar_text(), node.as_text().is_some()),
    }
}

/// Whether nothing is left but comments.
pub fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// The one document of a text; nothing when there is none.
fn root(text: &str) -> Result<Option<Node>, InTheWay> {
    let mut findings = Findings::default();
    let mut documents = yaml::parse(text, 0, &mut findings).documents;
    documents.retain(|node| node.value != Value::Null);
    if findings.any_error() {
        return Err(in_the_way(1, "the file has faults; stead validate tells them"));
    }
    match documents.len() {
        0 => Ok(None),
        1 => Ok(documents.pop()),
        _ => Err(in_the_way(documents[1].at.line, "a second document begins")),
    }
}

fn mapping<'n>(node: &'n Node, lines: &[String]) -> Result<&'n Map, InTheWay> {
    let map = node.as_map().ok_or_else(|| in_the_way(node.at.line, format!("here is {}", node.kind())))?;
    let braces = lines.get(node.at.line as usize - 1).and_then(|line| line.chars().nth(node.at.column as usize - 1));
    if braces == Some('{') {
        return Err(in_the_way(node.at.line, "the mapping in braces would have to be written out"));
    }
    Ok(map)
}

/// Line and column of the first key.
fn first(map: &Map) -> Option<(usize, usize)> {
    map.values().map(|entry| (entry.at.line as usize, entry.at.column as usize)).min()
}

/// A key that came by an alias, or that stands behind something else, cannot be edited where it is seen.
fn begins_line(lines: &[String], line: usize, column: usize) -> Result<(), InTheWay> {
    let before = lines.get(line - 1).map(|line| line.chars().take(column - 1).all(|c| c == ' '));
    if before == Some(true) {
        return Ok(());
    }
    Err(in_the_way(u32::try_from(line).unwrap_or(u32::MAX), "the key does not stand on a line of its own"))
}

fn replace(
    lines: &mut [String],
    node: &Node,
    (line, column): (usize, usize),
    key: &str,
    value: &Scalar,
) -> Result<(), InTheWay> {
    let simple = !matches!(node.value, Value::Map(_) | Value::Seq(_));
    let same_line = node.at.line as usize == line || node.value == Value::Null;
    let text = &lines[line - 1];
    let rest: String = text.chars().skip(column - 1).collect();
    let told = rest.split_once(':').map(|(_, told)| told.trim_start()).unwrap_or_default();
    if !simple || !same_line || told.starts_with(['|', '>', '&', '*', '!']) {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        return Err(in_the_way(line, format!("`{key}` is more than one word here")));
    }
    // a comment behind the value stays; in a quoted one a mark may be text
    let quoted = told.starts_with(['"', '\'']);
    let comment = told.rfind(" #").filter(|_| !quoted).map(|at| told[at..].to_owned()).unwrap_or_default();
    lines[line - 1] = format!("{}{key}: {}{comment}", " ".repeat(column - 1), value.written());
    Ok(())
}

/// The lines of keys in each other, the innermost with its value.
fn nested(path: &[&str], indent: usize, value: &Scalar) -> Vec<String> {
    let line = |(depth, key): (usize, &&str)| {
        let value = if depth + 1 == path.len() { format!(" {}", value.written()) } else { String::new() };
        format!("{}{key}:{value}", " ".repeat(indent + 2 * depth))
    };
    path.iter().enumerate().map(line).collect()
}

fn joined(lines: &[impl AsRef<str>]) -> String {
    lines.iter().map(|line| format!("{}\n", line.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: [&str; 4] = ["services", "web", "x-stead", "stopped"];

    #[test]
    fn values_are_set_and_taken_out_and_everything_else_stays() {
        let text = "# ours\nservices:\n  # the front\n  web:\n    image: a # pinned\n    x-stead:\n      restarted: \"1\"\n  db: {image: b}\n";
        let with = set(text, &PATH, &Scalar::Flag(true)).unwrap();
        assert_eq!(with, text.replace("      restarted", "      stopped: true\n      restarted"));
        assert_eq!(set(&with, &PATH, &Scalar::Flag(true)).unwrap(), with);
        assert_eq!(unset(&with, &PATH).unwrap(), text);
        let image = ["services", "web", "image"];
        let other = set(text, &image, &Scalar::Text("b:$1".to_owned())).unwrap();
        assert_eq!(other, text.replace("image: a #", "image: \"b:$$1\" #"));
        assert_eq!(unset(text, &["services", "web", "scale"]).unwrap(), text);
    }

    #[test]
    fn from_nothing_and_back() {
        let made = set("# kept\n", &PATH, &Scalar::Flag(true)).unwrap();
        assert_eq!(made, "# kept\nservices:\n  web:\n    x-stead:\n      stopped: true\n");
        let more = set(&made, &["services", "web", "scale"], &Scalar::Number(3)).unwrap();
        assert_eq!(more, made.replace("    x-stead", "    scale: 3\n    x-stead"));
        let back = unset(&unset(&more, &PATH).unwrap(), &["services", "web", "scale"]).unwrap();
        assert!(is_empty(&back) && back == "# kept\n");
        let bare = "services:\n  web:\n";
        assert_eq!(set(bare, &PATH, &Scalar::Flag(true)).unwrap(), made.replace("# kept\n", ""));
    }

    #[test]
    fn what_cannot_be_edited_by_lines_is_said_with_its_line() {
        for (text, line) in [
            ("services: {web: {image: a}}\n", 1),
            ("services:\n  web: {image: a}\n", 2),
            ("services:\n  web: text\n", 2),
            ("services:\n  web: {\n", 1),
            ("services:\n  web:\n    x-stead:\n      stopped: >\n        yes\n", 4),
            ("a: 1\n---\nb: 2\n", 3),
        ] {
            assert_eq!(set(text, &PATH, &Scalar::Flag(true)).unwrap_err().line, line, "{text}");
        }
        // a service that is another's alias has no lines of its own
        let alias = "x: &web\n  image: a\nservices:\n  web: *web\n";
        let scale = ["services", "web", "scale"];
        let edited = set(alias, &scale, &Scalar::Number(2));
        assert!(edited.is_err() || !same_beside(alias, &edited.unwrap(), &scale));
        let plain = alias.replace("*web", "\n    image: b");
        assert!(same_beside(&plain, &set(&plain, &scale, &Scalar::Number(2)).unwrap(), &scale));
    }
}
