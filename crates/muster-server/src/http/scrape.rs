//! Metrics for Prometheus.

use axum::extract::{MatchedPath, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::http::fault::Fault;
use crate::http::{Door, no_such_path};
use crate::metrics;

/// Where metrics are served unless `metrics.path` says otherwise.
pub const PATH: &str = "/metrics";

/// Metrics in the text format of OpenMetrics
///
/// `metrics.path` serves them elsewhere, `metrics.enabled: false` nowhere.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All metrics", content_type = "application/openmetrics-text", body = String)))]
pub async fn scrape(State(door): State<Door>, path: MatchedPath, uri: Uri) -> Result<Response, Fault> {
    if !door.metrics.enabled || path.as_str() != door.metrics.path {
        return Err(no_such_path(uri));
    }
    answer(State(door)).await
}

/// The same on a port of its own.
pub async fn answer(State(door): State<Door>) -> Result<Response, Fault> {
    let counts = door.tables(|tables| Ok(tables.counts()?)).await.unwrap_or_default();
    let text =
        metrics::text(&door, &counts).map_err(|_| Fault::internal("the metrics could not be written"))?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}
