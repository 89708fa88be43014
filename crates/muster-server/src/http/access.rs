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

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::rate::address_of;
use crate::http::who::bearer;
use crate::http::{no_such_path, scrape};
use crate::identity::{Identity, Verb, Who};

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it tells no secrets.
    Open,
    /// A role that may do this.
    To(Verb),
}

use Need::Open;
const LOOK: Need = Need::To(Verb::Look);
const WORK: Need = Need::To(Verb::Work);
const MANAGE: Need = Need::To(Verb::Manage);
const OPERATE: Need = Need::To(Verb::Operate);
const ADMINISTER: Need = Need::To(Verb::Administer);

/// Every route, with what it asks of its caller.
pub const RULES: &[(Method, &str, Need)] = &[
    (Method::GET, "/", Open),
    (Method::GET, "/health", Open),
    (Method::GET, "/healthz", Open),
    (Method::GET, "/readyz", Open),
    (Method::GET, "/metrics", OPERATE),
    (Method::GET, "/api/v1/health", Open),
    (Method::GET, "/api/v1/openapi.json", Open),
    (Method::GET, "/api/v1/docs", Open),
    (Method::GET, "/api/v1/whoami", LOOK),
    (Method::GET, "/api/v1/cluster/status", LOOK),
    (Method::GET, "/api/v1/moves", OPERATE),
    (Method::POST, "/api/v1/whatif", OPERATE),
    (Method::POST, "/api/v1/policies", MANAGE),
    (Method::GET, "/api/v1/policies", LOOK),
    (Method::POST, "/api/v1/policies/rollback", MANAGE),
    (Method::GET, "/api/v1/policies/{version}", LOOK),
    (Method::GET, "/api/v1/policies/shadow", OPERATE),
    (Method::DELETE, "/api/v1/policies/shadow", ADMINISTER),
    (Method::POST, "/api/v1/jobs", WORK),
    (Method::GET, "/api/v1/jobs", LOOK),
    (Method::POST, "/api/v1/jobs/plan", WORK),
    (Method::GET, "/api/v1/jobs/{id}", LOOK),
    (Method::PATCH, "/api/v1/jobs/{id}", WORK),
    (Method::DELETE, "/api/v1/jobs/{id}", WORK),
    (Method::POST, "/api/v1/jobs/{id}/hold", WORK),
    (Method::POST, "/api/v1/jobs/{id}/release", WORK),
    (Method::POST, "/api/v1/jobs/{id}/requeue", WORK),
    (Method::POST, "/api/v1/jobs/{id}/checkpoint", WORK),
    (Method::GET, "/api/v1/jobs/{id}/why", LOOK),
    (Method::GET, "/api/v1/jobs/{id}/receipts", LOOK),
    (Method::GET, "/api/v1/jobs/{id}/events", LOOK),
    (Method::GET, "/api/v1/jobs/{id}/attempts", LOOK),
    (Method::GET, "/api/v1/jobs/{id}/logs", LOOK),
    (Method::GET, "/api/v1/tenants", LOOK),
    (Method::POST, "/api/v1/tenants", ADMINISTER),
    (Method::GET, "/api/v1/tenants/{id}", LOOK),
    (Method::PUT, "/api/v1/tenants/{id}", ADMINISTER),
    (Method::PATCH, "/api/v1/tenants/{id}", ADMINISTER),
    (Method::DELETE, "/api/v1/tenants/{id}", ADMINISTER),
    (Method::GET, "/api/v1/nodes", LOOK),
    (Method::POST, "/api/v1/nodes", OPERATE),
    (Method::GET, "/api/v1/nodes/{id}", LOOK),
    (Method::PATCH, "/api/v1/nodes/{id}", OPERATE),
    (Method::DELETE, "/api/v1/nodes/{id}", OPERATE),
    (Method::POST, "/api/v1/nodes/{id}/drain", OPERATE),
    (Method::POST, "/api/v1/nodes/{id}/undrain", OPERATE),
    (Method::POST, "/api/v1/nodes/{id}/hold", OPERATE),
    (Method::POST, "/api/v1/nodes/{id}/fence", OPERATE),
    (Method::GET, "/api/v1/windows", LOOK),
    (Method::POST, "/api/v1/windows", OPERATE),
    (Method::DELETE, "/api/v1/windows/{name}", OPERATE),
    (Method::GET, "/api/v1/gpus", LOOK),
    (Method::GET, "/api/v1/gpus/{node}/{index}", LOOK),
    (Method::PATCH, "/api/v1/gpus/{node}/{index}", OPERATE),
    (Method::DELETE, "/api/v1/gpus/{node}/{index}", OPERATE),
    (Method::POST, "/api/v1/gpus/{node}/{index}/health", OPERATE),
    (Method::POST, "/api/v1/gpus/{node}/{index}/partition", OPERATE),
    (Method::GET, "/api/v1/allocations", LOOK),
    (Method::GET, "/api/v1/allocations/{id}", LOOK),
    (Method::DELETE, "/api/v1/allocations/{id}", WORK),
    (Method::GET, "/api/v1/usage", LOOK),
    (Method::GET, "/api/v1/audit", OPERATE),
    (Method::GET, "/api/v1/tokens", MANAGE),
    (Method::POST, "/api/v1/tokens", MANAGE),
    (Method::DELETE, "/api/v1/tokens/{id}", MANAGE),
    (Method::GET, "/api/v1/events", LOOK),
];

