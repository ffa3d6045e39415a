//! What a Compose file says of order, health and restarts: how it is lowered, and what is refused, each at its place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use stead::desired::{Checked, Directory, Options, check, request_for};
use stead::model::{AppName, Condition, InstanceSpec, RestartCondition, ServiceName, Severity};

fn look(text: &str) -> Checked {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    fs::write(&file, text).unwrap();
    check(&request_for(&file))
}

fn spec(text: &str) -> InstanceSpec {
    let checked = look(text);
    let content = checked.content.unwrap_or_else(|| panic!("{:#?}", checked.findings));
    content.services[&ServiceName::new("web").unwrap()].spec.clone()
}

/// Line, column and sentence of each error.
#[track_caller]
fn errors(text: &str, want: &[(u32, u32, &str)]) {
    let checked = look(text);
    let found: Vec<_> = checked.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (finding, (line, column, sentence)) in found.iter().zip(want) {
        assert_eq!((finding.place.line, finding.place.column), (*line, *column), "{finding:#?}");
        assert!(finding.message.contains(sentence) && !finding.message.is_empty(), "{finding:#?}");
    }
}

#[test]
fn needs_are_taken_from_both_places_in_one_order() {
    let text = "
services:
  web:
    image: a
    depends_on:
      db: {condition: service_started, restart: true}
      job: {condition: service_completed_successfully, required: false}
      ghost: {condition: service_started, required: false}
    x-stead: {needs: [store/db: healthy, store/cache]}
  db: {image: a}
  job: {image: a}
  ghost: {image: a, profiles: [never]}
";
    let needs = spec(text).needs;
    let told: Vec<_> =
        needs.iter().map(|need| (need.to_string(), need.condition, need.optional, need.restart)).collect();
    let want = [
        ("app/db", Condition::Started, false, true),
        ("app/job", Condition::Completed, true, false),
        ("store/cache", Condition::Started, false, false),
        ("store/db", Condition::Healthy, false, false),
    ];
    assert_eq!(told, want.map(|(name, condition, optional, restart)| (name.to_owned(), condition, optional, restart)));
    let short = spec("services: {web: {image: a, depends_on: [db]}, db: {image: a}}");
    assert_eq!(short.needs[0].to_string(), "app/db");
}

#[test]
fn conditions_that_can_never_hold_are_refused_at_their_place() {
    errors(
        "services:\n  web:\n    image: a\n    depends_on:\n      db: {condition: service_completed_successfully}\n  \
         db: {image: a, restart: always}\n",
        &[(5, 7, "always restarted, so it never completes")],
    );
    errors(
        "services:\n  web: {image: a, depends_on: {db: {condition: service_healthy}}}\n  db: {image: a}\n",
        &[(2, 32, "has no health check")],
    );
    errors(
        "services:\n  web:\n    image: a\n    x-stead:\n      needs:\n        - store: started\n        - \
         store/db: heathy\n        - app/web\n        - 7\n",
        &[
            (6, 11, "is not a service of an app"),
            (7, 21, "is not a condition"),
            (8, 11, "needs itself"),
            (9, 11, "a need is a name"),
        ],
    );
}

#[test]
fn a_circle_is_told_with_the_whole_way_when_the_file_is_read() {
    let text = "services:\n  a: {image: a, depends_on: [b]}\n  b: {image: a, depends_on: [c]}\n  c: {image: a, depends_on: [a]}\n";
    errors(text, &[(2, 30, "a -> b -> c -> a")]);
    errors("services:\n  a: {image: a, depends_on: [a]}\n", &[(2, 30, "a -> a")]);
}

#[test]
fn a_circle_across_apps_refuses_the_newcomer_and_names_every_file() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("desired");
    fs::create_dir(&dir).unwrap();
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    let read = || {
        let options = Options { dir: dir.clone(), state: root.path().join("state"), ..Options::default() };
        Directory::open(options).read()
    };
    write("zoo.yaml", "services:\n  a: {image: a, x-stead: {needs: [bar/b]}}\n");
    write("mid.yaml", "services:\n  c: {image: a, x-stead: {needs: [zoo/a]}}\n");
    read();
    write("bar.yaml", "services:\n  b: {image: a, depends_on: [d]}\n  d: {image: a, x-stead: {needs: [mid/c]}}\n");
    for _ in 0..2 {
        let picture = read();
        let app = |name: &str| &picture.apps[&AppName::new(name).unwrap()];
        assert!(app("zoo").known && app("mid").known && !app("bar").known, "who runs goes on: {picture:#?}");
        let finding = &app("bar").findings[0];
        assert!(finding.message.contains("bar/b -> bar/d -> mid/c -> zoo/a -> bar/b"), "{finding:#?}");
        assert_eq!((finding.place.line, finding.place.column), (2, 30));
        let noted: Vec<String> = finding.notes.iter().map(|note| note.place.file.display().to_string()).collect();
        assert_eq!(noted.len(), 3);
        assert!(
            noted.iter().any(|file| file.ends_with("mid.yaml")) && noted.iter().any(|file| file.ends_with("zoo.yaml"))
        );
    }
    // without the need it is taken
    write("bar.yaml", "services:\n  b: {image: a, depends_on: [d]}\n  d: {image: a}\n");
    assert!(read().apps[&AppName::new("bar").unwrap()].known);
}

#[test]
fn a_restart_policy_is_taken_as_it_is_written() {
    let policy =
        |inner: &str| spec(&format!("services: {{web: {{image: a, deploy: {{restart_policy: {{{inner}}}}}}}}}"));
    let whole = policy("condition: on-failure, delay: 5s, max_attempts: 3, window: 2m").restart_policy.unwrap();
    assert_eq!(whole.condition, RestartCondition::OnFailure);
    assert_eq!((whole.delay_ms, whole.max_attempts, whole.window_ms), (Some(5000), Some(3), Some(120_000)));
    let least = policy("").restart_policy.unwrap();
    assert_eq!((least.condition, least.delay_ms, least.max_attempts), (RestartCondition::Any, None, None));
    errors(
        "services:\n  web:\n    image: a\n    deploy:\n      restart_policy: {condition: sometimes}\n",
        &[(5, 35, "is not a condition of a restart policy")],
    );
}
