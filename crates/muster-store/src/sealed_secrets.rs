//! Port: the sealed values of secrets, in a table of their own. They are neither in the journal nor in savepoints.
//!
//! A value is written before the event that refers to it, under an id of its own, so that an event never refers to a value
//! that is not on disk. The transaction of that event removes the former value (`tables/secrets.rs`).

use muster_core::objects::secret::SecretId;

use crate::error::StoreError;
use crate::leader_epoch::LeaderEpoch;

/// Used from other threads than the journal, over a connection of its own.
pub trait SealedSecrets: Send + Sync {
    /// Write a value under a new id. Only the leader may.
    fn put(&self, leader: LeaderEpoch, value: &SealedSecret<'_>) -> Result<(), StoreError>;

    /// Remove a value whose event was refused. Only the leader may.
    fn discard(&self, leader: LeaderEpoch, id: &str) -> Result<(), StoreError>;

    /// `None` if there is no such value.
    fn sealed(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError>;
}

/// A value to be written.
#[derive(Debug, Clone, Copy)]
pub struct SealedSecret<'a> {
    pub id: &'a str,
    pub secret: &'a SecretId,
    pub sealed: &'a [u8],
}

impl SealedSecret<'_> {
    /// The column for the owner: empty for a secret of the whole tenant.
    pub(crate) fn owner(&self) -> &str {
        self.secret.owner.as_deref().unwrap_or_default()
    }
}

pub(crate) const WRITE_VALUE: &str = "write a sealed secret";
pub(crate) const DISCARD_VALUE: &str = "discard a sealed secret";
pub(crate) const READ_VALUE: &str = "read a sealed secret";
