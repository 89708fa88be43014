//! Inbound adapter: REST. Requests become commands; responses come from the durable state and the tables.
//!
//! Nothing is decided here: the engine decides, and a refusal keeps its code and sentence.

// Before the handlers: request id, origin, caller, role, rate limit; and the error every layer may return.
pub mod access;
pub mod access_denials;
pub mod api_error;
mod caller;
pub mod origin;
pub mod rate_limit;
mod request_trace;

// Reading requests.
mod array_indexes;
mod job_spec;
pub(crate) mod json;
mod query;

// Jobs.
mod checkpoint;
mod dry_run;
mod exec;
mod holders;
mod job_lookup;
mod job_page;
mod job_phases;
mod jobs;
mod logs;
mod receipts;
mod start_range;
mod submit;
mod why;

// Everything else that has routes.
mod allocations;
mod audit;
mod cluster;
mod drains;
mod events;
mod gpus;
mod health;
mod home;
mod join_tokens;
mod moves;
mod nodes;
mod policies;
mod power;
mod scrape;
mod secrets;
mod shadow;
pub(crate) mod tenants;
mod tokens;
mod usage;
mod whatif;
mod windows;

// Writing responses.
mod gpu_share;
mod render;
mod sse;

// The API described.
mod api_reference;
mod openapi_document;

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Router, routing};
use muster_core::State;
use muster_store::Tables;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::cluster::{Cluster, ServerRole};
use crate::config::MetricsConfig;
use crate::evaluations::EvaluationLimiter;
use crate::exec_source::ExecSource;
use crate::identity::{Authenticator, Caller};
use crate::link::LinkAddress;
use crate::log_source::LogSource;
use crate::metrics::EventCounters;
use crate::policies::{Interpreter, PolicyCallMetrics};
use crate::power::PowerControl;
use crate::readings::Readings;
use crate::round_stats::RoundStats;
use crate::secrets::SecretVault;
use crate::shadow::Shadow;
use crate::tls::Connections;
use crate::whatif::WhatIfReplay;

pub use crate::conversions::rfc3339;

pub use api_error::ApiError;
pub use api_reference::api_reference_markdown;
pub(crate) use health::not_ready_because;
pub(crate) use json::BODY_BYTES_MAX;
pub use origin::AllowedOrigins;
pub use rate_limit::RateLimiter;
pub use submit::admission_slots;

/// The shared state of all layers and handlers. Each of them takes a clone, so it is a single pointer.
#[derive(Clone)]
pub struct AppState(Arc<AppStateInner>);

/// The fields of [`AppState`].
pub struct AppStateInner {
    /// The engine, the durable state and the tables.
    pub cluster: Cluster,
    /// Local mode, or callers identified by tokens.
    pub identity: Authenticator,
    /// Hosts and origins from which browsers may call.
    pub allowed_origins: AllowedOrigins,
    /// Limits of requests and streams per caller.
    pub rate_limiter: RateLimiter,
    pub connections: Connections,
    /// Counts and log lines of denied requests.
    pub access_denials: access_denials::AccessDenials,
    /// Limits evaluations on a copy of the state (forecasts, remedies, dry runs).
    pub evaluations: EvaluationLimiter,
    /// The output of jobs, on whichever machine it lies.
    pub logs: Arc<dyn LogSource>,
    /// Programs inside running jobs, on whichever machine these run.
    pub programs: Arc<dyn ExecSource>,
    /// Durations of planner rounds, for the metrics.
    pub rounds: Arc<RoundStats>,
    /// Last reports of the agents: heartbeats, temperatures, errors.
    pub readings: Arc<Readings>,
    /// Events counted since the start, for the metrics.
    pub event_counters: Arc<EventCounters>,
    /// Calls of policy hooks, for the metrics.
    pub policy_calls: Arc<PolicyCallMetrics>,
    /// Whether metrics are served, at which address and path, and under which prefix.
    pub metrics: MetricsConfig,
    /// Answers what-if requests, one at a time. `None` if this server cannot replay its history.
    pub whatif_replay: Option<Arc<Mutex<dyn WhatIfReplay>>>,
    /// Runs policies. `None` if this server has no policy interpreter.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Permits of submissions that wait for policies at the same time.
    pub admission_slots: Arc<Semaphore>,
    /// Controls the power of nodes. `None` if the site has no power program.
    pub power: Option<Arc<dyn PowerControl>>,
    /// Sets the secrets of jobs.
    pub secrets: Arc<SecretVault>,
    /// Policies on trial beside the active ones.
    pub shadow: Arc<Shadow>,
    /// Where agents of other machines connect. `None` if this server has no agent link.
    pub agent_link: Option<LinkAddress>,
    /// Becomes true when the server stops, so that open streams end.
    pub stopping: watch::Receiver<bool>,
}

impl From<AppStateInner> for AppState {
    fn from(inner: AppStateInner) -> AppState {
        AppState(Arc::new(inner))
    }
}

impl Deref for AppState {
    type Target = AppStateInner;

    fn deref(&self) -> &AppStateInner {
        &self.0
    }
}

impl AppStateInner {
    /// Read the durable state. Only the leader has it in memory; any other server is unavailable for this.
    pub(crate) fn read_state<T>(&self, read: impl FnOnce(&State) -> T) -> Result<T, ApiError> {
        match self.cluster.role() {
            ServerRole::Leading { .. } => Ok(self.cluster.read(read)),
            ServerRole::Starting => Err(ApiError::unavailable("the server is starting")),
            ServerRole::Standby { leader } => {
                Err(ApiError::unavailable(format!("this server is a standby; the leader is `{leader}`"))
                    .hint(format!("send the request to `{leader}`")))
            }
            ServerRole::Unavailable { why } => {
                Err(ApiError::unavailable(format!("the database is unavailable: {why}")))
            }
        }
    }

