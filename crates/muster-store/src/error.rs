//! What can go wrong with the store, told apart by what the engine must do next.

/// A fault of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// This server no longer leads, or its lease has run out. Nothing was written. Stand by and try to lead again.
    #[error("this server no longer leads: {why}")]
    Deposed {
        /// What the leader row said.
        why: String,
    },
    /// The database could not be reached, or could not do its work. Nothing was written.
    /// Drop the working state and reload before acting again.
    #[error("the store is unavailable while trying to {doing}: {source}")]
    Unavailable {
        /// What was attempted.
        doing: String,
        /// What the database said.
        source: Cause,
    },
    /// The commit was sent and its answer was lost: the batch is whole in the journal or not there at all.
    /// Drop the working state and reload before acting again.
    #[error("the outcome of a commit is unknown: {source}")]
    OutcomeUnknown {
        /// What the database said.
        source: Cause,
    },
    /// A constraint was violated or the store is not what it should be: a bug or damage. Nothing was written.
    /// End the process loudly.
    #[error("the store refused what must never be refused, {what}")]
    Broken {
        /// Which rule, and by what.
        what: String,
    },
    /// A record of the journal is missing or cannot be read. End the process loudly.
    #[error("journal record {seq} {problem}; {advice}")]
    Unreadable {
        /// The number of the record.
        seq: u64,
        /// What is wrong with it.
        problem: String,
        /// What a person can do.
        advice: String,
    },
    /// The database was written by a newer release.
    #[error(
        "the database has schema version {found}, this release knows {known}: start the release that wrote it, or a newer one"
    )]
    Newer {
        /// Version of the database.
        found: i64,
        /// Version of this binary.
        known: i64,
    },
    /// The settings of the store cannot be used.
    #[error("{0}")]
    Misconfigured(String),
}

/// An error of a database library, kept as the source.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Advice for damage that no restart can heal.
pub(crate) const RESTORE: &str = "stop the server, keep a copy of the database, and restore it from a backup";

impl StoreError {
    /// Whether the engine may go on after it has reloaded; otherwise the process must end.
    pub fn heals_by_reload(&self) -> bool {
        matches!(
            self,
            StoreError::Deposed { .. } | StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }
        )
    }

    pub(crate) fn broken(what: impl Into<String>) -> StoreError {
        StoreError::Broken { what: what.into() }
    }

    pub(crate) fn unavailable(doing: impl Into<String>, source: impl Into<Cause>) -> StoreError {
        StoreError::Unavailable { doing: doing.into(), source: source.into() }
    }

    pub(crate) fn unreadable(seq: u64, problem: impl Into<String>) -> StoreError {
        StoreError::Unreadable { seq, problem: problem.into(), advice: RESTORE.to_string() }
    }
}
