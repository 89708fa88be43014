//! Tokens: make, list, revoke. Nobody makes a token that can do more than they can.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::token::{Role, Token};
use muster_core::{Command, Refusal};
use muster_protocol::submit::Done;
use muster_protocol::token::{self as wire, TokenList, TokenMade, TokenSpec};

use crate::http::Door;
use crate::http::access::put_on_record;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::{Id, Named};
use crate::http::who::Reach;
use crate::http::written::{priority, span_ms, stamp};
use crate::identity::{Who, Wish, mint};

/// Make a token
///
/// Its secret is in the answer, this once.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = TokenSpec,
    responses((status = 201, description = "Made", body = TokenMade)))]
pub async fn create(
    State(door): State<Door>,
    who: Who,
    Json(spec): Json<TokenSpec>,
) -> Result<Response, Fault> {
    let role = role_of(&spec.role)?;
    let tenant = match role.is_cluster_wide() && spec.tenant_id.is_none() {
        true => None,
        false => Some(who.acts_for(spec.tenant_id.as_deref())?),
    };
    if role > who.role {
        put_on_record(&door, &who, "POST /api/v1/tokens".to_string(), "/api/v1/tokens");
        let detail = format!("role {} cannot make a token of role {}", who.role.word(), role.word());
        return Err(Fault::forbidden(detail));
    }
    if spec.name.is_empty() || spec.name.chars().count() > 255 || spec.name.chars().any(char::is_control) {
        return Err(Fault::invalid("name", "must be 1 to 255 printable characters"));
    }
    let now = door.cluster.now();
    let expires_ms = spec.expires_in.as_ref().map(|span| span_ms("expires_in", span)).transpose()?;
    let priority_max = spec.max_priority.as_ref().map(priority).transpose()?;
    let expires_at = expires_ms.map(|ms| now.plus(ms));
    let wish = Wish { name: spec.name, role, tenant, expires_at, priority_max };
    let (token, secret) = mint(wish, now).map_err(|error| Fault::internal(error.to_string()))?;
    door.cluster.ask(who.actor, Command::AddToken { token: token.clone() }).await?;
    let made = TokenMade { token: shown(&token), secret: secret.reveal().to_string() };
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

fn role_of(text: &str) -> Result<Role, Fault> {
    let roles = [Role::Viewer, Role::Member, Role::TenantAdmin, Role::Operator, Role::Admin];
    roles.into_iter().find(|role| role.word() == text).ok_or_else(|| {
        Fault::invalid("role", format!("`{text}` is none of viewer, member, tenant-admin, operator, admin"))
    })
}

/// List the tokens
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens",
    responses((status = 200, description = "Those the caller may see", body = TokenList)))]
pub async fn list(State(door): State<Door>, who: Who) -> Result<Json<TokenList>, Fault> {
    let tokens: Vec<wire::Token> =
        door.state(|state| state.tokens.values().filter(|token| sees(&who, token)).map(shown).collect())?;
    Ok(Json(TokenList { total: tokens.len() as u64, tokens }))
}

fn sees(who: &Who, token: &Token) -> bool {
    who.confined_to().is_none_or(|own| token.tenant.as_ref() == Some(own))
}

/// The short public name of a token.
pub struct TokenName(String);

impl std::str::FromStr for TokenName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<TokenName, std::convert::Infallible> {
        Ok(TokenName(text.to_string()))
    }
}

impl Named for TokenName {
    const UNKNOWN: &'static str = "unknown-token";
}

/// Revoke a token
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens",
    params(("id" = String, Path, description = "The token's id, not its secret")),
    responses((status = 200, description = "Revoked", body = Done)))]
pub async fn revoke(
    State(door): State<Door>,
    who: Who,
    Id(TokenName(id)): Id<TokenName>,
) -> Result<Json<Done>, Fault> {
    let known =
        door.state(|state| state.tokens.get(&id).filter(|token| sees(&who, token)).map(|token| token.role))?;
    let role = known.ok_or_else(|| Fault::from(Refusal::UnknownToken { id: id.clone() }))?;
    if role > who.role {
        let path = format!("/api/v1/tokens/{id}");
        put_on_record(&door, &who, format!("DELETE {path}"), &path);
        return Err(Fault::forbidden(format!(
            "role {} cannot revoke a token of role {}",
            who.role.word(),
            role.word()
        )));
    }
    door.cluster.ask(who.actor, Command::RevokeToken { id: id.clone() }).await?;
    Ok(Json(Done { message: format!("token `{id}` was revoked") }))
}

fn shown(token: &Token) -> wire::Token {
    wire::Token {
        id: token.id.clone(),
        name: token.name.clone(),
        role: token.role.word().to_string(),
        tenant_id: token.tenant.as_ref().map(ToString::to_string),
        created_at: stamp(token.made_at.0),
        expires_at: token.expires_at.map(|at| stamp(at.0)),
        max_priority: token.priority_max,
    }
}