/// What a route asks of its caller; nothing for a route that is not in the table.
pub fn need(method: &Method, path: &str) -> Option<Need> {
    // Every GET answers HEAD too.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    RULES.iter().find(|rule| rule.0 == *method && rule.1 == path).map(|rule| rule.2)
}

/// The methods a path takes, as the `Allow` header lists them.
fn methods(path: &str) -> String {
    let known = RULES.iter().filter(|rule| rule.1 == path).map(|rule| rule.0.as_str());
    known.collect::<Vec<_>>().join(", ")
}

/// Under which name a caller's requests and streams are counted.
#[derive(Debug, Clone)]
pub struct Caller(pub String);

/// Establish who asks, and whether they may. Handlers find the answer as `Who`.
pub async fn check(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    let path = if path == door.metrics.path { scrape::PATH } else { path };
    let Some(need) = need(request.method(), path) else {
        return not_in_the_table(&request, path);
    };
    if let Need::To(verb) = need {
        match admit(&door, &request, verb) {
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
fn not_in_the_table(request: &Request, path: &str) -> Response {
    let allowed = methods(path);
    if allowed.is_empty() {
        return no_such_path(request.uri().clone()).into_response();
    }
    let detail = format!("`{}` does not take {}", request.uri().path(), request.method());
    let fault = Fault::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", detail);
    ([(ALLOW, allowed.clone())], fault.hint(format!("it takes {allowed}"))).into_response()
}

fn admit(door: &Door, request: &Request, verb: Verb) -> Result<(Who, Caller), Fault> {
    let who = identify(door, request)?;
    let caller = who.token.clone().unwrap_or_else(|| address_of(request));
    door.limits.take(&caller)?;
    if who.role < verb.needs() {
        return Err(refuse(door, &who, request, verb));
    }
    Ok((who, Caller(caller)))
}

fn identify(door: &Door, request: &Request) -> Result<Who, Fault> {
    let now = door.cluster.now();
    let bearer = bearer(request.headers());
    let identified = match door.identity {
        // Nothing to look up, so a standby knows its callers too.
        Identity::Local => return Ok(Who::local()),
        Identity::Tokens => door.state(|state| door.identity.authenticate(bearer, state, now))?,
    };
    identified.map_err(|error| {
        let caller = address_of(request);
        door.refusals.unauthenticated(&caller, &error.reason());
        // Guessing is limited by address; nothing else is known about a stranger.
        door.limits
            .take(&caller)
            .err()
            .unwrap_or_else(|| Fault::new(StatusCode::UNAUTHORIZED, "unauthorized", error.to_string()))
    })
}

/// Attempts to do what one may not are put on record.
fn refuse(door: &Door, who: &Who, request: &Request, verb: Verb) -> Fault {
    // The route and not the path: acts on record are of a limited number, whatever a caller makes up.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let act = format!("{} {route}", request.method());
    let (name, role, least) = (&who.actor.name, who.role.word(), verb.needs().word());
    door.refusals.forbidden(name, role, &act);
    put_on_record(door, who, act, request.uri().path());
    Fault::forbidden(format!("this needs role {least}, `{name}` has {role}"))
}

/// Put on record that somebody tried what they may not.
pub fn put_on_record(door: &Door, who: &Who, act: String, path: &str) {
    let note = Command::NoteRefusal { act, object: path.to_string(), code: "forbidden".to_string() };
    if let Err(declined) = door.cluster.tell(who.actor.clone(), note) {
        tracing::warn!(%declined, "a refusal could not be put on record");
    }
}
