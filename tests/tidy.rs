//! The style of the house, held by a test: import directions, lengths, module docs, leftovers, and a README whose promises
//! name tests that exist. Every message says what to do instead.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which rooms a room may use. Of `drive`, the loop may use only what is in `drive/mod.rs`: the trait and its words.
const DIRECTIONS: [(&str, &[&str]); 8] = [
    ("model", &[]),
    ("desired", &["model"]),
    ("plan", &["model"]),
    ("drive", &["model"]),
    ("side", &["model"]),
    ("reconcile", &["model", "plan", "drive", "desired"]),
    ("api", &["model", "desired", "reconcile"]),
    ("cli", &["model", "desired", "plan", "drive", "side", "reconcile", "api"]),
];
/// What nothing leads to with `mod`: the library, the program, and the helper that `build.rs` compiles.
const ROOTS: [&str; 3] = ["src/lib.rs", "src/main.rs", "src/side/helper.rs"];
const LONGEST_FUNCTION: usize = 70;
const LONGEST_FILE: usize = 500;
/// `main.rs` parses flags and hands over.
const LONGEST_MAIN: usize = 80;

/// What may not be in code, with what to write instead, and whether tests may have it.
const LEFTOVERS: [(&str, &str, bool); 5] = [
    ("todo!", "build it, or refuse with an error that says so", false),
    ("unimplemented!", "build it, or refuse with an error that says so", false),
    ("dbg!", "use a tracing event with fields", false),
    (".unwrap()", "return the error, or `expect(\"why this cannot fail\")`", true),
    ("thread::sleep(", "wait for a predicate with a deadline", true),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a directory, with its path from the root.
fn rust_files(below: &str) -> Vec<(String, String)> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                walk(&entry.path(), found);
            } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
                found.push(entry.path());
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root().join(below), &mut paths);
    paths.sort();
    let name = |path: &Path| path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).expect("a Rust file is UTF-8"))).collect()
}

/// The code with comments, strings and character literals blanked out, line breaks kept.
fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end == at {
            code.push(if bytes[at].is_ascii() { bytes[at] as char } else { '_' });
            at += 1;
        } else {
            code.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Where the comment or literal that begins here ends; `at` itself when none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |needle: &[u8], from: usize| {
        let found = rest[from..].windows(needle.len()).position(|window| window == needle);
        found.map_or(bytes.len(), |found| at + from + found + needle.len())
    };
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length),
        [b'/', b'*', ..] => find(b"*/", 2),
        [b'r', b'#' | b'"', ..] if at == 0 || !is_word(bytes[at - 1]) => {
            let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return at; // a raw identifier
            }
            find(&[b"\"".as_slice(), &b"#".repeat(hashes)].concat(), 2 + hashes)
        }
        [b'"', ..] => {
            let mut length = 1;
            while length < rest.len() && rest[length] != b'"' {
                length += if rest[length] == b'\\' { 2 } else { 1 };
            }
            (at + length + 1).min(bytes.len())
        }
        [b'\'', b'\\', ..] => find(b"'", 3),
        [b'\'', _, b'\'', ..] => at + 3,
        _ => at,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The code before its unit tests.
fn without_tests(code: &str) -> &str {
    code.split("#[cfg(test)]").next().unwrap_or(code)
}

/// The rooms that code uses, with what it uses of them and the line.
fn uses(code: &str) -> Vec<(String, String, usize)> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        for part in line.split("crate::").skip(1) {
            let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
            let room = word(part);
            let item = part.strip_prefix(&format!("{room}::")).map(word).unwrap_or_default();
            found.push((room, item, number + 1));
        }
    }
    found
}

fn wrong_directions(path: &str, text: &str) -> Vec<String> {
    let room = path.trim_start_matches("src/").split('/').next().unwrap_or_default();
    let Some((_, allowed)) = DIRECTIONS.iter().find(|(name, _)| *name == room) else {
        let known = ["lib.rs", "main.rs"].contains(&room);
        return if known { vec![] } else { vec![format!("{path}: a new room; give it a line in DIRECTIONS")] };
    };
    let mut wrong = Vec::new();
    for (used, item, line) in uses(&code_only(text)) {
        let known = DIRECTIONS.iter().any(|(name, _)| *name == used);
        if known && used != room && !allowed.contains(&used.as_str()) {
            wrong.push(format!("{path}:{line}: `{room}` may not use `{used}`; put the shared noun into `model`"));
        }
        if room == "reconcile" && used == "drive" && ["containerd", "net", "files", "image"].contains(&item.as_str()) {
            wrong.push(format!("{path}:{line}: the loop knows no driver; use the `Drive` trait"));
        }
    }
    wrong
}

