//! The real loop on the simulated node (DESIGN section 9, item 3).

mod sim;

use sim::seed::{Mode, play};
use sim::show::tell;

#[test]
fn storm_then_calm() {
    let mut bad = 0;
    for seed in 1..=300u64 {
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
    #[expect(clippy::disallowed_methods, reason = "the seed to replay is the one thing a person gives")]
    let seed = std::env::var("STEAD_SIM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (verdict, text) = tell(seed, &Mode::honest());
    println!("{text}");
    assert!(verdict.violations.is_empty());
}
