//! What stands in the address: path parameters and the query.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Path, Query as AxumQuery};
use axum::http::StatusCode;
use axum::http::request::Parts;
use muster_core::{JobId, NodeId, TenantId};
use serde::de::DeserializeOwned;

use crate::http::fault::Fault;
use crate::http::json::unknown_field;

/// Rows of a page when nothing is said.
const LIMIT_DEFAULT: u32 = 50;
/// Most rows of a page.
const LIMIT_MAX: u32 = 1_000;

/// The query, with misspelt parameters refused.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, Fault> {
        match AxumQuery::<T>::try_from_uri(&parts.uri) {
            Ok(AxumQuery(query)) => Ok(Query(query)),
            Err(rejection) => {
                let message = rejection.body_text();
                let sentence = message.trim_start_matches("Failed to deserialize query string: ");
                Err(unknown_field(sentence).unwrap_or_else(|| Fault::malformed(format!("query: {sentence}"))))
            }
        }
    }
}

/// Something a path names. What cannot be a name of it is as unknown as what nobody has.
pub trait Named: FromStr {
    /// The code of the refusal.
    const UNKNOWN: &'static str;
}

impl Named for JobId {
    const UNKNOWN: &'static str = "unknown-job";
}

impl Named for TenantId {
    const UNKNOWN: &'static str = "unknown-tenant";
}

impl Named for NodeId {
    const UNKNOWN: &'static str = "unknown-node";
}

/// The one parameter of a path.
pub struct Id<T>(pub T);

impl<T, S> FromRequestParts<S> for Id<T>
where
    T: Named,
    T::Err: ToString,
    S: Send + Sync,
{
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Id<T>, Fault> {
        let text = match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => text,
            Err(_) => return Err(Fault::malformed("the path is not UTF-8")),
        };
        text.parse()
            .map(Id)
            .map_err(|error: T::Err| Fault::new(StatusCode::NOT_FOUND, T::UNKNOWN, error.to_string()))
    }
}

/// How many rows a page has.
pub fn page_limit(asked: Option<u32>) -> Result<u32, Fault> {
    match asked.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => Ok(limit),
        limit => Err(Fault::invalid("limit", format!("{limit} is not between 1 and {LIMIT_MAX}"))),
    }
}

/// Where a page begins: an offset or a cursor, not both.
pub fn page_start<C: FromStr>(
    offset: Option<u64>,
    cursor: Option<&str>,
) -> Result<muster_store::queries::Start<C>, Fault> {
    use muster_store::queries::Start;
    check_offset(offset)?;
    match (offset, cursor) {
        (Some(_), Some(_)) => Err(Fault::invalid("cursor", "give `offset` or `cursor`, not both")),
        (offset, None) => Ok(Start::Offset(offset.unwrap_or(0))),
        (None, Some(cursor)) => match cursor.parse() {
            Ok(cursor) => Ok(Start::After(cursor)),
            Err(_) => Err(Fault::invalid("cursor", "send `next_cursor` of the page before, unchanged")),
        },
    }
}

/// The database counts rows in 63 bits.
pub fn check_offset(offset: Option<u64>) -> Result<(), Fault> {
    match offset {
        Some(offset) if i64::try_from(offset).is_err() => {
            Err(Fault::invalid("offset", format!("{offset} is above {}", i64::MAX)))
        }
        _ => Ok(()),
    }
}

/// Which part of a list that is all in memory; everything when nothing is said.
pub fn window(offset: Option<u64>, limit: Option<u32>) -> Result<(usize, usize), Fault> {
    check_offset(offset)?;
    if limit == Some(0) {
        return Err(Fault::invalid("limit", "must be at least 1"));
    }
    let offset = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
    Ok((offset, limit.map_or(usize::MAX, |limit| limit as usize)))
}

/// A label as it stands in a query, `key=value`.
pub fn key_and_value(label: &str) -> Result<(String, String), Fault> {
    let pair = label.split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
    pair.ok_or_else(|| Fault::invalid("label", "write it as `key=value`"))
}
