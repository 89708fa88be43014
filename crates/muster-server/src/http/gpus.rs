//! GPUs: list, get, declare health, partition, remove.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use muster_core::facts::command::JobsOnGpu;
use muster_core::gpu::device::{GpuFacts, GpuStatus};
use muster_core::gpu::{model, partition};
use muster_core::objects::node::Node;
use muster_core::{Command, GpuId, JobId, NodeId, Refusal, State as Core};
use muster_protocol::gpu::{Gpu, GpuChange, GpuHealthChange, GpuHealthDeclared, GpuList, GpuPartition};
use muster_protocol::submit::Acknowledgement;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::rfc3339;
use crate::gpu_state::gpu_state;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::gpu_share;
use crate::http::json::Json;
use crate::http::query::{Query, list_range};
use crate::identity::Caller;

/// Which GPUs to list. All conditions must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct GpuQuery {
    /// Of this model; `A10` never means an A100.
    model: Option<String>,
    /// Of this node.
    node: Option<String>,
    /// In this state: `free`, `held`, `shared`, `partitioned`, `claimed`, `cooling`, `out`.
    state: Option<String>,
    /// Of this health: `healthy`, `warning`, `degraded`, `unhealthy`.
    health: Option<String>,
    /// Most rows; all when not given.
    limit: Option<u32>,
    /// Rows to skip.
    offset: Option<u64>,
}

/// List the GPUs
#[utoipa::path(get, path = "/api/v1/gpus", tag = "gpus", params(GpuQuery),
    responses((status = 200, description = "The matching GPUs", body = GpuList)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    Query(query): Query<GpuQuery>,
) -> Result<Json<GpuList>, ApiError> {
    let health = query.health.as_deref().map(parse_health).transpose()?;
    let (offset, limit) = list_range(query.offset, query.limit)?;
    let list = app.read_state(|state| {
        let is_on_node = |node: &&Node| query.node.as_deref().is_none_or(|name| node.id.as_str() == name);
        let each = state
            .nodes
            .values()
            .filter(is_on_node)
            .flat_map(|node| (0..node.facts.gpus.len()).map(move |index| (node, index)));
        let wanted = |(node, index): &(&Node, usize)| {
            query.model.as_deref().is_none_or(|wanted| model::matches(wanted, &node.facts.gpus[*index].model))
                && query.state.as_deref().is_none_or(|name| gpu_state(state, node, *index) == name)
                && health.is_none_or(|status| node.gpu_health[*index].status == status)
        };
        // Only the rows of the page are built: the engine waits while a reader holds the state.
        let found: Vec<(&Node, usize)> = each.filter(wanted).collect();
        let page = found.iter().skip(offset).take(limit);
        GpuList {
            total: found.len() as u64,
            gpus: page.map(|(node, index)| api_gpu(&app, state, &caller, node, *index)).collect(),
        }
    })?;
    Ok(Json(list))
}

/// The GPU of a path: node and index.
pub struct GpuPath(NodeId, u8);

impl<S: Send + Sync> FromRequestParts<S> for GpuPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<GpuPath, ApiError> {
        let unknown = |detail: String| ApiError::new(StatusCode::NOT_FOUND, "unknown-gpu", detail);
        let named = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((node, index)) = named.map_err(|_| ApiError::malformed("the path is not UTF-8"))?;
        let node = node.parse().map_err(|error| unknown(format!("{error}")))?;
        match index.strip_prefix("gpu-").unwrap_or(&index).parse() {
            Ok(gpu) => Ok(GpuPath(node, gpu)),
            Err(_) => Err(unknown(format!("`{index}` is not a GPU index; write `3` or `gpu-3`"))),
        }
    }
}

/// Get one GPU
#[utoipa::path(get, path = "/api/v1/gpus/{node}/{index}", tag = "gpus",
    params(("node" = String, Path, description = "The node of the GPU"),
        ("index" = String, Path, description = "The index of the GPU on its node, `3` or `gpu-3`")),
    responses((status = 200, description = "The GPU", body = Gpu)))]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller,
    GpuPath(node, gpu): GpuPath,
) -> Result<Json<Gpu>, ApiError> {
    Ok(Json(read_gpu(&app, &caller, &node, gpu)?))
}

fn read_gpu(app: &AppState, caller: &Caller, node: &NodeId, gpu: u8) -> Result<Gpu, ApiError> {
    let found = app.read_state(|state| {
        let known = state.node(node)?;
        let shown = gpus_of_node(app, state, caller, known).into_iter().nth(usize::from(gpu));
        shown.ok_or_else(|| Refusal::UnknownGpu { node: node.clone(), gpu })
    })?;
    Ok(found?)
}

/// Change the health or the partition of a GPU
///
/// The agent of the node reports model, memory, UUID and links of a GPU; they cannot be changed here.
#[utoipa::path(patch, path = "/api/v1/gpus/{node}/{index}", tag = "gpus", request_body = GpuChange,
    params(("node" = String, Path, description = "The node of the GPU"),
        ("index" = String, Path, description = "The index of the GPU on its node, `3` or `gpu-3`")),
    responses((status = 200, description = "Changed", body = Gpu)))]
