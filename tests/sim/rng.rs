//! Choices: where every run draws from. A seed gives an endless stream; a tape gives a finite one that proptest can shrink.

/// A source of choices. Zero is always the simplest choice, so that a shrunk tape means a simpler run.
pub trait Choices {
    /// The next raw number.
    fn draw(&mut self) -> u64;

    /// A number below `n`; 0 when there is no choice.
    fn below(&mut self, n: u64) -> u64 {
        if n <= 1 { 0 } else { self.draw() % n }
    }

    /// A number from `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `per_mille` of a thousand cases; false for the simplest choice.
    fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) >= 1000 - per_mille.min(1000)
    }

    /// One of these.
    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// A waiting time with this mean, heavy at the short end and at most eight times the mean.
    fn wait(&mut self, mean: u64) -> u64 {
        let unit = (self.below(1 << 20) + 1) as f64 / (1u64 << 20) as f64;
        ((-unit.ln() * mean as f64) as u64).min(mean.saturating_mul(8))
    }
}

/// xoshiro256**, seeded by splitmix64.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self([next(), next(), next(), next()])
    }

    /// A stream of its own, so that one part's draws do not shift another's.
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }
}

impl Choices for Rng {
    fn draw(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }
}

/// A finite list of choices, all zero after its end.
#[derive(Debug, Clone)]
pub struct Tape<'t>(pub &'t [u32]);

impl Choices for Tape<'_> {
    fn draw(&mut self) -> u64 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                u64::from(*first)
            }
            None => 0,
        }
    }
}
