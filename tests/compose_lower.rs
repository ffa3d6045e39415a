//! What a Compose file becomes in the model, field by field, and what is refused with its place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::path::Path;
use stead::desired::{Checked, check, render, request_for};
use stead::model::{
    InstanceSpec, Mount, MountSource, NetworkName, Port, Protocol, Restart, ServiceName, Severity, VolumeName,
};

fn check_text(text: &str) -> (tempfile::TempDir, Checked) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    fs::write(&file, text).unwrap();
    let checked = check(&request_for(&file));
    (dir, checked)
}

fn errors(text: &str) -> Vec<(u32, u32, String)> {
    let (_dir, checked) = check_text(text);
    let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| (finding.place.line, finding.place.column, finding.message.clone())).collect()
}

fn spec(text: &str) -> InstanceSpec {
    let (_dir, checked) = check_text(text);
    let content = checked.content.unwrap_or_else(|| panic!("{:#?}", checked.findings));
    content.services[&ServiceName::new("web").unwrap()].spec.clone()
}

/// Every field that the first version honours.
const SUBSET: &str = r#"
name: Shop
services:
  web:
    image: team/web:1
    command: run 'with space' $$HOME
    entrypoint: ["/init"]
    environment: [A=1, NOTHING, B=]
    user: "1000:1000"
    working_dir: /srv
    hostname: front
    labels: {team: a, none: }
    container_name: the-web
    restart: on-failure:3
    stop_signal: SIGQUIT
    stop_grace_period: 1m30s
    ports: ["8080:80", "127.0.0.1:53:53/udp", "9000-9001:9000-9001", "7"]
    networks:
      inner: {aliases: [w], ipv4_address: 10.9.0.5}
      outer: {gw_priority: 1}
    volumes: ["./site:/www/html:ro", "data:/data", "/abs:/www"]
    tmpfs: /tmp:size=1m
    read_only: true
    privileged: true
    cap_add: [cap_net_admin]
    cap_drop: [ALL]
    mem_limit: 1gb
    cpus: 0.5
    pids_limit: 7
networks:
  inner:
    internal: true
    ipam: {config: [{subnet: 10.9.0.0/24, gateway: 10.9.0.9}]}
  outer:
  unused:
volumes:
  data:
"#;

#[test]
fn every_field_of_the_subset_has_its_place_in_the_model() {
    let (dir, checked) = check_text(SUBSET);
    assert_eq!(checked.app.as_ref().unwrap().as_str(), "shop");
    let content = checked.content.unwrap_or_else(|| panic!("{:#?}", checked.findings));
    let service = &content.services[&ServiceName::new("web").unwrap()];
    let spec = &service.spec;
    assert_eq!((service.replicas, service.place.line, service.place.column), (1, 4, 3));
    assert_eq!(spec.image.reference, "docker.io/team/web:1");
    assert_eq!(spec.command.as_ref().unwrap(), &["run", "with space", "$HOME"]);
    assert_eq!(spec.environment.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(), ["A=1", "B="]);
    assert_eq!(spec.labels["none"], "");
    assert_eq!(spec.restart, Some(Restart::OnFailure { max: Some(3) }));
    assert_eq!(spec.stop_grace_ms, Some(90_000));
    let port = |host_ip: Option<&str>, host, container, protocol| Port {
        host_ip: host_ip.map(|ip| ip.parse().unwrap()),
        host,
        container,
        protocol,
        from: std::collections::BTreeSet::new(),
    };
    let ports = [
        port(None, Some(8080), 80, Protocol::Tcp),
        port(Some("127.0.0.1"), Some(53), 53, Protocol::Udp),
        port(None, Some(9000), 9000, Protocol::Tcp),
        port(None, Some(9001), 9001, Protocol::Tcp),
        port(None, None, 7, Protocol::Tcp),
    ];
    assert_eq!(spec.ports, ports);
    assert_eq!(spec.networks.iter().map(|n| n.network.as_str()).collect::<Vec<_>>(), ["outer", "inner"]);
    assert_eq!(spec.networks[1].address, Some("10.9.0.5".parse().unwrap()));
    let mount = |target: &str, source, read_only| {
        let settings = Default::default();
        Mount { target: target.to_owned(), source, read_only, settings }
    };
    let mounts = [
        mount("/data", MountSource::Volume(VolumeName::new("data").unwrap()), false),
        mount("/www", MountSource::Bind { path: "/abs".into(), create: true }, false),
        mount("/tmp", MountSource::Tmpfs { options: vec!["size=1m".to_owned()] }, false),
        mount("/www/html", MountSource::Bind { path: dir.path().join("site"), create: true }, true),
    ];
    assert_eq!(spec.mounts, mounts);
    assert_eq!(spec.cap_add.iter().collect::<Vec<_>>(), ["NET_ADMIN"]);
    assert_eq!((spec.limits.memory, spec.limits.milli_cpus, spec.limits.pids), (Some(1 << 30), Some(500), Some(7)));
    assert_eq!(content.networks.len(), 2, "a network that nobody uses is not made");
    let inner = &content.networks[&NetworkName::new("inner").unwrap()];
    assert_eq!(inner.subnet, Some("10.9.0.0/24".parse().unwrap()));
    assert!(inner.internal && inner.gateway == Some("10.9.0.9".parse().unwrap()));
    assert_eq!(content.volumes.len(), 1);
}

