//! Time limits of the journal's connection, derived from the lease.
//!
//! A leader that is frozen or cut off inside a transaction keeps its lock on the leader row. PostgreSQL does not
//! notice by itself that such a client is gone, so each session asks for limits that end the transaction before the
//! lease ends: the standby then finds the row free when it may take over.

use std::time::Duration;

use tokio_postgres::Config;

/// Below this a busy machine would miss its own limits.
const LEASE_MIN_MS: i64 = 1_500;
/// Two thirds of it are [`super::link::CALL_TIMEOUT`].
const LEASE_MAX_MS: i64 = 45_000;

/// How long each part of a leader's work may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A call, a statement of it, and the silence of the client inside a transaction: two thirds of the lease, as
    /// long as a leader may act without renewing it.
    pub act: Duration,
    /// A wait for the lock on the leader row.
    lock: Duration,
}

impl Limits {
    /// The limits under a lease of this length.
    pub fn of_lease(lease_ms: i64) -> Limits {
        let lease = Duration::from_millis(lease_ms.clamp(LEASE_MIN_MS, LEASE_MAX_MS) as u64);
        Limits { act: lease * 2 / 3, lock: lease / 6 }
    }

    /// Client side: the kernel gives the connection up when the server does not acknowledge for `act`.
    pub fn apply(&self, config: &mut Config) {
        config
            .keepalives_idle(self.probe())
            .keepalives_interval(self.probe())
            .keepalives_retries(2)
            .tcp_user_timeout(self.act);
    }

    /// Server side, for the session. Settings that this release of PostgreSQL does not know are left out; over a unix
    /// socket the ones about TCP have no effect.
    pub fn session(&self) -> String {
        let (act, probe) = (self.act.as_millis(), self.probe().as_secs());
        format!(
            "SELECT set_config(known.name, wanted.value, false) FROM (VALUES \
             ('idle_in_transaction_session_timeout', '{act}'), ('tcp_user_timeout', '{act}'), \
             ('tcp_keepalives_idle', '{probe}'), ('tcp_keepalives_interval', '{probe}'), \
             ('tcp_keepalives_count', '2')) AS wanted (name, value) \
             JOIN pg_settings AS known ON known.name = wanted.name"
        )
    }

    /// Begin a transaction of the leader.
    pub fn begin(&self) -> String {
        format!("BEGIN; SET LOCAL statement_timeout = {}", self.act.as_millis())
    }

    /// Begin the transaction that takes the leader row.
    pub fn begin_taking(&self) -> String {
        format!("{}; SET LOCAL lock_timeout = {}", self.begin(), self.lock.as_millis())
    }

    /// Whole seconds, because PostgreSQL counts keepalives in seconds.
    fn probe(&self) -> Duration {
        Duration::from_secs((self.act.as_secs() / 3).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_end_before_the_lease_does() {
        for lease_ms in [1_500, 6_000, 30_000, 45_000] {
            let limits = Limits::of_lease(lease_ms);
            assert_eq!(limits.act.as_millis() as i64, lease_ms * 2 / 3);
            assert!(limits.lock < limits.act);
        }
        assert_eq!(Limits::of_lease(0), Limits::of_lease(1_500), "0 would switch the limits off");
        assert_eq!(Limits::of_lease(i64::MAX), Limits::of_lease(45_000));
    }
}
