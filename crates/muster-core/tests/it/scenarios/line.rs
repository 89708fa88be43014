//! One line of a scenario, parsed.

use std::collections::BTreeMap;

use muster_core::time::{HOUR, MINUTE, SECOND};

/// A line of the form `verb plain plain key=value`.
pub struct Line<'a> {
    pub verb: &'a str,
    pub plain: Vec<&'a str>,
    pub options: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    pub fn of(line: &'a str) -> Line<'a> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let (options, plain): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
        Line { verb, plain, options: options.iter().filter_map(|word| word.split_once('=')).collect() }
    }

    pub fn object(&self) -> &'a str {
        self.plain.first().copied().unwrap_or_default()
    }

    pub fn has(&self, word: &str) -> bool {
        self.plain.contains(&word)
    }

    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.options.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    pub fn rest(&self, from: usize) -> String {
        self.plain[(from - 1).min(self.plain.len())..].join(" ")
    }

    /// The request as a client would hash it: without the name of the job.
    pub fn body_hash(&self) -> String {
        format!("{:?}", self.options)
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.options.iter().filter_map(|(key, value)| Some((key.strip_prefix("label.")?, *value)));
        labels.map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }
}

pub fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().unwrap_or_else(|| panic!("`{text}` is not a number"))
}

pub fn yes(text: &str) -> bool {
    text == "yes"
}

/// `30s`, `10m`, `2h`, `7d`.
pub fn span(text: &str) -> i64 {
    let (digits, unit) = text.split_at(text.len() - 1);
    number::<i64>(digits)
        * match unit {
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => 24 * HOUR,
            _ => panic!("`{text}` is not a span: write 30s, 10m, 2h or 7d"),
        }
}

/// `512g`, `100m`.
pub fn mib(text: &str) -> u64 {
    match text.strip_suffix('g') {
        Some(gib) => number::<u64>(gib) * 1_024,
        None => number(text.strip_suffix('m').unwrap_or(text)),
    }
}

/// `4`, or `2-8` for an elastic gang.
pub fn tasks(text: &str) -> (u32, Option<u32>) {
    match text.split_once('-') {
        Some((least, most)) => (number(least), Some(number(most))),
        None => (number(text), None),
    }
}
