//! The samples in `desired-state/` are the manual, and they work: all of them at once, by the README's first command.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::time::Duration;
use support::scene::{instance, running};
use support::{Node, Version, await_until};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// `make demo` with the binary at hand instead of a release build, in a node that has no containerd until it starts one.
#[test]
fn make_demo_brings_everything_up() {
    let node = Node::bare(Version::V1_6);
    let make = |goal: &str| {
        let demo = node.dir.join("demo");
        let (stead, demo) = (env!("CARGO_BIN_EXE_stead"), demo.display());
        node.sh(&format!("cd {ROOT} && make --silent {goal} BUILD=true STEAD={stead} DEMO={demo}"))
    };
    let shown = make("demo");
    for expected in
        ["web/web/1", "shop/front/1", "shop/store/1", "crew/worker/3", "hello from stead", "12 pears, 7 plums"]
    {
        assert!(shown.contains(expected), "`make demo` shows no {expected}:\n{shown}");
    }
    let page = await_until("the sample from another host", Duration::from_secs(10), || {
        node.client("busybox wget -q -O - http://192.0.2.1:8080/")
    });
    assert_eq!(page, "hello from stead\n");
    node.await_settled(Duration::from_secs(10), |status| running(status, 7));
    let again = make("demo");
    assert!(again.contains("hello from stead"), "a second run finds everything there:\n{again}");
    make("demo-down");
    let left = node.processes();
    assert!(left.iter().all(|process| process.command.starts_with("bash")), "left over: {left:#?}");
    let links = node.sh("ip -o link show type bridge; nft list tables; ls /run/netns");
    assert_eq!(links, "client\n", "`make demo-down` leaves nothing");
}

/// Editing a sample while it runs: more of the replicated service, and the others go on untouched.
#[test]
fn an_edited_sample_converges() {
    let node = Node::new(Version::V1_7);
    node.sh(&format!("{ROOT}/desired-state/images.sh {}", env!("CARGO_BIN_EXE_stead")));
    let crew = std::fs::read_to_string(format!("{ROOT}/desired-state/crew.yaml")).unwrap();
    node.edit("crew.yaml", &crew);
    let agent = node.agent(&[]);
    let before = node.await_settled(Duration::from_secs(30), |status| running(status, 4).map(|()| status.clone()));
    node.edit("crew.yaml", &crew.replace("replicas: 3", "replicas: 5"));
    let after = node.await_settled(Duration::from_secs(30), |status| running(status, 6).map(|()| status.clone()));
    for name in ["crew/worker/1", "crew/worker/2", "crew/worker/3", "crew/caller/1"] {
        assert_eq!(
            instance(&before, name).unwrap()["pid"],
            instance(&after, name).unwrap()["pid"],
            "{name} must go on"
        );
    }
    agent.stop();
}
