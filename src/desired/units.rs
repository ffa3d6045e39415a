//! Sizes, durations, command lines: texts that stand for something else.

/// A duration in nanoseconds: Go's units, days and weeks, fractions; always with a unit.
pub fn duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (number, tail) = rest.split_at(digits);
        let unit_length = tail.len() - tail.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (unit, tail) = tail.split_at(unit_length);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "w" => 604_800_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(number, scale)?)?;
        rest = tail;
        any = true;
    }
    i64::try_from(sign * total).ok().filter(|_| any)
}

/// A decimal number with at most one point, times a whole number, cut to a whole number.
fn scaled(number: &str, scale: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) || number.len() > 30 {
        return None;
    }
    let value = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(scale)? };
    // Eighteen digits are beyond every unit's resolution, and their product with every scale fits.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<i128>().ok()? };
    value.checked_add(scale * part / 10i128.pow(u32::try_from(fraction.len()).ok()?))
}

/// A duration as Go prints it: `1m30s`, `48h0m0s`, `20µs`.
pub fn duration_text(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let fraction = |value: u128, scale: u128| {
        let rest = value % scale;
        if rest == 0 {
            return (value / scale).to_string();
        }
        let width = scale.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        format!("{}.{}", value / scale, digits.trim_end_matches('0'))
    };
    match n {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{n}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", fraction(n, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(n, 1_000_000)),
        _ => {
            let (hours, minutes) = (n / 3_600_000_000_000, n / 60_000_000_000 % 60);
            let seconds = fraction(n % 60_000_000_000, 1_000_000_000);
            match (hours, minutes) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, _) => format!("{sign}{minutes}m{seconds}s"),
                _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// A size in bytes: binary multiples whatever the suffix, one fraction, one space; `-1` stays.
pub fn bytes(text: &str) -> Option<i64> {
    if text == "-1" {
        return Some(-1);
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let suffix = suffix.strip_prefix(' ').unwrap_or(suffix).to_ascii_lowercase();
    let power = match suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix('b')).unwrap_or(&suffix) {
        "" if !suffix.ends_with("ib") => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    scaled(number, 1 << power).and_then(|value| i64::try_from(value).ok())
}

/// A command line in words.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    /// The words.
    pub words: Vec<String>,
    /// The shell operator that ended the line early, if one did.
    pub cut: Option<char>,
}

/// Splits a command line the way the reference does: quotes and backslashes, no globs, no variables; the first
/// unquoted `;`, `&`, `|`, `<` or `>` ends it. None when a quotation mark is never closed.
pub fn words(line: &str) -> Option<Words> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let (mut single, mut double, mut back, mut dollar, mut escaped) = (false, false, false, false, false);
    let mut cut = None;
    for c in line.chars() {
        if escaped {
            word.get_or_insert_default().push(c);
            escaped = false;
            continue;
        }
        let quoted = single || double || back || dollar;
        match c {
            '\\' if !single => {
                escaped = true;
                continue;
            }
            ' ' | '\t' | '\r' | '\n' if !quoted => {
                words.extend(word.take());
                continue;
            }
            '`' if !single && !double && !dollar => back = !back,
            ')' if dollar && !single && !double && !back => dollar = false,
            ')' if !quoted => return None,
            '(' if !single && !double && !back => {
                if dollar || !word.as_ref().is_some_and(|word| word.ends_with('$')) {
                    return None;
                }
                dollar = true;
            }
            '"' if !single && !dollar => {
                double = !double;
                word.get_or_insert_default();
                continue;
            }
            '\'' if !double && !dollar => {
                single = !single;
                word.get_or_insert_default();
                continue;
            }
            ';' | '&' | '|' | '<' | '>' if !quoted => {
                if c == '>' && word.as_ref().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                    word = None;
                }
                cut = Some(c);
                break;
            }
            _ => {}
        }
        word.get_or_insert_default().push(c);
    }
    words.extend(word);
    (!escaped && !single && !double && !back && !dollar).then_some(Words { words, cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_print_as_written_by_go() {
        for (text, nanos, printed) in [
            ("90s", 90_000_000_000, "1m30s"),
            ("2d", 172_800_000_000_000, "48h0m0s"),
            ("20us", 20_000, "20µs"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("1h1m1.5s", 3_661_500_000_000, "1h1m1.5s"),
            ("1500ms", 1_500_000_000, "1.5s"),
            ("0", 0, "0s"),
        ] {
            assert_eq!(duration(text), Some(nanos), "{text}");
            assert_eq!(duration_text(i128::from(nanos)), printed);
        }
        for text in ["", "30", "5 seconds", "5sec", "1.2.3s", "s", "-", "99999999999h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_multiples() {
        for (text, value) in
            [("1gb", 1 << 30), ("64m", 64 << 20), ("1.5k", 1536), ("10 kib", 10 << 10), ("7", 7), ("-1", -1), ("3b", 3)]
        {
            assert_eq!(bytes(text), Some(value), "{text}");
        }
        for text in ["", "64 megs", "m", "1..5k", "-2", "1ib", "99999999999999999999g", "1kbb"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn command_lines_split_as_the_reference_splits_them() {
        let split = |line| words(line).map(|words| words.words);
        assert_eq!(split("a 'b c' \"d e\" f\\ g"), Some(["a", "b c", "d e", "f g"].map(str::to_owned).to_vec()));
        assert_eq!(split("a; b"), Some(vec!["a".to_owned()]));
        assert_eq!(split("a '' #x"), Some(["a", "", "#x"].map(str::to_owned).to_vec()));
        assert_eq!(split("sh -c 'a; b'"), Some(["sh", "-c", "a; b"].map(str::to_owned).to_vec()));
        assert_eq!(split("a 'b"), None);
        assert_eq!(words("a > b").and_then(|words| words.cut), Some('>'));
    }
}
