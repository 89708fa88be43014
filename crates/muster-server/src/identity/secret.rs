//! The secret of a token: how it is drawn, written, checked and remembered.
//!
//! `mst_<id>_<secret><checksum>`: a prefix that scanners for leaked secrets can look for, a public id to find
//! and revoke it by, 256 random bits, and eight digits that catch a slip in copying before anything is looked up.
//!
//! Only a SHA-256 of the whole text is kept. Slow hashes such as argon2 protect words that people choose; 256
//! random bits cannot be guessed at any speed, and a slow hash on every request would be a gift to floods.

use std::fmt;
use std::hint::black_box;

use muster_core::token::{Role, Token};
use muster_core::{TenantId, Timestamp};
use sha2::{Digest, Sha256};

const PREFIX: &str = "mst_";
/// 40 bits; a clash is refused by the state, so this need not be unguessable.
const ID_BYTES: usize = 5;
const SECRET_BYTES: usize = 32;
const CHECKSUM_DIGITS: usize = 8;

/// The text of a token. It is shown once, when it is made, and prints as stars everywhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A token to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Whose it will be, for people.
    pub name: String,
    /// What it will allow.
    pub role: Role,
    /// Where; `None` for cluster-wide roles.
    pub tenant: Option<TenantId>,
    /// When it will end by itself.
    pub expires_at: Option<Timestamp>,
    /// Highest priority its bearer may give to a job, where that is above the tenant's ceiling.
    pub priority_max: Option<u32>,
}

/// The system gave no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw random numbers for a token: {0}")]
pub struct NoRandomness(getrandom::Error);

/// Make a token: what is kept, and what its owner gets to see once.
pub fn mint(wish: Wish, now: Timestamp) -> Result<(Token, Secret), NoRandomness> {
    let id = format!("t{}", hex(&random::<ID_BYTES>()?));
    let unchecked = format!("{PREFIX}{id}_{}", hex(&random::<SECRET_BYTES>()?));
    let text = format!("{unchecked}{}", checksum(&unchecked));
    let token = Token {
        id,
        hash: hash(&text),
        name: wish.name,
        role: wish.role,
        tenant: wish.tenant,
        made_at: now,
        expires_at: wish.expires_at,
        priority_max: wish.priority_max,
    };
    Ok((token, Secret(text)))
}

/// The public part of a token, if this is one and was copied whole.
pub(super) fn id_of(text: &str) -> Option<&str> {
    let (id, rest) = text.strip_prefix(PREFIX)?.split_once('_')?;
    if rest.len() != 2 * SECRET_BYTES + CHECKSUM_DIGITS || !text.is_ascii() {
        return None;
    }
    let (unchecked, said) = text.split_at(text.len() - CHECKSUM_DIGITS);
    (checksum(unchecked) == said).then_some(id)
}

/// Whether a text has this hash. Takes as long for a near miss as for a far one.
pub(super) fn fits(text: &str, kept: &str) -> bool {
    let found = hash(text);
    let differences = found.bytes().zip(kept.bytes()).fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
    found.len() == kept.len() && differences == 0
}

fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    Ok(bytes)
}

fn checksum(unchecked: &str) -> String {
    hash(unchecked)[..CHECKSUM_DIGITS].to_string()
}

fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Secret {
    /// A text that claims to be a token; damaged ones are not taken.
    pub fn read(text: &str) -> Option<Secret> {
        let text = text.trim();
        id_of(text).map(|_| Secret(text.to_string()))
    }

    /// The text itself, for the one moment it is shown, and for the `Authorization` header.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_***", id_of(&self.0).unwrap_or_default())
    }
}
