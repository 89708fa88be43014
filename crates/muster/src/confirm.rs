//! Confirmation of an action that cannot be undone.

use std::io::{BufRead, IsTerminal, Write};

use crate::error::CliError;

/// Whether `--yes` was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    Given,
    /// Ask on the terminal.
    Required,
}

impl From<bool> for Consent {
    fn from(yes: bool) -> Consent {
        if yes { Consent::Given } else { Consent::Required }
    }
}

/// Asks once; `action` names the action and its object. Without a terminal the action is refused.
pub fn require_confirmation(consent: Consent, action: &str) -> Result<(), CliError> {
    if consent == Consent::Given {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let message = format!("cannot ask for confirmation without a terminal: {action}");
        return Err(CliError::usage(message).hint("add `--yes`"));
    }
    let mut err = std::io::stderr();
    let _ = write!(err, "{action}? [y/N] ");
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
    fn only_y_and_yes_confirm() {
        assert!(is_yes("y\n") && is_yes("YES\n"));
        assert!(!is_yes("\n") && !is_yes("n\n") && !is_yes("yep\n"));
    }
}
