//! How a command ends: its exit status, or an error with one of a few exit codes.

use std::io;

/// The exit status of a command that succeeded: 0, or the exit code of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus(pub u8);

impl ExitStatus {
    pub const SUCCESS: ExitStatus = ExitStatus(0);
}

pub type CommandResult = Result<ExitStatus, CliError>;

/// The exit codes of every verb. `run` and `wait` return the job's own code instead of 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command was tried and failed.
    Failed = 1,
    /// The command line, or a file named in it, is invalid.
    Usage = 2,
    /// There is no such job, node, tenant or token.
    NotFound = 3,
    /// The token is missing or does not permit the command.
    NotAllowed = 4,
    /// The state of the cluster or a quota does not permit the command.
    Conflict = 5,
    /// No node could ever hold the job.
    Infeasible = 6,
    /// The command took longer than `--timeout`.
    TimedOut = 7,
    /// No server answers at the address.
    Unreachable = 69,
}

/// The lines of the help that list the exit codes.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 usage; 3 not found; 4 not allowed; 5 conflict or
quota; 6 infeasible; 7 timed out; 69 server unreachable; `run` and `wait` return
the job's own (128 + signal when it was killed).";

/// Why a command failed: what happened, and the next thing to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    pub exit: Exit,
    /// What happened, lower case, without a period.
    pub message: String,
    /// What to try next.
    pub hint: Option<String>,
    /// Nothing is printed, and the exit code is 0: the reader of the output has gone, as in `muster ps | head`.
    pub silent: bool,
    /// The server is unavailable, perhaps only for a moment: a command that polls may retry.
    pub is_transient: bool,
}

impl CliError {
    pub fn new(exit: Exit, message: impl Into<String>) -> CliError {
        CliError { exit, message: message.into(), hint: None, silent: false, is_transient: false }
    }

    /// An error with exit code 1.
    pub fn failed(message: impl Into<String>) -> CliError {
        CliError::new(Exit::Failed, message)
    }

    /// An error with exit code 2.
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError::new(Exit::Usage, message)
    }

    /// Adds the next thing to try.
    pub fn hint(self, hint: impl Into<String>) -> CliError {
        CliError { hint: Some(hint.into()), ..self }
    }

    /// The exit code and the lines for standard error.
    pub fn report(&self) -> (u8, String) {
        if self.silent {
            return (0, String::new());
        }
        let hint = self.hint.as_ref().map(|hint| format!("  try: {hint}\n")).unwrap_or_default();
        (self.exit as u8, format!("error: {}\n{hint}", self.message))
    }
}

impl From<io::Error> for CliError {
    /// Only errors of standard output are converted implicitly; errors of files name the file.
    fn from(error: io::Error) -> CliError {
        let silent = error.kind() == io::ErrorKind::BrokenPipe;
        CliError { silent, ..CliError::failed(format!("cannot write the output: {error}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_prints_its_message_and_hint() {
        let error = CliError::new(Exit::NotFound, "there is no job `job-9`").hint("`muster ps --all`");
        assert_eq!(error.report(), (3, "error: there is no job `job-9`\n  try: `muster ps --all`\n".to_string()));
    }

    #[test]
    fn a_broken_pipe_is_not_an_error() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.report(), (0, String::new()));
    }
}
