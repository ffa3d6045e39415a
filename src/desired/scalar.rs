//! What a plain scalar is. The rules are those of the reference's YAML library, not of YAML 1.2 alone: people's files
//! hold `0755`, `1_000` and dates, and mean by them what `docker compose` makes of them.

use super::node::Value;

/// Resolves a plain scalar.
pub fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Value::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        _ => {}
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        if let Some(date) = date(text) {
            return Value::Odd(date);
        }
        let digits = text.replace('_', "");
        if let Some(value) = whole(&digits) {
            return i64::try_from(value).map_or_else(|_| Value::Odd(value.to_string()), Value::Int);
        }
        if let Some(value) = fraction(&digits) {
            return Value::Float(value);
        }
    }
    Value::Text(text.to_owned())
}

/// A whole number: decimal, `0x`, `0b`, `0o`, or octal after a leading zero. `-0` stays text.
fn whole(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match (lower.get(..2), lower.len()) {
        (Some("0x"), _) => (16, &lower[2..]),
        (Some("0b"), _) => (2, &lower[2..]),
        (Some("0o"), _) => (8, &lower[2..]),
        (Some(_), 2..) if lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    // from_str_radix takes a sign of its own, which has no place here.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = sign * i128::from_str_radix(digits, radix).ok()?;
    let fits = value >= i128::from(i64::MIN) && value <= i128::from(u64::MAX);
    (fits && !(sign < 0 && value == 0)).then_some(value)
}

/// A number with a fraction or an exponent. One that is too large stays text.
fn fraction(text: &str) -> Option<f64> {
    let body = text.trim_start_matches(['+', '-']);
    if text.len() - body.len() > 1 || text == "-0" {
        return None;
    }
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (body, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let good = match mantissa.split_once('.') {
        Some(("", after)) => digits(after),
        Some((before, after)) => digits(before) && (after.is_empty() || digits(after)),
        None => digits(mantissa),
    };
    let exponent_good = exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)));
    if !good || !exponent_good {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A date, with or without a time, as the reference prints it when it is used as text.
fn date(text: &str) -> Option<String> {
    let (day, rest) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(text[at + 1..].trim_start())),
        None => (text, None),
    };
    let mut parts = day.split('-');
    let (year, month, number) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 || month.len() > 2 || number.len() > 2 {
        return None;
    }
    let (year, month, number): (u32, u32, u32) = (year.parse().ok()?, month.parse().ok()?, number.parse().ok()?);
    if !(1..=12).contains(&month) || number < 1 || number > days_in(year, month) {
        return None;
    }
    let time = match rest {
        None => "00:00:00 +0000 UTC".to_owned(),
        Some(rest) => time(rest)?,
    };
    Some(format!("{year:04}-{month:02}-{number:02} {time}"))
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn time(text: &str) -> Option<String> {
    let (clock, zone) = match text.find(['Z', '+', '-', ' ']) {
        Some(at) => (&text[..at], text[at..].trim()),
        None => (text, ""),
    };
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let (whole, fraction) = second.split_once('.').unwrap_or((second, ""));
    let (hour, minute, whole): (u32, u32, u32) = (hour.parse().ok()?, minute.parse().ok()?, whole.parse().ok()?);
    if parts.next().is_some() || hour > 23 || minute > 59 || whole > 59 || !fraction.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let zone = match zone {
        "" | "Z" => "+0000 UTC".to_owned(),
        zone => {
            let digits = zone.replace(':', "");
            let numbers = digits.strip_prefix(['+', '-'])?;
            if numbers.len() != 4 || !numbers.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            format!("{digits} {digits}")
        }
    };
    Some(format!("{hour:02}:{minute:02}:{whole:02}{point}{fraction} {zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::node::{At, Node};

    fn text_of(scalar: &str) -> String {
        Node::new(At::default(), resolve(scalar)).scalar_text().unwrap_or_else(|| "null".to_owned())
    }

    #[test]
    fn plain_scalars_read_as_the_reference_reads_them() {
        for (written, read) in [
            ("0755", "493"),
            ("0o755", "493"),
            ("0b11", "3"),
            ("0x1F", "31"),
            ("1_000", "1000"),
            ("08", "8"),
            ("1.10", "1.1"),
            ("10.0", "10"),
            ("1000000.0", "1e+06"),
            ("2024-01-31", "2024-01-31 00:00:00 +0000 UTC"),
            ("True", "true"),
            ("-0", "-0"),
            ("1e400", "1e400"),
            ("0o8", "0o8"),
            ("1.2.3", "1.2.3"),
            ("22:22", "22:22"),
            ("yes", "yes"),
            ("18446744073709551615", "18446744073709551615"),
            ("2024-13-01", "2024-13-01"),
            ("-", "-"),
            ("+", "+"),
            (".", "."),
            ("~", "null"),
        ] {
            assert_eq!(text_of(written), read, "{written}");
        }
    }
}
