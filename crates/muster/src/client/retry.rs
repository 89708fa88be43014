//! Sending the same thing again, for calls whose key makes that harmless.

use std::time::Duration;

use hyper::body::Bytes;

use super::failure::CallFailure;

/// Long enough for a server to be restarted, short enough for a person to wait.
const RETRY_PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(2), Duration::from_secs(4)];

/// A key that nobody else will draw: 128 random bits. The second choice is only unique on this machine.
pub fn new_idempotency_key() -> String {
    let mut bytes = [0_u8; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => format!("{}-{}", std::process::id(), crate::units::now_ms()),
    }
}

/// Try until there is an answer, or no hope for one. A server that cannot be reached at the first try is not
/// there; one that goes away in the middle may come back.
pub fn retry_until_answered(
    mut attempt: impl FnMut() -> Result<Bytes, CallFailure>,
    pause: impl Fn(Duration),
) -> Result<Bytes, CallFailure> {
    let mut outcome = attempt();
    let mut was_there = false;
    for wait in RETRY_PAUSES {
        match &outcome {
            Err(failure) if failure.is_transient() => was_there = true,
            Err(CallFailure::Unreachable(_)) if was_there => {}
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

    fn attempts_made(outcomes: Vec<Result<Bytes, CallFailure>>) -> (usize, bool) {
        let mut left = outcomes.into_iter();
        let mut count = 0;
        let outcome = retry_until_answered(
            || {
                count += 1;
                left.next().unwrap()
            },
            |_| {},
        );
        (count, outcome.is_ok())
    }

    #[test]
    fn dropped_connections_are_retried_and_unreachable_servers_are_not() {
        let broke = || Err(CallFailure::Dropped("reset".into()));
        let away = || Err(CallFailure::Unreachable("refused".into()));
        assert_eq!(attempts_made(vec![broke(), away(), Ok(Bytes::new())]), (3, true));
        assert_eq!(attempts_made(vec![away()]), (1, false));
        assert_eq!(attempts_made(vec![broke(), broke(), broke(), broke(), broke()]), (5, false));
    }

    #[test]
    fn idempotency_keys_are_random() {
        assert_ne!(new_idempotency_key(), new_idempotency_key());
        assert_eq!(new_idempotency_key().len(), 32);
    }
}
