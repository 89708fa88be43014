//! The REST door: requests become commands, and what is durable becomes answers. Nothing is decided here.
//!
//! Modules in the order a request meets them.

pub mod access;
pub mod api_error;
pub mod origin;
pub mod rate_limit;
mod receipts;
pub mod access_denials;

pub(crate) mod json;
mod query;
mod request_trace;
mod caller;
mod windows;
pub(crate) mod conversions;

mod array_indexes;
mod job_page;
mod jobs;
mod job_spec;
mod submit;
mod why;

mod allocations;
mod gpus;
mod nodes;
mod policies;
mod shadow;
pub(crate) mod tenants;

mod audit;
mod cluster;
mod events;
mod health;
mod job_lookup;
mod holders;
mod home;
mod logs;
mod moves;
mod job_phases;
mod scrape;
mod gpu_share;
mod render;
mod start_range;
mod sse;
mod tokens;
mod usage;
mod whatif;

mod openapi_document;
mod api_reference;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Router, routing};
use muster_core::State;
use muster_store::Tables;
use tokio::sync::{Semaphore, watch};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::cluster::{Cluster, ServerRole};
use crate::config::MetricsConfig;
use crate::evaluations::EvaluationLimiter;
use crate::identity::{Authenticator, Caller};
use crate::metrics::EventCounters;
use crate::policies::{Interpreter, PolicyCallMetrics};
use crate::readings::Readings;
use crate::round_stats::RoundStats;
use crate::shadow::Shadow;
use crate::tls::Connections;
use crate::whatif::WhatIfReplay;

pub use api_error::ApiError;
pub(crate) use gpus::gpu_state as gpu_state;
pub use origin::AllowedOrigins;
pub use rate_limit::RateLimiter;
pub use api_reference::api_reference_markdown;
pub(crate) use render::fair_share_factor;
pub use submit::admission_slots;
pub use conversions::rfc3339;

/// What every request finds. Each layer and handler takes one, so it is a single pointer.
#[derive(Clone)]
pub struct AppState(Arc<AppStateInner>);

/// What lies behind the door.
pub struct AppStateInner {
    /// The engine and what is durable.
    pub cluster: Cluster,
    /// How callers are told apart.
    pub identity: Authenticator,
    /// From where browsers may call.
    pub allowed_origins: AllowedOrigins,
    /// How often one caller may ask.
    pub rate_limiter: RateLimiter,
    /// Connections that are open.
    pub connections: Connections,
    /// Callers that were turned away.
    pub access_denials: access_denials::AccessDenials,
    /// What readers have evaluated on a copy of the state.
    pub evaluations: EvaluationLimiter,
    /// Where the output of jobs lies.
    pub data_dir: PathBuf,
    /// What planning costs, for the metrics.
    pub rounds: Arc<RoundStats>,
    /// What agents last reported: heartbeats, temperatures, errors.
    pub readings: Arc<Readings>,
    /// What happened since the start, for the metrics.
    pub event_counters: Arc<EventCounters>,
    /// What policies were asked, for the metrics.
    pub policy_calls: Arc<PolicyCallMetrics>,
    /// Whether metrics are served, where, and under which prefix.
    pub metrics: MetricsConfig,
    /// Who answers what-if questions, one at a time; nobody where the history cannot be replayed.
    pub whatif_replay: Option<Arc<Mutex<dyn WhatIfReplay>>>,
    /// Who runs policies; nobody where there are none to be had.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Submissions that may wait for policies at the same time.
    pub admission_slots: Arc<Semaphore>,
    /// Policies that run beside those in force.
    pub shadow: Arc<Shadow>,
    /// Turns true when the server stops: open streams end.
    pub stopping: watch::Receiver<bool>,
}

impl From<AppStateInner> for AppState {
    fn from(behind: AppStateInner) -> AppState {
        AppState(Arc::new(behind))
    }
}

impl Deref for AppState {
    type Target = AppStateInner;

    fn deref(&self) -> &AppStateInner {
        &self.0
    }
}

impl AppStateInner {
    /// Look at what is durable. Only the leader has it in memory.
    pub(crate) fn read_state<T>(&self, look: impl FnOnce(&State) -> T) -> Result<T, ApiError> {
        match self.cluster.role() {
            ServerRole::Leading { .. } => Ok(self.cluster.read(look)),
            ServerRole::Starting => Err(ApiError::unavailable("the server is starting")),
            ServerRole::Standby { leader } => {
                Err(ApiError::unavailable(format!("this server stands by for `{leader}`"))
                    .hint(format!("ask `{leader}`")))
            }
            ServerRole::Unavailable { why } => Err(ApiError::unavailable(format!("the database is away: {why}"))),
        }
    }

