//! The table as a person sees it.

use super::*;
use crate::model::{AddressStatus, AppStatus, ObjectStatus, PortStatus, ServiceStatus, WaitingStatus};

/// 2024-03-01T00:01:00Z.
const NOW: Timestamp = Timestamp(1_709_251_260_000);

fn sample() -> Status {
    let web = InstanceStatus {
        instance: "shop/web/1".to_owned(),
        pid: Some(4711),
        started_at: Some("2024-02-29T23:59:59Z".to_owned()),
        state: "running".to_owned(),
        addresses: ["10.208.1.2", "10.208.2.2"]
            .map(|ip| AddressStatus { ip: ip.to_owned(), ..AddressStatus::default() })
            .to_vec(),
        ports: vec![
            PortStatus { host_ip: "0.0.0.0".into(), host: 8080, container: 80, protocol: "tcp".into() },
            PortStatus { host_ip: "127.0.0.1".into(), host: 53, container: 53, protocol: "udp".into() },
        ],
        ..InstanceStatus::default()
    };
    let job = InstanceStatus {
        instance: format!("shop/{}/1", "a-very-long-service-name-that-nobody-should-write"),
        state: "backoff".to_owned(),
        restarts: 3,
        exit_code: Some(1),
        waiting: vec![WaitingStatus {
            on: "restart after 3 short runs".to_owned(),
            since: "2024-03-01T00:01:00Z".to_owned(),
            next_attempt: Some("2024-03-01T00:01:01Z".to_owned()),
        }],
        ..InstanceStatus::default()
    };
    let service = ServiceStatus { desired: 2, running: 1, instances: vec![web, job], ..ServiceStatus::default() };
    let error = ErrorStatus {
        file: "/etc/stead/desired/shop.yaml".to_owned(),
        line: 4,
        column: 5,
        message: "unknown key `comand`".to_owned(),
        hint: Some("did you mean `command`?".to_owned()),
    };
    let app = AppStatus { services: vec![service], errors: vec![error], ..AppStatus::default() };
    let mut status = Status { apps: vec![app], ..Status::default() };
    status.agent.name = "stead".to_owned();
    status.agent.runtime = "connected".to_owned();
    status.agent.running = true;
    status.agent.written_at = "2024-02-29T23:55:00Z".to_owned();
    status
}

#[test]
fn one_line_an_instance_and_what_is_wrong_below() {
    insta::assert_snapshot!(render(&sample(), NOW, false), @r"
    stead generation 0, not settled, 1/2 running
    INSTANCE                                  STATE    AGE  RESTARTS  PID   ADDRESS        PORTS
    shop/web/1                                running  61s  0         4711  10.208.1.2 +1  8080->80, 127.0.0.1:53->53/udp
    shop/a-very-long-se…obody-should-write/1  backoff  -    3         -     -              -
    shop/a-very-long-service-name-that-nobody-should-write/1: exited with code 1; restart after 3 short runs; next attempt in 1s
    /etc/stead/desired/shop.yaml:4:5: error: unknown key `comand`
      help: did you mean `command`?
    ");
}

#[test]
fn an_agent_that_is_gone_and_a_containerd_that_is_away_are_the_first_thing_said() {
    let mut status = sample();
    status.apps[0].services[0].instances.truncate(1);
    status.apps[0].errors.clear();
    status.agent.running = false;
    status.agent.runtime = "unavailable".to_owned();
    status.apps[0].services[0].instances[0].state = "unknown".to_owned();
    status.unsettled = vec![ObjectStatus {
        object: "image docker.io/library/web:latest".to_owned(),
        last_error: Some("import-image: no space left on device".to_owned()),
        hint: Some("make room on that file system".to_owned()),
        ..ObjectStatus::default()
    }];
    insta::assert_snapshot!(render(&status, NOW, false), @r"
    the agent is not running; this is what it knew last, as it was 6m ago
    stead generation 0, not settled, 1/2 running, containerd unavailable
    INSTANCE    STATE    AGE  RESTARTS  PID   ADDRESS        PORTS
    shop/web/1  unknown  61s  0         4711  10.208.1.2 +1  8080->80, 127.0.0.1:53->53/udp
    image docker.io/library/web:latest: import-image: no space left on device
      help: make room on that file system
    ");
}

#[test]
fn colours_do_not_move_columns() {
    let coloured = render(&sample(), NOW, true);
    assert!(coloured.contains("\x1b[32mrunning"), "{coloured}");
    let mut plain = coloured;
    for code in [0, 31, 32, 33, 90] {
        plain = plain.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(plain, render(&sample(), NOW, false));
}

#[test]
fn ages_are_told_in_the_largest_unit_that_says_enough() {
    let ago = |seconds: u64| age(Timestamp(NOW.0 - seconds * 1000), NOW);
    assert_eq!([0, 119, 120, 7199, 7200, 172_799, 172_800].map(ago), ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]);
    assert_eq!(age(Timestamp(NOW.0 + 5000), NOW), "0s", "a clock that went back");
}

#[test]
fn times_are_read_back_as_they_were_written() {
    for at in [0, 951_782_399_000, 951_782_400_000, NOW.0, 4_102_444_799_000] {
        assert_eq!(parse_rfc3339(&Timestamp(at).rfc3339()), Some(Timestamp(at)), "{at}");
    }
    for bad in ["", "2024", "2024-02-30", "not a time at all, really"] {
        assert_eq!(parse_rfc3339(bad), None, "{bad}");
    }
}
