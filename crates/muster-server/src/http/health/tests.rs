//! A server whose database has gone away while it leads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use muster_core::JobId;
use muster_core::job::Outcome;
use muster_store::queries::{AllocationFilter, JobFilter, Page, Paged, SortedPage, UsageBy, UsageSpan};
use muster_store::rows::{
    AllocationRow, AttemptRow, AuditRow, CountRow, EventRow, JobDetail, JobRow, UsageRow,
};
use muster_store::{StoreError, Tables};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::clock::SystemClock;
use crate::cluster::{Cluster, Role};
use crate::config::Metrics;
use crate::http::{Behind, Door, Limits, Origins, router};
use crate::identity::Identity;

/// Tables of a database that does not answer.
struct Gone;

fn gone<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable { doing: "read".to_string(), source: "connection refused".into() })
}

impl Tables for Gone {
    fn jobs(&self, _: &JobFilter, _: &Page<JobId>) -> Result<Paged<JobRow, JobId>, StoreError> {
        gone()
    }
    fn sorted_jobs(&self, _: &JobFilter, _: &SortedPage) -> Result<Vec<JobRow>, StoreError> {
        gone()
    }
    fn array_tasks(&self, _: u64) -> Result<Vec<muster_store::rows::ArrayTasksRow>, StoreError> {
        gone()
    }
    fn job(&self, _: JobId) -> Result<Option<JobDetail>, StoreError> {
        gone()
    }
    fn attempts(&self, _: JobId) -> Result<Vec<AttemptRow>, StoreError> {
        gone()
    }
    fn outcomes(&self, _: &[JobId]) -> Result<BTreeMap<JobId, Outcome>, StoreError> {
        gone()
    }
    fn key_use(&self, _: &str, _: &str) -> Result<Option<muster_core::state::KeyUse>, StoreError> {
        gone()
    }
    fn events(&self, _: u64, _: u32, _: Option<JobId>) -> Result<Vec<EventRow>, StoreError> {
        gone()
    }
    fn allocations(
        &self,
        _: &AllocationFilter,
        _: &Page<u64>,
    ) -> Result<Paged<AllocationRow, u64>, StoreError> {
        gone()
    }
    fn usage(&self, _: &UsageSpan, _: UsageBy) -> Result<Vec<UsageRow>, StoreError> {
        gone()
    }
    fn waits(&self, _: &[String], _: i64, _: i64) -> Result<Vec<muster_store::rows::WaitRow>, StoreError> {
        gone()
    }
    fn audit(&self, _: &Page<u64>) -> Result<Paged<AuditRow, u64>, StoreError> {
        gone()
    }
    fn counts(&self) -> Result<Vec<CountRow>, StoreError> {
        gone()
    }
    fn ping(&self) -> Result<(), StoreError> {
        gone()
    }
}

fn door() -> Door {
    let (inbox, asks) = mpsc::sync_channel(1);
    drop(asks);
    let cluster = Cluster::new(inbox, Arc::new(Gone), Arc::new(SystemClock));
    cluster.set_role(Role::Leading { epoch: 1 });
    Door::from(Behind {
        cluster,
        identity: Identity::Local,
        origins: Origins::default(),
        limits: Limits::new(None),
        connections: crate::tls::Connections::new(crate::tls::Bounds { all: 8, per_address: 8 }),
        refusals: Default::default(),
        evaluations: Default::default(),
        data_dir: PathBuf::new(),
        rounds: Arc::default(),
        readings: Arc::default(),
        seen: Arc::default(),
        questions: Arc::default(),
        metrics: Metrics {
            enabled: true,
            listen: None,
            path: "/metrics".into(),
            namespace: "gpu_scheduler".into(),
        },
        oracle: None,
        interpreter: None,
        admission_slots: crate::http::admission_slots(),
        shadow: Arc::default(),
        stopping: watch::channel(false).1,
    })
}

async fn ask(method: &str, path: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let response = router(door()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn health_is_503_and_life_is_200_while_the_database_is_away() {
    for path in ["/health", "/readyz", "/api/v1/health"] {
        let (status, body) = ask("GET", path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(body.contains("unhealthy") && body.contains("the database does not answer"), "{body}");
    }
    assert_eq!(ask("GET", "/healthz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn what_needs_the_database_says_so_and_the_rest_goes_on() {
    for path in
        ["/api/v1/jobs", "/api/v1/jobs/job-1", "/api/v1/usage", "/api/v1/audit", "/api/v1/allocations"]
    {
        let (status, body) = ask("GET", path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(!body.contains("connection refused"), "what the database said stays in the log: {body}");
    }
    assert_eq!(ask("GET", "/api/v1/nodes").await.0, StatusCode::OK);
    assert_eq!(ask("GET", "/metrics").await.0, StatusCode::OK);
    assert_eq!(ask("DELETE", "/api/v1/jobs/job-1").await.0, StatusCode::SERVICE_UNAVAILABLE);
}
