//! Seals values with AES-256-GCM of *ring*, which TLS uses too. The nonce is random, and what the value belongs to is
//! authenticated with it: whoever writes to the database cannot give a job the value of another secret.

use muster_core::objects::secret::SecretId;
use muster_protocol::secret_value::SecretValue;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use super::SecretFault;

pub(super) const KEY_BYTES: usize = 32;
/// The form of a sealed value: this byte, the nonce, the ciphertext with its tag.
const VERSION: u8 = 1;
const FINGERPRINT_BYTES: usize = 8;
const ID_BYTES: usize = 16;

/// A key, with a fingerprint that identifies it and does not reveal it.
pub(super) struct SealingKey {
    key: LessSafeKey,
    fingerprint: String,
}

impl SealingKey {
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Option<SealingKey> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?);
        let digest = Sha256::new().chain_update(b"muster secrets key\0").chain_update(bytes).finalize();
        Some(SealingKey { key, fingerprint: hex(&digest[..FINGERPRINT_BYTES]) })
    }

    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub fn seal(&self, id: &SecretId, value_id: &str, value: &SecretValue) -> Result<Vec<u8>, SecretFault> {
        let nonce: [u8; NONCE_LEN] = random()?;
        let not_sealed = |_| SecretFault::NotSealed { name: id.name.clone() };
        let mut text = value.reveal().to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_used, owner_data(id, value_id), &mut text).map_err(not_sealed)?;
        Ok([&[VERSION][..], &nonce, &text].concat())
    }

    pub fn open(&self, id: &SecretId, value_id: &str, sealed: &[u8]) -> Result<SecretValue, SecretFault> {
        let opened = self.try_open(id, value_id, sealed);
        opened.ok_or_else(|| SecretFault::NotOpened { name: id.name.clone() })
    }

    fn try_open(&self, id: &SecretId, value_id: &str, sealed: &[u8]) -> Option<SecretValue> {
        let (&version, rest) = sealed.split_first()?;
        let (nonce, text) = rest.split_at_checked(NONCE_LEN)?;
        if version != VERSION {
            return None;
        }
        let mut text = text.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let length = self.key.open_in_place(nonce, owner_data(id, value_id), &mut text).ok()?.len();
        text.truncate(length);
        Some(SecretValue::new(text))
    }
}

/// What the value belongs to. Each part follows its length, so that no two secrets have the same data.
fn owner_data(id: &SecretId, value_id: &str) -> Aad<Vec<u8>> {
    let owner = id.owner.as_deref();
    let parts = [id.tenant.as_str(), owner.unwrap_or_default(), id.name.as_str(), value_id];
    let mut data = vec![VERSION, u8::from(owner.is_some())];
    for part in parts {
        data.extend((part.len() as u64).to_le_bytes());
        data.extend(part.as_bytes());
    }
    Aad::from(data)
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], SecretFault> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| SecretFault::NoRandomness(error.to_string()))?;
    Ok(bytes)
}

/// An id that nobody has used.
pub(super) fn random_hex() -> Result<String, SecretFault> {
    Ok(hex(&random::<ID_BYTES>()?))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
