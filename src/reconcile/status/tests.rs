//! The document from views made by hand: each starts from what `plan` foresees of a settled node.

use super::*;
use crate::model::{
    AgentName, App, Desired, FilesSeen, Finding, Hold, InstanceSpec, Marks, NetSeen, NetworkName, NetworkSpec,
    Observed, Outcome, Place, RuntimeSeen, Sight, TaskSeen, VolumeName,
};
use crate::plan::{Holds, Picture, decide, foresee, to_the_end};
use std::collections::VecDeque;
use std::time::Duration;

/// 2024-03-01T00:01:00Z.
const NOW: Timestamp = Timestamp(1_709_251_260_000);

/// Everything that a view borrows.
struct Loop {
    desired: Desired,
    observed: Observed,
    holds: Holds,
    doing: BTreeMap<Key, (&'static str, Timestamp)>,
    history: BTreeMap<Key, VecDeque<StepLine>>,
    runtime: RuntimeLink,
    now: Timestamp,
}

impl Loop {
    /// A node with nothing on it, and an app of two web servers that publish a port, with a volume.
    fn empty() -> Self {
        let spec: InstanceSpec = serde_json::from_value(serde_json::json!({
            "image": {"reference": "docker.io/library/web:1", "archive": {"path": "/a.tar", "digest": "sha256:1"}},
            "restart": "always",
            "networks": [{"network": "default"}],
            "ports": [{"host": 8080, "container": 80, "protocol": "tcp"}],
        }))
        .unwrap();
        let place = Place { file: PathBuf::from("/etc/stead/desired/shop.yaml"), line: 2, column: 3 };
        let app = App {
            file: place.file.clone(),
            generation: 3,
            known: true,
            services: [(ServiceName::new("web").unwrap(), Service { place, replicas: 2, spec })].into(),
            networks: [(NetworkName::new("default").unwrap(), NetworkSpec::default())].into(),
            volumes: [VolumeName::new("data").unwrap()].into(),
            findings: Vec::new(),
        };
        let apps = [(AppName::new("shop").unwrap(), app)].into();
        Self {
            desired: Desired { generation: 3, whole: true, apps, findings: Vec::new(), pool: None },
            observed: Observed {
                runtime: Sight::Seen(RuntimeSeen { boot: "b".to_owned(), ..RuntimeSeen::default() }),
                net: Sight::Seen(NetSeen::default()),
                ports: Sight::Seen(None),
                files: Sight::Seen(FilesSeen::default()),
            },
            holds: Holds::new(),
            doing: BTreeMap::new(),
            history: BTreeMap::new(),
            runtime: RuntimeLink::Connected,
            now: NOW,
        }
    }

    /// The same when everything that is wanted is there.
    fn settled() -> Self {
        let mut one = Self::empty();
        let began = Timestamp(NOW.0 - 60_000);
        for (key, step, _) in to_the_end(&one.desired, &one.observed, &marks(), began, 1000) {
            foresee(&mut one.observed, &marks(), &key, &step, began);
        }
        one
    }

    fn service(&mut self) -> &mut Service {
        self.desired.apps.values_mut().next().unwrap().services.values_mut().next().unwrap()
    }

    fn container(&mut self, replica: u32) -> &mut ContainerSeen {
        let all = &mut self.observed.runtime.seen_mut().unwrap().instances;
        &mut all.get_mut(&instance(replica)).unwrap().containers[0]
    }

    fn tell(&self, teller: &mut Teller) -> Status {
        let marks = marks();
        let picture = Picture::new(&self.desired, &self.observed, &marks);
        let decided = picture.keys().into_iter().map(|key| {
            let decision = decide(&picture, &key, &self.holds, self.now);
            (key, decision)
        });
        let decisions: BTreeMap<Key, Decision> = decided.collect();
        let settled = self.doing.is_empty() && decisions.values().all(|decision| *decision == Decision::Settled);
        teller.tell(&View {
            desired: &self.desired,
            observed: &self.observed,
            decisions: &decisions,
            holds: &self.holds,
            doing: &self.doing,
            history: &self.history,
            runtime: self.runtime,
            settled,
            steps: &BTreeMap::from([(("start-task", Outcome::Done.word()), 2)]),
            now: self.now,
        })
    }

    fn told(&self) -> Status {
        self.tell(&mut Teller::new(PathBuf::from("/var/lib/stead/volumes"), None))
    }

