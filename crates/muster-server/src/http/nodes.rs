//! Nodes: declare, list, get, change, drain, hold, fence, remove.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use muster_core::gpu::device::{GPUS_PER_NODE_MAX, GpuFacts, NumaFacts};
use muster_core::objects::node::{Node, NodeFacts, NodeStatus, PowerFailure, Recorded, Service, Sight};
use muster_core::{Command, NodeId, State as Core};
use muster_protocol::node::{self as wire, NodeAxis, NodeChange, NodeList, NodeSpec, NumaNode};
use muster_protocol::submit::{Acknowledgement, ActionReason};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::gpu_share;
use crate::http::gpus;
use crate::http::json::{Json, OptionalJson};
use crate::http::query::{PathId, Query, list_range, parse_label};
use crate::identity::Caller;

/// Declare a node before its agent joins
///
/// A declared node can be labelled, drained and declared again, and nothing is placed on it. It becomes `Ready` when
/// its agent joins; labels and taints set here stay. Agents register their nodes by themselves.
#[utoipa::path(post, path = "/api/v1/nodes", tag = "nodes", request_body = NodeSpec,
    responses((status = 201, description = "Declared", body = wire::Node)))]
pub async fn register(
    State(app): State<AppState>,
    caller: Caller,
    Json(spec): Json<NodeSpec>,
) -> Result<Response, ApiError> {
    let node: NodeId = spec.name.parse().map_err(|error| ApiError::invalid("name", format!("{error}")))?;
    let facts = Box::new(node_facts(spec)?);
    app.cluster.execute(caller.actor.clone(), Command::DeclareNode { node: node.clone(), facts }).await?;
    let location = [(LOCATION, format!("/api/v1/nodes/{node}"))];
    Ok((StatusCode::CREATED, location, Json(read_node(&app, &caller, &node)?)).into_response())
}

/// Which nodes to list. All conditions must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct NodeQuery {
    /// In this state, for example `Ready`.
    state: Option<String>,
    /// With this label, `key=value`.
    label: Option<String>,
    /// Most rows; all when not given.
    limit: Option<u32>,
    /// Rows to skip.
    offset: Option<u64>,
}

/// List the nodes
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes", params(NodeQuery),
    responses((status = 200, description = "All nodes", body = NodeList)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    Query(query): Query<NodeQuery>,
) -> Result<Json<NodeList>, ApiError> {
    let label = query.label.as_deref().map(parse_label).transpose()?;
    let (offset, limit) = list_range(query.offset, query.limit)?;
    let wanted = |node: &&Node| {
        query.state.as_deref().is_none_or(|name| node.status_name().eq_ignore_ascii_case(name))
            && label.as_ref().is_none_or(|(key, value)| node.labels().get(key) == Some(value))
    };
    let list = app.read_state(|state| {
        let found: Vec<&Node> = state.nodes.values().filter(wanted).collect();
        let page = found.iter().skip(offset).take(limit);
        NodeList { total: found.len() as u64, nodes: page.map(|node| api_node(&app, state, &caller, node)).collect() }
    })?;
    Ok(Json(list))
}

/// Get one node with its GPUs
#[utoipa::path(get, path = "/api/v1/nodes/{id}", tag = "nodes",
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "The node", body = wire::Node)))]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
) -> Result<Json<wire::Node>, ApiError> {
    Ok(Json(read_node(&app, &caller, &id)?))
}

fn read_node(app: &AppState, caller: &Caller, id: &NodeId) -> Result<wire::Node, ApiError> {
    let node = app.read_state(|state| {
        state.node(id).map(|node| wire::Node {
            gpus: gpus::gpus_of_node(app, state, caller, node),
            ..api_node(app, state, caller, node)
        })
    })?;
    Ok(node?)
}

/// Change a node's state, labels or taints
#[utoipa::path(patch, path = "/api/v1/nodes/{id}", tag = "nodes", request_body = NodeChange,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Changed", body = wire::Node)))]
pub async fn change(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    Json(change): Json<NodeChange>,
) -> Result<Json<wire::Node>, ApiError> {
    let status = change.state.as_deref().map(parse_node_state).transpose()?;
    if change.labels.is_some() || change.taints.is_some() {
        let command = Command::LabelNode { node: id.clone(), labels: change.labels, taints: change.taints };
        app.cluster.execute(caller.actor.clone(), command).await?;
    }
    if let Some(status) = status {
        set_node_state(&app, &caller, &id, status, change.why.unwrap_or_default()).await?;
    }
    Ok(Json(read_node(&app, &caller, &id)?))
}

