//! Running a test's body inside a node: the test binary runs itself again there, for that one test.

use super::node::Node;
use std::io::Write as _;

/// Tells the inner run that it is one, and where the node's directory is.
const INSIDE: &str = "STEAD_LAB_INSIDE";

/// Runs `body` inside the node that `make` makes (with `/run/containerd/containerd.sock` if it started a containerd).
///
/// Call it as the only statement of a test: `inside(|| Node::new(Version::V1_6), |dir| { ... })`. `body` gets the
/// node's directory; it must be a closure written in the test's own function, since its name tells which test to run.
/// The body may set up and move between namespaces at will: it is alone in its process.
#[track_caller]
pub fn inside<B: FnOnce(&std::path::Path)>(make: impl FnOnce() -> Node, body: B) {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return body(std::path::Path::new(&dir));
    }
    let node = make();
    let name = std::any::type_name::<B>();
    let name = name.split_once("::").map_or(name, |(_crate, rest)| rest);
    let test = name.split("::{{closure}}").next().unwrap_or(name);
    let output = node
        .command("env")
        .arg("-C")
        .arg(std::env::current_dir().expect("a working directory"))
        .arg(format!("{INSIDE}={}", node.dir.display()))
        .args(["timeout", "-k", "1", "240"])
        .arg(std::env::current_exe().expect("the test binary's path"))
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .output()
        .expect("nsenter runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let _ = std::io::stderr().write_all(&output.stderr);
    assert!(output.status.success(), "inside the node `{test}` failed ({}):\n{text}", output.status);
    assert!(text.contains("test result: ok. 1 passed"), "`{test}` was not run inside the node:\n{text}");
}
