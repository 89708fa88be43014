//! A leader whose database becomes unavailable.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use muster_core::JobId;
use muster_core::objects::job::Outcome;
use muster_store::queries::{
    AllocationFilter, JobFilter, PageOfRows, PageRequest, SortedPageRequest, UsageFilter, UsageGrouping,
};
use muster_store::rows::{AllocationRow, AttemptRow, AuditRow, CountRow, EventRow, JobDetail, JobRow, UsageRow};
use muster_store::{StoreError, Tables};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::clock::SystemClock;
use crate::cluster::{Cluster, ServerRole};
use crate::config::MetricsConfig;
use crate::http::{AllowedOrigins, AppState, AppStateInner, RateLimiter, router};
use crate::identity::Authenticator;

/// Tables of a database that does not answer.
struct UnavailableTables;

fn unavailable<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable { operation: "read".to_string(), source: "connection refused".into() })
}

impl Tables for UnavailableTables {
    fn jobs(&self, _: &JobFilter, _: &PageRequest<JobId>) -> Result<PageOfRows<JobRow, JobId>, StoreError> {
        unavailable()
    }
    fn sorted_jobs(&self, _: &JobFilter, _: &SortedPageRequest) -> Result<Vec<JobRow>, StoreError> {
        unavailable()
    }
    fn array_tasks(&self, _: u64) -> Result<Vec<muster_store::rows::ArrayTasksRow>, StoreError> {
        unavailable()
    }
    fn job(&self, _: JobId) -> Result<Option<JobDetail>, StoreError> {
        unavailable()
    }
    fn attempts(&self, _: JobId) -> Result<Vec<AttemptRow>, StoreError> {
        unavailable()
    }
    fn outcomes(&self, _: &[JobId]) -> Result<BTreeMap<JobId, Outcome>, StoreError> {
        unavailable()
    }
    fn idempotency_key_use(
        &self,
        _: &str,
        _: &str,
    ) -> Result<Option<muster_core::facts::command::IdempotencyRecord>, StoreError> {
        unavailable()
    }
    fn events(&self, _: u64, _: u32, _: Option<JobId>) -> Result<Vec<EventRow>, StoreError> {
        unavailable()
    }
    fn allocations(
        &self,
        _: &AllocationFilter,
        _: &PageRequest<u64>,
    ) -> Result<PageOfRows<AllocationRow, u64>, StoreError> {
        unavailable()
    }
    fn usage(&self, _: &UsageFilter, _: UsageGrouping) -> Result<Vec<UsageRow>, StoreError> {
        unavailable()
    }
    fn wait_reasons(&self, _: &[String], _: i64, _: i64) -> Result<Vec<muster_store::rows::WaitRow>, StoreError> {
        unavailable()
    }
    fn audit(&self, _: &PageRequest<u64>) -> Result<PageOfRows<AuditRow, u64>, StoreError> {
        unavailable()
    }
    fn job_counts(&self) -> Result<Vec<CountRow>, StoreError> {
        unavailable()
    }
    fn ping(&self) -> Result<(), StoreError> {
        unavailable()
    }
}

struct UnavailableSecrets;

impl muster_store::SealedSecrets for UnavailableSecrets {
    fn put(&self, _: muster_store::LeaderEpoch, _: &muster_store::SealedSecret<'_>) -> Result<(), StoreError> {
        unavailable()
    }
    fn discard(&self, _: muster_store::LeaderEpoch, _: &str) -> Result<(), StoreError> {
        unavailable()
    }
    fn sealed(&self, _: &str) -> Result<Option<Vec<u8>>, StoreError> {
        unavailable()
    }
}

fn app_with_unavailable_database() -> AppState {
    let (inbox, requests) = mpsc::sync_channel(1);
    drop(requests);
    let cluster = Cluster::new(inbox, Arc::new(UnavailableTables), Arc::new(SystemClock));
    cluster.set_role(ServerRole::Leading { term: muster_store::LeaderEpoch { epoch: 1, nonce: 1 } });
    AppState::from(AppStateInner {
        agent_link: None,
        cluster,
        identity: Authenticator::Local,
        allowed_origins: AllowedOrigins::default(),
        rate_limiter: RateLimiter::new(None),
        connections: crate::tls::Connections::new(crate::tls::ConnectionLimits { total_max: 8, per_address_max: 8 }),
        access_denials: Default::default(),
        evaluations: Default::default(),
        logs: Arc::new(crate::log_source::DataFolderLogs::new("", [])),
        programs: Arc::new(crate::exec_source::ExecRouter(Vec::new())),
        power: None,
        rounds: Arc::default(),
        readings: Arc::default(),
        event_counters: Arc::default(),
        policy_calls: Arc::default(),
        metrics: MetricsConfig {
            enabled: true,
            listen: None,
            path: "/metrics".into(),
            namespace: "gpu_scheduler".into(),
        },
        whatif_replay: None,
        interpreter: None,
        admission_slots: crate::http::admission_slots(),
        secrets: Arc::new(crate::secrets::SecretVault::new(Arc::new(UnavailableSecrets), "secrets.key".into())),
        shadow: Arc::default(),
        stopping: watch::channel(false).1,
    })
}

async fn send(method: &str, path: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let response = router(app_with_unavailable_database()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn readiness_is_503_and_liveness_is_200_while_the_database_is_unavailable() {
    for path in ["/health", "/readyz", "/api/v1/health"] {
        let (status, body) = send("GET", path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(body.contains("unhealthy") && body.contains("the database does not answer"), "{body}");
    }
    assert_eq!(send("GET", "/healthz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn routes_that_need_the_database_are_503_and_others_still_answer() {
    for path in ["/api/v1/jobs", "/api/v1/jobs/job-1", "/api/v1/usage", "/api/v1/audit", "/api/v1/allocations"] {
        let (status, body) = send("GET", path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(!body.contains("connection refused"), "the error of the database stays in the log: {body}");
    }
    assert_eq!(send("GET", "/api/v1/nodes").await.0, StatusCode::OK);
    assert_eq!(send("GET", "/metrics").await.0, StatusCode::OK);
    assert_eq!(send("DELETE", "/api/v1/jobs/job-1").await.0, StatusCode::SERVICE_UNAVAILABLE);
}
