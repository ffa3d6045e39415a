//! Wall time as a number: the model has no clock, it is told the time.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds since the Unix epoch. All arithmetic saturates: a jumping clock must not panic anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This much later.
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How much later this is than `earlier`; zero when it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// RFC 3339 in UTC with seconds, as status prints it.
    pub fn rfc3339(self) -> String {
        let seconds = self.0 / 1000;
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Days since 1970-01-01 to a date of the proleptic Gregorian calendar (era arithmetic on 400-year cycles).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// How long a restart waits after `failures` runs in a row that ended too soon: 100 ms doubling to 60 s, with up to a
/// quarter taken off by `spread` so that a crowd does not start at one instant. Saturates for every count.
pub fn restart_delay(failures: u32, spread: u64) -> Duration {
    const FIRST: u64 = 100;
    const CAP: u64 = 60_000;
    let Some(doublings) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let full = if doublings > 20 { CAP } else { (FIRST << doublings).min(CAP) };
    Duration::from_millis(full - full / 4 * (spread % 101) / 100)
}

/// A run of at least this long is a good run: it ends a series of failures.
pub const GOOD_RUN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_bounded_and_never_shrinks_for_every_count() {
        let mut last = Duration::ZERO;
        for failures in (0..100).chain([u32::MAX - 1, u32::MAX]) {
            let delay = restart_delay(failures, 0);
            assert!(delay >= last && delay <= Duration::from_secs(60), "{failures}: {delay:?}");
            last = delay;
        }
        assert_eq!(restart_delay(0, 7), Duration::ZERO);
        assert_eq!(restart_delay(1, 0), Duration::from_millis(100));
    }

    #[test]
    fn dates_are_right_on_both_sides_of_a_leap_day() {
        assert_eq!(Timestamp(0).rfc3339(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp(1_709_164_800_000).rfc3339(), "2024-02-29T00:00:00Z");
        assert_eq!(Timestamp(1_709_251_199_999).rfc3339(), "2024-02-29T23:59:59Z");
        assert_eq!(Timestamp(1_709_251_200_000).rfc3339(), "2024-03-01T00:00:00Z");
    }
}
