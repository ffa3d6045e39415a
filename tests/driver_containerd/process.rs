//! What a process finds itself in: user, environment, files, limits, confinement.

use crate::rig::{Rig, identity, key, on_both, record, sh};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use stead::model::{CauseKind, Outcome, Step, TaskSeen};

on_both!(
    /// The image's and the user's words for a process, as the process sees them.
    the_process_is_as_asked
);
async fn the_process_is_as_asked(rig: Rig) {
    let web = key("web");
    fs::create_dir_all("/var/lib/stead/volumes/shop/data").unwrap();
    fs::create_dir_all("/var/lib/stead/host").unwrap();
    fs::write("/var/lib/stead/host/there", "from the host\n").unwrap();
    let script = "id -u; id -g; pwd; echo $COLOUR $HOSTNAME; hostname; cat /etc/hosts /h/there; touch /v/made /t/x && echo writable; \
        touch /h/no 2>/dev/null || echo bind is read-only; touch /no 2>/dev/null || echo root is read-only; \
        cat /proc/self/cgroup >/dev/null; id -G";
    let spec = json!({
        "entrypoint": ["sh"], "command": ["-c", script], "environment": {"COLOUR": "green"}, "working_dir": "/www",
        "user": "nobody", "hostname": "shop", "read_only": true, "mounts": [
            {"target": "/h", "source": {"bind": {"path": "/var/lib/stead/host", "create": false}}, "read_only": true},
            {"target": "/v", "source": {"volume": "data"}},
            {"target": "/t", "source": {"tmpfs": {"options": ["size=64k"]}}},
        ],
    });
    sh("chmod 777 /var/lib/stead/volumes/shop/data");
    let container = rig.make(&web, spec).await;
    rig.start(&web, &container).await;
    let output = rig.output(&web, 11);
    assert_eq!(
        output,
        [
            "65534",
            "65534",
            "/www",
            "green shop",
            "shop",
            "127.0.0.1 localhost",
            "from the host",
            "writable",
            "bind is read-only",
            "root is read-only",
            "65534"
        ]
    );
    assert!(Path::new("/var/lib/stead/volumes/shop/data/made").exists());
    let mode = sh("stat -c %a /var/log/stead/shop/web-1.log");
    assert_eq!(mode.trim(), "640");
}

on_both!(
    /// Docker's confinement: 14 capabilities, no new privileges, a system call filter, hidden and read-only paths.
    a_process_is_confined
);
async fn a_process_is_confined(rig: Rig) {
    let web = key("web");
    let script = "busybox grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; mount -t tmpfs x /tmp 2>/dev/null || echo no mount; \
        echo 1 2>/dev/null >/proc/sys/net/ipv4/ip_forward || echo no sysctl; ls /sys/firmware; ulimit -Hn; cat /proc/self/oom_score_adj; ls /dev/null /dev/pts/ptmx /dev/shm -d";
    let container = rig.make(&web, json!({"command": ["sh", "-c", script]})).await;
    rig.start(&web, &container).await;
    let output = rig.output(&web, 11);
    assert_eq!(output[0], "CapBnd:\t00000000a80425fb".replace("Bnd", "Eff"));
    assert!(output.contains(&"CapBnd:\t00000000a80425fb".to_owned()), "{output:?}");
    assert!(output.contains(&"NoNewPrivs:\t1".to_owned()) && output.contains(&"Seccomp:\t2".to_owned()), "{output:?}");
    assert!(output.contains(&"no mount".to_owned()) && output.contains(&"no sysctl".to_owned()), "{output:?}");
    let clamped = rig.container(&web).await.clamped;
    let may_raise = sh("grep CapEff /proc/self/status").contains("1ffffffffff");
    assert_eq!(clamped.is_empty(), may_raise, "{clamped:?}");

    let tight = key("tight");
    let spec = json!({"command": ["busybox", "grep", "CapBnd", "/proc/self/status"], "cap_drop": ["ALL"], "cap_add": ["NET_BIND_SERVICE"]});
    let container = rig.make(&tight, spec).await;
    rig.start(&tight, &container).await;
    assert_eq!(rig.output(&tight, 1), ["CapBnd:\t0000000000000400"]);

    let root = key("root");
    let script = "mount -t tmpfs x /tmp && echo mounts; ls -d /dev/loop-control /dev/kmsg 2>/dev/null | busybox wc -l; echo done";
    let container = rig.make(&root, json!({"command": ["sh", "-c", script], "privileged": true})).await;
    rig.start(&root, &container).await;
    let output = rig.output(&root, 3);
    assert_eq!((output[0].as_str(), output[2].as_str()), ("mounts", "done"), "{output:?}");
}

