//! What Compose keys do on a node, seen from inside: one app with a service for each group of keys, each of which writes
//! down what it finds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::time::Duration;
use support::scene::{instance, instances, pid};
use support::{BUSYBOX, Node, Version, await_until, busybox_archive};

/// A service: its keys, what it runs, and lines that have to be in what it writes (white space counts once).
struct Case {
    name: &'static str,
    keys: &'static str,
    script: &'static str,
    see: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "plain",
        keys: "",
        script: "cat /proc/self/uid_map; busybox df -k /dev/shm | busybox tail -n 1; busybox grep NoNewPrivs /proc/self/status; \
                 read line || echo no input; test -t 1 || echo no terminal; busybox grep -c ' /proc/kcore ' /proc/mounts; \
                 busybox ls -A /dev | busybox grep -c loop; echo $$$$",
        see: &["0 0 4294967295", "shm 65536 0 65536 0% /dev/shm", "NoNewPrivs: 1", "no input", "no terminal", "1", "0"],
    },
    Case {
        name: "ulimits",
        keys: "ulimits: {nofile: {soft: 111, hard: 222}, core: 0, stack: {soft: 4194304, hard: -1}}",
        script: "busybox grep -E 'open files|core file|stack' /proc/self/limits",
        see: &[
            "Max stack size 4194304 unlimited bytes",
            "Max core file size 0 0 bytes",
            "Max open files 111 222 files",
        ],
    },
    Case {
        name: "sysctls",
        keys: "sysctls: {net.core.somaxconn: 77, kernel.shmmni: 55}\n    domainname: lab.test",
        script: "cat /proc/sys/net/core/somaxconn /proc/sys/kernel/shmmni /proc/sys/kernel/domainname",
        see: &["77", "55", "lab.test"],
    },
    Case {
        name: "memory",
        keys: "shm_size: 3m\n    oom_score_adj: 500",
        script: "busybox df -k /dev/shm | busybox tail -n 1; cat /proc/self/oom_score_adj",
        see: &["shm 3072 0 3072 0% /dev/shm", "500"],
    },
    Case {
        name: "groups",
        keys: "user: web\n    group_add: [extra, 4242]",
        script: "id",
        see: &["uid=101(web) gid=102(web) groups=77(extra),102(web),4242"],
    },
    Case {
        name: "devices",
        keys: "devices: ['/dev/loop0:/dev/disk:r', /dev/loop-control]\n    device_cgroup_rules: ['b 7:1 r']",
        script: "busybox stat -c '%t:%T %F' /dev/disk /dev/loop-control; busybox head -c 1 /dev/disk && echo reads; \
                 (echo x >/dev/disk) 2>/dev/null || echo no writing; busybox mknod /tmp/1 b 7 1; busybox mknod /tmp/2 b 7 2; \
                 busybox head -c 1 /tmp/1 && echo allowed; busybox head -c 1 /tmp/2 2>/dev/null || echo forbidden",
        see: &["7:0 block special file", "a:ed character special file", "reads", "no writing", "allowed", "forbidden"],
    },
    Case {
        name: "open",
        keys: "security_opt: ['no-new-privileges:false', seccomp=unconfined, systempaths=unconfined, 'label:disable', 'apparmor:unconfined']",
        script: "busybox grep -E 'NoNewPrivs|Seccomp:' /proc/self/status; busybox grep -c ' /proc/kcore ' /proc/mounts",
        see: &["NoNewPrivs: 0", "Seccomp: 0", "0"],
    },
    Case {
        name: "profile",
        keys: "security_opt: ['seccomp=./profile.json', no-new-privileges]",
        script: "mkdir /tmp/x; busybox grep -E 'NoNewPrivs|Seccomp:' /proc/self/status",
        see: &["mkdir: can't create directory '/tmp/x': No message of desired type", "NoNewPrivs: 1", "Seccomp: 2"],
    },
    Case {
        name: "init",
        keys: "init: true",
        script: "busybox tr '\\\\0' ' ' </proc/1/cmdline; echo; test $$$$ -ne 1 && echo not the first; \
                 sh -c 'sleep 0.1 & echo $! >/tmp/orphan'; \
                 while test -d /proc/$(cat /tmp/orphan); do busybox usleep 20000; done; echo reaped; exit 7",
        see: &["/dev/init -- sh -c", "not the first", "reaped"],
    },
    Case {
        name: "tty",
        keys: "tty: true",
        script: "test -t 0 && test -t 1 && echo a terminal; busybox stty size",
        see: &["a terminal"],
    },
    Case {
        name: "hostuts",
        keys: "uts: host\n    userns_mode: host",
        script: "hostname; echo name $$HOSTNAME; cat /proc/self/uid_map",
        see: &["node", "name node", "0 0 4294967295"],
    },
    Case {
        name: "hostpid",
        keys: "pid: host\n    ipc: host",
        script: "busybox tr '\\\\0' ' ' </proc/1/cmdline; echo; busybox readlink /proc/self/ns/ipc; busybox ls /dev/shm",
        see: &["node.sh inner", "from-the-node"],
    },
    Case { name: "noshm", keys: "ipc: none", script: "busybox grep -c ' /dev/shm ' /proc/mounts", see: &["0"] },
    Case {
        name: "cgroup",
        keys: "cgroup: private\n    cgroup_parent: /batch/jobs",
        script: "busybox grep cpuset /proc/self/cgroup; busybox grep /sys/fs/cgroup/cpuset /proc/self/mountinfo",
        see: &["/sys/fs/cgroup/cpuset"],
    },
    Case {
        name: "swappy",
        keys: "mem_swappiness: 7\n    oom_kill_disable: true\n    \
               blkio_config: {weight: 300, device_read_bps: [{path: /dev/vda, rate: 12mb}], device_write_iops: [{path: /dev/vda, rate: 99}]}",
        script: "cd /sys/fs/cgroup; cat memory/memory.swappiness; cat blkio/blkio.bfq.weight || true; busybox grep kill_disable memory/memory.oom_control; \
                 cat blkio/blkio.throttle.read_bps_device blkio/blkio.throttle.write_iops_device",
        see: &["7", "oom_kill_disable 1", "254:0 12582912", "254:0 99"],
    },
    Case {
        name: "secrets",
        keys: "user: '101:102'\n    secrets: [token, {source: key, target: /etc/key, uid: '101', gid: '102', mode: 0400}]\n    \
               configs: [plain, {source: written, target: /etc/app/conf, mode: 0640, gid: '102'}]",
        script: "cat /run/secrets/token /etc/key /plain /etc/app/conf; busybox stat -c '%n %u:%g %a' /run/secrets/token /etc/key /etc/app/conf; \
                 busybox grep -cE '^tmpfs (/run/secrets/token|/etc/key|/plain|/etc/app/conf) tmpfs ro' /proc/mounts; \
                 (echo x >/etc/key) 2>/dev/null || echo kept",
        see: &[
            "a secret of a file",
            "a secret of the environment",
            "a plain config",
            "written web",
            "/run/secrets/token 0:0 444",
            "/etc/key 101:102 400",
            "/etc/app/conf 0:102 640",
            "4",
            "kept",
        ],
    },
];

