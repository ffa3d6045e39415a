//! How a failure is told: seed, time, oracle, the loop's own last lines, and the one command that plays it again.

use super::seed::{Mode, Verdict, play};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// How many of the loop's step lines are shown.
const STEP_LINES: usize = 30;

/// The last lines of the loop's log.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<VecDeque<String>>>);

impl io::Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().expect("nobody panics while writing a line");
        if lines.len() == STEP_LINES {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(bytes).trim_end().to_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Tail {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

/// Plays a seed once more with every line kept, and tells it.
pub fn tell(seed: u64, mode: &Mode) -> (Verdict, String) {
    let tail = Tail::default();
    let log = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false).with_level(false);
    let log = log.with_writer(tail.clone()).finish();
    let mode = Mode { keep_lines: true, ..mode.clone() };
    let verdict = tracing::subscriber::with_default(log, || play(seed, &mode));
    let mut text = String::new();
    let _ = writeln!(text, "seed {seed}: {} steps in {} virtual ms", verdict.asked, verdict.lasted);
    for line in &verdict.lines {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "the loop's last lines:");
    for line in tail.0.lock().expect("the run is over").iter() {
        let _ = writeln!(text, "  {line}");
    }
    for broken in &verdict.violations {
        let _ = writeln!(text, "tick {}: {}: {}", broken.at, broken.oracle, broken.what);
    }
    let _ = writeln!(text, "play it again: STEAD_SIM_SEED={seed} cargo test --test simulate replay -- --nocapture");
    (verdict, text)
}
