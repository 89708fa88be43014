//! Timeouts of the journal's connection, derived from the lease.
//!
//! A leader that is frozen or disconnected within a transaction keeps its lock on the leader row. PostgreSQL does not
//! detect that by itself, so each session sets timeouts that end the transaction before the lease expires: the standby
//! then finds the row unlocked when it may take over.

use std::time::Duration;

use tokio_postgres::Config;

/// With a shorter lease a busy machine would miss its own timeouts.
const LEASE_MIN_MS: i64 = 1_500;
/// Two thirds of it are [`super::connection::CALL_TIMEOUT`].
const LEASE_MAX_MS: i64 = 45_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimeouts {
    /// Limit of a call, of each statement, and of the client's silence within a transaction: two thirds of the lease,
    /// which is how long a leader may act without renewing it.
    pub call_timeout: Duration,
    /// Limit of the wait for the lock on the leader row.
    lock_timeout: Duration,
}

impl LeaseTimeouts {
    pub fn for_lease(lease_ms: i64) -> LeaseTimeouts {
        let lease = Duration::from_millis(lease_ms.clamp(LEASE_MIN_MS, LEASE_MAX_MS) as u64);
        LeaseTimeouts { call_timeout: lease * 2 / 3, lock_timeout: lease / 6 }
    }

    /// Client side: the kernel closes the connection if the server does not acknowledge within `call_timeout`.
    pub fn apply_to_client(&self, config: &mut Config) {
        config
            .keepalives_idle(self.keepalive_interval())
            .keepalives_interval(self.keepalive_interval())
            .keepalives_retries(2)
            .tcp_user_timeout(self.call_timeout);
    }

    /// Server side, for the session. Settings that this release of PostgreSQL does not know are left out; over a Unix
    /// socket the TCP settings have no effect.
    pub fn session_sql(&self) -> String {
        let (call_timeout_ms, keepalive_seconds) = (self.call_timeout.as_millis(), self.keepalive_interval().as_secs());
        format!(
            "SELECT set_config(known.name, wanted.value, false) FROM (VALUES \
             ('idle_in_transaction_session_timeout', '{call_timeout_ms}'), ('tcp_user_timeout', '{call_timeout_ms}'), \
             ('tcp_keepalives_idle', '{keepalive_seconds}'), ('tcp_keepalives_interval', '{keepalive_seconds}'), \
             ('tcp_keepalives_count', '2')) AS wanted (name, value) \
             JOIN pg_settings AS known ON known.name = wanted.name"
        )
    }

    /// SQL that begins a transaction of the leader.
    pub fn begin_sql(&self) -> String {
        format!("BEGIN; SET LOCAL statement_timeout = {}", self.call_timeout.as_millis())
    }

    /// SQL that begins the transaction that takes the leader row.
    pub fn begin_takeover_sql(&self) -> String {
        format!("{}; SET LOCAL lock_timeout = {}", self.begin_sql(), self.lock_timeout.as_millis())
    }

    /// Whole seconds: the unit of PostgreSQL for keepalives.
    fn keepalive_interval(&self) -> Duration {
        Duration::from_secs((self.call_timeout.as_secs() / 3).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timeout_is_shorter_than_the_lease() {
        for lease_ms in [1_500, 6_000, 30_000, 45_000] {
            let timeouts = LeaseTimeouts::for_lease(lease_ms);
            assert_eq!(timeouts.call_timeout.as_millis() as i64, lease_ms * 2 / 3);
            assert!(timeouts.lock_timeout < timeouts.call_timeout);
        }
        assert_eq!(LeaseTimeouts::for_lease(0), LeaseTimeouts::for_lease(1_500), "0 would disable the timeouts");
        assert_eq!(LeaseTimeouts::for_lease(i64::MAX), LeaseTimeouts::for_lease(45_000));
    }
}
