//! Who may call what: one table. The check and the security part of the OpenAPI document are made from it.
//!
//! A route that is not in the table answers nobody. Roles that belong to one tenant see only its objects; what
//! belongs to others does not exist for them.

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::ALLOW;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_core::Command;

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::rate_limit::peer_address;
use crate::http::caller::bearer_token;
use crate::http::{unknown_path_error, scrape};
use crate::identity::{Authenticator, Permission, Caller};

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    /// Nothing: it tells no secrets.
    Public,
    /// A role that may do this.
    NeedsRoleFor(Permission),
}

use AccessRule::Public;
const VIEWER: AccessRule = AccessRule::NeedsRoleFor(Permission::Read);
const MEMBER: AccessRule = AccessRule::NeedsRoleFor(Permission::ManageJobs);
const TENANT_ADMIN: AccessRule = AccessRule::NeedsRoleFor(Permission::ManageTenant);
const OPERATOR: AccessRule = AccessRule::NeedsRoleFor(Permission::Operate);
const ADMIN: AccessRule = AccessRule::NeedsRoleFor(Permission::Administer);

/// Every route, with what it asks of its caller.
pub const ACCESS_RULES: &[(Method, &str, AccessRule)] = &[
    (Method::GET, "/", Public),
    (Method::GET, "/health", Public),
    (Method::GET, "/healthz", Public),
    (Method::GET, "/readyz", Public),
    (Method::GET, "/metrics", OPERATOR),
    (Method::GET, "/api/v1/health", Public),
    (Method::GET, "/api/v1/openapi.json", Public),
    (Method::GET, "/api/v1/docs", Public),
    (Method::GET, "/api/v1/whoami", VIEWER),
    (Method::GET, "/api/v1/cluster/status", VIEWER),
    (Method::GET, "/api/v1/moves", OPERATOR),
    (Method::POST, "/api/v1/whatif", OPERATOR),
    (Method::POST, "/api/v1/policies", TENANT_ADMIN),
    (Method::GET, "/api/v1/policies", VIEWER),
    (Method::POST, "/api/v1/policies/rollback", TENANT_ADMIN),
    (Method::GET, "/api/v1/policies/{version}", VIEWER),
    (Method::GET, "/api/v1/policies/shadow", OPERATOR),
    (Method::DELETE, "/api/v1/policies/shadow", ADMIN),
    (Method::POST, "/api/v1/jobs", MEMBER),
    (Method::GET, "/api/v1/jobs", VIEWER),
    (Method::POST, "/api/v1/jobs/plan", MEMBER),
    (Method::GET, "/api/v1/jobs/{id}", VIEWER),
    (Method::PATCH, "/api/v1/jobs/{id}", MEMBER),
    (Method::DELETE, "/api/v1/jobs/{id}", MEMBER),
    (Method::POST, "/api/v1/jobs/{id}/hold", MEMBER),
    (Method::POST, "/api/v1/jobs/{id}/release", MEMBER),
    (Method::POST, "/api/v1/jobs/{id}/requeue", MEMBER),
    (Method::POST, "/api/v1/jobs/{id}/checkpoint", MEMBER),
    (Method::GET, "/api/v1/jobs/{id}/why", VIEWER),
    (Method::GET, "/api/v1/jobs/{id}/receipts", VIEWER),
    (Method::GET, "/api/v1/jobs/{id}/events", VIEWER),
    (Method::GET, "/api/v1/jobs/{id}/attempts", VIEWER),
    (Method::GET, "/api/v1/jobs/{id}/logs", VIEWER),
    (Method::GET, "/api/v1/tenants", VIEWER),
    (Method::POST, "/api/v1/tenants", ADMIN),
    (Method::GET, "/api/v1/tenants/{id}", VIEWER),
    (Method::PUT, "/api/v1/tenants/{id}", ADMIN),
    (Method::PATCH, "/api/v1/tenants/{id}", ADMIN),
    (Method::DELETE, "/api/v1/tenants/{id}", ADMIN),
    (Method::GET, "/api/v1/nodes", VIEWER),
    (Method::POST, "/api/v1/nodes", OPERATOR),
    (Method::GET, "/api/v1/nodes/{id}", VIEWER),
    (Method::PATCH, "/api/v1/nodes/{id}", OPERATOR),
    (Method::DELETE, "/api/v1/nodes/{id}", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/drain", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/undrain", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/hold", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/fence", OPERATOR),
    (Method::GET, "/api/v1/windows", VIEWER),
    (Method::POST, "/api/v1/windows", OPERATOR),
    (Method::DELETE, "/api/v1/windows/{name}", OPERATOR),
    (Method::GET, "/api/v1/gpus", VIEWER),
    (Method::GET, "/api/v1/gpus/{node}/{index}", VIEWER),
    (Method::PATCH, "/api/v1/gpus/{node}/{index}", OPERATOR),
    (Method::DELETE, "/api/v1/gpus/{node}/{index}", OPERATOR),
    (Method::POST, "/api/v1/gpus/{node}/{index}/health", OPERATOR),
    (Method::POST, "/api/v1/gpus/{node}/{index}/partition", OPERATOR),
    (Method::GET, "/api/v1/allocations", VIEWER),
    (Method::GET, "/api/v1/allocations/{id}", VIEWER),
    (Method::DELETE, "/api/v1/allocations/{id}", MEMBER),
    (Method::GET, "/api/v1/usage", VIEWER),
    (Method::GET, "/api/v1/audit", OPERATOR),
    (Method::GET, "/api/v1/tokens", TENANT_ADMIN),
    (Method::POST, "/api/v1/tokens", TENANT_ADMIN),
    (Method::DELETE, "/api/v1/tokens/{id}", TENANT_ADMIN),
    (Method::GET, "/api/v1/events", VIEWER),
];

