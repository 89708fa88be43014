//! Liveness and readiness probes.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_protocol::cluster::Health;

use crate::cluster::ServerRole;
use crate::http::AppState;
use crate::http::cluster::role_str;
use crate::http::json::Json;

/// A database that does not answer within this time counts as unavailable.
const DATABASE_PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Readiness
///
/// 503 if the database does not answer or another server is the leader.
#[utoipa::path(get, path = "/health", tag = "health",
    responses((status = 200, description = "Ready", body = Health),
        (status = 503, description = "Not ready", body = Health)))]
pub async fn health(State(app): State<AppState>) -> Response {
    health_response(&app).await
}

/// Readiness, under the API base path
#[utoipa::path(get, path = "/api/v1/health", tag = "health", operation_id = "health_of_base",
    responses((status = 200, description = "Ready", body = Health),
        (status = 503, description = "Not ready", body = Health)))]
pub async fn api_health(State(app): State<AppState>) -> Response {
    health_response(&app).await
}

/// Readiness, for load balancers
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, description = "Ready", body = Health),
        (status = 503, description = "Not ready", body = Health)))]
pub async fn ready(State(app): State<AppState>) -> Response {
    health_response(&app).await
}

/// Liveness: the process answers
#[utoipa::path(get, path = "/healthz", tag = "health",
    responses((status = 200, description = "Alive", body = Health)))]
pub async fn alive() -> Json<Health> {
    Json(Health { status: "healthy".to_string(), role: None, why: None })
}

/// Why this server is not ready; `None` if it is.
pub async fn not_ready_because(app: &AppState) -> Option<String> {
    match app.cluster.role() {
        ServerRole::Leading { .. } => database_problem(app).await,
        ServerRole::Starting => Some("starting, replaying the journal".to_string()),
        ServerRole::Standby { leader } => Some(format!("standby; the leader is `{leader}`")),
        ServerRole::Unavailable { why } => Some(why),
    }
}

async fn health_response(app: &AppState) -> Response {
    let role = Some(role_str(&app.cluster.role()).to_string());
    match not_ready_because(app).await {
        None => Json(Health { status: "healthy".to_string(), role, why: None }).into_response(),
        Some(why) => {
            let health = Health { status: "unhealthy".to_string(), role, why: Some(why) };
            (StatusCode::SERVICE_UNAVAILABLE, Json(health)).into_response()
        }
    }
}

async fn database_problem(app: &AppState) -> Option<String> {
    let ping = app.read_tables(|tables| Ok(tables.ping()?));
    match tokio::time::timeout(DATABASE_PING_TIMEOUT, ping).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.problem().detail),
        Err(_) => Some("the database does not answer in time".to_string()),
    }
}

#[cfg(test)]
mod tests;
