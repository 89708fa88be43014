//! Metrics for Prometheus.

use axum::extract::{MatchedPath, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::http::api_error::ApiError;
use crate::http::{AppState, unknown_path_error};
use crate::metrics;

/// Where metrics are served unless `metrics.path` says otherwise.
pub const DEFAULT_METRICS_PATH: &str = "/metrics";

/// Metrics in the text format of OpenMetrics
///
/// `metrics.path` serves them elsewhere, `metrics.enabled: false` nowhere.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All metrics", content_type = "application/openmetrics-text", body = String)))]
pub async fn scrape(State(app): State<AppState>, path: MatchedPath, uri: Uri) -> Result<Response, ApiError> {
    if !app.metrics.enabled || path.as_str() != app.metrics.path {
        return Err(unknown_path_error(uri));
    }
    metrics_response(State(app)).await
}

/// The same on a port of its own.
pub async fn metrics_response(State(app): State<AppState>) -> Result<Response, ApiError> {
    let counts = app.read_tables(|tables| Ok(tables.job_counts()?)).await.unwrap_or_default();
    let text =
        metrics::openmetrics_text(&app, &counts).map_err(|_| ApiError::internal("the metrics could not be written"))?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}
