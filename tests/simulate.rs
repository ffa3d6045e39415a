//! The real loop on the simulated node: a storm of faults from a seed, then calm, with an oracle for each promise.

mod sim;

use sim::seed::{Mode, play};
use sim::show::tell;

/// Seeds that every run plays; `STEAD_SIM_SEEDS=n` plays another number of them.
const SEEDS: u64 = 300;

fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "which seeds to play is the one thing a person gives")]
    let text = std::env::var(variable).ok()?;
    text.parse().ok()
}

#[test]
fn storm_then_calm() {
    let mut bad = 0;
    for seed in 1..=number("STEAD_SIM_SEEDS").unwrap_or(SEEDS) {
        let verdict = play(seed, &Mode::honest());
        if let Some(first) = verdict.violations.first() {
            bad += 1;
            println!(
                "seed {seed}: {} at {}: {}",
                first.oracle,
                first.at,
                first.what.chars().take(200).collect::<String>()
            );
            if bad > 20 {
                break;
            }
        }
    }
    assert_eq!(bad, 0);
}

/// Plays one seed and shows it: `STEAD_SIM_SEED=n cargo test --test simulate replay -- --nocapture`.
#[test]
fn replay() {
    let seed = number("STEAD_SIM_SEED").unwrap_or(1);
    let (verdict, text) = tell(seed, &Mode::honest());
    println!("{text}");
    assert!(verdict.violations.is_empty());
}