fn wrong_lengths(path: &str, text: &str) -> Vec<String> {
    let longest = if path == "src/main.rs" { LONGEST_MAIN } else { LONGEST_FILE };
    let mut wrong = Vec::new();
    let lines = text.lines().count();
    if lines > longest {
        wrong.push(format!(
            "{path}: {lines} lines, {longest} at most; split it by idea, or move its tests to a sibling"
        ));
    }
    let code = code_only(text);
    for (name, line, length) in functions(&code) {
        if length > LONGEST_FUNCTION {
            let advice = "pull a named step out of it";
            wrong.push(format!("{path}:{line}: `{name}` has {length} lines, {LONGEST_FUNCTION} at most; {advice}"));
        }
    }
    wrong
}

/// Every function with a body: its name, its line, how many lines it has.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && is_word(bytes[at - 1]) {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(open) = code[at..].find(['{', ';']).map(|offset| at + offset).filter(|&open| bytes[open] == b'{')
        else {
            continue; // a declaration without a body, or a function type
        };
        let mut depth = 0_usize;
        let close = bytes[open..].iter().position(|byte| {
            depth = match byte {
                b'{' => depth + 1,
                b'}' => depth - 1,
                _ => depth,
            };
            depth == 0
        });
        let end = close.map_or(bytes.len(), |offset| open + offset);
        let newlines = |range: &str| range.matches('\n').count();
        if !name.is_empty() {
            found.push((name, newlines(&code[..at]) + 1, newlines(&code[at..end]) + 1));
        }
    }
    found
}

fn leftovers(path: &str, text: &str) -> Vec<String> {
    // a command that waits for a document to change looks at it now and then
    let polls = path.starts_with("src/cli/");
    let code = code_only(text);
    let in_tests = path.starts_with("tests/") || path.starts_with("benches/") || path.ends_with("/tests.rs");
    let product = if in_tests { "" } else { without_tests(&code) };
    let mut wrong = Vec::new();
    for (what, instead, tests_may) in LEFTOVERS {
        if polls && what.starts_with("thread::sleep") {
            continue;
        }
        let searched = if tests_may { product } else { &code };
        for (number, _) in searched.lines().enumerate().filter(|(_, line)| line.contains(what)) {
            wrong.push(format!("{path}:{}: `{what}`; {instead}", number + 1));
        }
    }
    // Written in two halves, so that this file does not find itself.
    for marker in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("HA", "CK:")] {
        for (number, _) in text.lines().enumerate().filter(|(_, line)| line.contains(marker)) {
            wrong.push(format!(
                "{path}:{}: a left-over `{marker}`; do it, or say in words what holds today",
                number + 1
            ));
        }
    }
    wrong
}

fn missing_docs(path: &str, text: &str) -> Vec<String> {
    if !text.lines().find(|line| !line.is_empty()).is_some_and(|line| line.starts_with("//!")) {
        return vec![format!("{path}: no module docs; begin with `//! What this file is.`")];
    }
    let parts: Vec<&str> = path.split('/').collect();
    let room = matches!(parts[..], ["src", _, "mod.rs"]);
    let docs = text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
    if room && !(docs.starts_with("//! # ") && docs.contains("ests")) {
        return vec![format!(
            "{path}: a room opens with `//! # name: what it is`, its guarantees, and where its tests are"
        )];
    }
    vec![]
}

/// Files under `src` that no `mod` line leads to: they would not be compiled, so nobody would see them rot.
fn unreachable_files(files: &[(String, String)]) -> Vec<String> {
    let mut reachable: BTreeSet<String> = ROOTS.map(str::to_owned).into();
    for (path, text) in files {
        let directory = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix("/lib.rs"));
        let directory = directory.unwrap_or_else(|| path.trim_end_matches(".rs"));
        for line in code_only(text).lines() {
            let line = line.trim();
            let line =
                if line.starts_with("pub(") { line.split_once(") ").map_or(line, |(_, rest)| rest) } else { line };
            let line = line.trim_start_matches("pub ");
            if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                reachable.insert(format!("{directory}/{name}.rs"));
                reachable.insert(format!("{directory}/{name}/mod.rs"));
            }
        }
    }
    let unreachable = files.iter().filter(|(path, _)| !reachable.contains(path));
    unreachable.map(|(path, _)| format!("{path}: no `mod` line leads here; add one or remove the file")).collect()
}

