//! Commands that change one thing: each is an edit of the app's override file, which a person can read, change and revert.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cli;

use cli::Desk;
use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

const SHOP: &str = "services:\n  web: {image: a}\n  db: {image: b, deploy: {replicas: 2}}\n";

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("desired/shop.yaml", SHOP);
    desk
}

fn over(desk: &Desk) -> String {
    let text = std::fs::read_to_string(desk.path("desired/shop.override.yaml")).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.starts_with("# Written by stead commands"), "{text}");
    rest.to_owned()
}

/// A key of the merged model.
fn merged(desk: &Desk, service: &str, key: &str) -> String {
    let model: serde_json::Value = serde_json::from_str(&desk.run(&["config", "desired/shop.yaml"]).good()).unwrap();
    model["services"][service][key].to_string()
}

#[test]
fn each_command_is_an_edit_that_can_be_read_and_reverted() {
    let desk = desk();
    let said = desk.run(&["scale", "shop/web=3", "shop/db=5"]).good();
    assert!(said.contains("recorded in") && said.contains("shop.override.yaml"), "{said}");
    assert_eq!(over(&desk), "services:\n  db:\n    deploy:\n      replicas: 5\n  web:\n    scale: 3\n");
    desk.run(&["stop", "shop/web"]).good();
    assert!(over(&desk).contains("    x-stead:\n      stopped: true\n    scale: 3\n"), "{}", over(&desk));
    desk.run(&["start", "shop"]).good();
    assert!(!over(&desk).contains("stopped"), "{}", over(&desk));
    desk.run(&["set", "image", "shop/web", "other:2"]).good();
    assert_eq!((merged(&desk, "web", "image"), merged(&desk, "web", "scale")), ("\"other:2\"".into(), "3".into()));
    desk.run(&["restart", "shop"]).good();
    let first = over(&desk);
    assert_eq!(first.matches("restarted: ").count(), 2, "{first}");
    desk.run(&["restart", "shop/db"]).good();
    assert!(over(&desk) != first, "two restarts are two");
    assert_eq!(
        std::fs::read_to_string(desk.path("desired/shop.yaml")).unwrap(),
        SHOP,
        "the person's file is not touched"
    );
}

#[test]
fn an_override_that_says_nothing_any_more_is_removed() {
    let desk = desk();
    desk.run(&["stop", "shop/web"]).good();
    desk.run(&["start", "shop/web"]).good();
    assert!(!desk.path("desired/shop.override.yaml").exists());
    // where the Compose file itself says stopped, starting has to say otherwise
    desk.write("desired/shop.yaml", SHOP.replace("image: a", "image: a, x-stead: {stopped: true}"));
    desk.run(&["start", "shop/web"]).good();
    assert!(over(&desk).contains("stopped: false"));
}

#[test]
fn a_person_s_override_keeps_its_comments_and_what_cannot_be_edited_is_said_with_its_line() {
    let desk = desk();
    let mine = "# mine\nservices:\n  web:\n    # less\n    mem_limit: 64m # for now\n";
    desk.write("desired/shop.override.yaml", mine);
    desk.run(&["scale", "shop/web=2"]).good();
    let now = std::fs::read_to_string(desk.path("desired/shop.override.yaml")).unwrap();
    assert_eq!(now, mine.replace("    mem_limit", "    scale: 2\n    mem_limit"));
    let braces = "services: {web: {mem_limit: 64m}}\n";
    desk.write("desired/shop.override.yaml", braces);
    let ran = desk.run(&["scale", "shop/web=3"]);
    assert!(ran.err.contains("shop.override.yaml: line 1: the mapping in braces"), "{ran:#?}");
    assert_eq!(
        (ran.code, std::fs::read_to_string(desk.path("desired/shop.override.yaml")).unwrap()),
        (Some(1), braces.into())
    );
}

#[test]
fn what_would_make_the_app_wrong_is_refused_and_nothing_is_written() {
    let desk = desk();
    for (line, why) in [
        (["set", "image", "shop/web", "UPPER/x"].as_slice(), "UPPER"),
        (&["scale", "shop/web=5000"], "5000"),
        (&["stop", "shop/wbe"], "no service wbe"),
        (&["stop", "other"], "no app other"),
    ] {
        let ran = desk.run(line);
        assert!(ran.code == Some(1) && ran.err.contains(why), "{line:?}: {ran:#?}");
        assert!(!desk.path("desired/shop.override.yaml").exists());
    }
}

#[test]
fn many_at_once_lose_nothing_and_one_that_cannot_wait_any_longer_is_told() {
    let desk = desk();
    let services: String = (0..12).map(|n| format!("  s{n}: {{image: a}}\n")).collect();
    desk.write("desired/shop.yaml", format!("services:\n{services}"));
    let targets: Vec<String> = (0..12).map(|n| format!("shop/s{n}=2")).collect();
    let running: Vec<_> = targets.iter().map(|target| desk.command(&["scale", target]).spawn().unwrap()).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let text = over(&desk);
    let there: BTreeSet<usize> = (0..12).filter(|n| text.contains(&format!("  s{n}:\n    scale: 2\n"))).collect();
    assert_eq!(there.len(), 12, "{text}");
    let dir = std::fs::File::open(desk.path("desired")).unwrap();
    rustix::fs::flock(dir.as_fd(), rustix::fs::FlockOperation::LockExclusive).unwrap();
    let ran = desk.run(&["scale", "shop/s1=3"]);
    assert!(ran.bad(1).contains("another command is changing files"));
    assert_eq!(over(&desk), text);
}
