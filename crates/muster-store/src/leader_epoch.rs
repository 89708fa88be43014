//! Leader epoch: fencing of former leaders, shared by the SQLite and PostgreSQL adapters.

use crate::error::StoreError;

/// Epoch and nonce that this server acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaderEpoch {
    pub epoch: u64,
    pub nonce: u64,
}

/// The row of table `leader`, as read in a transaction.
pub struct LeaderRow {
    pub epoch: i64,
    pub nonce: i64,
    pub holder: String,
    /// Milliseconds until the lease expires, by the clock of the database; negative after that.
    pub lease_left_ms: i64,
}

impl LeaderEpoch {
    /// `Ok` if the row still carries this epoch and nonce and its lease has not expired.
    pub fn check(self, row: Option<LeaderRow>) -> Result<(), StoreError> {
        let lease_left_ms = row.as_ref().map_or(0, |row| row.lease_left_ms);
        self.check_not_replaced(row)?;
        if lease_left_ms > 0 {
            return Ok(());
        }
        let why = format!("the lease of epoch {} expired {} ms ago", self.epoch, -lease_left_ms);
        Err(StoreError::NotLeader { why })
    }

    /// `Ok` if the row still carries this epoch and nonce, whenever its lease expires.
    pub fn check_not_replaced(self, row: Option<LeaderRow>) -> Result<(), StoreError> {
        let not_leader = |why: String| Err(StoreError::NotLeader { why });
        match row {
            None => not_leader("the leader row is gone".to_string()),
            Some(row) if (row.epoch as u64, row.nonce as u64) != (self.epoch, self.nonce) => not_leader(format!(
                "`{}` leads with epoch {}, this server had epoch {}",
                row.holder, row.epoch, self.epoch
            )),
            Some(_) => Ok(()),
        }
    }

    /// `NotLeader` if this server has not acquired leadership.
    pub fn require(leader_epoch: Option<LeaderEpoch>) -> Result<LeaderEpoch, StoreError> {
        leader_epoch.ok_or_else(|| StoreError::NotLeader { why: "this server has not acquired leadership".to_string() })
    }
}

/// A random number from the operating system, below 2^63, so that it fits into a signed database column.
pub fn random_number() -> Result<u64, StoreError> {
    let number = getrandom::u64();
    number.map(|number| number >> 1).map_err(|error| StoreError::unavailable("draw a random number", error.to_string()))
}
