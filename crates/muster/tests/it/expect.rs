//! Matching of outputs against patterns: `[..]` stands for any text within a line, `...` for any lines.

pub fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<&str> = pattern.lines().collect();
    let text: Vec<&str> = text.lines().collect();
    lines_match(&pattern, &text)
}

fn lines_match(pattern: &[&str], text: &[&str]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=text.len()).any(|skipped| lines_match(rest, &text[skipped..])),
        ([first, rest @ ..], [line, more @ ..]) => line_matches(first, line) && lines_match(rest, more),
        _ => false,
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.trim_end().split("[..]");
    let Some(mut rest) = line.trim_end().strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.ends_with(last)
}

/// The text with wildcards for what differs from run to run: times, durations, addresses and random names.
pub fn with_wildcards(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| line_with_wildcards(line.trim_end())).collect();
    lines.join("\n")
}

/// The wildcard of a word includes the spaces after it, because their number depends on the length of the word.
fn line_with_wildcards(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let after_wildcard = words.last().is_some_and(|last| last == "[..]");
        match (varies(word), word) {
            (true, _) if after_wildcard => {}
            (true, _) => words.push(wildcard_for(word)),
            (false, "") if after_wildcard => {}
            (false, _) => words.push(word.to_string()),
        }
    }
    words.join(" ")
}

/// Punctuation around the word stays.
fn wildcard_for(word: &str) -> String {
    let end = word.trim_end_matches([',', '`', ':', ')', '"']).len();
    let start = word.get(..1).filter(|first| ["`", "\""].contains(first)).unwrap_or_default();
    format!("{start}[..]{}", &word[end..])
}

fn varies(word: &str) -> bool {
    let bare = word.trim_matches([',', '`', ':', ')', '(', '"']);
    let shape: String = bare.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let dated = shape.contains("0000-00-00") || shape.contains("00:00:00") || shape == "0".repeat(13);
    let span = shape.trim_start_matches('0') == "s" || shape.trim_start_matches('0').starts_with("ms");
    let hours = shape == "0.0000" || shape == "0.00";
    let token = bare.strip_prefix('t').is_some_and(|id| id.len() == 10 && id.chars().all(|c| c.is_ascii_hexdigit()));
    let local = ["127.0.0.1:", "mst_", "/tmp/"].iter().any(|prefix| bare.contains(prefix));
    dated || (span && shape.len() > 1) || hours || token || local
}

#[test]
fn only_wildcards_match_differing_text() {
    assert!(matches("a [..] c", "a b c"));
    assert!(matches("job-1 [..]\n...\nend", "job-1 x\n1\n2\nend"));
    assert!(matches("a[..]b[..]b", "a b b"));
    assert!(!matches("a [..] c", "a b d"));
    assert!(!matches("a", "a\nb"));
    assert!(!matches("a\nb", "a"));
    assert!(matches("", ""));
}

#[test]
fn what_varies_is_written_as_a_wildcard() {
    assert_eq!(with_wildcards("job-1  a  0s       -"), "job-1  a  [..] -");
    assert_eq!(with_wildcards("queued 197ms, position 1"), "queued [..], position 1");
    assert_eq!(with_wildcards("SINCE 2026-11-15 04:20:31Z"), "SINCE [..]");
    assert_eq!(with_wildcards("token `t25dd846de2` was revoked"), "token `[..]` was revoked");
    assert_eq!(with_wildcards("2 GPUs of 8"), "2 GPUs of 8");
}