pub async fn change(
    State(app): State<AppState>,
    caller: Caller,
    GpuPath(node, gpu): GpuPath,
    Json(GpuChange { health, profiles, why }): Json<GpuChange>,
) -> Result<Json<Gpu>, ApiError> {
    let health = health.as_deref().map(parse_health).transpose()?;
    if let Some(profiles) = profiles {
        let command = Command::PartitionGpu { node: node.clone(), gpu, profiles, why: why.clone() };
        app.cluster.execute(caller.actor.clone(), command).await?;
    }
    if let Some(status) = health {
        send_health_command(&app, &caller, (&node, gpu), (status, JobsOnGpu::Keep), why).await?;
    }
    Ok(Json(read_gpu(&app, &caller, &node, gpu)?))
}

/// Remove a GPU from a declared node
///
/// Only until the agent of the node joins; from then on the node has the GPUs that the agent reports.
#[utoipa::path(delete, path = "/api/v1/gpus/{node}/{index}", tag = "gpus",
    params(("node" = String, Path, description = "The node of the GPU"),
        ("index" = String, Path, description = "The index of the GPU on its node, `3` or `gpu-3`")),
    responses((status = 200, description = "Removed; later GPUs move down one index", body = Acknowledgement)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    GpuPath(node, gpu): GpuPath,
) -> Result<Json<Acknowledgement>, ApiError> {
    app.cluster.execute(caller.actor, Command::RemoveGpu { node: node.clone(), gpu }).await?;
    Ok(Json(Acknowledgement { message: format!("`{node}/gpu-{gpu}` was removed") }))
}

async fn send_health_command(
    app: &AppState,
    caller: &Caller,
    (node, gpu): (&NodeId, u8),
    (status, jobs): (GpuStatus, JobsOnGpu),
    why: String,
) -> Result<(), ApiError> {
    let node = node.clone();
    let command = Command::SetGpuHealth { node, gpu, status, why, cooling_until: None, temperature_c: None, jobs };
    app.cluster.execute(caller.actor.clone(), command).await?;
    Ok(())
}

/// Declare the health of a GPU
///
/// A declaration of `warning`, `degraded` or `unhealthy` holds until the GPU is declared `healthy`; readings of the
/// agent do not clear it, and a worse reading takes precedence. The response names the jobs on the GPU and what happens
/// to them.
#[utoipa::path(post, path = "/api/v1/gpus/{node}/{index}/health", tag = "gpus", request_body = GpuHealthChange,
    params(("node" = String, Path, description = "The node of the GPU"),
        ("index" = String, Path, description = "The index of the GPU on its node, `3` or `gpu-3`")),
    responses((status = 200, description = "Declared", body = GpuHealthDeclared)))]
pub async fn set_health(
    State(app): State<AppState>,
    caller: Caller,
    GpuPath(node, gpu): GpuPath,
    Json(change): Json<GpuHealthChange>,
) -> Result<Json<GpuHealthDeclared>, ApiError> {
    let status = parse_health(&change.health)?;
    let rule = change.jobs.as_deref().map(parse_jobs_rule).transpose()?.unwrap_or_default();
    let jobs = app.read_state(|state| {
        let seen = |job: &JobId| state.jobs.get(job).is_some_and(|job| caller.sees_tenant(job.spec.tenant.as_str()));
        let jobs = state.jobs_on_gpu(&node, gpu).into_iter().filter(seen);
        jobs.map(|job| job.to_string()).collect()
    })?;
    send_health_command(&app, &caller, (&node, gpu), (status, rule), change.why).await?;
    let gpu = read_gpu(&app, &caller, &node, gpu)?;
    Ok(Json(GpuHealthDeclared { gpu, jobs_rule: rule.as_str().to_string(), jobs }))
}

fn parse_jobs_rule(text: &str) -> Result<JobsOnGpu, ApiError> {
    let known = JobsOnGpu::ALL.into_iter().find(|rule| rule.as_str() == text);
    known.ok_or_else(|| ApiError::invalid("jobs", format!("`{text}` is none of keep, requeue, stop")))
}

/// Partition an idle GPU into MIG instances
///
/// Each MIG instance is placed so that as many other profiles as possible still fit, weighted by memory. An empty list
/// removes the partition.
#[utoipa::path(post, path = "/api/v1/gpus/{node}/{index}/partition", tag = "gpus", request_body = GpuPartition,
    params(("node" = String, Path, description = "The node of the GPU"),
        ("index" = String, Path, description = "The index of the GPU on its node, `3` or `gpu-3`")),
    responses((status = 200, description = "Partitioned, or without a partition", body = Gpu)))]