    /// Whether the token of a caller still counts, asked again and again while a stream is open. A server that does
    /// not lead knows no tokens, and has nothing new to tell.
    pub(crate) fn check_token(&self, who: &Caller) -> Result<(), ApiError> {
        let Some(id) = &who.token else { return Ok(()) };
        let now = self.cluster.now();
        let known = self.read_state(|state| state.tokens.get(id).map(|token| token.expires_at));
        let why = match known {
            Err(_) => return Ok(()),
            Ok(None) => "was revoked",
            Ok(Some(Some(end))) if end <= now => "has expired",
            Ok(Some(_)) => return Ok(()),
        };
        let detail = format!("the stream ends: token `{id}` {why}");
        let hint = "connect again with a valid token; a tenant-admin or an admin makes one";
        Err(ApiError::new(StatusCode::UNAUTHORIZED, "token-ended", detail).hint(hint))
    }

    /// Look into the tables, on a thread that may block.
    pub(crate) async fn read_tables<T, F>(&self, look: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Tables) -> Result<T, ApiError> + Send + 'static,
    {
        let tables = self.cluster.tables();
        let looking = tokio::task::spawn_blocking(move || look(&*tables));
        looking.await.unwrap_or_else(|_| Err(ApiError::internal("a look into the tables ended early")))
    }
}

/// Every route of the door, ready to be served.
pub fn router(door: AppState) -> Router {
    let (routes, openapi) = api_routes().split_for_parts();
    let document = openapi_document::complete_document(openapi);
    let page = Arc::new(api_reference::reference_html(&document));
    let json = Arc::new(muster_json::to_string(&document));
    let routes = match door.metrics.path.as_str() {
        scrape::DEFAULT_METRICS_PATH => routes,
        other => routes.route(other, routing::get(scrape::scrape)),
    };
    routes
        .route("/api/v1/openapi.json", routing::get(move || openapi_document::serve(json.clone())))
        .route("/api/v1/docs", routing::get(move || api_reference::serve(page.clone())))
        .route("/", routing::get(home::page))
        .route_layer(from_fn_with_state(door.clone(), access::check_access))
        .fallback(unknown_path)
        .layer(from_fn_with_state(door.clone(), origin::check_origin))
        .layer(from_fn(request_trace::trace_request))
        .with_state(door)
}

/// The OpenAPI document of this version.
pub fn openapi() -> OpenApi {
    openapi_document::complete_document(api_routes().into_openapi())
}

fn api_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default()
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(why::plan))
        .routes(routes!(jobs::get, jobs::change, jobs::cancel))
        .routes(routes!(jobs::hold))
        .routes(routes!(jobs::release))
        .routes(routes!(jobs::requeue))
        .routes(routes!(jobs::attempts))
        .routes(routes!(why::why))
        .routes(routes!(receipts::saved))
        .routes(routes!(receipts::receipts))
        .routes(routes!(moves::moves))
        .routes(routes!(whatif::ask))
        .routes(routes!(policies::apply, policies::list))
        .routes(routes!(policies::roll_back))
        .routes(routes!(policies::get))
        .routes(routes!(shadow::report, shadow::end))
        .routes(routes!(events::of_job))
        .routes(routes!(logs::read))
        .routes(routes!(tenants::create, tenants::list))
        .routes(routes!(tenants::get, tenants::replace, tenants::change, tenants::delete))
        .routes(routes!(windows::open, windows::list))
        .routes(routes!(windows::close))
        .routes(routes!(nodes::register, nodes::list))
        .routes(routes!(nodes::get, nodes::change, nodes::remove))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::undrain))
        .routes(routes!(nodes::hold))
        .routes(routes!(nodes::fence))
        .routes(routes!(gpus::list))
        .routes(routes!(gpus::get, gpus::change, gpus::remove))
        .routes(routes!(gpus::set_health))
        .routes(routes!(gpus::partition))
        .routes(routes!(allocations::list))
        .routes(routes!(allocations::get, allocations::give_up))
        .routes(routes!(cluster::status))
        .routes(routes!(cluster::whoami))
        .routes(routes!(usage::report))
        .routes(routes!(audit::list))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(events::follow))
        .routes(routes!(health::health))
        .routes(routes!(health::health_of_base))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(scrape::scrape))
}

/// The metrics alone, for a port of their own. Nobody is asked for a token there.
pub fn metrics_router(door: AppState, path: &str) -> Router {
    Router::new().route(path, routing::get(scrape::metrics_response)).fallback(unknown_path).with_state(door)
}

async fn unknown_path(uri: Uri) -> ApiError {
    unknown_path_error(uri)
}

fn unknown_path_error(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown-path", format!("there is nothing at `{}`", uri.path()))
        .hint("the routes are listed at /api/v1/docs")
}
