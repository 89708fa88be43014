//! Drains of nodes: with a deadline, with a reboot at the end, and what still runs.

use axum::extract::State;
use muster_core::objects::node::Node;
use muster_core::{Command, NodeId, State as Core, Timestamp, planner};
use muster_protocol::node::{DrainSpec, NodeDrain, RemainingJob};

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::{Json, OptionalJson};
use crate::http::query::PathId;
use crate::identity::Caller;

/// Drain a node: running jobs finish, no new ones start
///
/// With a deadline the jobs that still run then are stopped and queue again; with `requeue` now. A drain stays in force
/// until `resume`, also if the node is lost or registers again.
#[utoipa::path(post, path = "/api/v1/nodes/{id}/drain", tag = "nodes", request_body = DrainSpec,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Draining", body = NodeDrain)))]
pub async fn drain(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    OptionalJson(spec): OptionalJson<DrainSpec>,
) -> Result<Json<NodeDrain>, ApiError> {
    app.cluster.execute(caller.actor, drain_command(&id, spec, Reboot::No)?).await?;
    read_drain(&app, &id, &format!("node `{id}` is Draining"))
}

/// Reboot a node once it is idle
///
/// Drains the node, reboots it when no job is left, and returns it to the service that it had before when its agent
/// registers after another boot.
#[utoipa::path(post, path = "/api/v1/nodes/{id}/reboot", tag = "nodes", request_body = DrainSpec,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Draining", body = NodeDrain)))]
pub async fn reboot(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    OptionalJson(spec): OptionalJson<DrainSpec>,
) -> Result<Json<NodeDrain>, ApiError> {
    app.cluster.execute(caller.actor, drain_command(&id, spec, Reboot::WhenIdle)?).await?;
    read_drain(&app, &id, &format!("node `{id}` drains, and reboots when it is empty"))
}

/// Get what still runs on a node
#[utoipa::path(get, path = "/api/v1/nodes/{id}/drain", tag = "nodes",
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "The drain and the remaining jobs", body = NodeDrain)))]
pub async fn read(
    State(app): State<AppState>,
    _caller: Caller,
    PathId(id): PathId<NodeId>,
) -> Result<Json<NodeDrain>, ApiError> {
    read_drain(&app, &id, "")
}

#[derive(PartialEq, Eq)]
enum Reboot {
    No,
    WhenIdle,
}

fn drain_command(node: &NodeId, spec: DrainSpec, reboot: Reboot) -> Result<Command, ApiError> {
    if spec.requeue && spec.deadline_seconds.is_some() {
        return Err(ApiError::invalid("requeue", "stops the jobs now; `deadline_seconds` stops them later: send one"));
    }
    let later_ms =
        spec.deadline_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000));
    let deadline_ms = if spec.requeue { Some(0) } else { later_ms };
    Ok(Command::DrainNode { node: node.clone(), why: spec.why, deadline_ms, reboot: reboot == Reboot::WhenIdle })
}

fn read_drain(app: &AppState, id: &NodeId, message: &str) -> Result<Json<NodeDrain>, ApiError> {
    let now = app.cluster.now();
    let drain = app.read_state(|state| state.node(id).map(|node| api_drain(state, node, now.max(state.clock))))??;
    let message = if message.is_empty() { format!("node `{id}` is {}", drain.state) } else { message.to_string() };
    Ok(Json(NodeDrain { message, ..drain }))
}

fn api_drain(state: &Core, node: &Node, now: Timestamp) -> NodeDrain {
    let drain = node.drain.as_deref();
    let deadline = drain.and_then(|drain| drain.deadline);
    let holders = planner::holders_of_node(state, node, now);
    NodeDrain {
        message: String::new(),
        node: node.id.to_string(),
        state: node.status_name().to_string(),
        deadline: deadline.map(|at| rfc3339(at.0)),
        deadline_ms: deadline.map(|at| at.0),
        reboots_when_idle: drain.is_some_and(|drain| drain.reboot.is_some()),
        remaining: holders.iter().filter_map(|holder| remaining_job(state, holder)).collect(),
    }
}

fn remaining_job(state: &Core, holder: &planner::DeviceHolder) -> Option<RemainingJob> {
    let job = state.jobs.get(&holder.job)?;
    Some(RemainingJob {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        user: job.spec.user.clone(),
        phase: job.phase_name().to_string(),
        gpus: holder.gpus,
        expected_end: holder.end.map(|end| rfc3339(end.0)),
        expected_end_ms: holder.end.map(|end| end.0),
        is_bound: holder.is_bound,
    })
}
