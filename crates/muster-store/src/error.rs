//! Errors of the store. Each variant tells the engine what to do next.

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another server leads, or the lease of this server has expired. Nothing was written. Stand by and try to
    /// acquire leadership again.
    #[error("this server is not the leader: {why}")]
    NotLeader { why: String },
    /// The database is unreachable, or the operation failed for lack of resources. Nothing was written.
    /// Drop the state in memory and reload it before the next command.
    #[error("cannot {operation}: the store is unavailable: {source}")]
    Unavailable {
        /// Verb phrase, for example `append to the journal`.
        operation: String,
        source: Cause,
    },
    /// The commit was sent and its reply was lost: the journal holds the whole batch or none of it.
    /// Drop the state in memory and reload it before the next command.
    #[error("the outcome of a commit is unknown: {source}")]
    OutcomeUnknown { source: Cause },
    /// A constraint was violated, or the database is not as it was written: a bug or corruption. Nothing was written.
    /// The process must exit.
    #[error("store invariant violated: {violation}")]
    InvariantViolated {
        /// The operation and the constraint.
        violation: String,
    },
    /// A record of the journal is missing or cannot be decoded. The process must exit.
    #[error("journal record {seq} {problem}; {advice}")]
    UnreadableRecord {
        seq: u64,
        problem: String,
        /// What an operator can do.
        advice: String,
    },
    /// A newer release has migrated the database.
    #[error(
        "the database has schema version {found}, this release knows {known}: start the release that wrote it, or a newer one"
    )]
    NewerSchema {
        /// Schema version of the database.
        found: i64,
        /// Newest schema version that this release knows.
        known: i64,
    },
    /// The configuration of the store is invalid.
    #[error("{0}")]
    Misconfigured(String),
}

/// Error of a database library.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Advice for corruption that a restart cannot repair.
pub(crate) const RESTORE_ADVICE: &str = "stop the server, keep a copy of the database, and restore it from a backup";

impl StoreError {
    /// True if the engine may continue after it has reloaded the state; otherwise the process must exit.
    pub fn is_recoverable_by_reload(&self) -> bool {
        matches!(
            self,
            StoreError::NotLeader { .. } | StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }
        )
    }

    pub(crate) fn invariant_violated(violation: impl Into<String>) -> StoreError {
        StoreError::InvariantViolated { violation: violation.into() }
    }

    pub(crate) fn unavailable(operation: impl Into<String>, source: impl Into<Cause>) -> StoreError {
        StoreError::Unavailable { operation: operation.into(), source: source.into() }
    }

    pub(crate) fn unreadable_record(seq: u64, problem: impl Into<String>) -> StoreError {
        StoreError::UnreadableRecord { seq, problem: problem.into(), advice: RESTORE_ADVICE.to_string() }
    }
}
