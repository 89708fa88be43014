//! Commands in Markdown, with their expected outputs and exit codes.

use std::process::Command;

/// One command with its expected result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The command; several lines for a here-document.
    pub command: String,
    /// The expected output; `None` if the text shows none.
    pub output: Option<String>,
    /// The expected exit code.
    pub code: i32,
    /// Line of the command, counted from 0.
    pub line: usize,
    /// First line after its output.
    pub end: usize,
}

/// The kind of a fenced block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// `$ command`, then its output, then `? code`.
    Console,
    /// Commands only.
    Shell,
    Other,
}

/// Every command of a text, in order. A block after a comment that begins with `not run` is skipped.
pub fn steps(text: &str) -> Vec<Step> {
    let lines: Vec<&str> = text.lines().collect();
    let mut steps = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let Some(kind) = fence(lines[index]) else {
            index += 1;
            continue;
        };
        let end = (index + 1..lines.len()).find(|line| lines[*line].trim() == "```").unwrap_or(lines.len());
        let is_run = !before(&lines[..index]).starts_with("<!-- not run");
        match kind {
            Block::Console if is_run => steps.extend(console(&lines, index + 1, end)),
            Block::Shell if is_run => steps.extend(shell(&lines, index + 1, end)),
            _ => {}
        }
        index = end + 1;
    }
    steps
}

/// The value of a comment such as `<!-- server: dev --real -->`.
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
    for (index, line) in lines.iter().enumerate().take(end).skip(start) {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_string(), output: None, code: 0, line: index, end: index + 1 });
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        step.end = index + 1;
        match (line.strip_prefix("> "), line.strip_prefix("? ").and_then(|code| code.parse().ok())) {
            (Some(more), _) if step.output.is_none() => step.command.push_str(&format!("\n{more}")),
            (_, Some(code)) => step.code = code,
            _ => step.output.get_or_insert_default().push_str(&format!("{line}\n")),
        }
    }
    steps
}

/// A command extends over all lines that the shell needs to close its quotes, loops and here-documents.
fn shell(lines: &[&str], start: usize, end: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open = String::new();
    for (index, line) in lines.iter().enumerate().take(end).skip(start) {
        if open.is_empty() && (line.trim().is_empty() || line.trim().starts_with('#')) {
            continue;
        }
        open.push_str(&format!("{line}\n"));
        if is_whole(&open) {
            let command = std::mem::take(&mut open).trim_end().to_string();
            steps.push(Step { command, output: None, code: 0, line: index, end: index + 1 });
        }
    }
    assert!(open.is_empty(), "a block ends in the middle of a command:\n{open}");
    steps
}

fn is_whole(text: &str) -> bool {
    let continues = text.trim_end().ends_with('\\');
    // Bash only warns about a here-document without an end.
    let checked = Command::new("bash").args(["-n", "-c", text]).output().unwrap();
    !continues && checked.status.success() && checked.stderr.is_empty()
}

#[test]
fn commands_are_parsed_with_their_expected_results() {
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
