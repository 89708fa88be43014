//! Reading a job from files and standard input, and its default name from its command.

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

/// The name of the program or script, without folder and extension.
pub fn default_name(args: &JobArgs) -> Option<String> {
    let path = args.command.first().map(Path::new).or(args.script.as_deref())?;
    let stem = path.file_stem()?.to_str()?;
    (!stem.is_empty() && stem != "-").then(|| stem.to_string())
}