/// What a route asks of its caller; nothing for a route that is not in the table.
pub fn access_rule(method: &Method, path: &str) -> Option<AccessRule> {
    // Every GET answers HEAD too.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    ACCESS_RULES.iter().find(|rule| rule.0 == *method && rule.1 == path).map(|rule| rule.2)
}

/// The methods a path takes, as the `Allow` header lists them.
fn allowed_methods(path: &str) -> String {
    let known = ACCESS_RULES.iter().filter(|rule| rule.1 == path).map(|rule| rule.0.as_str());
    known.collect::<Vec<_>>().join(", ")
}

/// Under which name a caller's requests and streams are counted.
#[derive(Debug, Clone)]
pub struct CallerKey(pub String);

/// Establish who asks, and whether they may. Handlers find the answer as `Who`.
pub async fn check_access(State(door): State<AppState>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    let path = if path == door.metrics.path { scrape::DEFAULT_METRICS_PATH } else { path };
    let Some(need) = access_rule(request.method(), path) else {
        return no_access_rule(&request, path);
    };
    if let AccessRule::NeedsRoleFor(verb) = access_rule {
        match authorize(&door, &request, verb) {
            Ok((who, caller)) => {
                request.extensions_mut().insert(who);
                request.extensions_mut().insert(caller);
            }
            Err(fault) => return fault.into_response(),
        }
    }
    next.run(request).await
}

/// Whatever the router knows: without a rule nobody gets through.
fn no_access_rule(request: &Request, path: &str) -> Response {
    let allowed = allowed_methods(path);
    if allowed.is_empty() {
        return unknown_path_error(request.uri().clone()).into_response();
    }
    let detail = format!("`{}` does not take {}", request.uri().path(), request.method());
    let fault = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", detail);
    ([(ALLOW, allowed.clone())], fault.hint(format!("it takes {allowed}"))).into_response()
}

fn authorize(door: &AppState, request: &Request, verb: Permission) -> Result<(Caller, CallerKey), ApiError> {
    let who = authenticate(door, request)?;
    let caller = who.token.clone().unwrap_or_else(|| peer_address(request));
    door.rate_limiter.take_request(&caller)?;
    if who.role < verb.minimum_role() {
        return Err(deny(door, &who, request, verb));
    }
    Ok((who, CallerKey(caller)))
}

fn authenticate(door: &AppState, request: &Request) -> Result<Caller, ApiError> {
    let now = door.cluster.now();
    let bearer = bearer_token(request.headers());
    let identified = match door.identity {
        // Nothing to look up, so a standby knows its callers too.
        Authenticator::Local => return Ok(Caller::local()),
        Authenticator::Tokens => door.read_state(|state| door.identity.authenticate(bearer_token, state, now))?,
    };
    identified.map_err(|error| {
        let caller = peer_address(request);
        door.access_denials.count_unauthenticated(&caller, &error.reason());
        // Guessing is limited by address; nothing else is known about a stranger.
        door.rate_limiter
            .take_request(&caller)
            .err()
            .unwrap_or_else(|| ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", error.to_string()))
    })
}

/// Attempts to do what one may not are put on record.
fn deny(door: &AppState, who: &Caller, request: &Request, verb: Permission) -> ApiError {
    // The route and not the path: acts on record are of a limited number, whatever a caller makes up.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let act = format!("{} {route}", request.method());
    let (name, role, least) = (&who.actor.name, who.role.as_str(), verb.minimum_role().as_str());
    door.access_denials.count_forbidden(name, role, &act);
    record_denial(door, who, act, request.uri().path());
    ApiError::forbidden(format!("this needs role {least}, `{name}` has {role}"))
}

/// Put on record that somebody tried what they may not.
pub fn record_denial(door: &AppState, who: &Caller, act: String, path: &str) {
    let note = Command::NoteRefusal { act, object: path.to_string(), code: "forbidden".to_string() };
    if let Err(declined) = door.cluster.enqueue(who.actor.clone(), note) {
        tracing::warn!(%declined, "a refusal could not be put on record");
    }
}