fn parse_node_state(text: &str) -> Result<NodeStatus, ApiError> {
    match text.to_ascii_lowercase().as_str() {
        "ready" => Ok(NodeStatus::Ready),
        "draining" => Ok(NodeStatus::Draining),
        "hold" => Ok(NodeStatus::Hold),
        _ => Err(ApiError::invalid("state", format!("`{text}` is none of ready, draining, hold"))),
    }
}

/// Remove a node without running jobs
#[utoipa::path(delete, path = "/api/v1/nodes/{id}", tag = "nodes",
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Removed", body = Acknowledgement)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
) -> Result<Json<Acknowledgement>, ApiError> {
    app.cluster.execute(caller.actor, Command::RemoveNode { node: id.clone() }).await?;
    Ok(Json(Acknowledgement { message: format!("node `{id}` was removed") }))
}

/// Return a node to service
///
/// Ends a drain with its deadline and reboot, and a hold. Lifts a fence: the node gets jobs once its agent reports.
#[utoipa::path(post, path = "/api/v1/nodes/{id}/resume", tag = "nodes", request_body = ActionReason,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "In service", body = Acknowledgement)))]
pub async fn resume(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    OptionalJson(ActionReason { why }): OptionalJson<ActionReason>,
) -> Result<Json<Acknowledgement>, ApiError> {
    set_node_state(&app, &caller, &id, NodeStatus::Ready, why).await
}

/// Return a node to service: the former name of `resume`
#[utoipa::path(post, path = "/api/v1/nodes/{id}/undrain", tag = "nodes", request_body = ActionReason,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "In service", body = Acknowledgement)))]
pub async fn undrain(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    OptionalJson(ActionReason { why }): OptionalJson<ActionReason>,
) -> Result<Json<Acknowledgement>, ApiError> {
    set_node_state(&app, &caller, &id, NodeStatus::Ready, why).await
}

/// Hold a node: out of service until an operator returns it
#[utoipa::path(post, path = "/api/v1/nodes/{id}/hold", tag = "nodes", request_body = ActionReason,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Out of service", body = Acknowledgement)))]
pub async fn hold(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    OptionalJson(ActionReason { why }): OptionalJson<ActionReason>,
) -> Result<Json<Acknowledgement>, ApiError> {
    set_node_state(&app, &caller, &id, NodeStatus::Hold, why).await
}

pub async fn set_node_state(
    app: &AppState,
    caller: &Caller,
    node: &NodeId,
    status: NodeStatus,
    why: String,
) -> Result<Json<Acknowledgement>, ApiError> {
    let command = Command::SetNodeState { node: node.clone(), status, why };
    app.cluster.execute(caller.actor.clone(), command).await?;
    Ok(Json(Acknowledgement { message: format!("node `{node}` is {}", status.as_str()) }))
}

fn node_facts(spec: NodeSpec) -> Result<NodeFacts, ApiError> {
    let count: u64 = spec.gpus.iter().map(|gpu| u64::from(gpu.count.unwrap_or(1))).sum();
    if count > GPUS_PER_NODE_MAX as u64 {
        return Err(ApiError::invalid("gpus", format!("{count} GPUs; the maximum per node is {GPUS_PER_NODE_MAX}")));
    }
    let mut gpus: Vec<GpuFacts> = Vec::new();
    for gpu in &spec.gpus {
        for _ in 0..gpu.count.unwrap_or(1) {
            let generated = format!("GPU-{}-{}", spec.name, gpus.len());
            let given = gpu.uuid.clone().filter(|_| gpu.count.unwrap_or(1) == 1);
            gpus.push(GpuFacts {
                uuid: given.unwrap_or(generated),
                model: gpu.model.clone(),
                memory_mib: gpu.memory_mb,
                numa_node: gpu.numa_node,
                nvlink: gpu.nvlink.clone(),
                socket: gpu.socket,
                pcie_switch: gpu.pcie_switch,
                mig: Vec::new(),
                power_limit_milliwatts: gpu.power_limit_w.map(|watts| u64::from(watts) * 1_000),
            });
        }
    }
    Ok(NodeFacts {
        hostname: spec.hostname,
        address: spec.ip_address,
        cpus: spec.cpu_cores,
        memory_mib: spec.memory_mb,
        gpus,
        numa: spec.numa_nodes.iter().map(numa_facts).collect(),
        rack: spec.rack,
        block: spec.block,
        power_feed: spec.power_feed,
        labels: spec.labels,
        taints: spec.taints,
        agent_version: String::new(),
        incarnation: String::new(),
        heartbeat_interval_ms: None,
        boot_id: String::new(),
        simulated: spec.simulated,
    })
}

