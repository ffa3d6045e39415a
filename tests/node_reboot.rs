//! A power cut: every process is gone, and with it everything that lives in memory. One start of the agent brings all back,
//! at the same addresses, and nothing that was running counts as having ended well.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use support::scene::{instance, instances, running};
use support::{Scene, Version};

const APP: &str = r#"
services:
  web:
    image: busybox:lab
    command: [httpd, -f, -p, "80", -h, /www]
    ports: ["8080:80"]
    volumes: [data:/data]
    restart: always
  pool:
    image: busybox:lab
    command: [sleep, inf]
    restart: unless-stopped
    scale: 2
  job:
    image: busybox:lab
    command: [sleep, inf]
    restart: on-failure
volumes:
  data:
"#;

const LONG: Duration = Duration::from_secs(40);

fn addresses(status: &Value) -> BTreeMap<String, Value> {
    instances(status).into_iter().map(|(name, instance)| (name, instance["addresses"].clone())).collect()
}

fn reboot(version: Version) {
    let mut scene = Scene::new(version);
    scene.edit("shop.yaml", APP);
    let agent = scene.agent(&[]);
    let before = scene.await_settled(LONG, |status| running(status, 4).map(|()| status.clone()));
    scene.sh("echo kept >/proc/$(pgrep -o httpd)/root/data/file");
    let shape = scene.picture().shape().only(|line| !line.contains("f0f0f0") && !line.contains("foreign"));
    agent.kill();
    scene.cut_the_power();
    scene.start_containerd();
    let agent = scene.agent(&[]);
    let after = scene.await_settled(LONG, |status| running(status, 4).map(|()| status.clone()));
    assert_eq!(addresses(&before), addresses(&after), "addresses stay the same across a reboot");
    let job = instance(&after, "shop/job/1").unwrap();
    assert!(job["exit_code"] != 0, "a power cut is no success: {job:#}");
    assert_eq!(scene.sh("cat /proc/$(pgrep -o httpd)/root/data/file"), "kept\n");
    assert!(scene.client("busybox wget -q -O - http://192.0.2.1:8080/").is_ok(), "the published port works again");
    let now = scene.picture().shape().only(|line| !line.contains("f0f0f0") && !line.contains("foreign"));
    let without = ["mounts", "nft"];
    shape.without(&without).assert_same(&now.without(&without), "after a reboot");
    agent.stop();
}

#[test]
fn a_reboot_brings_everything_back_on_1_6() {
    reboot(Version::V1_6);
}

#[test]
fn a_reboot_brings_everything_back_on_1_7() {
    reboot(Version::V1_7);
}