#[test]
fn the_least_file_writes_nothing_that_was_not_asked_for() {
    let spec = spec("services: {web: {image: web}}");
    let json = serde_json::to_value(&spec).unwrap();
    let want = serde_json::json!({
        "image": {"reference": "docker.io/library/web:latest"},
        "networks": [{"network": "default"}],
    });
    assert_eq!(json, want, "a default of ours in here would change the digest of an unchanged file");
}

#[test]
fn all_faults_of_a_file_are_told_at_once_each_at_its_place() {
    let found = errors(
        "services:\n  web:\n    imge: web\n    user: 1000\n    restart: allways\n    ports: [\"70000\"]\n    depends_on: [db]\n  db:\n    image: db\n    stop_grace_period: 30\n",
    );
    let places: Vec<(u32, u32)> = found.iter().map(|(line, column, _)| (*line, *column)).collect();
    assert_eq!(places, [(2, 3), (3, 5), (4, 11), (5, 14), (6, 13), (10, 24)], "{found:#?}");
}

#[test]
fn what_is_not_honoured_is_refused_by_name_with_a_way_out() {
    let (_dir, checked) = check_text("services:\n  web:\n    image: web\n    gpus: all\n    attach: false\n");
    let [gpus, attach] = checked.findings.as_slice() else { panic!("{:#?}", checked.findings) };
    let error = gpus.severity == Severity::Error;
    assert!(error && gpus.message.contains("`gpus`") && gpus.hint.is_some());
    assert_eq!(attach.severity, Severity::Note);
}

#[test]
fn permission_bits_without_a_zero_are_refused_and_with_one_they_are_octal() {
    let text = |mode: &str| {
        format!(
            "services:\n  web:\n    image: web\n    volumes:\n      - {{type: tmpfs, target: /t, tmpfs: {{size: 1m, mode: {mode}}}}}\n"
        )
    };
    let mounts = spec(&text("01777")).mounts;
    let options = ["size=1048576", "mode=1777"].map(str::to_owned).to_vec();
    assert_eq!(mounts[0].source, MountSource::Tmpfs { options });
    let found = errors(&text("1777"));
    assert_eq!((found.len(), found[0].0), (1, 5), "{found:#?}");
    assert!(found[0].2.contains("3361 in octal"));
}

#[test]
fn findings_are_rendered_with_the_line_and_a_caret() {
    let (dir, checked) = check_text("services:\n  web:\n    imge: web\n    image: web\n");
    let text = render(&checked.findings[0], false).replace(&dir.path().display().to_string(), "DIR");
    insta::assert_snapshot!(text, @r"
    DIR/app.yaml:3:5: error: `imge` is not a service key
      |
    3 |     imge: web
      |     ^
      = help: did you mean `image`?
    ");
}

/// An OCI archive, as far as anybody looks into it here.
fn archive(path: &Path, index: &str) {
    let mut builder = tar::Builder::new(fs::File::create(path).unwrap());
    for (name, bytes) in [("blobs/sha256/aa", "x".repeat(100_000)), ("index.json", index.to_owned())] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, bytes.as_bytes()).unwrap();
    }
    builder.finish().unwrap();
}

#[test]
fn an_archive_is_known_by_the_digest_that_its_index_names() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    fs::write(&file, "services: {web: {image: 'web:1', x-stead: {archive: ./web.tar}}}").unwrap();
    let look = || check(&request_for(&file));
    assert!(look().findings[0].message.contains("does not exist"));
    fs::write(dir.path().join("web.tar"), "not a tar").unwrap();
    assert!(look().findings[0].message.contains("not an OCI archive"));
    archive(&dir.path().join("web.tar"), r#"{"manifests":[{"digest":"sha256:1"}]}"#);
    let checked = look();
    assert!(checked.inputs.contains(&dir.path().join("web.tar")));
    let content = checked.content.unwrap_or_else(|| panic!("{:#?}", checked.findings));
    let archive_of = |content: &stead::desired::Content| {
        content.services[&ServiceName::new("web").unwrap()].spec.image.archive.clone().unwrap()
    };
    assert_eq!(archive_of(&content).digest, "sha256:1");
    let many = r#"{"manifests":[{"digest":"sha256:1","annotations":{"a":"other:1"}},
        {"digest":"sha256:2","annotations":{"org.opencontainers.image.ref.name":"web:1"}}]}"#;
    archive(&dir.path().join("web.tar"), many);
    assert_eq!(archive_of(&look().content.unwrap()).digest, "sha256:2");
}

#[test]
fn the_samples_are_right() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("desired-state");
    for file in ["web.yaml", "crew.yaml", "shop/compose.yaml"] {
        let checked = check(&request_for(&dir.join(file)));
        assert!(checked.is_good(), "{file}: {:#?}", checked.findings);
    }
}
