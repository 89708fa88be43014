//! Sending the same thing again, for calls whose key makes that harmless.

use std::time::Duration;

use hyper::body::Bytes;

use super::failure::Failure;

/// Long enough for a server to be restarted, short enough for a person to wait.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(2), Duration::from_secs(4)];

/// A key that nobody else will draw: 128 random bits. The second choice is only unique on this machine.
pub fn new_key() -> String {
    let mut bytes = [0_u8; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => format!("{}-{}", std::process::id(), crate::units::now_ms()),
    }
}

/// Try until there is an answer, or no hope for one. A server that cannot be reached at the first try is not
/// there; one that goes away in the middle may come back.
pub fn until_answered(
    mut attempt: impl FnMut() -> Result<Bytes, Failure>,
    pause: impl Fn(Duration),
) -> Result<Bytes, Failure> {
    let mut outcome = attempt();
    let mut was_there = false;
    for wait in PAUSES {
        match &outcome {
            Err(failure) if failure.may_pass() => was_there = true,
            Err(Failure::Unreachable(_)) if was_there => {}
            _ => return outcome,
        }
        pause(wait);
        outcome = attempt();
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(outcomes: Vec<Result<Bytes, Failure>>) -> (usize, bool) {
        let mut left = outcomes.into_iter();
        let mut count = 0;
        let outcome = until_answered(
            || {
                count += 1;
                left.next().unwrap()
            },
            |_| {},
        );
        (count, outcome.is_ok())
    }

    #[test]
    fn a_broken_connection_is_tried_again_and_a_missing_server_is_not() {
        let broke = || Err(Failure::Dropped("reset".into()));
        let away = || Err(Failure::Unreachable("refused".into()));
        assert_eq!(tries(vec![broke(), away(), Ok(Bytes::new())]), (3, true));
        assert_eq!(tries(vec![away()]), (1, false));
        assert_eq!(tries(vec![broke(), broke(), broke(), broke(), broke()]), (5, false));
    }

    #[test]
    fn keys_differ() {
        assert_ne!(new_key(), new_key());
        assert_eq!(new_key().len(), 32);
    }
}
