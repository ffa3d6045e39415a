//! The language of Compose files, beyond single keys: substitution, several files, `extends`, `include`, env files,
//! profiles; and what is told when they lead astray.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use serde_json::{Value, json};
use std::fs;
use stead::desired::{Request, config, render, request_for};
use stead::model::{Finding, Severity};

struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    /// Files by name; the first one is the app's.
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { dir }
    }

    fn request(&self) -> Request {
        request_for(&self.dir.path().join("compose.yaml"))
    }

    fn model(&self) -> Value {
        let (model, findings) = config(&self.request());
        model.unwrap_or_else(|| panic!("{findings:#?}"))
    }

    fn errors(&self) -> Vec<Finding> {
        let (model, findings) = config(&self.request());
        assert!(model.is_none(), "{model:#?}");
        findings.into_iter().filter(|finding| finding.severity == Severity::Error).collect()
    }

    fn error(&self) -> String {
        let errors = self.errors();
        let [error] = errors.as_slice() else { panic!("{errors:#?}") };
        render(error, false).replace(&self.dir.path().display().to_string(), "DIR")
    }
}

fn app(text: &str) -> Value {
    Project::new(&[("compose.yaml", text)]).model()["services"]["app"].clone()
}

#[test]
fn values_come_from_the_env_file_and_the_caller_and_never_from_this_process() {
    let text = "services: {app: {image: 'i:${TAG}', environment: {A: '${HOME:-none}', B: , C: '${TAG}'}}}";
    let project = Project::new(&[("compose.yaml", text), (".env", "TAG=env\nB=from-env\n")]);
    let app = project.model()["services"]["app"].clone();
    assert_eq!(app["image"], "i:env");
    assert_eq!(app["environment"], json!({"A": "none", "B": "from-env", "C": "env"}));
    let mut request = project.request();
    request.env.insert("TAG".to_owned(), "caller".to_owned());
    assert_eq!(config(&request).0.unwrap()["services"]["app"]["image"], "i:caller");
}

