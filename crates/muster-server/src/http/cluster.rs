//! The cluster as a whole, and who the caller is to it.

use std::collections::BTreeMap;

use axum::extract::State;
use muster_core::job::Phase;
use muster_core::{Job, State as Core};
use muster_protocol::cluster::{ClusterStatus, GpuCount, Myself};
use muster_store::rows::{CountRow, JobState};

use crate::cluster::Role;
use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::nodes::{free_gpus, is_online};
use crate::http::written::stamp;
use crate::identity::Who;

/// Counters of the cluster
#[utoipa::path(get, path = "/api/v1/cluster/status", tag = "cluster",
    responses((status = 200, description = "How it stands", body = ClusterStatus)))]
pub async fn status(State(door): State<Door>) -> Result<Json<ClusterStatus>, Fault> {
    let counts = door.tables(|tables| Ok(tables.counts()?)).await?;
    let now_ms = door.cluster.now().0;
    let role = door.cluster.role();
    let status = door.state(|state| count(state, &counts))?;
    Ok(Json(ClusterStatus {
        role: role_word(&role).to_string(),
        leader: match &role {
            Role::Standby { leader } => Some(leader.clone()),
            _ => None,
        },
        epoch: match role {
            Role::Leading { epoch } => Some(epoch),
            _ => None,
        },
        time: stamp(now_ms),
        time_ms: now_ms,
        ..status
    }))
}

/// The word for what this server is.
pub fn role_word(role: &Role) -> &'static str {
    match role {
        Role::Starting => "starting",
        Role::Leading { .. } => "leading",
        Role::Standby { .. } => "standby",
        Role::Away { .. } => "away",
    }
}

fn count(state: &Core, counts: &[CountRow]) -> ClusterStatus {
    let mut jobs_by_state: BTreeMap<String, u64> =
        JobState::ALL.iter().map(|state| (state.word().to_string(), 0)).collect();
    for row in counts {
        *jobs_by_state.entry(row.state.word().to_string()).or_default() += row.jobs;
    }
    let of_state = |state: JobState| jobs_by_state.get(state.word()).copied().unwrap_or(0);
    let models = gpus_by_model(state);
    let sum = |part: fn(&GpuCount) -> u64| models.values().map(part).sum();
    let nodes = || state.nodes.values();
    let mut nodes_by_state: BTreeMap<String, u64> = BTreeMap::new();
    for node in nodes() {
        *nodes_by_state.entry(node.state_word().to_string()).or_default() += 1;
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
            count.available += u64::from(!held && node.takes_work() && node.gpu_usable(index));
        }
    }
    models
}

/// Who the caller is
#[utoipa::path(get, path = "/api/v1/whoami", tag = "cluster",
    responses((status = 200, description = "Who asks", body = Myself)))]
pub async fn whoami(who: Who) -> Json<Myself> {
    Json(Myself {
        name: who.actor.name,
        role: who.role.word().to_string(),
        tenant_id: who.tenant.map(|tenant| tenant.to_string()),
    })
}

/// The state and phase of a live job.
pub fn state_of(job: &Job) -> (JobState, &'static str) {
    let state = match &job.phase {
        Phase::Queued { preempted: true, .. } => JobState::Preempted,
        Phase::Queued { .. } | Phase::Held { .. } => JobState::Pending,
        Phase::Active(attempt) if attempt.started_at.is_some() => JobState::Running,
        Phase::Active(attempt) if attempt.stopping.is_some() => JobState::Running,
        Phase::Active(_) => JobState::Pending,
    };
    (state, job.phase_word())
}
