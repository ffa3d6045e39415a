//! Any bytes at all: no panic, bounded time, and the same answer twice. Texts are made of the pieces that Compose files
//! are made of, so that they get past the first line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use proptest::prelude::*;
use std::path::PathBuf;
use std::time::Duration;
use stead::desired::{Request, check, config, render};

/// No input of these sizes takes longer, in a debug build on a busy machine.
const LIMIT: Duration = Duration::from_secs(5);

/// Pieces of YAML and of Compose, right and wrong.
const PIECES: &[&str] = &[
    "services:\n",
    "  app:\n",
    "    image: web\n",
    "    image: ",
    "    ports: [",
    "\"80:80\"",
    "8000-8010:80/udp",
    "]",
    "[",
    "{",
    "}",
    ", ",
    ": ",
    ":",
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    "\n      ",
    "&a ",
    "*a",
    "<<: *a",
    "<<: ",
    "!reset ",
    "!override ",
    "!!str ",
    "!x ",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "# c\n",
    "\t",
    "---\n",
    "...\n",
    "?",
    "%YAML 1.2\n",
    "$",
    "${",
    "}",
    "${A}",
    "${A:-",
    "${A:?",
    ":+",
    "$$",
    "    volumes: [",
    "a:/b",
    "./c:/d:ro",
    "v:",
    "    environment:\n",
    "      A: ",
    "A=1",
    "0755",
    "1e400",
    "2024-01-31",
    "null",
    "true",
    "    depends_on: [app]\n",
    "    extends: app\n",
    "include: [x.yaml]\n",
    "    command: ",
    "a 'b",
    "c; d",
    "\\",
    "é",
    "日本",
    "\u{feff}",
    "\u{7f}",
    "\u{2028}",
    "    networks: {default: {ipv4_address: 10.0.0.1}}\n",
    "networks:\n",
    "  default:\n",
    "    ipam: {config: [{subnet: 10.0.0.0/24}]}\n",
    "volumes: {v: }\n",
    "    healthcheck: {test: [CMD], interval: 5s}\n",
    "    deploy: {resources: {limits: {memory: 1g}}}\n",
    "    mem_limit: ",
    "99999999999999999999",
    "-1",
    "x-a: ",
    "name: ",
    "    ",
    "  ",
    "    secrets: [s]\n",
    "secrets: {s: {file: s}}\n",
    "    ulimits: {nofile: 1}\n",
    "    extra_hosts: [\"a=b\"]\n",
    "    stop_grace_period: ",
    "5s",
    "1w2d",
    "    tmpfs: /a:b=c\n",
    "    x-stead: {archive: a}\n",
    "    env_file: a\n",
];

fn request(text: String) -> Request {
    let files = vec![PathBuf::from("/nonexistent/compose.yaml")];
    Request { files, text: Some(text), default_name: "app".to_owned(), ..Request::default() }
}

/// Reads a text in all the ways there are, within the time.
fn survive(text: &str) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let owned = text.to_owned();
    std::thread::spawn(move || {
        let request = request(owned);
        let (first, second) = (check(&request), check(&request));
        assert_eq!(first.findings, second.findings);
        assert_eq!(first.content, second.content);
        let (model, findings) = config(&request);
        for finding in first.findings.iter().chain(&findings) {
            assert!(!render(finding, false).is_empty());
            assert!(finding.place.line > 0 && finding.place.column > 0, "{finding:?}");
        }
        // What is refused when it is only printed is refused when it is run.
        assert!(model.is_some() || !first.is_good());
        sender.send(()).ok();
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(()) => {}
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no answer within {LIMIT:?}: {text:?}"),
        Err(_) => panic!("a panic on {text:?}"),
    }
}

proptest! {
    // PROPTEST_CASES says how many; shrinking has a limit, since a hang costs its whole time at each step.
    #![proptest_config(ProptestConfig { max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_of_pieces_is_answered(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        survive(&pieces.concat());
    }

    #[test]
    fn any_good_file_with_one_piece_put_in_is_answered(at in 0usize..2000, piece in prop::sample::select(PIECES), cut in 0usize..20) {
        let good = include_str!("../desired-state/shop/compose.yaml");
        let mut at = at.min(good.len());
        while !good.is_char_boundary(at) {
            at -= 1;
        }
        let mut end = (at + cut).min(good.len());
        while !good.is_char_boundary(end) {
            end += 1;
        }
        survive(&format!("{}{piece}{}", &good[..at], &good[end..]));
    }

    #[test]
    fn any_characters_are_answered(text in "\\PC{0,200}") {
        survive(&text);
    }

    #[test]
    fn any_value_is_answered(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
        let value: String = pieces.concat().replace('\n', " ");
        let quoted = serde_json::to_string(&value).unwrap();
        for key in stead::desired::table::SERVICE.keys {
            let file = format!("services:\n  app:\n    image: web\n    {}: {quoted}\n", key.name);
            let checked = check(&request(file));
            prop_assert!(checked.findings.iter().all(|finding| finding.place.line > 0));
        }
    }
}
