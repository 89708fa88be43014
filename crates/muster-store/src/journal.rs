//! Port: step 5, keep. All events in order, written by the leader and by nobody else.
//!
//! The calls are synchronous and may take as long as a disk or a network does; the engine keeps the journal on
//! a thread of its own. What an error asks of the engine is said at [`StoreError`].

use crate::error::StoreError;
use crate::record::Entry;

/// The journal of one cluster.
pub trait Journal: Send {
    /// Try to become the leader for `lease_ms`, by the clock of the database. Succeeds if nobody leads, the
    /// former lease has run out, we lead already, or the leader is known to have ended ([`Journal::succeed`]); each
    /// success is a new epoch. `holder` is another one for each process. The new leader brings the tables up to this
    /// release before it returns.
    fn lead(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError>;

    /// The process that led as `dead` has ended: its lease need not run out before this server leads. Only where the
    /// store cannot tell by itself.
    fn succeed(&mut self, dead: &str) {
        let _ = dead;
    }

    /// Which cluster the database holds. May be asked before leading.
    fn identity(&mut self) -> Result<Identity, StoreError> {
        Ok(Identity::Unknown)
    }

    /// Give a cluster that has no id this one. Only for the leader.
    fn found(&mut self, cluster: &str) -> Result<(), StoreError> {
        let _ = cluster;
        Ok(())
    }

    /// Lead for another `lease_ms` from now on. `Deposed` if another server has taken over or the lease has
    /// run out.
    fn renew(&mut self, lease_ms: i64) -> Result<(), StoreError>;

    /// Give the lead away at once, so that a standby need not wait for the lease to run out.
    fn resign(&mut self) -> Result<(), StoreError>;

    /// Write a batch and its table rows in one transaction: all of it is durable when this returns `Ok`, none
    /// of it was written if it returns an error other than `OutcomeUnknown`. Entries must follow the last one
    /// without a gap and carry our epoch. An empty batch writes nothing.
    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError>;

    /// Read every entry after number `after` in order, checked: no gap, every checksum right, every payload
    /// readable. Returns the number of the last one. An error from `visit` ends the reading and is passed on.
    /// Memory holds one page at a time.
    fn replay(&mut self, after: u64, visit: &mut Visit<'_>) -> Result<u64, StoreError>;
}

/// Which cluster a database holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// It cannot be told: the database is a throwaway one, or damaged, which the leader will say.
    Unknown,
    /// Nothing was ever written to it.
    Empty,
    /// It holds a cluster of an older release, which had no id.
    Unnamed,
    /// The cluster with this id.
    Cluster(String),
}

/// What is called for each entry of a replay.
pub type Visit<'a> = dyn FnMut(Entry) -> Result<(), StoreError> + 'a;

/// The answer to [`Journal::lead`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// We lead. Orders carry both numbers.
    Leading {
        /// One higher than that of the leader before.
        epoch: u64,
        /// Drawn at random for this epoch: tells two histories apart after a database has lost its tail.
        nonce: u64,
    },
    /// Another server leads.
    Standby {
        /// Its name.
        holder: String,
        /// When its lease runs out by the clock of the database, in Unix milliseconds.
        until_ms: i64,
    },
}

/// Port: saved states to start replay from. Used from another thread than the journal: it has its own
/// connection and holds the write lock only for one chunk at a time.
pub trait Savepoints: Send + Sync {
    /// Save the state after entry number `seq`, which must be in the journal. The newest two are kept.
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// The newest whole savepoint, or with `before` the newest one with a smaller number. One that is torn or
    /// does not match its checksums is passed over with a warning.
    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError>;
}

/// A saved state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Savepoint {
    /// The last entry it includes; replay goes on after it.
    pub seq: u64,
    /// What was saved.
    pub bytes: Vec<u8>,
}