/// Tests that a text names as `tests/file.rs::function` and that are not there.
fn named_tests_missing(text: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for part in text.split("`tests/").skip(1) {
        let Some((named, _)) = part.split_once('`') else { continue };
        let (file, function) = named.split_once("::").unwrap_or((named, ""));
        let content = fs::read_to_string(root().join("tests").join(file)).unwrap_or_default();
        let there =
            if function.is_empty() { !content.is_empty() } else { content.contains(&format!("fn {function}(")) };
        if !there {
            missing.push(format!(
                "README.md names `tests/{named}`, which does not exist; name the test that holds this promise"
            ));
        }
    }
    missing
}

#[track_caller]
fn none_of(findings: impl IntoIterator<Item = String>) {
    let findings: Vec<String> = findings.into_iter().collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn rooms_use_only_the_rooms_below_them() {
    none_of(rust_files("src").iter().flat_map(|(path, text)| wrong_directions(path, text)));
}

#[test]
fn functions_fit_on_a_screen_and_files_in_one_sitting() {
    let files = rust_files("src").into_iter().chain(rust_files("tests")).chain(rust_files("benches"));
    none_of(files.flat_map(|(path, text)| wrong_lengths(&path, &text)));
}

#[test]
fn every_file_says_what_it_is() {
    let files = rust_files("src").into_iter().chain(rust_files("tests")).chain(rust_files("benches"));
    none_of(files.flat_map(|(path, text)| missing_docs(&path, &text)));
}

#[test]
fn nothing_is_left_over() {
    let files = rust_files("src").into_iter().chain(rust_files("tests")).chain(rust_files("benches"));
    none_of(files.flat_map(|(path, text)| leftovers(&path, &text)));
}

#[test]
fn every_file_is_compiled() {
    none_of(unreachable_files(&rust_files("src")));
}

#[test]
fn the_readme_names_tests_that_exist() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README");
    assert!(readme.contains("`tests/"), "the README's promises name their tests");
    none_of(named_tests_missing(&readme));
}

#[test]
fn the_checks_find_what_they_are_for() {
    assert_eq!(wrong_directions("src/plan/x.rs", "use crate::drive::Drive;").len(), 1);
    assert_eq!(wrong_directions("src/plan/x.rs", "// crate::drive\nuse crate::model::Key; \"crate::cli\";").len(), 0);
    assert_eq!(wrong_directions("src/reconcile/x.rs", "use crate::drive::{Drive, Wake};").len(), 0);
    assert_eq!(wrong_directions("src/reconcile/x.rs", "use crate::drive::net::Links;").len(), 1);
    assert_eq!(wrong_directions("src/novel/x.rs", "").len(), 1);
    let long = format!("fn f<'a>() -> char {{\n{}'}}'\n}}\nfn g() {{ r#\"}}{{\"#; }}", "x();\n".repeat(69));
    assert_eq!(functions(&code_only(&long)), [("f".to_owned(), 1, 72), ("g".to_owned(), 73, 1)]);
    assert_eq!(wrong_lengths("src/x.rs", &long).len(), 1);
    assert_eq!(wrong_lengths("src/x.rs", &"\n".repeat(501)).len(), 1);
    assert_eq!(leftovers("src/x.rs", "fn f() { x.unwrap(); dbg!(1) } // .unwrap()\n#[cfg(test)]\ny.unwrap()").len(), 2);
    assert_eq!(leftovers("src/x.rs", concat!("// FIX", "ME later")).len(), 1);
    assert_eq!(missing_docs("src/x.rs", "fn f() {}").len(), 1);
    assert_eq!(missing_docs("src/plan/mod.rs", "//! Something.").len(), 1);
    let files = [("src/lib.rs", "pub mod a;"), ("src/a/mod.rs", "mod b;"), ("src/a/b.rs", ""), ("src/a/c.rs", "")];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(unreachable_files(&files).len(), 1);
    let readme = "`tests/tidy.rs::nothing_is_left_over`, `tests/tidy.rs::no_such_test`, `tests/no_such_file.rs`";
    assert_eq!(named_tests_missing(readme).len(), 2);
}
