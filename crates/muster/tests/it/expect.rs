//! Whether what was seen is what was written: `[..]` stands for anything in a line, `...` for any lines.

/// Whether the text matches the pattern.
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

/// What would be written down: moments and addresses differ from run to run.
pub fn general(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| words(line.trim_end())).collect();
    lines.join("\n")
}

fn words(line: &str) -> String {
    let wild = |word: &str| if varies(word) { "[..]".to_string() } else { word.to_string() };
    line.split(' ').map(wild).collect::<Vec<_>>().join(" ")
}

fn varies(word: &str) -> bool {
    let shape: String =
        word.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    let dated = shape.contains("0000-00-00") || shape.contains("00:00:00");
    dated || word.contains("127.0.0.1:") || word.contains("mst_") || word.contains("/tmp/")
}

#[test]
fn wildcards_match_and_nothing_else() {
    assert!(matches("a [..] c", "a b c"));
    assert!(matches("job-1 [..]\n...\nend", "job-1 x\n1\n2\nend"));
    assert!(matches("a[..]b[..]b", "a b b"));
    assert!(!matches("a [..] c", "a b d"));
    assert!(!matches("a", "a\nb"));
    assert!(!matches("a\nb", "a"));
    assert!(matches("", ""));
}
