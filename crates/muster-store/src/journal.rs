//! Port: step 5, persist. The journal holds all events in order; only the leader writes to it.
//!
//! The calls are synchronous and block on disk or network; the engine owns the journal on a dedicated thread.
//! [`StoreError`] says how the engine must react to each error.

use crate::error::StoreError;
use crate::record::Entry;

/// The journal of one cluster.
pub trait Journal: Send {
    /// Try to become the leader for `lease_ms`, by the clock of the database. Succeeds if there is no leader, the
    /// leader's lease has expired, this server already leads, or the leader is declared dead
    /// ([`Journal::declare_holder_dead`]). Each success starts a new epoch. `holder` must be unique per process. The
    /// new leader migrates the schema to this release before the call returns.
    fn acquire_leadership(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError>;

    /// Declare that the process of holder `dead` has exited, so that this server need not wait for its lease to
    /// expire. No effect where the store detects this itself (SQLite lock file).
    fn declare_holder_dead(&mut self, dead: &str) {
        let _ = dead;
    }

    /// The cluster that the database holds. Needs no leadership.
    fn cluster_identity(&mut self) -> Result<ClusterIdentity, StoreError> {
        Ok(ClusterIdentity::Unknown)
    }

    /// Set the id of a cluster that has none. Only the leader may call this.
    fn set_cluster_id(&mut self, cluster: &str) -> Result<(), StoreError> {
        let _ = cluster;
        Ok(())
    }

    /// Extend the lease to `lease_ms` from now. `NotLeader` if another server has taken over or the lease has expired.
    fn renew_lease(&mut self, lease_ms: i64) -> Result<(), StoreError>;

    /// [`Journal::renew_lease`] also after the lease has expired: while nobody has taken over, nobody else has written.
    /// For the recovery of a new leader, which may take longer than a lease.
    fn resume_lease(&mut self, lease_ms: i64) -> Result<(), StoreError>;

    /// Give up leadership at once, so that a standby need not wait for the lease to expire.
    fn resign(&mut self) -> Result<(), StoreError>;

    /// Write a batch and its table rows in one transaction. On `Ok` the whole batch is durable; on an error other
    /// than `OutcomeUnknown` none of it was written. The entries must continue the journal without a gap and carry
    /// the epoch of this leader. An empty batch writes nothing.
    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError>;

    /// Read all entries after number `after` in order, and check that there is no gap, that each checksum matches and
    /// that each payload decodes. Returns the number of the last entry. An error of `visit` ends the replay and is
    /// returned. Memory holds one page at a time.
    fn replay(&mut self, after: u64, visit: &mut EntryVisitor<'_>) -> Result<u64, StoreError>;
}

/// The cluster that a database holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterIdentity {
    /// Not known: the database is temporary, or unreadable; `acquire_leadership` reports why.
    Unknown,
    /// Nothing was ever written.
    Empty,
    /// A cluster of an older release, which had no id.
    Unnamed,
    /// Id of the cluster.
    Cluster(String),
}

/// Called for each entry of a replay.
pub type EntryVisitor<'a> = dyn FnMut(Entry) -> Result<(), StoreError> + 'a;

/// Result of [`Journal::acquire_leadership`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// This server leads. Its orders carry both numbers.
    Leading {
        /// One more than the epoch of the previous leader.
        epoch: u64,
        /// Random for each epoch: distinguishes two histories after a database has lost its last transactions.
        nonce: u64,
    },
    /// Another server leads.
    Standby {
        holder: String,
        /// When its lease expires by the clock of the database, in Unix milliseconds.
        until_ms: i64,
    },
}

/// Port: saved states from which the replay starts. Used from another thread than the journal: it has its own
/// connection and holds the write lock for one chunk at a time only.
pub trait Savepoints: Send + Sync {
    /// Save the state after entry `seq`, which must be in the journal. The newest two savepoints are kept.
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// The newest complete savepoint, or with `before` the newest one with a smaller number. A savepoint that is torn
    /// or does not match its checksums is skipped with a warning.
    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Savepoint {
    /// Last entry that the state includes; the replay starts after it.
    pub seq: u64,
    pub bytes: Vec<u8>,
}
