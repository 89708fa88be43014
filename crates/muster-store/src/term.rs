//! Whose turn it is to lead, judged alike for both databases.

use crate::error::StoreError;

/// An epoch that we hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    pub epoch: u64,
    pub nonce: u64,
}

/// The leader row as it was read.
pub struct LeaderRow {
    pub epoch: i64,
    pub nonce: i64,
    pub holder: String,
    /// Milliseconds until the lease runs out, by the clock of the database.
    pub left_ms: i64,
}

impl Term {
    /// Whether this row still says that we lead.
    pub fn check(self, row: Option<LeaderRow>) -> Result<(), StoreError> {
        let deposed = |why: String| Err(StoreError::Deposed { why });
        match row {
            None => deposed("the leader row is gone".to_string()),
            Some(row) if (row.epoch as u64, row.nonce as u64) != (self.epoch, self.nonce) => {
                deposed(format!("`{}` leads with epoch {}, ours was {}", row.holder, row.epoch, self.epoch))
            }
            Some(row) if row.left_ms <= 0 => {
                deposed(format!("the lease of epoch {} ran out {} ms ago", self.epoch, -row.left_ms))
            }
            Some(_) => Ok(()),
        }
    }

    /// Nobody may write before having led.
    pub fn held(term: Option<Term>) -> Result<Term, StoreError> {
        term.ok_or_else(|| StoreError::Deposed { why: "it has not taken the lead".to_string() })
    }
}

/// Drawn by the operating system. Half of the range, so that it is the same number in a database.
pub fn random_number() -> Result<u64, StoreError> {
    let number = getrandom::u64();
    number
        .map(|number| number >> 1)
        .map_err(|error| StoreError::unavailable("draw a random number", error.to_string()))
}
