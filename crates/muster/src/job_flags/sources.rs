//! What a job is read from: files, standard input, and the words of its command.

use std::io::Read;
use std::path::Path;

use muster_protocol::submit::SubmitJob;
use serde_saphyr::{Error, UserMessageFormatter};

use super::JobArgs;
use crate::error::CliError;

/// A job file. YAML, of which JSON is a part; the fields are those of the API.
pub fn job_file(file: &Path) -> Result<SubmitJob, CliError> {
    let text = read(file)?;
    serde_saphyr::from_str(&text).map_err(|error| not_a_job(file, error.without_snippet()))
}

/// The place and what is wrong there. The reader would list every field there is, twice.
fn not_a_job(file: &Path, error: &Error) -> CliError {
    let line = error.location().map_or(0, |location| location.line());
    let what = match error {
        Error::SerdeUnknownField { field, .. } => format!("there is no field `{field}`"),
        other => other.render_with_formatter(&UserMessageFormatter),
    };
    let usual = "the fields are those of POST /api/v1/jobs: name, gpu_count, cpu_cores, memory_mb, script, command, …";
    CliError::usage(format!("{}:{line}: {what}", file.display())).hint(usual)
}

/// A shell script.
pub fn script(file: &Path) -> Result<String, CliError> {
    let text = read(file)?;
    if text.trim().is_empty() {
        return Err(CliError::usage(format!("the script `{}` is empty", file.display())));
    }
    Ok(text)
}

fn read(file: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(|_| text),
        _ => std::fs::read_to_string(file),
    };
    read.map_err(|error| CliError::usage(format!("cannot read `{}`: {error}", file.display())))
}

/// The name of the program or script, without its folder and ending.
pub fn usual_name(args: &JobArgs) -> Option<String> {
    let path = args.command.first().map(Path::new).or(args.script.as_deref())?;
    let stem = path.file_stem()?.to_str()?;
    (!stem.is_empty() && stem != "-").then(|| stem.to_string())
}
