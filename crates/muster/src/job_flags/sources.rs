//! Reading a job from files and standard input, and its default name from its command.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use muster_protocol::submit::SubmitJob;
use serde_saphyr::{Error, UserMessageFormatter};

use super::JobArgs;
use crate::error::CliError;

/// Parses a job file: YAML, of which JSON is a subset, with the fields of the API.
pub fn read_job_file(file: &Path) -> Result<SubmitJob, CliError> {
    let text = read_file_or_stdin(file)?;
    serde_saphyr::from_str(&text).map_err(|error| job_file_error(file, error.without_snippet()))
}

/// File, line and problem. The parser's own message would list all known fields twice.
fn job_file_error(file: &Path, error: &Error) -> CliError {
    let line = error.location().map_or(0, |location| location.line());
    let problem = match error {
        Error::SerdeUnknownField { field, .. } => format!("there is no field `{field}`"),
        other => other.render_with_formatter(&UserMessageFormatter),
    };
    let hint = "the fields are those of POST /api/v1/jobs: name, gpu_count, cpu_cores, memory_mb, script, command, …";
    CliError::usage(format!("{}:{line}: {problem}", file.display())).hint(hint)
}

pub fn read_script(file: &Path) -> Result<String, CliError> {
    let text = read_file_or_stdin(file)?;
    if text.trim().is_empty() {
        return Err(CliError::usage(format!("the script `{}` is empty", file.display())));
    }
    Ok(text)
}

fn read_file_or_stdin(file: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(|_| text),
        _ => std::fs::read_to_string(file),
    };
    read.map_err(|error| CliError::usage(format!("cannot read `{}`: {error}", file.display())))
}

/// Variables in the format of docker: a line is `KEY=VALUE`, taken as it is, quotes included; `KEY` alone passes on the value
/// of this environment; empty lines and lines that begin with `#` are skipped.
pub fn read_env_file(file: &Path) -> Result<BTreeMap<String, String>, CliError> {
    parse_env_file(&read_file_or_stdin(file)?, |name| std::env::var(name).ok())
        .map_err(|(line, problem)| CliError::usage(format!("{}:{line}: {problem}", file.display())))
}

/// The variables, or the number of the first wrong line and what is wrong with it.
fn parse_env_file(
    text: &str,
    own_value: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, (usize, String)> {
    let mut variables = BTreeMap::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text); // Editors on Windows put it there.
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key, Some(value.to_string())),
            None => (line.trim_end(), own_value(line.trim_end())),
        };
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err((number, format!("`{key}` cannot name a variable; write `KEY=VALUE`")));
        }
        let value =
            value.ok_or_else(|| (number, format!("`{key}` is not set in this environment; write `{key}=VALUE`")))?;
        variables.insert(key.to_string(), value);
    }
    Ok(variables)
}

/// The name of the program or script, without folder and extension.
pub fn default_name(args: &JobArgs) -> Option<String> {
    let path = args.command.first().map(Path::new).or(args.script.as_deref())?;
    let stem = path.file_stem()?.to_str()?;
    (!stem.is_empty() && stem != "-").then(|| stem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<(String, String)>, (usize, String)> {
        let own = |name: &str| (name == "HOME").then(|| "/home/ann".to_string());
        parse_env_file(text, own).map(|variables| variables.into_iter().collect())
    }

    #[test]
    fn values_of_an_env_file_are_taken_as_they_are() {
        let text = "\u{feff}A=1\n\n  # no variable\nB=\"x y\" # z\r\n  C=\nD=a=b\nHOME\nA=2\n";
        let expected = [("A", "2"), ("B", "\"x y\" # z"), ("C", ""), ("D", "a=b"), ("HOME", "/home/ann")];
        let expected = expected.map(|(key, value)| (key.to_string(), value.to_string()));
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_wrong_line_of_an_env_file_is_named() {
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error("A=1\nNOT SET\n"), (2, "`NOT SET` cannot name a variable; write `KEY=VALUE`".to_string()));
        assert_eq!(
            error("# x\n\nUNSET"),
            (3, "`UNSET` is not set in this environment; write `UNSET=VALUE`".to_string())
        );
        assert_eq!(error("=1").0, 1);
        assert_eq!(error("A B=1").0, 1);
    }
}
