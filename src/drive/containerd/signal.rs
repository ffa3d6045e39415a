//! Signals as people write them.

use super::error::CallError;
use nix::sys::signal::Signal;
use std::str::FromStr;

/// The first real-time signal as programs see it (the C library keeps two below it for itself).
const RTMIN: u32 = 34;
/// The last one.
const RTMAX: u32 = 64;

/// The number of `SIGTERM`, `term`, `15`, `SIGRTMIN+3` or `RTMAX-1`.
pub fn number(text: &str) -> Result<u32, CallError> {
    let refuse = || CallError::Invalid {
        what: format!("there is no signal `{text}`"),
        hint: Some("write a name like SIGTERM or a number from 1 to 64".to_owned()),
    };
    if let Ok(number) = text.parse::<u32>() {
        return if (1..=RTMAX).contains(&number) { Ok(number) } else { Err(refuse()) };
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let offset = |rest: &str, sign: char| match rest {
        "" => Some(0),
        rest => rest.strip_prefix(sign)?.parse::<u32>().ok().filter(|offset| *offset <= RTMAX - RTMIN),
    };
    if let Some(rest) = name.strip_prefix("RTMIN") {
        return Ok(RTMIN + offset(rest, '+').ok_or_else(refuse)?);
    }
    if let Some(rest) = name.strip_prefix("RTMAX") {
        return Ok(RTMAX - offset(rest, '-').ok_or_else(refuse)?);
    }
    Signal::from_str(&format!("SIG{name}")).map(|signal| (signal as i32).unsigned_abs()).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_understood() {
        for (text, expected) in
            [("SIGTERM", 15), ("quit", 3), ("9", 9), ("SIGRTMIN+3", 37), ("RTMAX-1", 63), ("RTMIN", 34)]
        {
            assert_eq!(number(text).expect(text), expected, "{text}");
        }
        for text in ["", "0", "65", "SIGNOPE", "RTMIN-1", "RTMIN+99", "SIG"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
