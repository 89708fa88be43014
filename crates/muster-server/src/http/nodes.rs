//! Nodes: make known, list, look, take out of service and back, forget.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use muster_core::node::{GPUS_PER_NODE_MAX, GpuFacts, Node, NodeFacts, NodeWord, NumaFacts};
use muster_core::{Command, NodeId, State as Core};
use muster_protocol::node::{self as wire, NodeChange, NodeList, NodeSpec, NumaNode};
use muster_protocol::submit::{Done, Reasoned};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::gpus;
use crate::http::json::{Json, OptionalJson};
use crate::http::query::{Id, Query, key_and_value, window};
use crate::http::share;
use crate::http::who::Reach;
use crate::http::written::stamp;
use crate::identity::Who;

/// Declare a node before its agent joins
///
/// A declared node can be labelled, drained and described again, and nothing is placed on it. It becomes `Ready` when its
/// agent joins; labels and taints set here stay. Agents register their nodes by themselves.
#[utoipa::path(post, path = "/api/v1/nodes", tag = "nodes", request_body = NodeSpec,
    responses((status = 201, description = "Declared", body = wire::Node)))]
pub async fn register(
    State(door): State<Door>,
    who: Who,
    Json(spec): Json<NodeSpec>,
) -> Result<Response, Fault> {
    let node: NodeId = spec.name.parse().map_err(|error| Fault::invalid("name", format!("{error}")))?;
    let facts = Box::new(facts(spec)?);
    door.cluster.ask(who.actor.clone(), Command::DeclareNode { node: node.clone(), facts }).await?;
    let location = [(LOCATION, format!("/api/v1/nodes/{node}"))];
    Ok((StatusCode::CREATED, location, Json(look(&door, &who, &node)?)).into_response())
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
    /// Begin after so many rows.
    offset: Option<u64>,
}

/// List the nodes
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes", params(NodeQuery),
    responses((status = 200, description = "All nodes", body = NodeList)))]
pub async fn list(
    State(door): State<Door>,
    who: Who,
    Query(query): Query<NodeQuery>,
) -> Result<Json<NodeList>, Fault> {
    let label = query.label.as_deref().map(key_and_value).transpose()?;
    let (offset, limit) = window(query.offset, query.limit)?;
    let wanted = |node: &&Node| {
        query.state.as_deref().is_none_or(|word| node.state_word().eq_ignore_ascii_case(word))
            && label.as_ref().is_none_or(|(key, value)| node.labels().get(key) == Some(value))
    };
    let list = door.state(|state| {
        let found: Vec<&Node> = state.nodes.values().filter(wanted).collect();
        let page = found.iter().skip(offset).take(limit);
        NodeList {
            total: found.len() as u64,
            nodes: page.map(|node| shown(&door, state, &who, node)).collect(),
        }
    })?;
    Ok(Json(list))
}

/// Look at one node and its GPUs
#[utoipa::path(get, path = "/api/v1/nodes/{id}", tag = "nodes",
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "The node", body = wire::Node)))]
pub async fn get(State(door): State<Door>, who: Who, Id(id): Id<NodeId>) -> Result<Json<wire::Node>, Fault> {
    Ok(Json(look(&door, &who, &id)?))
}

fn look(door: &Door, who: &Who, id: &NodeId) -> Result<wire::Node, Fault> {
    let node = door.state(|state| {
        state.node(id).map(|node| wire::Node {
            gpus: gpus::of_node(door, state, who, node),
            ..shown(door, state, who, node)
        })
    })?;
    Ok(node?)
}

/// Change a node's state, labels or taints
#[utoipa::path(patch, path = "/api/v1/nodes/{id}", tag = "nodes", request_body = NodeChange,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Changed", body = wire::Node)))]
pub async fn change(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<NodeId>,
    Json(change): Json<NodeChange>,
) -> Result<Json<wire::Node>, Fault> {
    let word = change.state.as_deref().map(word_of).transpose()?;
    if change.labels.is_some() || change.taints.is_some() {
        let command = Command::LabelNode { node: id.clone(), labels: change.labels, taints: change.taints };
        door.cluster.ask(who.actor.clone(), command).await?;
    }
    if let Some(word) = word {
        set(&door, &who, &id, word, change.why.unwrap_or_default()).await?;
    }
    Ok(Json(look(&door, &who, &id)?))
}

fn word_of(text: &str) -> Result<NodeWord, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "ready" => Ok(NodeWord::Ready),
        "draining" => Ok(NodeWord::Draining),
        "hold" => Ok(NodeWord::Hold),
        _ => Err(Fault::invalid("state", format!("`{text}` is none of ready, draining, hold"))),
    }
}

/// Forget a node that runs nothing
#[utoipa::path(delete, path = "/api/v1/nodes/{id}", tag = "nodes",
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Forgotten", body = Done)))]
pub async fn remove(State(door): State<Door>, who: Who, Id(id): Id<NodeId>) -> Result<Json<Done>, Fault> {
    door.cluster.ask(who.actor, Command::RemoveNode { node: id.clone() }).await?;
    Ok(Json(Done { message: format!("node `{id}` was forgotten") }))
}

/// Let a node finish what it has and take nothing new
#[utoipa::path(post, path = "/api/v1/nodes/{id}/drain", tag = "nodes", request_body = Reasoned,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Drains", body = Done)))]
pub async fn drain(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<NodeId>,
    OptionalJson(Reasoned { why }): OptionalJson<Reasoned>,
) -> Result<Json<Done>, Fault> {
    set(&door, &who, &id, NodeWord::Draining, why).await
}

