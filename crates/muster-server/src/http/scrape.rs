//! Metrics for Prometheus, in the OpenMetrics text format.

use axum::extract::{MatchedPath, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::http::api_error::ApiError;
use crate::http::{AppState, unknown_path_error};
use crate::metrics::MetricSources;

/// The path of the metrics unless `metrics.path` is set.
pub const DEFAULT_METRICS_PATH: &str = "/metrics";

/// Metrics in the OpenMetrics text format
///
/// The setting `metrics.path` changes the path; `metrics.enabled: false` turns the metrics off.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All metrics", content_type = "application/openmetrics-text", body = String)))]
pub async fn scrape(State(app): State<AppState>, path: MatchedPath, uri: Uri) -> Result<Response, ApiError> {
    if !app.metrics.enabled || path.as_str() != app.metrics.path {
        return Err(unknown_path_error(uri));
    }
    metrics_response(State(app)).await
}

/// The metrics without the check of the path, for a port of their own.
pub async fn metrics_response(State(app): State<AppState>) -> Result<Response, ApiError> {
    let counts = app.read_tables(|tables| Ok(tables.job_counts()?)).await.unwrap_or_default();
    let sources = MetricSources {
        cluster: &app.cluster,
        namespace: &app.metrics.namespace,
        job_counts: &counts,
        rounds: &app.rounds,
        event_counters: &app.event_counters,
        policy_calls: &app.policy_calls,
        interpreter: app.interpreter.as_deref(),
        connections: &app.connections,
        evaluations: &app.evaluations,
        denied_requests: app.access_denials.counts(),
    };
    let text = sources.openmetrics_text().map_err(|_| ApiError::internal("could not write the metrics"))?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}
