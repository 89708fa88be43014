//! Join tokens: with one of them the agent of a new machine enrols its node.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::{Command, NodeId};
use muster_protocol::node::{JoinTokenMade, JoinTokenSpec};
use muster_wire::join_url::JoinUrl;

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::{Json, OptionalJson};
use crate::identity::{Caller, mint_join_token};

const DEFAULT_VALID_MS: i64 = 15 * 60_000;

/// Create a join token
///
/// The response contains the join URL for `muster agent --join`; it cannot be read again. The token is used once. A
/// token for a named node may also replace the certificate of that node, for example after a new installation.
#[utoipa::path(post, path = "/api/v1/nodes/join-tokens", tag = "nodes", request_body = JoinTokenSpec,
    responses((status = 201, description = "Created", body = JoinTokenMade)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    OptionalJson(spec): OptionalJson<JoinTokenSpec>,
) -> Result<Response, ApiError> {
    let Some(link) = &app.agent_link else {
        let detail = "this server has no agent link: it runs its nodes itself";
        return Err(ApiError::new(StatusCode::CONFLICT, "no-agent-link", detail)
            .hint("start it with `agent_link.listen: 0.0.0.0:50052`"));
    };
    let node = spec.node.map(|name| name.parse::<NodeId>()).transpose();
    let node = node.map_err(|error| ApiError::invalid("node", error.to_string()))?;
    let valid_ms = spec.expires_in_seconds.map_or(DEFAULT_VALID_MS, |seconds| {
        i64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1_000)).unwrap_or(i64::MAX / 2)
    });
    let minted = mint_join_token(node, &caller.actor.name, app.cluster.now(), valid_ms);
    let (token, secret) = minted.map_err(|error| ApiError::internal(error.to_string()))?;
    app.cluster.execute(caller.actor, Command::AddJoinToken { token: Box::new(token.clone()) }).await?;
    let url = JoinUrl {
        secret: secret.reveal().to_string(),
        servers: link.servers.clone(),
        ca_fingerprint: link.ca_fingerprint.clone(),
    };
    let made = JoinTokenMade {
        id: token.id,
        url: url.to_string(),
        node: token.node.map(|node| node.to_string()),
        expires_at: rfc3339(token.expires_at.0),
    };
    Ok((StatusCode::CREATED, Json(made)).into_response())
}
