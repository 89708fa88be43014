//! The hostile policies of `policies.txt`, expanded from their templates.

use std::fmt::Write;

/// A policy that tries to do harm.
pub struct Hostile {
    /// The attack, with the number of its template.
    pub title: String,
    pub source: String,
    /// Only a worker process can stop it in time.
    pub only_worker: bool,
    /// It may succeed.
    pub harmless: bool,
}

pub fn all() -> Vec<Hostile> {
    include_str!("policies.txt").split("\n== ").skip(1).flat_map(written_out).collect()
}

/// A template, expanded with each of its numbers.
fn written_out(block: &str) -> Vec<Hostile> {
    let (title, rest) = block.split_once('\n').unwrap();
    let (numbers, rest) = rest.split_once('\n').unwrap();
    let (flags, source) = flags_of(rest);
    let numbers = numbers.strip_prefix("N:").unwrap_or_else(|| panic!("{title} has no numbers"));
    let hostile = |number: &str| Hostile {
        title: format!("{title} ({number})"),
        source: source_of(source, number),
        only_worker: flags.contains(&"worker"),
        harmless: flags.contains(&"harmless"),
    };
    numbers.split_whitespace().map(hostile).collect()
}

fn flags_of(rest: &str) -> (Vec<&str>, &str) {
    let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_flags = !words.is_empty() && words.iter().all(|word| ["worker", "harmless"].contains(word));
    if is_flags { (words, after) } else { (Vec::new(), rest) }
}

fn source_of(template: &str, number: &str) -> String {
    let count = number.parse().unwrap_or(0);
    match template.trim() {
        "deep" => nested(count, |_| "if True:".to_string()),
        "defs" => nested(count, |i| format!("def f{i}():")),
        "fors" => nested(count, |i| format!("for i{i} in [1]:")),
        "elifs" => format!("if 0:\n  pass\n{}x = 1 + ''\n", "elif 0:\n  pass\n".repeat(count)),
        "names" => lines(count, |i| format!("n{i} = {i}")),
        "chain" => lines(count, |i| format!("def f{i}():\n  return f{}() if False else 1", (i + 1).min(count))),
        "mesh" => lines(count, |i| {
            let others = (i + 1..count).map(|other| format!("f{other}")).collect::<Vec<_>>().join(", ");
            format!("def f{i}():\n  return [{others}]")
        }),
        "parameters" => {
            let names = (0..count).map(|i| format!("p{i}")).collect::<Vec<_>>().join(", ");
            format!("def f({names}):\n  return 1\nx = f()\n")
        }
        _ => repeated(&template.replace("$N", number)),
    }
}

/// Nested blocks with a type error in the innermost.
fn nested(depth: usize, head: impl Fn(usize) -> String) -> String {
    let mut source = lines(depth, |i| format!("{}{}", " ".repeat(i), head(i)));
    writeln!(source, "{}x = 1 + ''", " ".repeat(depth)).unwrap();
    source
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(|i| line(i) + "\n").collect()
}

/// The template with each `«text»*N` expanded.
fn repeated(template: &str) -> String {
    let Some((before, rest)) = template.split_once('«') else { return template.to_string() };
    let (text, rest) = rest.split_once("»*").unwrap();
    let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    let count: usize = rest[..digits].parse().unwrap();
    format!("{before}{}{}", text.repeat(count), repeated(&rest[digits..]))
}
