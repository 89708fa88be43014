//! Durations as people write them: `500ms`, `20s`, `2m`, `1h30m`.

/// Units, largest first; the order in which they are written and read.
const UNITS: [(&str, i64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write for example `500ms`, `20s`, `2m` or `1h30m`")]
pub struct NotADuration(pub String);

/// Read a duration, in milliseconds.
pub fn parse_ms(text: &str) -> Result<i64, NotADuration> {
    let bad = || NotADuration(text.to_string());
    let mut rest = text.trim();
    let mut total_ms: i64 = 0;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let (part_ms, after) = leading_part(rest).ok_or_else(bad)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(bad)?;
        rest = after;
    }
    Ok(total_ms)
}

/// Write a duration, for people.
pub fn humane(duration_ms: i64) -> String {
    let mut rest_ms = duration_ms.max(0);
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        let count = rest_ms / unit_ms;
        rest_ms %= unit_ms;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_string() } else { text }
}

/// One number with its unit, and what follows it.
fn leading_part(text: &str) -> Option<(i64, &str)> {
    let digits_end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (digits, after_digits) = text.split_at(digits_end);
    let unit_end =
        after_digits.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(after_digits.len());
    let (unit, after) = after_digits.split_at(unit_end);
    let (_, unit_ms) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    Some((digits.parse::<i64>().ok()?.checked_mul(unit_ms)?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn humane_texts_are_read() {
        for (text, expected_ms) in [
            ("500ms", 500),
            ("20s", 20_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_ms(text), Ok(expected_ms), "{text}");
            assert_eq!(humane(expected_ms), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "20",
            "s",
            "-5s",
            "+5s",
            "5 s",
            "1.5s",
            "5x",
            "99999999999999999999s",
            "9223372036854775807d",
        ] {
            assert_eq!(parse_ms(text), Err(NotADuration(text.to_string())), "{text}");
        }
    }
}
