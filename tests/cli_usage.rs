//! Flags, help and exit codes of the built binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cli;

use cli::Desk;

const COMMANDS: [&str; 19] = [
    "agent",
    "plan",
    "apply",
    "rm",
    "restart",
    "stop",
    "start",
    "scale",
    "set",
    "status",
    "wait",
    "explain",
    "logs",
    "validate",
    "config",
    "image",
    "doctor",
    "completions",
    "man",
];

#[test]
fn a_usage_error_exits_64_says_why_and_prints_nothing() {
    let desk = Desk::new();
    let lines: [&[&str]; 20] = [
        &[],
        &["frobnicate"],
        &["status", "--frobnicate"],
        &["status", "-o", "yaml"],
        &["wait"],
        &["wait", "Not An App"],
        &["wait", "shop", "--timeout", "5"],
        &["wait", "shop", "--for", "ever"],
        &["apply"],
        &["restart", "shop/web/1"],
        &["scale", "shop=2"],
        &["scale", "shop/web=many"],
        &["set", "image", "shop", "a"],
        &["apply", "x.yaml", "--app", "../etc"],
        &["apply", "x.yaml", "--timeout", "5s"],
        &["agent", "--timeout", "5s"],
        &["agent", "--once", "--log-level", "=="],
        &["image", "from-files", "name"],
        &["logs", "../../etc/passwd"],
        &["--name", "Not A Name", "status"],
    ];
    for line in lines {
        let ran = desk.run(line);
        assert!(ran.out.is_empty(), "{line:?}: {ran:#?}");
        assert!(!ran.bad(64).is_empty(), "{line:?}");
    }
}

#[test]
fn help_is_no_error_and_says_what_each_command_is_for() {
    let desk = Desk::new();
    let all = desk.run(&["--help"]).good();
    for command in COMMANDS {
        assert!(all.contains(&format!("  {command} ")), "{command} is not in the list:\n{all}");
        let help = desk.run(&[command, "--help"]).good();
        assert!(help.contains("Usage: stead"), "{command}:\n{help}");
        assert!(!help.contains("after-step"), "{command} shows a seam of the tests:\n{help}");
        // every argument has words behind it, or below
        let lines: Vec<&str> = help.lines().collect();
        for (line, next) in lines.iter().zip(&lines[1..]).filter(|(line, _)| line.trim_start().starts_with('<')) {
            let words = line.split_whitespace().count() > 1 || next.starts_with("          ");
            assert!(words, "{command}: {line}");
        }
    }
    assert!(desk.run(&["--version"]).good().starts_with("stead "));
}

#[test]
fn every_command_has_a_manual_page_and_every_shell_a_script() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("man")).unwrap();
    assert_eq!(desk.run(&["man", "--dir", "man"]).good(), "");
    for command in COMMANDS {
        let page = std::fs::read_to_string(desk.path(&format!("man/stead-{command}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{command}: {page}");
        assert!(desk.run(&["man", command]).good().contains(".SH NAME"), "{command}");
    }
    assert!(desk.run(&["man"]).good().contains("stead\\-plan"));
    assert!(desk.run(&["man", "frobnicate"]).bad(64).contains("no subcommand `frobnicate`"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(desk.run(&["completions", shell]).good().contains("stead"), "{shell}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let desk = Desk::new();
    for line in [&["man"][..], &["completions", "bash"], &["--help"]] {
        let mut child = desk.spawn(line);
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{line:?}: {} {said}", output.status);
    }
}

#[test]
fn without_containerd_plan_and_image_fail_with_a_sentence_and_a_way_out() {
    let desk = Desk::new();
    for line in [&["plan"][..], &["plan", "--detailed-exitcode"], &["image", "ls"]] {
        let said = desk.run(line).bad(1);
        assert!(said.starts_with("error: containerd cannot be looked at"), "{line:?}: {said}");
        assert!(said.contains("No such file or directory") && said.contains("help: stead doctor"), "{line:?}: {said}");
        assert!(!said.contains("Status {") && !said.contains("ConnectError"), "no debug text: {said}");
    }
}

#[test]
fn doctor_names_what_is_missing_with_a_fix_for_each() {
    let desk = Desk::new();
    let ran = desk.run(&["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""), "{ran:#?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    let missing = lines.iter().position(|line| line.starts_with("missing  containerd does not answer")).unwrap();
    assert!(lines[missing + 1].contains("fix: start containerd"), "{}", ran.out);
    for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
        let good = line.starts_with("ok ") || line.starts_with("         fix: ");
        assert!(good || next.starts_with("         fix: "), "no fix after: {line}\n{}", ran.out);
    }
}
