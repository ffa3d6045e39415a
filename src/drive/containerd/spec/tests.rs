//! The whole spec, from small records.

use super::*;
use crate::model::{AppName, ImageWant, MountSource, ServiceName, VolumeName};
use serde_json::{Value, json};

fn record(spec: Value) -> Record {
    let mut whole = json!({"image": ImageWant { reference: "docker.io/library/web:latest".to_owned(), archive: None }});
    for (key, value) in spec.as_object().expect("an object") {
        whole[key] = value.clone();
    }
    Record {
        spec: serde_json::from_value(whole).expect("a spec"),
        image_digest: "sha256:0".to_owned(),
        attachments: Vec::new(),
        generation: 1,
        file: "/d/shop.yaml".to_owned(),
    }
}

fn config() -> Config {
    serde_json::from_value(json!({
        "os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": []},
        "config": {"Env": ["A=image", "B=image"], "Entrypoint": ["/web"], "Cmd": ["serve"], "WorkingDir": "/srv", "User": "7:8"},
    }))
    .expect("a config")
}

fn try_spec(spec: Value) -> Result<(Value, Vec<String>), CallError> {
    let instance =
        InstanceKey { app: AppName::new("shop").unwrap(), service: ServiceName::new("web").unwrap(), replica: 2 };
    let node = Node {
        capabilities: capabilities::of_mask(u64::MAX),
        arch: "amd64".to_owned(),
        hostname: "node".to_owned(),
        kernel: "6.1.0".to_owned(),
        ..Node::default()
    };
    let around = Surroundings {
        instance: &instance,
        netns: Some(PathBuf::from("/run/netns/stead-1")),
        files: PathBuf::from("/run/stead/instances/shop/web/2"),
        volumes: PathBuf::from("/var/lib/stead/volumes/shop"),
        helper: PathBuf::from("/var/lib/stead/helper"),
        cgroup: "/stead/shop-web-2-01234567".to_owned(),
        node,
    };
    let built = build(&record(spec), &config(), &RootFs::from_mounts(&[]), &around)?;
    Ok((serde_json::to_value(built.spec).expect("is JSON"), built.clamped))
}

fn spec(spec: Value) -> Value {
    try_spec(spec).expect("builds").0
}

fn mount<'a>(spec: &'a Value, target: &str) -> &'a Value {
    let mounts = spec["mounts"].as_array().expect("a list");
    let found: Vec<&Value> = mounts.iter().filter(|mount| mount["destination"] == target).collect();
    assert_eq!(found.len(), 1, "{target}");
    found[0]
}

#[test]
fn the_defaults_are_confined() {
    let (spec, clamped) = try_spec(json!({})).expect("builds");
    assert_eq!(clamped, Vec::<String>::new());
    assert_eq!(spec["process"]["args"], json!(["/web", "serve"]));
    assert_eq!(spec["process"]["cwd"], "/srv");
    assert_eq!(spec["process"]["user"], json!({"uid": 7, "gid": 8, "additionalGids": [8]}));
    assert_eq!(spec["process"]["noNewPrivileges"], true);
    assert_eq!(spec["process"]["capabilities"]["bounding"].as_array().map(Vec::len), Some(14));
    assert_eq!(spec["hostname"], "shop-web-2");
    assert_eq!(spec["linux"]["seccomp"]["defaultAction"], "SCMP_ACT_ERRNO");
    assert!(spec["linux"]["maskedPaths"].as_array().is_some_and(|paths| paths.contains(&json!("/proc/kcore"))));
    assert!(spec["linux"]["namespaces"].as_array().expect("a list").contains(&json!(
        {"type": "network", "path": "/run/netns/stead-1"}
    )));
    assert_eq!(mount(&spec, "/etc/hosts")["source"], "/run/stead/instances/shop/web/2/hosts");
    assert!(mount(&spec, "/sys")["options"].as_array().is_some_and(|options| options.contains(&json!("ro"))));
    assert_eq!(spec["linux"]["cgroupsPath"], "/stead/shop-web-2-01234567");
}

#[test]
fn what_is_written_takes_the_place_of_what_the_image_says() {
    let spec = spec(json!({
        "entrypoint": ["/bin/sh", "-c"], "environment": {"B": "user", "C": "user"}, "working_dir": "/w", "user": "9",
        "hostname": "named",
    }));
    assert_eq!(spec["process"]["args"], json!(["/bin/sh", "-c"]), "the image's command goes with its entrypoint");
    let env: Vec<&str> = spec["process"]["env"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(env[1..], ["HOSTNAME=named", "A=image", "B=user", "C=user"]);
    assert_eq!((&spec["process"]["cwd"], &spec["process"]["user"]["uid"]), (&json!("/w"), &json!(9)));
    let kept = self::spec(json!({"command": ["x"]}));
    assert_eq!(kept["process"]["args"], json!(["/web", "x"]));
}

#[test]
fn nothing_to_run_is_refused_with_a_way_out() {
    let error = try_spec(json!({"entrypoint": []})).expect_err("nothing to run");
    assert!(matches!(error, CallError::Invalid { hint: Some(_), .. }));
}

#[test]
fn mounts_are_binds_volumes_and_memory() {
    let volume = MountSource::Volume(VolumeName::new("data").unwrap());
    let spec = spec(json!({"mounts": [
        {"target": "/d", "source": volume, "read_only": true},
        {"target": "/h", "source": {"bind": {"path": "/host", "create": true}}},
        {"target": "/dev/shm", "source": {"tmpfs": {"options": ["size=1m", "exec"]}}},
    ]}));
    assert_eq!(mount(&spec, "/d")["source"], "/var/lib/stead/volumes/shop/data");
    assert_eq!(mount(&spec, "/d")["options"], json!(["rbind", "rprivate", "ro"]));
    assert_eq!(mount(&spec, "/h")["source"], "/host");
    assert_eq!(mount(&spec, "/dev/shm")["options"], json!(["nosuid", "nodev", "size=1m", "exec"]));
}

#[test]
fn a_privileged_one_is_not_confined() {
    let spec = spec(json!({"privileged": true}));
    assert!(spec["linux"].get("seccomp").is_none());
    assert_eq!(spec["linux"]["maskedPaths"], json!([]));
    assert_eq!(spec["process"]["noNewPrivileges"], false);
    assert!(mount(&spec, "/sys")["options"].as_array().is_some_and(|options| !options.contains(&json!("ro"))));
    let devices = spec["linux"]["devices"].as_array().expect("a list");
    assert!(devices.iter().any(|device| device["path"] == "/dev/null"));
}

#[test]
fn a_long_name_is_cut_to_what_a_host_name_holds() {
    let instance = InstanceKey {
        app: AppName::new("a".repeat(58)).unwrap(),
        service: ServiceName::new("web").unwrap(),
        replica: 1,
    };
    let name = hostname(&record(json!({})).spec, &instance);
    assert_eq!(name, format!("{}-web", "a".repeat(58)));
    assert!(name.len() <= 63);
}