#[test]
fn an_override_beside_the_file_is_merged_by_the_rules_of_each_key() {
    let base = "services:\n  app:\n    image: a\n    command: one\n    ports: ['80:80', '81:81']\n    volumes: ['./a:/a', './b:/b']\n    environment: {A: 1, B: 1}\n    cap_add: [CHOWN]\n";
    let over = "services:\n  app:\n    command: two\n    ports: !override ['90:90']\n    volumes: ['./c:/a']\n    environment: [B=2]\n    cap_add: [KILL]\n";
    let project = Project::new(&[("compose.yaml", base), ("compose.override.yaml", over)]);
    let app = project.model()["services"]["app"].clone();
    assert_eq!(app["command"], json!(["two"]));
    assert_eq!(app["environment"], json!({"A": "1", "B": "2"}));
    assert_eq!(app["cap_add"], json!(["CHOWN", "KILL"]));
    assert_eq!(app["ports"].as_array().unwrap().len(), 1);
    let sources: Vec<&str> = app["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["source"].as_str().unwrap().rsplit('/').next().unwrap())
        .collect();
    assert_eq!(sources, ["c", "b"]);
}

#[test]
fn reset_takes_out_what_an_earlier_file_or_base_said() {
    let text = "services:\n  base: {image: a, command: run, ports: ['1:1']}\n  app:\n    extends: base\n    command: !reset\n    ports: !reset []\n";
    let app = app(text);
    assert_eq!((&app["command"], app.get("ports")), (&Value::Null, None));
}

#[test]
fn extends_follows_files_and_takes_paths_from_where_they_are_written() {
    let project = Project::new(&[
        ("compose.yaml", "services:\n  app: {extends: {file: lib/base.yaml, service: web}, volumes: ['./own:/own']}\n"),
        ("lib/base.yaml", "services:\n  web: {extends: root, volumes: ['./lib:/lib']}\n  root: {image: a}\n"),
    ]);
    let app = project.model()["services"]["app"].clone();
    assert_eq!(app["image"], "a");
    let sources: Vec<String> =
        app["volumes"].as_array().unwrap().iter().map(|v| v["source"].as_str().unwrap().to_owned()).collect();
    let dir = project.dir.path();
    assert_eq!(sources, [dir.join("lib/lib"), dir.join("own")].map(|path| path.display().to_string()));
}

#[test]
fn two_files_may_extend_each_other_but_not_in_a_circle() {
    let round = |last: &str| {
        Project::new(&[
            ("compose.yaml", "services:\n  app: {extends: {file: other.yaml, service: b}}\n  c: {image: c}\n"),
            ("other.yaml", &format!("services:\n  b: {{extends: {{file: compose.yaml, service: {last}}}}}\n")),
        ])
    };
    assert_eq!(round("c").model()["services"]["app"]["image"], "c");
    assert!(round("app").error().contains("`extends` leads round in a circle: app -> b -> app"));
    let own = "services:\n  app: {extends: {file: compose.yaml, service: c}}\n  c: {image: c}\n";
    assert_eq!(app(own)["image"], "c");
}

#[test]
fn a_fault_in_an_included_file_is_told_with_the_way_that_led_there() {
    let project = Project::new(&[
        ("compose.yaml", "include: [one.yaml]\nservices: {app: {image: a}}\n"),
        ("one.yaml", "include:\n  - two/two.yaml\n"),
        ("two/two.yaml", "services:\n  two:\n    image: b\n    prots: []\n"),
    ]);
    insta::assert_snapshot!(project.error(), @r"
    DIR/two/two.yaml:4:5: error: `prots` is not a service key
      |
    4 |     prots: []
      |     ^
      = help: did you mean `ports`?
      = note: DIR/one.yaml:2:5: included from here
      = note: DIR/compose.yaml:1:11: included from here
    ");
}

#[test]
fn what_is_included_sees_its_own_env_file_where_nothing_is_set() {
    let project = Project::new(&[
        ("compose.yaml", "include: [part/part.yaml]\nservices: {app: {image: '${A}'}}\n"),
        (".env", "A=main\n"),
        ("part/part.yaml", "services: {part: {image: '${A}-${B}', environment: [FROM=part]}}\n"),
        ("part/.env", "A=part\nB=part\n"),
    ]);
    assert_eq!(project.model()["services"]["part"]["image"], "main-part");
}

#[test]
fn includes_have_an_end() {
    let project = Project::new(&[
        ("compose.yaml", "include: [a.yaml]\nservices: {app: {image: a}}\n"),
        ("a.yaml", "include: [b.yaml]\n"),
        ("b.yaml", "include: [a.yaml]\n"),
    ]);
    assert!(project.error().contains("includes itself"));
    // Each file includes the next one twice: as many reads as there are leaves, were there no limit.
    let mut files: Vec<(String, String)> =
        (0..30).map(|n| (format!("f{n}.yaml"), format!("include: [f{0}.yaml, f{0}.yaml]\n", n + 1))).collect();
    files.push(("f30.yaml".to_owned(), "services: {x: {image: x}}\n".to_owned()));
    files.push(("compose.yaml".to_owned(), "include: [f0.yaml]\nservices: {app: {image: a}}\n".to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert!(Project::new(&files).errors().iter().any(|error| error.message.contains("more than 256 files")));
}

#[test]
fn env_files_stand_under_environment_and_a_missing_one_is_a_fault() {
    let text = "services:\n  app:\n    image: a\n    env_file: [a.env, {path: b.env, required: false}, {path: raw.env, format: raw}]\n    environment: {OWN: '1', B: '2'}\n";
    let project =
        Project::new(&[("compose.yaml", text), ("a.env", "A=\"x y\"\nB=1\nC=${A}!\n"), ("raw.env", "R='${A}' # x\n")]);
    let want = json!({"A": "x y", "B": "2", "C": "x y!", "OWN": "1", "R": "'${A}' # x"});
    assert_eq!(project.model()["services"]["app"]["environment"], want);
    fs::remove_file(project.dir.path().join("a.env")).unwrap();
    assert!(project.error().contains("DIR/compose.yaml:4:16: error: DIR/a.env: the file does not exist"));
}

#[test]
fn a_fault_in_an_env_file_is_told_in_both_places() {
    let text = "services:\n  app:\n    image: a\n    env_file: a.env\n";
    let project = Project::new(&[("compose.yaml", text), ("a.env", "A=1\nB C=2\n")]);
    insta::assert_snapshot!(project.error(), @r"
    DIR/compose.yaml:4:15: error: line 2 of DIR/a.env: `B C` is not a variable name (it holds a space)
      |
    4 |     env_file: a.env
      |               ^
      = note: DIR/a.env:2:1: `B C` is not a variable name (it holds a space)
    ");
}

#[test]
fn profiles_decide_who_runs_and_nobody_needs_one_that_does_not() {
    let text = "services:\n  app: {image: a, depends_on: [db]}\n  db: {image: b, profiles: [dev]}\n";
    let project = Project::new(&[("compose.yaml", text)]);
    assert!(project.error().contains("of which no profile is active"));
    let mut request = project.request();
    request.profiles = vec!["dev".to_owned()];
    assert!(config(&request).0.unwrap()["services"]["db"].is_object());
}

#[test]
fn a_fault_inside_a_block_text_is_placed_on_its_own_line() {
    let text =
        "services:\n  app:\n    image: a\n    environment:\n      A: |\n        one $$ two\n        three ${BAD\n";
    let place = Project::new(&[("compose.yaml", text)]).errors()[0].place.clone();
    assert_eq!((place.line, place.column), (7, 15));
}

#[test]
fn what_yaml_itself_refuses_is_said_in_words_for_people() {
    for (text, line, words) in [
        ("services:\n\tapp: {image: a}\n", 2, "a tab is used for indentation"),
        ("services:\n  app: {image: \"a}\n", 2, "the quotation mark opened here is never closed"),
        ("services:\n  app: {image: a\n  b: {image: b}\n", 2, "the bracket opened here is never closed"),
        ("services:\n  app:\n    image: a\n    command: say this: that\n", 4, "must be quoted"),
        ("services:\n  app:\n    image: a\n     user: b\n", 4, "not indented like the keys beside it"),
        ("services:\n  app: *nobody\n", 2, "the alias refers to no anchor"),
        ("services:\n  app: {image: a}\n  app: {image: b}\n", 3, "given twice"),
        ("services:\n  app:\n    image: a\n    environment: {1: b}\n", 4, "a key must be text"),
        ("services:\n  app: !what {image: a}\n", 2, "the tag `!what` has no meaning"),
    ] {
        let errors = Project::new(&[("compose.yaml", text)]).errors();
        let fits = errors.iter().any(|error| error.place.line == line && error.message.contains(words));
        assert!(fits, "{text}: {errors:#?}");
    }
}

#[test]
fn work_is_bounded_whatever_is_written() {
    let anchors = (0..20).map(|n| format!("x-{}: &a{} [*a{n}, *a{n}, *a{n}, *a{n}, *a{n}]\n", n + 1, n + 1));
    let bomb = format!("x-0: &a0 [x]\n{}services: {{app: {{image: a}}}}\n", anchors.collect::<String>());
    assert!(Project::new(&[("compose.yaml", &bomb)]).error().contains("aliases add more than"));
    let deep = format!("x-deep: {}{}\nservices: {{app: {{image: a}}}}\n", "[".repeat(90_000), "]".repeat(90_000));
    assert!(!Project::new(&[("compose.yaml", &deep)]).errors().is_empty());
    let doubled = (0..40).map(|n| format!("V{}=${{V{n}}}${{V{n}}}\n", n + 1)).collect::<String>();
    let env = format!("V0=xxxxxxxx\n{doubled}");
    let project = Project::new(&[("compose.yaml", "services: {app: {image: '${V40}'}}\n"), (".env", &env)]);
    assert!(project.errors().iter().any(|error| error.message.contains("longer than 1 MiB")));
    let base = format!(
        "services:\n  s0: {{image: a, labels: {{{}}}}}\n",
        (0..500).map(|n| format!("l{n}: x, ")).collect::<String>()
    );
    let chain = (1..4000).map(|n| format!("  s{n}: {{extends: s0}}\n")).collect::<String>();
    assert!(Project::new(&[("compose.yaml", &(base + &chain))]).errors()[0].message.contains("take over more than"));
}