/// What the secrets and configs of the app are.
const TOP: &str = "
configs:
  plain: {file: ./plain.conf}
  written: {content: 'written ${WHO}'}
secrets:
  token: {file: ./token}
  key: {environment: KEY}
";

/// The app's file. A script is one word of YAML, and its dollars are its own.
fn compose(cases: &[Case]) -> String {
    let mut text = String::from("services:\n");
    for Case { name, keys, script, .. } in cases {
        let script =
            serde_json::to_string(&script.replace('$', "$$").replace("$$$$", "$$").replace("\\\\0", "\\0")).unwrap();
        text += &format!("  {name}:\n    image: {BUSYBOX}\n    restart: 'no'\n    command: [sh, -c, {script}]\n");
        if !keys.is_empty() {
            text += &format!("    {keys}\n");
        }
    }
    text + TOP
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a service has written, line by line, white space counted once.
fn output(node: &Node, app: &str, service: &str) -> Vec<String> {
    let log = node.path(format!("/var/log/stead/{app}/{service}-1.log"));
    fs::read_to_string(log).unwrap_or_default().lines().map(one_line).collect()
}

fn ended(status: &Value, count: usize) -> Result<(), String> {
    let all = instances(status);
    let ended =
        all.iter().filter(|(_, instance)| ["completed", "exited"].contains(&instance["state"].as_str().unwrap_or("")));
    if ended.count() == count { Ok(()) } else { Err(format!("not all of {count} have ended")) }
}

fn node() -> Node {
    let node = Node::new(Version::V1_7);
    let archive = busybox_archive(&node.dir);
    node.ctr("stead", &format!("images import {}", archive.display()));
    node
}

#[test]
fn every_service_finds_itself_set_up_as_its_keys_say() {
    let node = node();
    node.sh("touch /dev/shm/from-the-node");
    node.edit("keys/plain.conf", "a plain config\n");
    node.edit("keys/token", "a secret of a file\n");
    node.edit("keys/.env", "KEY=a secret of the environment\nWHO=web\n");
    node.edit("keys/profile.json", r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 42, "args": null, "includes": {}, "excludes": {}}]}"#);
    node.edit("keys/compose.yaml", &compose(CASES));
    let agent = node.agent(&[]);
    let status =
        node.await_settled(Duration::from_secs(90), |status| ended(status, CASES.len()).map(|()| status.clone()));
    let mut wrong = Vec::new();
    for case in CASES {
        let lines = await_until("a terminal's log", Duration::from_secs(5), || {
            let lines = output(&node, "keys", case.name);
            if lines.is_empty() { Err("nothing yet".to_owned()) } else { Ok(lines) }
        });
        let missing = case
            .see
            .iter()
            .filter(|see| !lines.iter().any(|line| line == *see || (see.len() > 8 && line.contains(*see))));
        wrong.extend(missing.map(|see| format!("{}: no `{see}` in {lines:#?}", case.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // A kernel without BFQ has no weights: then the weight is left out, and said so.
    let lines = output(&node, "keys", "swappy");
    let clamped = instance(&status, "keys/swappy/1").unwrap()["clamped"].to_string();
    assert_eq!(lines.contains(&"300".to_owned()), knows_weights(), "{lines:?}");
    assert_eq!(clamped.contains("block I/O weight"), !knows_weights(), "{clamped}");

    let ipc = node.sh("readlink /proc/self/ns/ipc");
    assert!(output(&node, "keys", "hostpid").contains(&ipc.trim().to_owned()), "the node's IPC namespace");
    let cgroup = output(&node, "keys", "cgroup").join("\n");
    assert!(cgroup.contains("cpuset:/\n"), "its own cgroup is the root: {cgroup}");
    assert!(node.path("/sys/fs/cgroup/cpuset/batch/jobs").is_dir(), "below the parent that was written");
    assert_eq!(instance(&status, "keys/init/1").unwrap()["exit_code"], 7, "the init ends as its program");

    // A secret is nowhere but in memory: not in the state directory, not in containerd's records.
    let found = node.sh("grep -rl 'a secret of' /var/lib/stead /var/lib/containerd/io.containerd.metadata.v1.bolt /var/log/stead/*.log /run/stead/*.json 2>/dev/null || true");
    assert_eq!(found, "", "a secret was written down");
    agent.stop();
}

/// Whether a scheduler of this kernel weighs groups: BFQ, which puts its files into every group but the root.
fn knows_weights() -> bool {
    let groups = fs::read_dir("/sys/fs/cgroup/blkio").into_iter().flatten().flatten();
    groups.map(|group| group.path()).any(|group| group.join("blkio.bfq.weight").exists())
        || fs::exists("/sys/fs/cgroup/blkio/blkio.bfq.io_serviced").unwrap()
}

/// A container that waits for its input, which stays open as long as it lives.
#[test]
fn an_open_input_is_read_and_another_content_is_another_container() {
    let node = node();
    node.edit("io/conf", "one");
    let text = format!(
        "services:
  reader:
    image: {BUSYBOX}
    stdin_open: true
    annotations: {{team.example: shop}}
    command: [sh, -c, 'while read line; do echo got $$line; done; echo ended']
  both:
    image: {BUSYBOX}
    stdin_open: true
    tty: true
    command: [sh, -c, 'read line; echo got $$line; exec sleep inf']
  user:
    image: {BUSYBOX}
    configs: [conf]
    command: [sh, -c, 'cat /conf; exec sleep inf']
configs: {{conf: {{file: ./conf}}}}
"
    );
    node.edit("io/compose.yaml", &text);
    let agent = node.agent(&[]);
    let running = |status: &Value| support::scene::running(status, 3).map(|()| status.clone());
    let before = node.await_settled(Duration::from_secs(60), running);
    for (service, word) in [("reader", "first"), ("reader", "second"), ("both", "third")] {
        // A writer that goes away does not end the input.
        let fifo = node.path(format!("/run/stead/instances/io/{service}/1/stdin"));
        fs::OpenOptions::new().write(true).open(fifo).unwrap().write_all(format!("{word}\n").as_bytes()).unwrap();
        await_until("the line to be read", Duration::from_secs(10), || {
            let lines = output(&node, "io", service);
            if lines.contains(&format!("got {word}")) { Ok(()) } else { Err(format!("{lines:?}")) }
        });
    }
    let id = instance(&before, "io/reader/1").unwrap()["container_id"].as_str().unwrap().to_owned();
    assert!(node.ctr("stead", &format!("containers info {id}")).contains("\"team.example\": \"shop\""));

    node.edit("io/conf", "two");
    let after = node.await_settled(Duration::from_secs(60), |status| {
        let status = running(status)?;
        if output(&node, "io", "user").concat().ends_with("two") {
            Ok(status)
        } else {
            Err("still the old content".to_owned())
        }
    });
    assert_ne!(pid(&before, "io/user/1"), pid(&after, "io/user/1"), "another content is another container");
    assert_eq!(pid(&before, "io/reader/1"), pid(&after, "io/reader/1"), "the others go on");
    let files = node.sh("ls /run/stead/instances/io/user/1/grants");
    assert_eq!(files.lines().count(), 1, "the file of the earlier content is gone: {files}");
    agent.stop();
}

/// What changes in place, changed all at once: the process is the same, and its cgroup is not.
#[test]
fn limits_change_under_the_running_process_and_are_lifted_again() {
    let node = node();
    let text = |keys: &str| format!("services:\n  web:\n    image: {BUSYBOX}\n    command: [sleep, inf]\n{keys}");
    let read = |id: &str| {
        let files = [
            "cpu/stead/ID/cpu.shares",
            "cpu/stead/ID/cpu.cfs_quota_us",
            "cpu/stead/ID/cpu.cfs_period_us",
            "cpuset/stead/ID/cpuset.cpus",
            "memory/stead/ID/memory.limit_in_bytes",
            "memory/stead/ID/memory.memsw.limit_in_bytes",
            "memory/stead/ID/memory.soft_limit_in_bytes",
            "pids/stead/ID/pids.max",
            if knows_weights() { "blkio/stead/ID/blkio.bfq.weight" } else { "pids/stead/ID/pids.max" },
        ];
        files.map(|file| {
            let path = format!("/sys/fs/cgroup/{}", file.replace("ID", id));
            fs::read_to_string(node.path(&path)).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
        })
    };
    node.edit("limits.yaml", &text(""));
    let agent = node.agent(&[]);
    let running = |status: &Value| support::scene::running(status, 1).map(|()| status.clone());
    let before = node.await_settled(Duration::from_secs(60), running);
    let id = instance(&before, "limits/web/1").unwrap()["container_id"].as_str().unwrap().to_owned();
    let bare = read(&id);
    node.edit("limits.yaml", &text(
        "    cpu_shares: 300\n    cpu_quota: 30000\n    cpu_period: 60000\n    cpuset: '0'\n    mem_limit: 64m\n    memswap_limit: 96m\n    \
         mem_reservation: 32m\n    pids_limit: 77\n    blkio_config: {weight: 300}\n    labels: {team: shop}\n    restart: always\n    \
         stop_grace_period: 1s\n    stop_signal: SIGKILL\n    container_name: the-web\n",
    ));
    let want = [
        "300",
        "30000",
        "60000",
        "0",
        "67108864",
        "100663296",
        "33554432",
        "77",
        if knows_weights() { "300" } else { "77" },
    ]
    .map(str::to_owned);
    let after = node.await_settled(Duration::from_secs(30), |status| {
        let found = read(&id);
        if found == want { running(status) } else { Err(format!("{found:?}")) }
    });
    assert_eq!(pid(&before, "limits/web/1"), pid(&after, "limits/web/1"), "changed in place");
    node.edit("limits.yaml", &text(""));
    let lifted = node.await_settled(Duration::from_secs(30), |status| {
        let found = read(&id);
        if found == bare { running(status) } else { Err(format!("{found:?} is not {bare:?}")) }
    });
    assert_eq!(pid(&before, "limits/web/1"), pid(&lifted, "limits/web/1"), "lifted in place");
    agent.stop();
}

/// crun beside runc, on one node. (crun refuses the hybrid layout of cgroups, so the node has the first version alone.)
#[test]
fn another_runtime_runs_where_it_is_asked_for() {
    let node = node();
    node.sh("umount /sys/fs/cgroup/unified 2>/dev/null || true");
    let service = |name: &str, runtime: &str| {
        format!("  {name}:\n    image: {BUSYBOX}\n    command: [sleep, inf]\n    runtime: {runtime}\n")
    };
    node.edit("two.yaml", &format!("services:\n{}{}", service("first", "runc"), service("second", "crun")));
    let agent = node.agent(&[]);
    let status = node
        .await_settled(Duration::from_secs(60), |status| support::scene::running(status, 2).map(|()| status.clone()));
    for (name, runtime) in [("first", "runc"), ("second", "crun")] {
        let id = instance(&status, &format!("two/{name}/1")).unwrap()["container_id"].as_str().unwrap().to_owned();
        let list = node.sh(&format!("{runtime} --root /run/containerd/runc/stead list"));
        let shown = if runtime == "runc" {
            list.contains(&id)
        } else {
            node.path(format!("/run/containerd/runc/stead/{id}/status")).exists()
        };
        assert!(shown, "{id} is run by {runtime}: {list}");
    }
    agent.stop();
}
