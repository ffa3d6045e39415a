//! A small OCI archive for tests, made from the machine's static busybox.

use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// The reference under which the archive's index names its image.
pub const BUSYBOX: &str = "docker.io/library/busybox:lab";

/// Programs that the image has in `/bin`, beside `busybox`.
const APPLETS: [&str; 24] = [
    "sh", "sleep", "httpd", "nc", "cat", "echo", "ls", "ip", "wget", "id", "env", "touch", "true", "false", "kill",
    "ps", "hostname", "mount", "dd", "nslookup", "ping", "mkdir", "rm", "date",
];

/// Writes `busybox.tar`, an OCI archive, into a directory.
pub fn busybox_archive(dir: &Path) -> PathBuf {
    let layer = layer();
    let diff_id = digest(&layer);
    let config = serde_json::json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": { "Env": ["PATH=/bin"], "Cmd": ["sh"] },
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    });
    let config = serde_json::to_vec(&config).expect("JSON");
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    });
    let manifest = serde_json::to_vec(&manifest).expect("JSON");
    let mut described = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    described["annotations"] =
        serde_json::json!({ "io.containerd.image.name": BUSYBOX, "org.opencontainers.image.ref.name": BUSYBOX });
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [described] });

    let path = dir.join("busybox.tar");
    let mut archive = tar::Builder::new(fs::File::create(&path).expect("an archive file"));
    put(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644);
    put(&mut archive, "index.json", &serde_json::to_vec(&index).expect("JSON"), 0o644);
    for blob in [&config, &layer, &manifest] {
        put(&mut archive, &digest(blob).replace("sha256:", "blobs/sha256/"), blob, 0o644);
    }
    archive.into_inner().expect("a whole archive").sync_all().expect("a written archive");
    path
}

fn layer() -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    for directory in ["bin/", "etc/", "proc/", "sys/", "dev/", "tmp/", "run/", "www/"] {
        let mut header = header(0, if directory == "tmp/" { 0o1777 } else { 0o755 });
        header.set_entry_type(tar::EntryType::Directory);
        layer.append_data(&mut header, directory, std::io::empty()).expect("a directory");
    }
    put(&mut layer, "bin/busybox", &fs::read("/bin/busybox").expect("busybox-static is installed"), 0o755);
    for applet in APPLETS {
        let mut header = header(0, 0o777);
        header.set_entry_type(tar::EntryType::Symlink);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox").expect("a symlink");
    }
    put(
        &mut layer,
        "etc/passwd",
        b"root:x:0:0::/:/bin/sh\nweb:x:101:102::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
        0o644,
    );
    put(&mut layer, "etc/group", b"root:x:0:\nextra:x:77:\nweb:x:102:\nnogroup:x:65534:\n", 0o644);
    put(&mut layer, "etc/nsswitch.conf", b"hosts: files\n", 0o644);
    put(&mut layer, "www/index.html", b"hello\n", 0o644);
    seed(&mut layer);
    layer.into_inner().expect("a layer")
}

/// A directory as images have them for their data: with an owner of its own, and something of each kind in it.
fn seed(layer: &mut tar::Builder<Vec<u8>>) {
    let owned = |size: u64, mode: u32| {
        let mut header = header(size, mode);
        header.set_uid(101);
        header.set_gid(102);
        header
    };
    for (directory, mode) in [("seed/", 0o750), ("seed/deep/", 0o2770)] {
        let mut header = owned(0, mode);
        header.set_entry_type(tar::EntryType::Directory);
        layer.append_data(&mut header, directory, std::io::empty()).expect("a directory");
    }
    layer.append_data(&mut owned(5, 0o640), "seed/deep/file", b"seed\n".as_slice()).expect("a file");
    let mut link = owned(0, 0o777);
    link.set_entry_type(tar::EntryType::Symlink);
    layer.append_link(&mut link, "seed/link", "deep/file").expect("a symlink");
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn put<W: std::io::Write>(archive: &mut tar::Builder<W>, name: &str, content: &[u8], mode: u32) {
    archive.append_data(&mut header(content.len() as u64, mode), name, content).expect("a file in the archive");
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", stead::model::hex(&Sha256::digest(content)))
}

fn descriptor(media_type: &str, content: &[u8]) -> serde_json::Value {
    serde_json::json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

/// Builds the static echo server into a directory.
pub fn echo_server(dir: &Path) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/echo.rs");
    let path = dir.join("echo");
    let rustc = std::process::Command::new("rustc")
        .args(["--edition", "2024", "-C", "target-feature=+crt-static", "-C", "strip=symbols", source, "-o"])
        .arg(&path)
        .output()
        .expect("rustc runs");
    assert!(rustc.status.success(), "the echo server does not build:\n{}", String::from_utf8_lossy(&rustc.stderr));
    path
}
