//! Retries of requests whose idempotency key makes a repetition harmless.

use std::time::Duration;

use hyper::body::Bytes;

use super::failure::CallFailure;

/// 7 s in total: long enough for a restart of the server, short enough for a person to wait.
const RETRY_PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(2), Duration::from_secs(4)];

/// 128 random bits; without a random source, a key that is unique on this machine only.
pub fn new_idempotency_key() -> String {
    let mut bytes = [0_u8; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => format!("{}-{}", std::process::id(), crate::units::now_ms()),
    }
}

/// Retries after transient failures. A server that is unreachable at the first attempt is taken to be down; a server
/// that becomes unreachable after a dropped connection may be restarting.
pub fn retry_until_answered(
    mut attempt: impl FnMut() -> Result<Bytes, CallFailure>,
    pause: impl Fn(Duration),
) -> Result<Bytes, CallFailure> {
    let mut outcome = attempt();
    let mut was_reached = false;
    for wait in RETRY_PAUSES {
        match &outcome {
            Err(failure) if failure.is_transient() => was_reached = true,
            Err(CallFailure::Unreachable(_)) if was_reached => {}
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
        let dropped = || Err(CallFailure::Dropped("reset".into()));
        let unreachable = || Err(CallFailure::Unreachable("refused".into()));
        assert_eq!(attempts_made(vec![dropped(), unreachable(), Ok(Bytes::new())]), (3, true));
        assert_eq!(attempts_made(vec![unreachable()]), (1, false));
        assert_eq!(attempts_made(vec![dropped(), dropped(), dropped(), dropped(), dropped()]), (5, false));
    }

    #[test]
    fn idempotency_keys_are_random() {
        assert_ne!(new_idempotency_key(), new_idempotency_key());
        assert_eq!(new_idempotency_key().len(), 32);
    }
}
