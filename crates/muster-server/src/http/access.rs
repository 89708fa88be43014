//! Authentication and authorization: one table with the role each route needs.
//!
//! The check and the security part of the OpenAPI document are made from the table. A route that is not in the table
//! refuses every caller. Roles of one tenant see only its objects: objects of other tenants do not exist for them (404).

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::ALLOW;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_core::Command;

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::{CallerKey, bearer_token};
use crate::http::rate_limit::peer_address;
use crate::http::{scrape, unknown_path_error};
use crate::identity::{Authenticator, Caller, Permission};
use crate::tls::ClientConnection;

/// What a route requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    /// No token: the response contains no secrets.
    Public,
    /// A token whose role has this permission.
    NeedsRoleFor(Permission),
}

use AccessRule::Public;
const VIEWER: AccessRule = AccessRule::NeedsRoleFor(Permission::Read);
const MEMBER: AccessRule = AccessRule::NeedsRoleFor(Permission::ManageJobs);
const TENANT_ADMIN: AccessRule = AccessRule::NeedsRoleFor(Permission::ManageTenant);
const OPERATOR: AccessRule = AccessRule::NeedsRoleFor(Permission::Operate);
const ADMIN: AccessRule = AccessRule::NeedsRoleFor(Permission::Administer);

/// Every route with its access rule.
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
    (Method::POST, "/api/v1/jobs/{id}/exec", MEMBER),
    (Method::GET, "/api/v1/tenants", VIEWER),
    (Method::POST, "/api/v1/tenants", ADMIN),
    (Method::GET, "/api/v1/tenants/{id}", VIEWER),
    (Method::PUT, "/api/v1/tenants/{id}", ADMIN),
    (Method::PATCH, "/api/v1/tenants/{id}", ADMIN),
    (Method::DELETE, "/api/v1/tenants/{id}", ADMIN),
    (Method::GET, "/api/v1/nodes", VIEWER),
    (Method::POST, "/api/v1/nodes", OPERATOR),
    (Method::POST, "/api/v1/nodes/join-tokens", OPERATOR),
    (Method::GET, "/api/v1/nodes/{id}", VIEWER),
    (Method::PATCH, "/api/v1/nodes/{id}", OPERATOR),
    (Method::DELETE, "/api/v1/nodes/{id}", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/drain", OPERATOR),
    (Method::GET, "/api/v1/nodes/{id}/drain", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/resume", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/undrain", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/reboot", OPERATOR),
    (Method::POST, "/api/v1/nodes/{id}/power", OPERATOR),
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
    (Method::GET, "/api/v1/secrets", MEMBER),
    (Method::PUT, "/api/v1/secrets/{name}", MEMBER),
    (Method::DELETE, "/api/v1/secrets/{name}", MEMBER),
    (Method::GET, "/api/v1/events", VIEWER),
];

/// The access rule of a route; `None` for a route that is not in the table.
pub fn access_rule(method: &Method, path: &str) -> Option<AccessRule> {
    // Every GET answers HEAD too.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    ACCESS_RULES.iter().find(|rule| rule.0 == *method && rule.1 == path).map(|rule| rule.2)
}

/// The methods of a path, as the `Allow` header lists them.
fn allowed_methods(path: &str) -> String {
    let known = ACCESS_RULES.iter().filter(|rule| rule.1 == path).map(|rule| rule.0.as_str());
    known.collect::<Vec<_>>().join(", ")
}

/// Authenticate the caller and check its role. Handlers extract the result as [`Caller`] and [`CallerKey`].
pub async fn check_access(State(app): State<AppState>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    let path = if path == app.metrics.path { scrape::DEFAULT_METRICS_PATH } else { path };
    let Some(rule) = access_rule(request.method(), path) else {
        return no_access_rule(&request, path);
    };
    if let AccessRule::NeedsRoleFor(permission) = rule {
        match authorize(&app, &request, permission) {
            Ok((caller, caller_key)) => {
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(caller_key);
            }
            Err(error) => return error.into_response(),
        }
    }
    next.run(request).await
}

/// 404 or 405, even for a route that the router knows: without an access rule no request passes.
fn no_access_rule(request: &Request, path: &str) -> Response {
    let allowed = allowed_methods(path);
    if allowed.is_empty() {
        return unknown_path_error(request.uri().clone()).into_response();
    }
    let detail = format!("method {} is not allowed on `{}`", request.method(), request.uri().path());
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", detail);
    ([(ALLOW, allowed.clone())], error.hint(format!("allowed methods are {allowed}"))).into_response()
}

fn authorize(app: &AppState, request: &Request, permission: Permission) -> Result<(Caller, CallerKey), ApiError> {
    let caller = authenticate(app, request)?;
    if let Some(connection) = request.extensions().get::<ClientConnection>() {
        connection.note_authenticated();
    }
    let caller_key = caller.token.clone().unwrap_or_else(|| peer_address(request));
    app.rate_limiter.take_request(&caller_key)?;
    if caller.role < permission.minimum_role() {
        return Err(deny(app, &caller, request, permission));
    }
    Ok((caller, CallerKey(caller_key)))
}

/// Whether the headers of a request authenticate a caller, for an operation that needs one. The layers of the operation
/// check the role.
pub fn check_caller(app: &AppState, (method, path): (&Method, &str), request: &Request) -> Result<(), ApiError> {
    match access_rule(method, path) {
        Some(AccessRule::NeedsRoleFor(_)) => authenticate(app, request).map(drop),
        Some(Public) | None => Ok(()),
    }
}

fn authenticate(app: &AppState, request: &Request) -> Result<Caller, ApiError> {
    let now = app.cluster.now();
    let bearer = bearer_token(request.headers());
    let identified = match app.identity {
        // No token to look up, so a standby can authenticate callers too.
        Authenticator::Local => return Ok(Caller::local()),
        Authenticator::Tokens => app.read_state(|state| app.identity.authenticate(bearer, state, now))?,
    };
    identified.map_err(|error| {
        let address = peer_address(request);
        app.access_denials.count_unauthenticated(&address, &error.reason());
        // Guessing tokens is limited by address: nothing else is known about an unauthenticated caller.
        app.rate_limiter
            .take_request(&address)
            .err()
            .unwrap_or_else(|| ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", error.to_string()))
    })
}

/// Count the denied request and record it in the audit log.
fn deny(app: &AppState, caller: &Caller, request: &Request, permission: Permission) -> ApiError {
    // The route and not the path: a caller can make up any number of paths, and the audit log groups by act.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let act = format!("{} {route}", request.method());
    let (name, role, needed) = (&caller.actor.name, caller.role.as_str(), permission.minimum_role().as_str());
    app.access_denials.count_forbidden(name, role, &act);
    record_denial(app, caller, act, request.uri().path());
    ApiError::forbidden(format!("this request needs role {needed}; `{name}` has role {role}"))
}

/// Record a denied request in the audit log.
pub fn record_denial(app: &AppState, caller: &Caller, act: String, path: &str) {
    let note = Command::NoteRefusal { act, object: path.to_string(), code: "forbidden".to_string() };
    if let Err(declined) = app.cluster.enqueue(caller.actor.clone(), note) {
        tracing::warn!(%declined, "could not record the denied request in the audit log");
    }
}
