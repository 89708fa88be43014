//! The power program: fences and power actions that an operator asks for.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::objects::node::{NodeStatus, PowerAction};
use muster_core::{Actor, Command, NodeId};
use muster_protocol::node::{FenceSpec, PowerDone, PowerSpec};
use muster_protocol::submit::Acknowledgement;

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::{Json, OptionalJson};
use crate::http::nodes::set_node_state;
use crate::http::query::PathId;
use crate::identity::Caller;
use crate::power::{PowerControl, PowerTarget};

/// Fence a node: nothing runs on it any more
///
/// The power program of the site fences the node first, if there is one; without its confirmation nothing is changed. Then,
/// or with `skip_program` at once, its attempts end, and their jobs may start elsewhere. Without a program, and with
/// `skip_program`, this is the declaration of the caller: if the node still runs, two copies of a job may run. A drained
/// node stays drained. `resume` lifts the fence.
#[utoipa::path(post, path = "/api/v1/nodes/{id}/fence", tag = "nodes", request_body = FenceSpec,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Fenced", body = Acknowledgement)))]
pub async fn fence(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    OptionalJson(FenceSpec { why, skip_program }): OptionalJson<FenceSpec>,
) -> Result<Json<Acknowledgement>, ApiError> {
    let Some(power) = app.power.clone().filter(|_| !skip_program) else {
        return set_node_state(&app, &caller, &id, NodeStatus::Fenced, why).await;
    };
    run(&app, &caller, &id, power, (PowerAction::Fence, true)).await.map_err(|error| {
        error
            .hint("nothing was changed; once you know that the node is off, `muster node fence --skip-program` says so")
    })?;
    let fenced = set_node_state(&app, &caller, &id, NodeStatus::Fenced, why).await?;
    report(&app, &id, PowerAction::Fence, None).await?;
    Ok(fenced)
}

/// Run the power program for a node
///
/// An action that would end jobs is refused while jobs run on the node, unless `force` is set.
#[utoipa::path(post, path = "/api/v1/nodes/{id}/power", tag = "nodes", request_body = PowerSpec,
    params(("id" = String, Path, description = "The node")),
    responses((status = 200, description = "Done and confirmed by the program", body = PowerDone)))]
pub async fn control(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<NodeId>,
    Json(PowerSpec { action, force }): Json<PowerSpec>,
) -> Result<Json<PowerDone>, ApiError> {
    let action = parse_action(&action)?;
    let power = app.power.clone().ok_or_else(no_program)?;
    let output = run(&app, &caller, &id, power, (action, force)).await?;
    report(&app, &id, action, None).await?;
    Ok(Json(PowerDone { message: format!("node `{id}`: {} confirmed", action.as_str()), output }))
}

fn parse_action(text: &str) -> Result<PowerAction, ApiError> {
    let known = PowerAction::ALL.into_iter().filter(|action| *action != PowerAction::Fence);
    let names: Vec<&str> = known.clone().map(PowerAction::as_str).collect();
    let found = known.into_iter().find(|action| action.as_str() == text);
    found.ok_or_else(|| ApiError::invalid("action", format!("`{text}` is none of {}", names.join(", "))))
}

fn no_program() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "no-power-program", "this server has no power program")
        .hint("set `nodes.power_program` in the configuration of the servers")
}

/// Record the act for the audit log, run the program, and record a failure.
async fn run(
    app: &AppState,
    caller: &Caller,
    id: &NodeId,
    power: Arc<dyn PowerControl>,
    (action, force): (PowerAction, bool),
) -> Result<String, ApiError> {
    let command = Command::ControlPower { node: id.clone(), action, force };
    app.cluster.execute(caller.actor.clone(), command).await?;
    let target = app.read_state(|state| state.node(id).map(PowerTarget::of))??;
    let running = tokio::task::spawn_blocking(move || power.control(action, &target));
    let outcome = running.await.unwrap_or_else(|fault| Err(fault.to_string()));
    match outcome {
        Ok(output) => Ok(output),
        Err(why) => {
            report(app, id, action, Some(why.clone())).await?;
            let detail = format!("the power program did not confirm `{}` of node `{id}`: {why}", action.as_str());
            Err(ApiError::new(StatusCode::BAD_GATEWAY, "power-program-failed", detail))
        }
    }
}

async fn report(app: &AppState, id: &NodeId, action: PowerAction, failure: Option<String>) -> Result<(), ApiError> {
    let command = Command::ReportPower { node: id.clone(), action, failure, attempts: Vec::new() };
    app.cluster.execute(Actor::system(), command).await?;
    Ok(())
}
