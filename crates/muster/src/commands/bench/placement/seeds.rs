//! Seeds as a flag value: `42`, `42-51`, `42,45-47`.

use std::collections::BTreeSet;
use std::str::FromStr;

/// Far more than a trace has, so that a typing error does not fill the memory.
const SEEDS_MAX: u64 = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds(pub BTreeSet<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let ranges: Result<Vec<_>, String> = text.split(',').map(range).collect();
        Ok(Seeds(ranges?.into_iter().flatten().collect()))
    }
}

fn range(text: &str) -> Result<std::ops::RangeInclusive<u64>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |part: &str| part.trim().parse::<u64>();
    match (number(first), number(last)) {
        (Ok(first), Ok(last)) if first > last => Err(format!("`{text}` ends before it begins")),
        (Ok(first), Ok(last)) if last - first >= SEEDS_MAX => Err(format!("`{text}` is too many seeds")),
        (Ok(first), Ok(last)) => Ok(first..=last),
        _ => Err(format!("`{text}` is neither a seed nor a range such as `42-51`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_seeds_and_ranges_mix() {
        assert_eq!("42,45-47,46".parse::<Seeds>().unwrap().0.into_iter().collect::<Vec<_>>(), [42, 45, 46, 47]);
    }

    #[test]
    fn invalid_seed_ranges_are_rejected() {
        let wrong = |text: &str| text.parse::<Seeds>().unwrap_err();
        assert_eq!(wrong("51-42"), "`51-42` ends before it begins");
        assert_eq!(wrong("42-"), "`42-` is neither a seed nor a range such as `42-51`");
        assert_eq!(wrong(""), "`` is neither a seed nor a range such as `42-51`");
        assert_eq!(wrong("0-18446744073709551615"), "`0-18446744073709551615` is too many seeds");
    }
}
