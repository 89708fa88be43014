//! One question before something that cannot be undone.

use std::io::{BufRead, IsTerminal, Write};

use crate::error::CliError;

/// Whether `--yes` was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// Do not ask.
    Given,
    /// Ask, when there is somebody to ask.
    ToAsk,
}

impl From<bool> for Consent {
    fn from(yes: bool) -> Consent {
        if yes { Consent::Given } else { Consent::ToAsk }
    }
}

/// Ask once, with the deed and its object named. Without a terminal nobody can answer, so nothing is done.
pub fn ask(consent: Consent, deed: &str) -> Result<(), CliError> {
    if consent == Consent::Given {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(CliError::usage(format!("nobody is there to ask whether to {deed}")).hint("add `--yes`"));
    }
    let mut err = std::io::stderr();
    let _ = write!(err, "{deed}? [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if is_yes(&answer) { Ok(()) } else { Err(CliError::failed("nothing was done")) }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes("YES\n"));
        assert!(!is_yes("\n") && !is_yes("n\n") && !is_yes("yep\n"));
    }
}
