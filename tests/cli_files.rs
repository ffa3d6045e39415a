//! Commands that read or write Compose files, without an agent.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cli;

use cli::Desk;
use std::path::Path;

const GOOD: &str = "\
services:
  web:
    image: busybox
    command: [sleep, inf]
    ports: ['8080:80']
";

const BAD: &str = "\
services:
  web:
    image: busybox
    comand: [sleep, inf]
    ports: ['808O:80']
";

fn listing(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn validate_tells_every_fault_with_its_place_a_caret_and_a_way_out() {
    let desk = Desk::new();
    desk.write("shop.yaml", BAD);
    let ran = desk.run(&["validate", "shop.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), "error: 2 faults\n"), "{ran:#?}");
    insta::assert_snapshot!(ran.out);
}

#[test]
fn validate_takes_good_files_and_whole_directories() {
    let desk = Desk::new();
    desk.write("desired/shop.yaml", GOOD);
    assert_eq!(desk.run(&["validate", "desired/shop.yaml"]).good(), "");
    assert_eq!(desk.run(&["validate", "desired"]).good(), "");
    desk.write("desired/other.yaml", GOOD);
    let ran = desk.run(&["validate", "desired"]);
    assert!(ran.out.contains("8080") && ran.out.contains("other.yaml"), "two apps with one port: {ran:#?}");
    assert_eq!(ran.code, Some(1));
    assert_eq!(listing(&desk.path("root")), [""; 0], "a look leaves no trace");
    assert!(desk.run(&["validate", "missing.yaml"]).out.contains("missing.yaml"));
}

#[test]
fn config_prints_one_form_of_a_file_and_takes_values_from_an_env_file() {
    let desk = Desk::new();
    desk.write("shop.yaml", GOOD.replace("busybox", "${IMAGE:?needed}"));
    assert!(desk.run(&["config", "shop.yaml"]).bad(1).contains("IMAGE"));
    desk.write("values", "IMAGE=web\n");
    let model: serde_json::Value =
        serde_json::from_str(&desk.run(&["config", "shop.yaml", "--env-file", "values"]).good()).unwrap();
    assert_eq!(model["services"]["web"]["image"], "web");
    assert_eq!(model["name"], "shop");
    desk.write("values", "IMAGE=web\n!!\n");
    assert!(desk.run(&["config", "shop.yaml", "--env-file", "values"]).bad(1).contains("values:2: "));
}

#[test]
fn apply_records_a_file_and_rm_takes_it_away() {
    let desk = Desk::new();
    desk.write("shop.yaml", GOOD);
    let said = desk.run(&["apply", "shop.yaml"]).good();
    assert_eq!(said, "shop recorded in DESK/desired/shop.yaml; no agent runs, it takes effect when one starts\n");
    assert_eq!(std::fs::read_to_string(desk.path("desired/shop.yaml")).unwrap(), GOOD);
    assert!(desk.run(&["apply", "shop.yaml"]).good().starts_with("shop unchanged in"));
    assert!(desk.run(&["apply", "shop.yaml", "--wait"]).bad(1).contains("no agent runs"));
    assert_eq!(listing(&desk.path("desired")), ["shop.yaml"]);
    assert!(desk.run(&["rm", "shop"]).good().contains("its volumes stay"));
    assert_eq!(listing(&desk.path("desired")), [""; 0]);
    assert!(desk.run(&["rm", "shop"]).bad(1).contains("there is no app `shop`"));
}

#[test]
fn the_name_comes_from_the_flag_the_file_or_its_path() {
    let desk = Desk::new();
    desk.write("shop.yaml", GOOD);
    desk.write("named.yaml", format!("name: till\n{GOOD}"));
    desk.write("blog/compose.yaml", GOOD);
    desk.run(&["apply", "shop.yaml", "--app", "stall"]).good();
    desk.run(&["apply", "named.yaml"]).good();
    desk.run(&["apply", "blog/compose.yaml"]).good();
    desk.run_with(&["apply", "-", "--app", "piped"], GOOD).good();
    desk.run_with(&["apply", "-"], &format!("name: spoken\n{GOOD}")).good();
    assert_eq!(listing(&desk.path("desired")), ["blog.yaml", "piped.yaml", "spoken.yaml", "stall.yaml", "till.yaml"]);
    assert!(desk.run(&["apply", "named.yaml", "--app", "shop"]).bad(1).contains("names the app `till`, not `shop`"));
    let nameless = desk.run_with(&["apply", "-"], GOOD).bad(1);
    assert!(nameless.contains("no name") && nameless.contains("--app NAME"), "{nameless}");
}

#[test]
fn a_file_with_faults_is_told_with_its_places_and_replaces_nothing() {
    let desk = Desk::new();
    desk.write("shop.yaml", GOOD);
    desk.run(&["apply", "shop.yaml"]).good();
    desk.write("shop.yaml", BAD);
    let said = desk.run(&["apply", "shop.yaml"]).bad(1);
    assert!(said.contains("shop.yaml:4:5: error") && said.contains("nothing was recorded"), "{said}");
    assert_eq!(std::fs::read_to_string(desk.path("desired/shop.yaml")).unwrap(), GOOD);
    assert!(desk.run(&["apply", "missing.yaml"]).bad(1).contains("cannot read missing.yaml"));
    std::fs::remove_dir_all(desk.path("desired")).unwrap();
    desk.write("shop.yaml", GOOD);
    assert!(desk.run(&["apply", "shop.yaml"]).bad(1).contains("there is no directory DESK/desired"));
}

/// Relative paths and `.env` are read from where a file lies: recorded elsewhere it would run as something else.
#[test]
fn a_file_that_means_something_else_where_it_is_recorded_is_refused() {
    let desk = Desk::new();
    desk.write("project/shop.yaml", format!("{GOOD}    volumes: ['./html:/www']\n"));
    let said = desk.run(&["apply", "project/shop.yaml"]).bad(1);
    assert!(said.contains("means something else at DESK/desired/shop.yaml: web: volumes: "), "{said}");
    assert!(said.contains("DESK/project/html") && said.contains("DESK/desired/html"), "{said}");
    desk.write("project/.env", "TAG=2\n");
    desk.write("project/shop.yaml", GOOD.replace("busybox", "busybox:${TAG:-1}"));
    assert!(desk.run(&["apply", "project/shop.yaml"]).bad(1).contains("web: image: "));
    assert_eq!(listing(&desk.path("desired")), [""; 0]);
    // with whole paths, or from where it is recorded, it is the same everywhere
    desk.write("project/shop.yaml", format!("{GOOD}    volumes: ['/srv/html:/www']\n"));
    desk.run(&["apply", "project/shop.yaml"]).good();
    desk.write("desired/blog/compose.yaml", format!("{GOOD}    volumes: ['./html:/www']\n"));
    assert!(desk.run(&["apply", "desired/blog/compose.yaml"]).good().starts_with("blog unchanged"));
}
