//! Token secrets: generation, format, verification and hash.
//!
//! `mst_<id>_<secret><checksum>`: a prefix that scanners for leaked secrets can search for, a public id to find and revoke
//! the token, 256 random bits, and eight digits that detect a copying error before anything is looked up.
//!
//! Only a SHA-256 of the whole text is stored. Slow hashes such as argon2 protect passwords that people choose; 256 random
//! bits cannot be guessed at any speed, and a slow hash on every request would make denial of service easy.

use std::fmt;
use std::hint::black_box;

use muster_core::objects::enrolment::JoinToken;
use muster_core::objects::token::{Role, Token};
use muster_core::{NodeId, TenantId, Timestamp};
use sha2::{Digest, Sha256};

const PREFIX: &str = "mst_";
/// Of join tokens: they are no access tokens, and the other way round.
const JOIN_PREFIX: &str = "mjt_";
/// 40 bits: an id need not be unguessable, and the state refuses a duplicate.
const ID_BYTES: usize = 5;
const SECRET_BYTES: usize = 32;
const CHECKSUM_DIGITS: usize = 8;
/// A token has less than a hundred bytes.
const TEXT_BYTES_MAX: usize = 256;

/// The text of a token. It is shown once, when the token is created; its secret prints as `***` everywhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Name of the owner.
    pub name: String,
    pub role: Role,
    /// `None` for cluster-wide roles.
    pub tenant: Option<TenantId>,
    pub expires_at: Option<Timestamp>,
    /// Priority ceiling of the token, if above the tenant's ceiling.
    pub priority_max: Option<u32>,
}

/// The operating system supplies no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw random numbers for a token: {0}")]
pub struct NoRandomness(getrandom::Error);

/// Create a token: the record to store, and the secret to show once.
pub fn mint(new: NewToken, now: Timestamp) -> Result<(Token, Secret), NoRandomness> {
    let (id, text) = random_token(PREFIX, "t")?;
    let token = Token {
        id,
        hash: hash(&text),
        name: new.name,
        role: new.role,
        tenant: new.tenant,
        made_at: now,
        expires_at: new.expires_at,
        priority_max: new.priority_max,
    };
    Ok((token, Secret(text)))
}

/// Create a join token. Lifetime and node are those of the operator's request.
pub fn mint_join_token(
    node: Option<NodeId>,
    made_by: &str,
    now: Timestamp,
    valid_ms: i64,
) -> Result<(JoinToken, Secret), NoRandomness> {
    let numbers = TokenNumbers { id: random()?, secret: random()? };
    Ok(mint_join_token_of(&numbers, node, made_by, now, valid_ms))
}

/// The random numbers of a token.
pub struct TokenNumbers {
    pub id: [u8; ID_BYTES],
    pub secret: [u8; SECRET_BYTES],
}

/// [`mint_join_token`] with given numbers, for a simulator.
pub fn mint_join_token_of(
    numbers: &TokenNumbers,
    node: Option<NodeId>,
    made_by: &str,
    now: Timestamp,
    valid_ms: i64,
) -> (JoinToken, Secret) {
    let (id, text) = token_of(JOIN_PREFIX, "j", numbers);
    let (hash, made_by) = (hash(&text), made_by.to_string());
    let token = JoinToken { id, hash, node, made_by, made_at: now, expires_at: now.plus(valid_ms) };
    (token, Secret(text))
}

/// A random id, and the text of a token with this id.
fn random_token(prefix: &str, id_prefix: &str) -> Result<(String, String), NoRandomness> {
    Ok(token_of(prefix, id_prefix, &TokenNumbers { id: random()?, secret: random()? }))
}

fn token_of(prefix: &str, id_prefix: &str, numbers: &TokenNumbers) -> (String, String) {
    let id = format!("{id_prefix}{}", hex(&numbers.id));
    let unchecked = format!("{prefix}{id}_{}", hex(&numbers.secret));
    let text = format!("{unchecked}{}", checksum(&unchecked));
    (id, text)
}

/// The public id of a token; `None` if the text is no token or its checksum is wrong.
pub(super) fn token_id(text: &str) -> Option<&str> {
    id_of(PREFIX, text)
}

/// [`token_id`] of a join token.
pub(super) fn join_token_id(text: &str) -> Option<&str> {
    id_of(JOIN_PREFIX, text)
}

fn id_of<'a>(prefix: &str, text: &'a str) -> Option<&'a str> {
    // Before anything is hashed: anyone may send a text of any length.
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let (id, rest) = text.strip_prefix(prefix)?.split_once('_')?;
    if rest.len() != 2 * SECRET_BYTES + CHECKSUM_DIGITS || !text.is_ascii() {
        return None;
    }
    let (unchecked, digits) = text.split_at(text.len() - CHECKSUM_DIGITS);
    (checksum(unchecked) == digits).then_some(id)
}

/// Whether a text has this hash. Compares in constant time.
pub(super) fn matches_hash(text: &str, stored: &str) -> bool {
    let found = hash(text);
    let differences = found.bytes().zip(stored.bytes()).fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
    found.len() == stored.len() && differences == 0
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
    /// Parse the text of a token; `None` if it is no token or is damaged.
    pub fn parse(text: &str) -> Option<Secret> {
        let text = text.trim();
        token_id(text).map(|_| Secret(text.to_string()))
    }

    /// The text itself, to show it once and for the `Authorization` header.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_***", token_id(&self.0).unwrap_or_default())
    }
}