    fn row(&self, replica: u32) -> InstanceStatus {
        row(&self.told(), replica).clone()
    }
}

fn marks() -> Marks {
    Marks::new(AgentName::new("stead").unwrap())
}

fn instance(replica: u32) -> InstanceKey {
    InstanceKey { app: AppName::new("shop").unwrap(), service: ServiceName::new("web").unwrap(), replica }
}

fn row(status: &Status, replica: u32) -> &InstanceStatus {
    let mut rows = status.apps.iter().flat_map(|app| &app.services).flat_map(|service| &service.instances);
    rows.find(|row| row.instance == instance(replica).to_string()).unwrap()
}

#[test]
fn a_settled_node_is_told_whole() {
    let status = Loop::settled().told();
    assert!(status.agent.settled && status.apps[0].settled);
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
}

#[test]
fn before_anything_is_there_instances_are_pending_and_nothing_is_settled() {
    let status = Loop::empty().told();
    assert!(!status.agent.settled && !status.apps[0].settled);
    assert_eq!([1, 2].map(|n| row(&status, n).state.clone()), ["pending", "pending"]);
    assert_eq!((status.apps[0].services[0].desired, status.apps[0].services[0].running), (2, 0));
    assert!(status.unsettled.iter().any(|object| object.object == "image docker.io/library/web:1"), "{status:#?}");
}

#[test]
fn while_its_image_is_imported_an_instance_is_pulling() {
    let mut one = Loop::empty();
    one.doing.insert(Key::Image("docker.io/library/web:1".to_owned()), ("import-image", NOW));
    assert_eq!(one.row(1).state, "pulling");
}

#[test]
fn states_are_told_from_the_task_its_stop_and_its_holds() {
    let state = |change: fn(&mut Loop)| {
        let mut one = Loop::settled();
        change(&mut one);
        one.row(1).state
    };
    let hold = Hold {
        step: "update-record".to_owned(),
        failures: 2,
        error: "no space left on device".to_owned(),
        hint: Some("make room".to_owned()),
        since: NOW,
        until: Timestamp(NOW.0 + 4000),
    };
    assert_eq!(state(|_| {}), "running");
    let stopping = |one: &mut Loop| {
        one.container(1).stopping = Some(crate::model::Stopping { at: NOW, ..crate::model::Stopping::default() })
    };
    assert_eq!(state(stopping), "stopping");
    assert_eq!(
        state(|one| one.container(1).task = TaskSeen::Unknown { why: "shim does not answer".into() }),
        "degraded",
        "containerd answers, the shim does not"
    );
    assert_eq!(state(|one| one.service().replicas = 0), "stopping");
    assert_eq!(state(|one| one.desired.apps.clear()), "stopping");
    let mut one = Loop::settled();
    one.holds.insert(Key::Instance(instance(1)), hold);
    let row = one.row(1);
    assert_eq!(row.state, "degraded");
    assert_eq!(row.last_error.as_deref(), Some("update-record: no space left on device"));
    assert_eq!(row.hint.as_deref(), Some("make room"));
}

/// A run that ended: with a code, with an unknown status, with the machine.
#[test]
fn exits_are_told_as_they_are_known() {
    for (status, code, word) in [
        (ExitStatus::Code(137), Some(137), None),
        (ExitStatus::Code(0), Some(0), None),
        (ExitStatus::Unknown, None, Some("unknown")),
        (ExitStatus::Reboot, None, Some("reboot")),
    ] {
        let mut one = Loop::settled();
        let container = one.container(1);
        let pid = container.task.pid().unwrap();
        container.task = TaskSeen::Stopped(Exit { pid, status, at: NOW });
        let row = one.row(1);
        assert_eq!((row.exit_code, row.exit.as_deref(), row.pid), (code, word, None), "{status:?}");
        assert_eq!(row.state, "backoff", "{status:?}: restart is always");
        one.service().spec.restart = Some(Restart::No);
        one.container(1).record.as_mut().unwrap().spec.restart = Some(Restart::No);
        assert_eq!(one.row(2).state, "running", "the other goes on");
    }
}

#[test]
fn while_containerd_is_away_the_last_rows_stay_with_what_they_wait_for() {
    let mut one = Loop::settled();
    let mut teller = Teller::default();
    let before = one.tell(&mut teller);
    one.observed.runtime = Sight::unseen("connection refused");
    one.runtime = RuntimeLink::Unavailable;
    let first = one.tell(&mut teller);
    one.now = Timestamp(NOW.0 + 5000);
    let status = one.tell(&mut teller);
    assert_eq!((status.agent.runtime.as_str(), status.agent.settled), ("unavailable", false));
    assert!(!status.apps[0].settled);
    for replica in [1, 2] {
        let (was, is) = (row(&before, replica), row(&status, replica));
        assert_eq!((is.state.as_str(), &is.pid, &is.ports), ("unknown", &was.pid, &was.ports));
        assert_eq!(is.waiting[0].on, "containerd is unavailable: connection refused");
        assert_eq!(is.waiting, row(&first, replica).waiting, "since when does not move");
    }
    // an agent that starts meanwhile knows the rows from the document of the one before
    let mut restarted = Teller::new(PathBuf::new(), Some(&before));
    let status = one.tell(&mut restarted);
    assert_eq!(row(&status, 1).pid, row(&before, 1).pid);
    // without one, what is wanted is shown all the same
    let status = one.tell(&mut Teller::default());
    assert_eq!(
        (row(&status, 2).state.as_str(), row(&status, 2).image.as_str()),
        ("unknown", "docker.io/library/web:1")
    );
}

#[test]
fn an_edit_that_recreates_shows_as_updating_until_the_old_one_is_gone() {
    let mut one = Loop::settled();
    one.service().spec.command = Some(vec!["other".to_owned()]);
    let status = one.told();
    assert!(status.apps[0].services[0].updating && !status.apps[0].settled);
    assert_eq!(row(&status, 1).state, "running", "it serves until it is replaced");
}

#[test]
fn what_is_wrong_with_files_is_told_with_its_place() {
    let mut one = Loop::settled();
    let finding = |severity, line| Finding {
        severity,
        place: Place { file: PathBuf::from("/d/shop.yaml"), line, column: 5 },
        message: "unknown key `comand`".to_owned(),
        hint: Some("did you mean `command`?".to_owned()),
        notes: Vec::new(),
        source_line: None,
    };
    one.desired.apps.values_mut().next().unwrap().findings =
        vec![finding(Severity::Note, 1), finding(Severity::Error, 4), finding(Severity::Warning, 5)];
    one.desired.findings = vec![finding(Severity::Error, 9)];
    let status = one.told();
    let places = |errors: &[crate::model::ErrorStatus]| errors.iter().map(|error| error.line).collect::<Vec<_>>();
    assert_eq!((places(&status.apps[0].errors), places(&status.errors)), (vec![4], vec![9]));
    assert_eq!(status.apps[0].errors[0].hint.as_deref(), Some("did you mean `command`?"));
    assert_eq!(row(&status, 1).state, "running", "the last good content goes on");
}

#[test]
fn an_app_that_is_no_longer_wanted_is_shown_until_nothing_of_it_is_left() {
    let mut one = Loop::settled();
    one.desired.apps.clear();
    let status = one.told();
    assert_eq!((status.apps[0].file.as_str(), status.apps[0].settled), ("", false));
    let marks = marks();
    for (key, step, _) in to_the_end(&one.desired, &one.observed, &marks, NOW, 1000) {
        foresee(&mut one.observed, &marks, &key, &step, NOW);
    }
    assert_eq!(one.told().apps, []);
}

#[test]
fn a_network_that_cannot_be_made_is_told_with_its_error() {
    let mut one = Loop::empty();
    let network = NetworkKey { app: AppName::new("shop").unwrap(), network: NetworkName::new("default").unwrap() };
    let hold = Hold {
        step: "make-bridge".to_owned(),
        failures: 1,
        error: "operation not permitted".to_owned(),
        hint: Some("run the agent as root".to_owned()),
        since: NOW,
        until: Timestamp(NOW.0 + 1000),
    };
    one.holds.insert(Key::Network(network), hold);
    let status = one.told();
    let object = status.unsettled.iter().find(|object| object.object == "network shop/default").unwrap();
    assert_eq!(object.last_error.as_deref(), Some("make-bridge: operation not permitted"));
    assert_eq!(object.waiting[0].next_attempt.as_deref(), Some("2024-03-01T00:01:01Z"));
    assert_eq!(row(&status, 1).last_error.as_deref(), None, "its image is missing too, and comes first");
}

#[test]
fn timelines_carry_every_step_with_its_reason() {
    let mut one = Loop::settled();
    let line = StepLine {
        round: 7,
        because: "task event",
        step: "start-task",
        why: "it is made and does not run".to_owned(),
        outcome: "done",
        error: None,
        at: NOW,
        took: Duration::from_millis(9),
    };
    one.history.insert(Key::Instance(instance(1)), VecDeque::from([line]));
    let empty = BTreeMap::new();
    let view = View {
        desired: &one.desired,
        observed: &one.observed,
        decisions: &BTreeMap::new(),
        holds: &one.holds,
        doing: &one.doing,
        history: &one.history,
        runtime: one.runtime,
        settled: true,
        steps: &empty,
        now: NOW,
    };
    insta::assert_snapshot!(serde_json::to_string_pretty(&timelines(&view)).unwrap());
}
