//! What reading desired state costs: parsing, substituting, normalising and lowering one file, by its number of services.
//!
//! `cargo bench --bench compose`. The bar is 50 ms of CPU for 1,000 services; the growth shows that nothing is quadratic.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::fmt::Write as _;
use std::path::Path;
use stead::desired::{check, config, request_for};

/// The most CPU that 1,000 services may take.
const BAR_MS: f64 = 50.0;

/// A file as people write them, with everything that costs: anchors, references, both forms of things.
fn file(services: usize) -> String {
    let mut text =
        String::from("x-common: &common\n  restart: unless-stopped\n  labels: {team: a, tier: b}\nservices:\n");
    for n in 0..services {
        let _ = write!(
            text,
            "  web-{n}:\n    <<: *common\n    image: registry.example/team/web:${{TAG:-1.{n}}}\n    \
             command: serve --name \"web {n}\" --verbose\n    environment:\n      A: value-{n}\n      B: ${{B:-b}}\n      \
             C: {n}\n    ports: [\"127.0.0.1:{port}:80\"]\n    volumes:\n      - data:/data\n      - ./conf/{n}:/conf:ro\n    \
             networks: [front, back]\n    mem_limit: 64m\n    cpus: 0.5\n    stop_grace_period: 10s\n",
            port = 1024 + n,
        );
    }
    text + "networks: {front: {}, back: {internal: true}}\nvolumes: {data: {}}\n"
}

/// The CPU time of this process so far, in milliseconds.
fn cpu_ms() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1000.0
    })
}

/// The least CPU time of some runs: what is above it is the machine's, not ours.
fn least(runs: usize, mut work: impl FnMut()) -> f64 {
    let run = |work: &mut dyn FnMut()| {
        let before = cpu_ms();
        work();
        cpu_ms() - before
    };
    (0..runs).map(|_| run(&mut work)).fold(f64::INFINITY, f64::min)
}

fn measure(dir: &Path, services: usize, runs: usize) -> std::io::Result<f64> {
    let path = dir.join("bench.yaml");
    std::fs::write(&path, file(services))?;
    let request = request_for(&path);
    assert!(check(&request).is_good(), "the measured file is right: {:#?}", check(&request).findings);
    let checked = least(runs, || drop(check(&request)));
    let printed = least(runs, || drop(config(&request)));
    let each = checked * 1000.0 / services as f64;
    println!("{services:>8} {checked:>10.1} ms {each:>10.1} us {printed:>10.1} ms");
    Ok(checked)
}

fn main() -> std::io::Result<()> {
    let dir = tempfile::tempdir()?;
    println!("{:>8} {:>13} {:>13} {:>13}", "services", "check", "each", "config");
    measure(dir.path(), 100, 20)?;
    let thousand = measure(dir.path(), 1000, 10)?;
    let ten_thousand = measure(dir.path(), 10_000, 3)?;
    println!(
        "1,000 services: {thousand:.1} ms of CPU, bar {BAR_MS} ms; ten times the services cost {:.1} times as much",
        ten_thousand / thousand
    );
    if thousand > BAR_MS {
        return Err(std::io::Error::other("over the bar"));
    }
    Ok(())
}