pub async fn partition(
    State(app): State<AppState>,
    caller: Caller,
    GpuPath(node, gpu): GpuPath,
    Json(GpuPartition { profiles, why }): Json<GpuPartition>,
) -> Result<Json<Gpu>, ApiError> {
    let command = Command::PartitionGpu { node: node.clone(), gpu, profiles, why };
    app.cluster.execute(caller.actor.clone(), command).await?;
    Ok(Json(read_gpu(&app, &caller, &node, gpu)?))
}

fn parse_health(text: &str) -> Result<GpuStatus, ApiError> {
    let known = [GpuStatus::Healthy, GpuStatus::Warning, GpuStatus::Degraded, GpuStatus::Unhealthy];
    known.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        ApiError::invalid("health", format!("`{text}` is none of healthy, warning, degraded, unhealthy"))
    })
}

/// The GPUs of a node, by index.
pub fn gpus_of_node(app: &AppState, state: &Core, caller: &Caller, node: &Node) -> Vec<Gpu> {
    (0..node.facts.gpus.len()).map(|index| api_gpu(app, state, caller, node, index)).collect()
}

fn api_gpu(app: &AppState, state: &Core, caller: &Caller, node: &Node, index: usize) -> Gpu {
    let reading = app.readings.latest_of_gpu(&node.id, index as u8);
    let facts = &node.facts.gpus[index];
    let health = &node.gpu_health[index];
    let holder = node.sole_holder(index).and_then(|id| state.jobs.get(&id));
    let seen = holder.filter(|job| caller.sees_tenant(job.spec.tenant.as_str()));
    let attempt = seen.and_then(|job| job.attempt().map(|attempt| format!("{}:{}", job.id, attempt.number)));
    let known = model::of_device(&facts.model, facts.memory_mib);
    let capability = known.and_then(|model| model.compute_capability);
    let holders = gpu_share::gpu_holders(state, node, index).into_iter();
    let holders = holders.filter(|(job, _)| caller.sees_tenant(job.spec.tenant.as_str()));
    Gpu {
        id: GpuId { node: node.id.clone(), index: index as u8 }.to_string(),
        node_id: node.id.to_string(),
        index: index as u8,
        uuid: facts.uuid.clone(),
        model: facts.model.clone(),
        compute_capability: capability.map(|(major, minor)| format!("{major}.{minor}")),
        cuda_cores: known.and_then(|model| model.cuda_cores()),
        tensor_cores: known.and_then(|model| model.tensor_cores()),
        state: gpu_state(state, node, index).to_string(),
        memory_total_mb: facts.memory_mib,
        memory_used_mb: None,
        memory_free_mb: None,
        allocated: node.is_held(index),
        used_milli: gpu_share::used_milli(state, node, index),
        holders: holders.map(|(job, share)| gpu_share::api_holder(job, share, facts.memory_mib)).collect(),
        allocation_id: attempt,
        job_id: seen.map(|job| job.id.to_string()),
        tenant_id: seen.map(|job| job.spec.tenant.to_string()),
        health: health.status.as_str().to_string(),
        health_why: health.why.clone(),
        health_declared_by: health.declared.as_ref().map(|declared| declared.by.clone()),
        health_since: rfc3339(health.since.0),
        cooling_until: health.cooling_until.map(|at| rfc3339(at.0)),
        thermal_throttle: health.cooling_until.is_some(),
        max_temperature: state.settings.thermal_limit_c,
        cooling_period: state.settings.cooling_ms / 1_000,
        utilization: None,
        temperature: reading.as_ref().and_then(|reading| reading.temperature_c).map(f64::from),
        error_count: reading.as_ref().map(|reading| reading.errors),
        last_health_check: reading.as_ref().map(|reading| rfc3339(reading.at.0)),
        last_error: reading.and_then(|reading| reading.last_error),
        last_heartbeat: app.readings.last_report_at(&node.id).map(|at| rfc3339(at.0)),
        power_usage: None,
        power_limit_w: facts.power_limit_milliwatts.map(|milliwatts| milliwatts as f64 / 1_000.0),
        numa_node: facts.numa_node,
        nvlink: facts.nvlink.clone(),
        socket: facts.socket.or_else(|| socket_of_numa_node(node, facts)),
        pcie_switch: facts.pcie_switch,
        mig: gpu_share::mig_instances(node, index as u8),
        mig_profiles: mig_profiles(facts),
    }
}

/// The processor socket that the NUMA node of a GPU belongs to.
fn socket_of_numa_node(node: &Node, facts: &GpuFacts) -> Option<u32> {
    let numa_node = usize::try_from(facts.numa_node?).ok()?;
    node.facts.numa.get(numa_node).map(|numa| numa.socket)
}

/// The MIG profiles that a GPU supports.
fn mig_profiles(facts: &GpuFacts) -> Vec<String> {
    let profiles = partition::table_of(facts).map_or(&[][..], |table| table.profiles);
    profiles.iter().map(|profile| profile.name.to_string()).collect()
}
