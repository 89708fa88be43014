//! Secrets of jobs: their values, sealed in the store and opened for the agents that launch the jobs.
//!
//! The journal and the state know names only (`muster_core::objects::secret`). A value is sealed when it is set, opened
//! when orders are sent to the agent of a node, and never shown by the API.

mod delivery;
mod key_file;
mod sealing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::facts::command::Actor;
use muster_core::objects::secret::{Secret, SecretId};
use muster_core::{Command, Refusal, State, Timestamp};
use muster_protocol::secret_value::SecretValue;
use muster_store::{LeaderEpoch, SealedSecret, SealedSecrets, StoreError};

use crate::cluster::{Cluster, CommandError, ServerRole};
use crate::identity::FileError;

pub use delivery::{WantedSecrets, wanted_secrets};
use key_file::KeyFile;
use sealing::SealingKey;

/// Most sealed values that are kept in memory, each of at most 64 KiB: orders are sent several times until an attempt has
/// started, and must not wait for the database each time.
const SEALED_VALUES_MAX: usize = 256;

/// Why a secret cannot be set, or cannot be delivered.
#[derive(Debug, thiserror::Error)]
pub enum SecretFault {
    #[error(
        "this server has no key for secrets (`{path}`): the secrets of this cluster are sealed with the key {expected}; copy \
         `secrets.key` from the data folder of another server of the cluster, or remove all secrets and set them again"
    )]
    NoKey { path: PathBuf, expected: String },
    #[error(
        "the key in `{path}` is {found}, and the secrets of this cluster are sealed with the key {expected}; copy \
         `secrets.key` from the data folder of another server of the cluster, or remove all secrets and set them again"
    )]
    WrongKey { path: PathBuf, found: String, expected: String },
    #[error("`{path}` does not hold a key: it should be one line of 64 hexadecimal digits")]
    NotAKey { path: PathBuf },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no random bytes: {0}")]
    NoRandomness(String),
    #[error("the value of `{name}` cannot be sealed")]
    NotSealed { name: String },
    #[error("the value of `{name}` does not open: it was changed in the database, or belongs to another secret")]
    NotOpened { name: String },
    #[error("the value of `{name}` is not in the database; set it again")]
    NoValue { name: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Sets and opens secrets.
pub struct SecretVault {
    store: Arc<dyn SealedSecrets>,
    key_file: KeyFile,
    key: Mutex<Option<Arc<SealingKey>>>,
    sealed: Mutex<BTreeMap<String, Arc<[u8]>>>,
    /// One change at a time: the event of one must not remove the value that another has written and not recorded yet.
    changes: tokio::sync::Mutex<()>,
}

impl SecretVault {
    pub fn new(store: Arc<dyn SealedSecrets>, key_path: PathBuf) -> SecretVault {
        SecretVault {
            store,
            key_file: KeyFile(key_path),
            key: Mutex::default(),
            sealed: Mutex::default(),
            changes: tokio::sync::Mutex::default(),
        }
    }

    /// Seals and stores a value, then records it. A value whose event is refused is discarded.
    pub async fn set(
        self: &Arc<SecretVault>,
        cluster: &Cluster,
        by: Actor,
        (id, value): (SecretId, SecretValue),
    ) -> Result<(), SecretFault> {
        let _one_at_a_time = self.changes.lock().await;
        let leader = leader_epoch(cluster)?;
        let expected = cluster.read(key_in_use);
        let (vault, bytes) = (self.clone(), value.len() as u64);
        let written = tokio::task::spawn_blocking(move || {
            vault.write(leader, expected.as_deref(), &id, &value).map(|sealed| (id, sealed))
        });
        let (id, (value, key)) =
            written.await.map_err(|_| CommandError::Unavailable { why: "the write was aborted".to_string() })??;
        // The actor and the time are filled in by the state.
        let (set_by, set_at) = (String::new(), Timestamp(0));
        let secret = Box::new(Secret { id, value: value.clone(), key, bytes, set_by, set_at });
        match cluster.execute(by, Command::SetSecret { secret }).await {
            Ok(_) => Ok(()),
            Err(refused @ CommandError::Refused(_)) => {
                self.discard(leader, value).await;
                Err(refused.into())
            }
            // The outcome is unknown, and the event may be in the journal.
            Err(other) => Err(other.into()),
        }
    }

    pub async fn remove(&self, cluster: &Cluster, by: Actor, id: SecretId) -> Result<(), CommandError> {
        let _one_at_a_time = self.changes.lock().await;
        cluster.execute(by, Command::RemoveSecret { id }).await.map(drop)
    }

    /// Returns the id of the value and the fingerprint of the key.
    fn write(
        &self,
        leader: LeaderEpoch,
        expected: Option<&str>,
        id: &SecretId,
        value: &SecretValue,
    ) -> Result<(String, String), SecretFault> {
        let key = self.key(expected, KeyUse::Seal)?;
        let value_id = sealing::random_hex()?;
        let sealed = key.seal(id, &value_id, value)?;
        self.store.put(leader, &SealedSecret { id: &value_id, secret: id, sealed: &sealed })?;
        Ok((value_id, key.fingerprint().to_string()))
    }

    /// Best effort: a value that stays is sealed, and the next one of the same secret removes it.
    async fn discard(self: &Arc<SecretVault>, leader: LeaderEpoch, value: String) {
        let vault = self.clone();
        let discarded = tokio::task::spawn_blocking(move || vault.store.discard(leader, &value)).await;
        if let Ok(Err(error)) = discarded {
            tracing::warn!("the sealed value of a refused secret stays in the database: {error}");
        }
    }

    /// Opens the value of a secret.
    fn open(&self, secret: &Secret) -> Result<SecretValue, SecretFault> {
        let key = self.key(Some(&secret.key), KeyUse::Open)?;
        let known = self.lock_sealed().get(&secret.value).cloned();
        let sealed = match known {
            Some(sealed) => sealed,
            None => self.read_sealed(secret)?,
        };
        key.open(&secret.id, &secret.value, &sealed)
    }

    fn read_sealed(&self, secret: &Secret) -> Result<Arc<[u8]>, SecretFault> {
        let found = self.store.sealed(&secret.value)?;
        let sealed: Arc<[u8]> = found.ok_or_else(|| SecretFault::NoValue { name: secret.id.name.clone() })?.into();
        let mut kept = self.lock_sealed();
        if kept.len() >= SEALED_VALUES_MAX {
            kept.clear();
        }
        kept.insert(secret.value.clone(), sealed.clone());
        Ok(sealed)
    }

    /// The key of this server, if it is the expected one. A key that was put right is read again.
    fn key(&self, expected: Option<&str>, used_to: KeyUse) -> Result<Arc<SealingKey>, SecretFault> {
        let mut known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let is_expected = |key: &SealingKey| expected.is_none_or(|expected| key.fingerprint() == expected);
        if let Some(key) = known.as_ref().filter(|key| is_expected(key)) {
            return Ok(key.clone());
        }
        let path = || self.key_file.0.clone();
        let key = match (self.key_file.read()?, expected) {
            (Some(key), _) => key,
            (None, None) if used_to == KeyUse::Seal => self.key_file.generate()?,
            (None, expected) => {
                let expected = expected.unwrap_or_default().to_string();
                return Err(SecretFault::NoKey { path: path(), expected });
            }
        };
        if let Some(expected) = expected.filter(|expected| key.fingerprint() != *expected) {
            let (found, expected) = (key.fingerprint().to_string(), expected.to_string());
            return Err(SecretFault::WrongKey { path: path(), found, expected });
        }
        let key = Arc::new(key);
        *known = Some(key.clone());
        Ok(key)
    }

    fn lock_sealed(&self) -> MutexGuard<'_, BTreeMap<String, Arc<[u8]>>> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a key is needed for: only the first secret of a cluster makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyUse {
    Seal,
    Open,
}

/// The fingerprint of the key that seals the secrets of the cluster; `None` if there are none.
fn key_in_use(state: &State) -> Option<String> {
    state.secrets.values().next().map(|secret| secret.key.clone())
}

fn leader_epoch(cluster: &Cluster) -> Result<LeaderEpoch, CommandError> {
    match cluster.role() {
        ServerRole::Leading { term } => Ok(term),
        _ => Err(CommandError::Unavailable { why: "this server is not the leader".to_string() }),
    }
}

impl SecretFault {
    /// The refusal of the state, if that is the fault.
    pub fn into_refusal(self) -> Result<Refusal, SecretFault> {
        match self {
            SecretFault::Command(CommandError::Refused(refusal)) => Ok(refusal),
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests;
