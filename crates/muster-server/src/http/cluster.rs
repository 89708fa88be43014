//! Cluster status, and the identity of the caller (`whoami`).

use std::collections::BTreeMap;

use axum::extract::State;
use muster_core::State as Core;
use muster_core::objects::job::Phase;
use muster_protocol::cluster::{CallerIdentity, ClusterStatus, GpuCount};
use muster_store::rows::{CountRow, JobState};

use crate::cluster::ServerRole;
use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::Json;
use crate::http::nodes::{free_gpus, is_online};
use crate::identity::Caller;

/// Get the status of the cluster: counts of GPUs, nodes and jobs
#[utoipa::path(get, path = "/api/v1/cluster/status", tag = "cluster",
    responses((status = 200, description = "The status of the cluster", body = ClusterStatus)))]
pub async fn status(State(app): State<AppState>) -> Result<Json<ClusterStatus>, ApiError> {
    let counts = app.read_tables(|tables| Ok(tables.job_counts()?)).await?;
    let now_ms = app.cluster.now().0;
    let role = app.cluster.role();
    let status = app.read_state(|state| cluster_status(state, &counts))?;
    Ok(Json(ClusterStatus {
        role: role_str(&role).to_string(),
        leader: match &role {
            ServerRole::Standby { leader } => Some(leader.clone()),
            _ => None,
        },
        epoch: match role {
            ServerRole::Leading { term } => Some(term.epoch),
            _ => None,
        },
        time: rfc3339(now_ms),
        time_ms: now_ms,
        ..status
    }))
}

/// The role of this server as the API names it.
pub fn role_str(role: &ServerRole) -> &'static str {
    match role {
        ServerRole::Starting => "starting",
        ServerRole::Leading { .. } => "leading",
        ServerRole::Standby { .. } => "standby",
        ServerRole::Unavailable { .. } => "away",
    }
}

fn cluster_status(state: &Core, counts: &[CountRow]) -> ClusterStatus {
    let mut jobs_by_state: BTreeMap<String, u64> =
        JobState::ALL.iter().map(|state| (state.as_str().to_string(), 0)).collect();
    for row in counts {
        *jobs_by_state.entry(row.state.as_str().to_string()).or_default() += row.jobs;
    }
    let of_state = |state: JobState| jobs_by_state.get(state.as_str()).copied().unwrap_or(0);
    let models = gpus_by_model(state);
    let sum = |part: fn(&GpuCount) -> u64| models.values().map(part).sum();
    let nodes = || state.nodes.values();
    let mut nodes_by_state: BTreeMap<String, u64> = BTreeMap::new();
    for node in nodes() {
        *nodes_by_state.entry(node.status_name().to_string()).or_default() += 1;
    }
    ClusterStatus {
        total_gpus: sum(|count| count.total),
        available_gpus: nodes().map(|node| u64::from(free_gpus(state, node))).sum(),
        allocated_gpus: sum(|count| count.allocated),
        total_nodes: state.nodes.len() as u64,
        online_nodes: nodes().filter(|node| is_online(node)).count() as u64,
        total_jobs: jobs_by_state.values().sum(),
        pending_jobs: of_state(JobState::Pending),
        running_jobs: of_state(JobState::Running),
        held_jobs: state.jobs.values().filter(|job| matches!(job.phase, Phase::Held { .. })).count() as u64,
        gpus_by_model: models,
        nodes_by_state,
        jobs_by_state,
        tenants: state.tenants.len() as u64,
        simulated: !state.nodes.is_empty() && nodes().all(|node| node.facts.simulated),
        role: String::new(),
        leader: None,
        epoch: None,
        seq: state.seq,
        version: env!("CARGO_PKG_VERSION").to_string(),
        time: String::new(),
        time_ms: 0,
    }
}

fn gpus_by_model(state: &Core) -> BTreeMap<String, GpuCount> {
    let mut models: BTreeMap<String, GpuCount> = BTreeMap::new();
    for node in state.nodes.values() {
        for (index, gpu) in node.facts.gpus.iter().enumerate() {
            let count = models.entry(gpu.model.clone()).or_default();
            let held = node.is_held(index);
            count.total += 1;
            count.allocated += u64::from(held);
            count.available += u64::from(!held && node.is_schedulable() && node.gpu_usable(index));
        }
    }
    models
}

/// Get the identity of the caller
#[utoipa::path(get, path = "/api/v1/whoami", tag = "cluster",
    responses((status = 200, description = "The caller", body = CallerIdentity)))]
pub async fn whoami(caller: Caller) -> Json<CallerIdentity> {
    Json(CallerIdentity {
        name: caller.actor.name,
        role: caller.role.as_str().to_string(),
        tenant_id: caller.tenant.map(|tenant| tenant.to_string()),
    })
}
