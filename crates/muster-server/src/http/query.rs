//! Path and query parameters: parsing, pages and ranges.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Path, Query as AxumQuery};
use axum::http::StatusCode;
use axum::http::request::Parts;
use muster_core::{JobId, NodeId, TenantId};
use serde::de::DeserializeOwned;

use crate::http::api_error::ApiError;
use crate::request_json::unknown_field_error;

/// Rows of a page without `limit`.
const PAGE_ROWS_DEFAULT: u32 = 50;
/// Largest `limit` of a page.
const PAGE_ROWS_MAX: u32 = 1_000;

/// The query parameters. Unknown ones are refused.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, ApiError> {
        match AxumQuery::<T>::try_from_uri(&parts.uri) {
            Ok(AxumQuery(query)) => Ok(Query(query)),
            Err(rejection) => {
                let message = rejection.body_text();
                let sentence = message.trim_start_matches("Failed to deserialize query string: ");
                Err(unknown_field_error(sentence)
                    .map_or_else(|| ApiError::malformed(format!("query: {sentence}")), ApiError::from))
            }
        }
    }
}

/// A path parameter. Text that does not parse is answered 404 like an unknown id.
pub trait PathParam: FromStr {
    /// The problem code of the 404.
    const UNKNOWN_CODE: &'static str;
}

impl PathParam for JobId {
    const UNKNOWN_CODE: &'static str = "unknown-job";
}

impl PathParam for TenantId {
    const UNKNOWN_CODE: &'static str = "unknown-tenant";
}

impl PathParam for NodeId {
    const UNKNOWN_CODE: &'static str = "unknown-node";
}

/// The only parameter of a path.
pub struct PathId<T>(pub T);

impl<T, S> FromRequestParts<S> for PathId<T>
where
    T: PathParam,
    T::Err: ToString,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathId<T>, ApiError> {
        let text = match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => text,
            Err(_) => return Err(ApiError::malformed("the path is not UTF-8")),
        };
        text.parse()
            .map(PathId)
            .map_err(|error: T::Err| ApiError::new(StatusCode::NOT_FOUND, T::UNKNOWN_CODE, error.to_string()))
    }
}

/// The rows of a page, from `limit`.
pub fn page_limit(requested: Option<u32>) -> Result<u32, ApiError> {
    match requested.unwrap_or(PAGE_ROWS_DEFAULT) {
        limit @ 1..=PAGE_ROWS_MAX => Ok(limit),
        limit => Err(ApiError::invalid("limit", format!("{limit} is not between 1 and {PAGE_ROWS_MAX}"))),
    }
}

/// The start of a page: an offset or a cursor, not both.
pub fn page_start<C: FromStr>(
    offset: Option<u64>,
    cursor: Option<&str>,
) -> Result<muster_store::queries::PageStart<C>, ApiError> {
    use muster_store::queries::PageStart;
    check_offset(offset)?;
    match (offset, cursor) {
        (Some(_), Some(_)) => Err(ApiError::invalid("cursor", "give `offset` or `cursor`, not both")),
        (offset, None) => Ok(PageStart::Offset(offset.unwrap_or(0))),
        (None, Some(cursor)) => match cursor.parse() {
            Ok(cursor) => Ok(PageStart::After(cursor)),
            Err(_) => Err(ApiError::invalid("cursor", "send `next_cursor` of the page before, unchanged")),
        },
    }
}

/// The database stores offsets in 63 bits.
pub fn check_offset(offset: Option<u64>) -> Result<(), ApiError> {
    match offset {
        Some(offset) if i64::try_from(offset).is_err() => {
            Err(ApiError::invalid("offset", format!("{offset} is above {}", i64::MAX)))
        }
        _ => Ok(()),
    }
}

/// Offset and limit of a list that is held in memory; the whole list by default.
pub fn list_range(offset: Option<u64>, limit: Option<u32>) -> Result<(usize, usize), ApiError> {
    check_offset(offset)?;
    if limit == Some(0) {
        return Err(ApiError::invalid("limit", "must be at least 1"));
    }
    let offset = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
    Ok((offset, limit.map_or(usize::MAX, |limit| limit as usize)))
}

/// A label in a query, `key=value`.
pub fn parse_label(label: &str) -> Result<(String, String), ApiError> {
    let pair = label.split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
    pair.ok_or_else(|| ApiError::invalid("label", "write it as `key=value`"))
}
