//! Commands in Markdown: what to type, what to see, and what comes back.

use std::process::Command;

/// One command with what is expected of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// As typed; several lines for a here-document.
    pub command: String,
    /// What should be seen; `None` where the text does not say.
    pub output: Option<String>,
    /// The exit code.
    pub code: i32,
    /// Line of the command, counted from 0.
    pub line: usize,
    /// First line after its output.
    pub end: usize,
}

/// How a fenced block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// `$ command`, then its output, then `? code`.
    Console,
    /// Commands only.
    Shell,
    /// Something else.
    Other,
}

/// Every command of a text, in order. A block after a comment that begins with `not run` is left out.
pub fn steps(text: &str) -> Vec<Step> {
    let lines: Vec<&str> = text.lines().collect();
    let mut steps = Vec::new();
    let mut place = 0;
    while place < lines.len() {
        let Some(kind) = fence(lines[place]) else {
            place += 1;
            continue;
        };
        let end = (place + 1..lines.len()).find(|line| lines[*line].trim() == "```").unwrap_or(lines.len());
        let wanted = !before(&lines[..place]).starts_with("<!-- not run");
        match kind {
            Block::Console if wanted => steps.extend(console(&lines, place + 1, end)),
            Block::Shell if wanted => steps.extend(shell(&lines, place + 1, end)),
            _ => {}
        }
        place = end + 1;
    }
    steps
}

/// What a comment such as `<!-- server: dev --real -->` says.
pub fn setting<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("<!-- {name}: ");
    text.lines().find_map(|line| line.strip_prefix(start.as_str())?.strip_suffix(" -->"))
}

fn fence(line: &str) -> Option<Block> {
    let language = line.trim().strip_prefix("```")?;
    Some(match language {
        "console" => Block::Console,
        "sh" | "bash" => Block::Shell,
        _ => Block::Other,
    })
}

fn before<'a>(lines: &[&'a str]) -> &'a str {
    lines.iter().rev().find(|line| !line.trim().is_empty()).copied().unwrap_or_default()
}

fn console(lines: &[&str], start: usize, end: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (place, line) in lines.iter().enumerate().take(end).skip(start) {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_string(),
                output: None,
                code: 0,
                line: place,
                end: place + 1,
            });
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        step.end = place + 1;
        match (line.strip_prefix("> "), line.strip_prefix("? ").and_then(|code| code.parse().ok())) {
            (Some(more), _) if step.output.is_none() => step.command.push_str(&format!("\n{more}")),
            (_, Some(code)) => step.code = code,
            _ => step.output.get_or_insert_default().push_str(&format!("{line}\n")),
        }
    }
    steps
}

/// A command goes on until the shell finds nothing open in it: quotes, loops, here-documents.
fn shell(lines: &[&str], start: usize, end: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open = String::new();
    for (place, line) in lines.iter().enumerate().take(end).skip(start) {
        if open.is_empty() && (line.trim().is_empty() || line.trim().starts_with('#')) {
            continue;
        }
        open.push_str(&format!("{line}\n"));
        if is_whole(&open) {
            let command = std::mem::take(&mut open).trim_end().to_string();
            steps.push(Step { command, output: None, code: 0, line: place, end: place + 1 });
        }
    }
    assert!(open.is_empty(), "a block ends in the middle of a command:\n{open}");
    steps
}

fn is_whole(text: &str) -> bool {
    let goes_on = text.trim_end().ends_with('\\');
    // A here-document that has no end is only warned about.
    let checked = Command::new("bash").args(["-n", "-c", text]).output().unwrap();
    !goes_on && checked.status.success() && checked.stderr.is_empty()
}

#[test]
fn commands_are_found_with_what_is_expected() {
    let text = "\
# Title
```console
$ muster ps
ID
$ cat > x <<EOF
> one
> EOF
$ false
? 1
```
<!-- not run: needs a network -->
```sh
curl x
```
```sh
# a comment
for i in 1 2; do
  echo $i
done
a \\
  b
post '{
  x
}'
```
";
    let found: Vec<(String, Option<String>, i32)> =
        steps(text).into_iter().map(|step| (step.command, step.output, step.code)).collect();
    assert_eq!(
        found,
        [
            ("muster ps".into(), Some("ID\n".into()), 0),
            ("cat > x <<EOF\none\nEOF".into(), None, 0),
            ("false".into(), None, 1),
            ("for i in 1 2; do\n  echo $i\ndone".into(), None, 0),
            ("a \\\n  b".into(), None, 0),
            ("post '{\n  x\n}'".into(), None, 0),
        ]
    );
}
