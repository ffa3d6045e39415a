//! The ladder from an empty node to a settled one and back, on the foreseen effects alone.

use super::*;
use crate::model::*;
use std::path::PathBuf;

fn service(image: &str) -> Service {
    let spec: InstanceSpec = serde_json::from_value(serde_json::json!({
        "image": {"reference": image, "archive": {"path": "/a.tar", "digest": "sha256:1"}},
        "restart": "always",
        "networks": [{"network": "default"}],
        "ports": [{"host": 8080, "container": 80, "protocol": "tcp"}],
    }))
    .unwrap();
    Service { place: Place { file: PathBuf::from("web.yaml"), line: 2, column: 3 }, replicas: 2, spec }
}

fn desired(service: Service) -> Desired {
    let app = App {
        file: PathBuf::from("web.yaml"),
        generation: 1,
        known: true,
        services: [(ServiceName::new("web").unwrap(), service)].into(),
        networks: [(NetworkName::new("default").unwrap(), NetworkSpec::default())].into(),
        volumes: BTreeSet::new(),
        findings: Vec::new(),
    };
    Desired {
        generation: 1,
        whole: true,
        apps: [(AppName::new("shop").unwrap(), app)].into(),
        findings: Vec::new(),
        pool: None,
    }
}

fn empty() -> Observed {
    Observed {
        runtime: Sight::Seen(RuntimeSeen { boot: "b".to_owned(), ..RuntimeSeen::default() }),
        net: Sight::Seen(NetSeen::default()),
        ports: Sight::Seen(None),
        files: Sight::Seen(FilesSeen::default()),
    }
}

fn marks() -> Marks {
    Marks::new(AgentName::new("stead").unwrap())
}

fn settle(desired: &Desired, observed: &mut Observed, now: u64) -> Vec<&'static str> {
    let mut names = Vec::new();
    let (marks, holds) = (marks(), Holds::new());
    for _ in 0..200 {
        let picture = Picture::new(desired, observed, &marks);
        let next = picture.keys().into_iter().find_map(|key| match decide(&picture, &key, &holds, Timestamp(now)) {
            Decision::Do(step, why) => {
                assert!(!why.text.is_empty());
                Some((key, step))
            }
            _ => None,
        });
        let Some((key, step)) = next else {
            return names;
        };
        names.push(step.name());
        foresee(observed, &marks, &key, &step, Timestamp(now));
    }
    panic!("not settled after 200 steps: {names:?}");
}

fn all_settled(desired: &Desired, observed: &Observed) {
    let marks = marks();
    let picture = Picture::new(desired, observed, &marks);
    for key in picture.keys() {
        assert_eq!(decide(&picture, &key, &Holds::new(), Timestamp(5000)), Decision::Settled, "{key}");
    }
}

#[test]
fn up_then_nothing_then_down_leaves_only_the_image() {
    let (wanted, mut node) = (desired(service("web:1")), empty());
    let up = settle(&wanted, &mut node, 1000);
    assert_eq!(up.iter().filter(|step| **step == "start-task").count(), 2);
    all_settled(&wanted, &node);
    assert!(settle(&wanted, &mut node, 2000).is_empty());
    let nothing = Desired { whole: true, ..Desired::default() };
    settle(&nothing, &mut node, 3000);
    let image_kept = node.runtime.seen().unwrap();
    assert!(image_kept.instances.is_empty());
    assert_eq!(node.net.seen().unwrap().instances.len() + node.net.seen().unwrap().networks.len(), 0);
    assert_eq!(node.ports, Sight::Seen(None));
    assert!(node.files.seen().unwrap().instances.is_empty());
}

#[test]
fn nothing_is_removed_while_the_source_is_not_whole() {
    let (wanted, mut node) = (desired(service("web:1")), empty());
    settle(&wanted, &mut node, 1000);
    let before = node.clone();
    assert!(settle(&Desired::default(), &mut node, 2000).is_empty());
    assert_eq!(before, node);
}

#[test]
fn limits_change_in_place_and_the_command_recreates() {
    let (mut wanted, mut node) = (desired(service("web:1")), empty());
    settle(&wanted, &mut node, 1000);
    let edit = |wanted: &mut Desired, change: fn(&mut InstanceSpec)| {
        for service in wanted.apps.values_mut().flat_map(|app| app.services.values_mut()) {
            change(&mut service.spec);
        }
    };
    edit(&mut wanted, |spec| spec.limits.memory = Some(64 << 20));
    assert_eq!(settle(&wanted, &mut node, 2000), ["update-record", "update-record"]);
    edit(&mut wanted, |spec| spec.command = Some(vec!["other".to_owned()]));
    let steps = settle(&wanted, &mut node, 3000);
    assert_eq!(steps.iter().filter(|step| **step == "stop-task").count(), 2);
    assert!(!steps.contains(&"make-netns") && !steps.contains(&"make-link"), "the network stays: {steps:?}");
    all_settled(&wanted, &node);
}

#[test]
fn blind_means_no_step_but_a_wait_with_its_reason() {
    let (wanted, mut node) = (desired(service("web:1")), empty());
    settle(&wanted, &mut node, 1000);
    node.runtime = Sight::unseen("connection refused");
    let marks = marks();
    let picture = Picture::new(&wanted, &node, &marks);
    for key in picture.keys() {
        let decision = decide(&picture, &key, &Holds::new(), Timestamp(2000));
        assert!(!matches!(decision, Decision::Do(..)), "{key}: {decision:?}");
    }
}