/// The first of these files of a container's cgroup that exists, read.
fn cgroup(id: &str, names: [(&str, &str); 2]) -> String {
    let (v1, v2) = (names[0], names[1]);
    let paths = [
        PathBuf::from(format!("/sys/fs/cgroup/{}/stead/{id}/{}", v1.0, v1.1)),
        PathBuf::from(format!("/sys/fs/cgroup/stead/{id}/{}", v2.1)),
    ];
    let found = paths.iter().find_map(|path| fs::read_to_string(path).ok());
    found.unwrap_or_else(|| panic!("none of {paths:?}")).trim().to_owned()
}

on_both!(
    /// Limits are the cgroup's, and change under the running process; lifted ones are gone.
    limits_are_in_the_cgroup_and_change_in_place
);
async fn limits_are_in_the_cgroup_and_change_in_place(rig: Rig) {
    let web = key("web");
    let limited =
        json!({"command": ["sleep", "1000"], "limits": {"memory": 33_554_432, "milli_cpus": 250, "pids": 40}});
    let container = rig.make(&web, limited).await;
    let pid = rig.start(&web, &container).await;
    let memory = || cgroup(&container.id, [("memory", "memory.limit_in_bytes"), ("", "memory.max")]);
    let pids = || cgroup(&container.id, [("pids", "pids.max"), ("", "pids.max")]);
    let cpu = || cgroup(&container.id, [("cpu", "cpu.cfs_quota_us"), ("", "cpu.max")]);
    assert_eq!((memory().as_str(), pids().as_str()), ("33554432", "40"));
    assert!(cpu().starts_with("25000"), "{}", cpu());

    let old = rig.container(&web).await.record.expect("readable");
    let update = |limits: serde_json::Value, labels: serde_json::Value| {
        let spec = json!({"command": ["sleep", "1000"], "limits": limits, "labels": labels});
        let record = record(spec, old.image_digest.clone());
        Step::UpdateRecord {
            container: container.clone(),
            instance: web.clone(),
            limits_of: Some(pid),
            record: Box::new(record),
        }
    };
    rig.done(update(json!({"memory": 67_108_864, "pids": 50}), json!({"team": "shop"}))).await;
    assert_eq!((memory().as_str(), pids().as_str()), ("67108864", "50"));
    assert!(cpu().starts_with("-1") || cpu().starts_with("max"), "{}", cpu());
    let seen = rig.container(&web).await;
    assert_eq!(seen.record.expect("readable").spec.limits.memory, Some(67_108_864));
    assert!(matches!(seen.task, TaskSeen::Running { pid: same, .. } if same == pid));
    assert!(seen.run.is_some_and(|run| run.pid == pid), "marks stay");
    assert!(rig.ctr(&format!("containers info {}", container.id)).contains("\"team\": \"shop\""));

    rig.done(update(json!({}), json!({}))).await;
    assert!(memory() == "max" || memory().parse::<u64>().is_ok_and(|bytes| bytes > 1 << 50), "{}", memory());
    assert_eq!(pids(), "max");
    assert!(
        !rig.ctr(&format!("containers info {}", container.id)).contains("\"team\""),
        "a label that is gone is gone"
    );

    // the spec on the record follows too: the next run has it
    let info = rig.ctr(&format!("containers info --spec {}", container.id));
    assert!(!info.contains("33554432"), "{info}");
}

on_both!(
    /// What cannot work here is refused when the container is made, with a way out.
    a_definition_that_cannot_work_is_refused
);
async fn a_definition_that_cannot_work_is_refused(rig: Rig) {
    let web = key("web");
    let good = rig.make(&web, json!({"command": ["true"]})).await;
    assert_eq!(good, identity(&rig.container(&web).await));
    let (digest, chain_id) = rig.busybox().await;
    for (spec, word) in [
        (json!({"user": "ghost"}), "ghost"),
        (json!({"entrypoint": []}), "nothing to run"),
        (json!({"cap_add": ["FLYING"]}), "FLYING"),
    ] {
        let other = key("other");
        let ask = rig.ask(&other, spec, digest.clone());
        let prepare =
            Step::PrepareSnapshot { instance: other.clone(), key: ask.snapshot.clone(), parent: chain_id.clone() };
        rig.done(prepare).await;
        let Outcome::Refused(cause) = rig.driver.perform(Step::CreateContainer(Box::new(ask))).await else {
            panic!("{word}")
        };
        assert!(cause.kind == CauseKind::Invalid && cause.message.contains(word), "{cause:?}");
    }
    for command in ["absent", "/www/absent", "./absent"] {
        let absent = key("absent");
        let container = rig.make(&absent, json!({"command": [command]})).await;
        let step = Step::CreateTask { container: container.clone() };
        let Outcome::Refused(cause) = rig.driver.perform(step).await else { panic!("there is no such program") };
        assert!(cause.kind == CauseKind::Invalid && cause.message.contains(&format!("`{command}`")), "{cause:?}");
        assert_eq!(rig.container(&absent).await.task, TaskSeen::None);
        rig.done(Step::DeleteContainer { container: container.clone() }).await;
        rig.done(Step::RemoveSnapshot { key: container.id }).await;
    }
}
