//! The REST door: requests become commands, and what is durable becomes answers. Nothing is decided here.
//!
//! Modules in the order a request meets them.

pub mod access;
pub mod fault;
pub mod origin;
pub mod rate;
mod receipts;
pub mod refusals;

pub(crate) mod json;
mod query;
mod trace;
mod who;
mod windows;
pub(crate) mod written;

mod array;
mod job_rows;
mod jobs;
mod spec;
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
mod history;
mod holders;
mod home;
mod logs;
mod moves;
mod phases;
mod scrape;
mod share;
mod show;
mod start_range;
mod stream;
mod tokens;
mod usage;
mod whatif;

mod document;
mod reference;

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

use crate::cluster::{Cluster, Role};
use crate::config::Metrics;
use crate::evaluations::Evaluations;
use crate::identity::{Identity, Who};
use crate::metrics::Seen;
use crate::policies::{Interpreter, Questions};
use crate::readings::Readings;
use crate::rounds::Rounds;
use crate::shadow::Shadow;
use crate::tls::Connections;
use crate::whatif::Oracle;

pub use fault::Fault;
pub(crate) use gpus::state_word as gpu_state;
pub use origin::Origins;
pub use rate::Limits;
pub use reference::api_reference_markdown;
pub(crate) use show::factor;
pub use submit::admission_slots;
pub use written::stamp;

/// What every request finds. Each layer and handler takes one, so it is a single pointer.
#[derive(Clone)]
pub struct Door(Arc<Behind>);

/// What lies behind the door.
pub struct Behind {
    /// The engine and what is durable.
    pub cluster: Cluster,
    /// How callers are told apart.
    pub identity: Identity,
    /// From where browsers may call.
    pub origins: Origins,
    /// How often one caller may ask.
    pub limits: Limits,
    /// Connections that are open.
    pub connections: Connections,
    /// Callers that were turned away.
    pub refusals: refusals::Refusals,
    /// What readers have evaluated on a copy of the state.
    pub evaluations: Evaluations,
    /// Where the output of jobs lies.
    pub data_dir: PathBuf,
    /// What planning costs, for the metrics.
    pub rounds: Arc<Rounds>,
    /// What agents last reported: heartbeats, temperatures, errors.
    pub readings: Arc<Readings>,
    /// What happened since the start, for the metrics.
    pub seen: Arc<Seen>,
    /// What policies were asked, for the metrics.
    pub questions: Arc<Questions>,
    /// Whether metrics are served, where, and under which prefix.
    pub metrics: Metrics,
    /// Who answers what-if questions, one at a time; nobody where the history cannot be replayed.
    pub oracle: Option<Arc<Mutex<dyn Oracle>>>,
    /// Who runs policies; nobody where there are none to be had.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Submissions that may wait for policies at the same time.
    pub admission_slots: Arc<Semaphore>,
    /// Policies that run beside those in force.
    pub shadow: Arc<Shadow>,
    /// Turns true when the server stops: open streams end.
    pub stopping: watch::Receiver<bool>,
}

impl From<Behind> for Door {
    fn from(behind: Behind) -> Door {
        Door(Arc::new(behind))
    }
}

impl Deref for Door {
    type Target = Behind;

    fn deref(&self) -> &Behind {
        &self.0
    }
}

impl Behind {
    /// Look at what is durable. Only the leader has it in memory.
    pub(crate) fn state<T>(&self, look: impl FnOnce(&State) -> T) -> Result<T, Fault> {
        match self.cluster.role() {
            Role::Leading { .. } => Ok(self.cluster.read(look)),
            Role::Starting => Err(Fault::unavailable("the server is starting")),
            Role::Standby { leader } => {
                Err(Fault::unavailable(format!("this server stands by for `{leader}`"))
                    .hint(format!("ask `{leader}`")))
            }
            Role::Away { why } => Err(Fault::unavailable(format!("the database is away: {why}"))),
        }
    }

    /// Whether the token of a caller still counts, asked again and again while a stream is open. A server that does
    /// not lead knows no tokens, and has nothing new to tell.
    pub(crate) fn check_token(&self, who: &Who) -> Result<(), Fault> {
        let Some(id) = &who.token else { return Ok(()) };
        let now = self.cluster.now();
        let known = self.state(|state| state.tokens.get(id).map(|token| token.expires_at));
        let why = match known {
            Err(_) => return Ok(()),
            Ok(None) => "was revoked",
            Ok(Some(Some(end))) if end <= now => "has expired",
            Ok(Some(_)) => return Ok(()),
        };
        let detail = format!("the stream ends: token `{id}` {why}");
        let hint = "connect again with a valid token; a tenant-admin or an admin makes one";
        Err(Fault::new(StatusCode::UNAUTHORIZED, "token-ended", detail).hint(hint))
    }

    /// Look into the tables, on a thread that may block.
    pub(crate) async fn tables<T, F>(&self, look: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Tables) -> Result<T, Fault> + Send + 'static,
    {
        let tables = self.cluster.tables();
        let looking = tokio::task::spawn_blocking(move || look(&*tables));
        looking.await.unwrap_or_else(|_| Err(Fault::internal("a look into the tables ended early")))
    }
}

/// Every route of the door, ready to be served.
pub fn router(door: Door) -> Router {
    let (routes, openapi) = api().split_for_parts();
    let document = document::finished(openapi);
    let page = Arc::new(reference::html(&document));
    let json = Arc::new(muster_json::to_string(&document));
    let routes = match door.metrics.path.as_str() {
        scrape::PATH => routes,
        other => routes.route(other, routing::get(scrape::scrape)),
    };
    routes
        .route("/api/v1/openapi.json", routing::get(move || document::serve(json.clone())))
        .route("/api/v1/docs", routing::get(move || reference::serve(page.clone())))
        .route("/", routing::get(home::page))
        .route_layer(from_fn_with_state(door.clone(), access::check))
        .fallback(nowhere)
        .layer(from_fn_with_state(door.clone(), origin::check))
        .layer(from_fn(trace::follow))
        .with_state(door)
}

/// The OpenAPI document of this version.
pub fn openapi() -> OpenApi {
    document::finished(api().into_openapi())
}

fn api() -> OpenApiRouter<Door> {
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
pub fn metrics_router(door: Door, path: &str) -> Router {
    Router::new().route(path, routing::get(scrape::answer)).fallback(nowhere).with_state(door)
}

async fn nowhere(uri: Uri) -> Fault {
    no_such_path(uri)
}

fn no_such_path(uri: Uri) -> Fault {
    Fault::new(StatusCode::NOT_FOUND, "unknown-path", format!("there is nothing at `{}`", uri.path()))
        .hint("the routes are listed at /api/v1/docs")
}
