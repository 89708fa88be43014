//! Metrics for Prometheus.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::metrics;

/// Metrics in the text format of OpenMetrics
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All metrics", content_type = "application/openmetrics-text", body = String)))]
pub async fn scrape(State(door): State<Door>) -> Result<Response, Fault> {
    let counts = door.tables(|tables| Ok(tables.counts()?)).await.unwrap_or_default();
    let text =
        metrics::text(&door, &counts).map_err(|_| Fault::internal("the metrics could not be written"))?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}
