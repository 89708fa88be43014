//! Whether this server lives, and whether it can serve.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_protocol::cluster::Health;

use crate::cluster::Role;
use crate::http::Door;
use crate::http::cluster::role_word;
use crate::http::json::Json;

/// A database that takes longer than this to answer is away.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the server can serve
///
/// 503 when the database does not answer or another server leads.
#[utoipa::path(get, path = "/health", tag = "health",
    responses((status = 200, description = "It can", body = Health),
        (status = 503, description = "It cannot", body = Health)))]
pub async fn health(State(door): State<Door>) -> Response {
    examined(&door).await
}

/// The same under the base of the API
#[utoipa::path(get, path = "/api/v1/health", tag = "health",
    responses((status = 200, description = "It can", body = Health),
        (status = 503, description = "It cannot", body = Health)))]
pub async fn health_of_base(State(door): State<Door>) -> Response {
    examined(&door).await
}

/// Whether the server can serve, for load balancers
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, description = "It can", body = Health),
        (status = 503, description = "It cannot", body = Health)))]
pub async fn ready(State(door): State<Door>) -> Response {
    examined(&door).await
}

/// Whether the process lives
#[utoipa::path(get, path = "/healthz", tag = "health",
    responses((status = 200, description = "It does", body = Health)))]
pub async fn alive() -> Json<Health> {
    Json(Health { status: "healthy".to_string(), role: None, why: None })
}

async fn examined(door: &Door) -> Response {
    let role = door.cluster.role();
    let why = match &role {
        Role::Leading { .. } => database_away(door).await,
        Role::Starting => Some("the journal is being read".to_string()),
        Role::Standby { leader } => Some(format!("`{leader}` leads")),
        Role::Away { why } => Some(why.clone()),
    };
    let role = Some(role_word(&role).to_string());
    match why {
        None => Json(Health { status: "healthy".to_string(), role, why: None }).into_response(),
        Some(why) => {
            let health = Health { status: "unhealthy".to_string(), role, why: Some(why) };
            (StatusCode::SERVICE_UNAVAILABLE, Json(health)).into_response()
        }
    }
}

async fn database_away(door: &Door) -> Option<String> {
    let asked = door.tables(|tables| Ok(tables.ping()?));
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(())) => None,
        Ok(Err(fault)) => Some(fault.problem().detail),
        Err(_) => Some("the database does not answer in time".to_string()),
    }
}

#[cfg(test)]
mod tests;
