//! How a command ends: the few exit codes, and an error that carries one.

use std::io;

/// The exit codes of every verb. `run` and `wait` return the job's own instead of 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It was tried and did not work.
    Failed = 1,
    /// The command line, or a file it names, makes no sense.
    Usage = 2,
    /// There is no such job, node, tenant or token.
    NotFound = 3,
    /// The token does not allow it, or there is none.
    NotAllowed = 4,
    /// The state of the cluster or a quota does not allow it.
    Conflict = 5,
    /// No node could ever hold the job.
    Infeasible = 6,
    /// It took longer than `--timeout`.
    TimedOut = 7,
    /// Nobody answers at that address.
    Unreachable = 69,
}

/// The line of the help that lists the codes.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 usage; 3 not found; 4 not allowed; 5 conflict or
quota; 6 infeasible; 7 timed out; 69 server unreachable; `run` and `wait` return
the job's own (128 + signal when it was killed).";

/// Why a command did not do what was asked: what happened, and the next thing to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    /// What the process returns.
    pub exit: Exit,
    /// What happened, lower case, without a period.
    pub what: String,
    /// What to try next, where there is something.
    pub hint: Option<String>,
    /// The reader of our output has gone, as in `muster ps | head`: nothing to say.
    pub silent: bool,
    /// The server is away, perhaps only for a moment: who follows something may ask again.
    pub may_pass: bool,
}

impl CliError {
    /// An error with the given exit code.
    pub fn new(exit: Exit, what: impl Into<String>) -> CliError {
        CliError { exit, what: what.into(), hint: None, silent: false, may_pass: false }
    }

    /// Tried, and did not work.
    pub fn failed(what: impl Into<String>) -> CliError {
        CliError::new(Exit::Failed, what)
    }

    /// Makes no sense as asked.
    pub fn usage(what: impl Into<String>) -> CliError {
        CliError::new(Exit::Usage, what)
    }

    /// The same with the next thing to try.
    pub fn hint(self, hint: impl Into<String>) -> CliError {
        CliError { hint: Some(hint.into()), ..self }
    }

    /// The exit code and the lines for standard error.
    pub fn report(&self) -> (u8, String) {
        if self.silent {
            return (0, String::new());
        }
        let hint = self.hint.as_ref().map(|hint| format!("  try: {hint}\n")).unwrap_or_default();
        (self.exit as u8, format!("error: {}\n{hint}", self.what))
    }
}

impl From<io::Error> for CliError {
    /// Only writing to our own output is converted without words; files say which one they are.
    fn from(error: io::Error) -> CliError {
        let silent = error.kind() == io::ErrorKind::BrokenPipe;
        CliError { silent, ..CliError::failed(format!("cannot write the output: {error}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_and_the_next_thing_to_try() {
        let error = CliError::new(Exit::NotFound, "there is no job `job-9`").hint("`muster ps --all`");
        assert_eq!(
            error.report(),
            (3, "error: there is no job `job-9`\n  try: `muster ps --all`\n".to_string())
        );
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.report(), (0, String::new()));
    }
}
