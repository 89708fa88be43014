//! Tokens: create, list, revoke. No caller can create a token with a higher role than its own.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::objects::token::{Role, Token};
use muster_core::{Command, Refusal};
use muster_protocol::submit::Acknowledgement;
use muster_protocol::token::{self as wire, TokenList, TokenMade, TokenSpec};

use crate::conversions::{parse_duration_ms, parse_priority, rfc3339};
use crate::http::AppState;
use crate::http::access::record_denial;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::http::query::{PathId, PathParam};
use crate::identity::{Caller, NewToken, mint};

/// Create a token
///
/// The response contains the secret; it cannot be read again.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = TokenSpec,
    responses((status = 201, description = "Created", body = TokenMade)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    Json(spec): Json<TokenSpec>,
) -> Result<Response, ApiError> {
    let role = parse_role(&spec.role)?;
    let tenant = match role.is_cluster_wide() && spec.tenant_id.is_none() {
        true => None,
        false => Some(caller.target_tenant(spec.tenant_id.as_deref())?),
    };
    if role > caller.role {
        record_denial(&app, &caller, "POST /api/v1/tokens".to_string(), "/api/v1/tokens");
        let detail = format!("role {} cannot create a token of role {}", caller.role.as_str(), role.as_str());
        return Err(ApiError::forbidden(detail));
    }
    if spec.name.is_empty() || spec.name.chars().count() > 255 || spec.name.chars().any(char::is_control) {
        return Err(ApiError::invalid("name", "must be 1 to 255 printable characters"));
    }
    let now = app.cluster.now();
    let expires_ms = spec.expires_in.as_ref().map(|span| parse_duration_ms("expires_in", span)).transpose()?;
    let priority_max = spec.max_priority.as_ref().map(parse_priority).transpose()?;
    let expires_at = expires_ms.map(|ms| now.plus(ms));
    let new_token = NewToken { name: spec.name, role, tenant, expires_at, priority_max };
    let (token, secret) = mint(new_token, now).map_err(|error| ApiError::internal(error.to_string()))?;
    app.cluster.execute(caller.actor, Command::AddToken { token: token.clone() }).await?;
    let made = TokenMade { token: api_token(&token), secret: secret.reveal().to_string() };
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

fn parse_role(text: &str) -> Result<Role, ApiError> {
    let roles = [Role::Viewer, Role::Member, Role::TenantAdmin, Role::Operator, Role::Admin];
    roles.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
        ApiError::invalid("role", format!("`{text}` is none of viewer, member, tenant-admin, operator, admin"))
    })
}

/// List the tokens
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens",
    responses((status = 200, description = "The tokens that the caller may see", body = TokenList)))]
pub async fn list(State(app): State<AppState>, caller: Caller) -> Result<Json<TokenList>, ApiError> {
    let tokens: Vec<wire::Token> = app.read_state(|state| {
        state.tokens.values().filter(|token| sees_token(&caller, token)).map(api_token).collect()
    })?;
    Ok(Json(TokenList { total: tokens.len() as u64, tokens }))
}

fn sees_token(caller: &Caller, token: &Token) -> bool {
    caller.tenant_scope().is_none_or(|own| token.tenant.as_ref() == Some(own))
}

/// The public id of a token, not its secret.
pub struct TokenId(String);

impl std::str::FromStr for TokenId {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<TokenId, std::convert::Infallible> {
        Ok(TokenId(text.to_string()))
    }
}

impl PathParam for TokenId {
    const UNKNOWN_CODE: &'static str = "unknown-token";
}

/// Revoke a token
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens",
    params(("id" = String, Path, description = "The id of the token, not its secret")),
    responses((status = 200, description = "Revoked", body = Acknowledgement)))]
pub async fn revoke(
    State(app): State<AppState>,
    caller: Caller,
    PathId(TokenId(id)): PathId<TokenId>,
) -> Result<Json<Acknowledgement>, ApiError> {
    let known = app
        .read_state(|state| state.tokens.get(&id).filter(|token| sees_token(&caller, token)).map(|token| token.role))?;
    let role = known.ok_or_else(|| ApiError::from(Refusal::UnknownToken { id: id.clone() }))?;
    if role > caller.role {
        let path = format!("/api/v1/tokens/{id}");
        record_denial(&app, &caller, format!("DELETE {path}"), &path);
        return Err(ApiError::forbidden(format!(
            "role {} cannot revoke a token of role {}",
            caller.role.as_str(),
            role.as_str()
        )));
    }
    app.cluster.execute(caller.actor, Command::RevokeToken { id: id.clone() }).await?;
    Ok(Json(Acknowledgement { message: format!("token `{id}` was revoked") }))
}

fn api_token(token: &Token) -> wire::Token {
    wire::Token {
        id: token.id.clone(),
        name: token.name.clone(),
        role: token.role.as_str().to_string(),
        tenant_id: token.tenant.as_ref().map(ToString::to_string),
        created_at: rfc3339(token.made_at.0),
        expires_at: token.expires_at.map(|at| rfc3339(at.0)),
        max_priority: token.priority_max,
    }
}