fn numa_facts(numa: &NumaNode) -> NumaFacts {
    NumaFacts { cpus: numa.cpu_cores, memory_mib: numa.memory_mb, socket: numa.socket }
}

fn api_numa_node(numa: &NumaFacts) -> NumaNode {
    NumaNode { cpu_cores: numa.cpus, memory_mb: numa.memory_mib, socket: numa.socket }
}

fn api_node(app: &AppState, state: &Core, caller: &Caller, node: &Node) -> wire::Node {
    let (facts, combined) = (&node.facts, node.state.combined());
    let held: u32 = (0..facts.gpus.len()).map(|index| gpu_share::used_milli(state, node, index)).sum();
    let sees =
        |id: &&muster_core::JobId| state.jobs.get(id).is_some_and(|job| caller.sees_tenant(job.spec.tenant.as_str()));
    let drain = node.drain.as_deref();
    wire::Node {
        id: node.id.to_string(),
        name: node.id.to_string(),
        hostname: facts.hostname.clone(),
        ip_address: facts.address.clone(),
        state: node.status_name().to_string(),
        state_by: combined.by,
        state_why: combined.why,
        state_since: rfc3339(combined.since.0),
        state_since_ms: combined.since.0,
        service: api_axis(&node.state.service, node.state.service.status.as_str()),
        sight: api_axis(&node.state.sight, node.state.sight.status.as_str()),
        silent_since: node.state.silent_since.map(|since| rfc3339(since.0)),
        health_failure: node.health_failure.as_ref().map(|failure| failure.why.clone()),
        drain_deadline: drain.and_then(|drain| drain.deadline).map(|at| rfc3339(at.0)),
        drain_deadline_ms: drain.and_then(|drain| drain.deadline).map(|at| at.0),
        reboots_when_idle: drain.is_some_and(|drain| drain.reboot.is_some()),
        power_failure: node.power_failure.as_deref().map(power_failure_text),
        online: is_online(node),
        schedulable: node.is_schedulable(),
        draining_mode: node.state.service.status == Service::Draining,
        total_gpus: facts.gpus.len() as u32,
        available_gpus: free_gpus(state, node),
        cpu_cores: facts.cpus,
        available_cpu_cores: u64::from(facts.cpus).saturating_sub(node.cpus_held),
        memory_mb: facts.memory_mib,
        available_memory_mb: facts.memory_mib.saturating_sub(node.memory_mib_held),
        gpu_allocation: if facts.gpus.is_empty() { 0.0 } else { f64::from(held) / 1_000.0 / facts.gpus.len() as f64 },
        rack: facts.rack.clone(),
        block: facts.block.clone(),
        numa_nodes: facts.numa.iter().map(api_numa_node).collect(),
        power_feed: facts.power_feed.clone(),
        labels: node.labels().clone(),
        taints: node.taints().to_vec(),
        agent_version: facts.agent_version.clone(),
        heartbeat_interval_ms: facts.heartbeat_interval_ms,
        simulated: facts.simulated,
        registered_at: rfc3339(node.registered_at.0),
        last_heartbeat: app.readings.last_report_at(&node.id).map(|at| rfc3339(at.0)),
        jobs: node.jobs.iter().filter(sees).map(ToString::to_string).collect(),
        gpus: Vec::new(),
    }
}

/// For example `fence failed 3 times, last at 2026-03-01T09:14:07Z: exit code 1`.
fn power_failure_text(failure: &PowerFailure) -> String {
    let PowerFailure { action, why, times, since } = failure;
    let times = if *times == 1 { "once".to_string() } else { format!("{times} times") };
    format!("{} failed {times}, last at {}: {why}", action.as_str(), rfc3339(since.0))
}

fn api_axis<T>(axis: &Recorded<T>, state: &str) -> NodeAxis {
    NodeAxis {
        state: state.to_string(),
        by: axis.by.clone(),
        why: axis.why.clone(),
        since: rfc3339(axis.since.0),
        since_ms: axis.since.0,
    }
}

/// Whether the agent of a node reports.
pub fn is_online(node: &Node) -> bool {
    !node.declared && node.state.sight.status == Sight::Seen
}

/// GPUs of a node that are free for placement now.
pub fn free_gpus(state: &Core, node: &Node) -> u32 {
    let entry = state.resources.entry(&node.id).filter(|entry| entry.open);
    entry.map_or(0, |entry| entry.free.gpus.count_ones())
}