/// Let a node take work again
#[utoipa::path(post, path = "/api/v1/nodes/{id}/undrain", tag = "nodes", request_body = Reasoned,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Takes work", body = Done)))]
pub async fn undrain(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<NodeId>,
    OptionalJson(Reasoned { why }): OptionalJson<Reasoned>,
) -> Result<Json<Done>, Fault> {
    set(&door, &who, &id, NodeWord::Ready, why).await
}

/// Take a node out of service until a person clears it
#[utoipa::path(post, path = "/api/v1/nodes/{id}/hold", tag = "nodes", request_body = Reasoned,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Out of service", body = Done)))]
pub async fn hold(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<NodeId>,
    OptionalJson(Reasoned { why }): OptionalJson<Reasoned>,
) -> Result<Json<Done>, Fault> {
    set(&door, &who, &id, NodeWord::Hold, why).await
}

/// Give the operator's word that a node is dead
///
/// Its attempts are over, and their jobs may start elsewhere. If the node is alive after all, two copies of a
/// job may run: switch it off first.
#[utoipa::path(post, path = "/api/v1/nodes/{id}/fence", tag = "nodes", request_body = Reasoned,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Fenced", body = Done)))]
pub async fn fence(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<NodeId>,
    OptionalJson(Reasoned { why }): OptionalJson<Reasoned>,
) -> Result<Json<Done>, Fault> {
    set(&door, &who, &id, NodeWord::Fenced, why).await
}

async fn set(
    door: &Door,
    who: &Who,
    node: &NodeId,
    word: NodeWord,
    why: String,
) -> Result<Json<Done>, Fault> {
    let command = Command::SetNodeState { node: node.clone(), word, why };
    door.cluster.ask(who.actor.clone(), command).await?;
    Ok(Json(Done { message: format!("node `{node}` is {}", word.word()) }))
}

fn facts(spec: NodeSpec) -> Result<NodeFacts, Fault> {
    let count: u64 = spec.gpus.iter().map(|gpu| u64::from(gpu.count.unwrap_or(1))).sum();
    if count > GPUS_PER_NODE_MAX as u64 {
        return Err(Fault::invalid("gpus", format!("{count} devices, {GPUS_PER_NODE_MAX} are the most")));
    }
    let mut gpus: Vec<GpuFacts> = Vec::new();
    for gpu in &spec.gpus {
        for _ in 0..gpu.count.unwrap_or(1) {
            let made = format!("GPU-{}-{}", spec.name, gpus.len());
            let one = gpu.uuid.clone().filter(|_| gpu.count.unwrap_or(1) == 1);
            gpus.push(GpuFacts {
                uuid: one.unwrap_or(made),
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
        simulated: spec.simulated,
    })
}

fn numa_facts(numa: &NumaNode) -> NumaFacts {
    NumaFacts { cpus: numa.cpu_cores, memory_mib: numa.memory_mb, socket: numa.socket }
}

fn shown_numa(numa: &NumaFacts) -> NumaNode {
    NumaNode { cpu_cores: numa.cpus, memory_mb: numa.memory_mib, socket: numa.socket }
}

fn shown(door: &Door, state: &Core, who: &Who, node: &Node) -> wire::Node {
    let facts = &node.facts;
    let word = node.state.word;
    let held: u32 = (0..facts.gpus.len()).map(|index| share::used_milli(state, node, index)).sum();
    let sees = |id: &&muster_core::JobId| {
        state.jobs.get(id).is_some_and(|job| who.sees_tenant(job.spec.tenant.as_str()))
    };
    wire::Node {
        id: node.id.to_string(),
        name: node.id.to_string(),
        hostname: facts.hostname.clone(),
        ip_address: facts.address.clone(),
        state: node.state_word().to_string(),
        state_by: node.state.by.clone(),
        state_why: node.state.why.clone(),
        state_since: stamp(node.state.since.0),
        state_since_ms: node.state.since.0,
        online: is_online(node),
        schedulable: node.takes_work(),
        draining_mode: word == NodeWord::Draining,
        total_gpus: facts.gpus.len() as u32,
        available_gpus: free_gpus(state, node),
        cpu_cores: facts.cpus,
        available_cpu_cores: u64::from(facts.cpus).saturating_sub(node.cpus_held),
        memory_mb: facts.memory_mib,
        available_memory_mb: facts.memory_mib.saturating_sub(node.memory_mib_held),
        gpu_allocation: if facts.gpus.is_empty() {
            0.0
        } else {
            f64::from(held) / 1_000.0 / facts.gpus.len() as f64
        },
        rack: facts.rack.clone(),
        block: facts.block.clone(),
        numa_nodes: facts.numa.iter().map(shown_numa).collect(),
        power_feed: facts.power_feed.clone(),
        labels: node.labels().clone(),
        taints: node.taints().to_vec(),
        agent_version: facts.agent_version.clone(),
        simulated: facts.simulated,
        registered_at: stamp(node.registered_at.0),
        last_heartbeat: door.readings.heard_at(&node.id).map(|at| stamp(at.0)),
        jobs: node.jobs.iter().filter(sees).map(ToString::to_string).collect(),
        gpus: Vec::new(),
    }
}

/// Whether a node is heard from.
pub fn is_online(node: &Node) -> bool {
    !node.declared && matches!(node.state.word, NodeWord::Ready | NodeWord::Draining | NodeWord::Hold)
}

/// GPUs of a node that could be given out now.
pub fn free_gpus(state: &Core, node: &Node) -> u32 {
    let filed = state.capacity.filed(&node.id).filter(|filed| filed.open);
    filed.map_or(0, |filed| filed.free.gpus.count_ones())
}
