//! Compiles the helper that the agent carries in itself (`src/side/helper.rs`): static, so that it runs in any image.

use std::env;
use std::path::PathBuf;
use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "a build script is told everything by its environment, and runs rustc")]
fn main() {
    println!("cargo:rerun-if-changed=src/side/helper.rs");
    println!("cargo:rerun-if-changed=build.rs");
    let told = |name: &str| env::var(name).unwrap_or_default();
    let output = PathBuf::from(told("OUT_DIR")).join("helper");
    let mut rustc = Command::new(told("RUSTC"));
    rustc.args(["--edition", "2024", "--crate-type", "bin", "--crate-name", "helper", "--target", &told("TARGET")]);
    for option in
        ["opt-level=s", "panic=abort", "strip=symbols", "lto=fat", "codegen-units=1", "target-feature=+crt-static"]
    {
        rustc.args(["-C", option]);
    }
    let linker = env::var("RUSTC_LINKER");
    if let Ok(linker) = linker {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    let status = rustc.arg("-o").arg(&output).arg("src/side/helper.rs").status();
    assert!(status.is_ok_and(|status| status.success()), "rustc does not compile src/side/helper.rs");
}