    /// Whether the token of a caller is still valid, checked repeatedly while a stream is open. A server that is not
    /// the leader knows no tokens and sends no new events, so it accepts all.
    pub(crate) fn check_token(&self, caller: &Caller) -> Result<(), ApiError> {
        let Some(id) = &caller.token else { return Ok(()) };
        let now = self.cluster.now();
        let known = self.read_state(|state| state.tokens.get(id).map(|token| token.expires_at));
        let why = match known {
            Err(_) => return Ok(()),
            Ok(None) => "was revoked",
            Ok(Some(Some(end))) if end <= now => "has expired",
            Ok(Some(_)) => return Ok(()),
        };
        let detail = format!("the stream was closed: token `{id}` {why}");
        let hint = "connect again with a valid token; a tenant-admin, an operator or an admin can create one";
        Err(ApiError::new(StatusCode::UNAUTHORIZED, "token-ended", detail).hint(hint))
    }

    /// Query the tables, on a thread that may block.
    pub(crate) async fn read_tables<T, F>(&self, query: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Tables) -> Result<T, ApiError> + Send + 'static,
    {
        let tables = self.cluster.tables();
        let queried = tokio::task::spawn_blocking(move || query(&*tables));
        queried.await.unwrap_or_else(|_| Err(ApiError::internal("the database query was aborted")))
    }
}

/// All routes with their layers, ready to be served.
pub fn router(app: AppState) -> Router {
    let (routes, openapi) = api_routes().split_for_parts();
    let document = openapi_document::complete_document(openapi);
    let page = Arc::new(api_reference::reference_html(&document));
    let json = Arc::new(muster_json::to_string(&document));
    let routes = match app.metrics.path.as_str() {
        scrape::DEFAULT_METRICS_PATH => routes,
        other => routes.route(other, routing::get(scrape::scrape)),
    };
    routes
        .route("/api/v1/openapi.json", routing::get(move || openapi_document::serve(json.clone())))
        .route("/api/v1/docs", routing::get(move || api_reference::serve(page.clone())))
        .route("/", routing::get(home::page))
        .route_layer(from_fn_with_state(app.clone(), access::check_access))
        .fallback(unknown_path)
        .layer(from_fn_with_state(app.clone(), origin::check_origin))
        .layer(from_fn(request_trace::trace_request))
        .with_state(app)
}

/// The OpenAPI document of this version.
pub fn openapi() -> Value {
    openapi_document::complete_document(api_routes().into_openapi())
}

fn api_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default()
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(dry_run::plan))
        .routes(routes!(jobs::get, jobs::change, jobs::cancel))
        .routes(routes!(jobs::hold))
        .routes(routes!(jobs::release))
        .routes(routes!(jobs::requeue))
        .routes(routes!(jobs::attempts))
        .routes(routes!(why::why))
        .routes(routes!(checkpoint::report_checkpoint))
        .routes(routes!(receipts::receipts))
        .routes(routes!(moves::moves))
        .routes(routes!(whatif::run_whatif))
        .routes(routes!(policies::apply, policies::list))
        .routes(routes!(policies::roll_back))
        .routes(routes!(policies::get))
        .routes(routes!(shadow::report, shadow::end))
        .routes(routes!(events::list_job_events))
        .routes(routes!(logs::read))
        .routes(routes!(exec::exec))
        .routes(routes!(tenants::create, tenants::list))
        .routes(routes!(tenants::get, tenants::replace, tenants::change, tenants::delete))
        .routes(routes!(windows::open, windows::list))
        .routes(routes!(windows::close))
        .routes(routes!(nodes::register, nodes::list))
        .routes(routes!(nodes::get, nodes::change, nodes::remove))
        .routes(routes!(join_tokens::create))
        .routes(routes!(drains::drain))
        .routes(routes!(drains::read))
        .routes(routes!(drains::reboot))
        .routes(routes!(nodes::resume))
        .routes(routes!(nodes::undrain))
        .routes(routes!(nodes::hold))
        .routes(routes!(power::fence))
        .routes(routes!(power::control))
        .routes(routes!(gpus::list))
        .routes(routes!(gpus::get, gpus::change, gpus::remove))
        .routes(routes!(gpus::set_health))
        .routes(routes!(gpus::partition))
        .routes(routes!(allocations::list))
        .routes(routes!(allocations::get, allocations::requeue_job))
        .routes(routes!(cluster::status))
        .routes(routes!(cluster::whoami))
        .routes(routes!(usage::report))
        .routes(routes!(audit::list))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::set, secrets::remove))
        .routes(routes!(events::follow))
        .routes(routes!(health::health))
        .routes(routes!(health::api_health))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(scrape::scrape))
}

/// The metrics alone, for a port of their own. They need no token there.
pub fn metrics_router(app: AppState, path: &str) -> Router {
    Router::new().route(path, routing::get(scrape::metrics_response)).fallback(unknown_path).with_state(app)
}

async fn unknown_path(uri: Uri) -> ApiError {
    unknown_path_error(uri)
}

fn unknown_path_error(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown-path", format!("no such path `{}`", uri.path()))
        .hint("the routes are listed at /api/v1/docs")
}
