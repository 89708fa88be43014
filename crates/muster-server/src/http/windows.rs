//! Windows: nodes booked for a period, for maintenance or for one tenant.

use std::collections::BTreeSet;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::objects::window::Window as Core;
use muster_core::{Command, NodeId, Refusal, TenantId, Timestamp};
use muster_protocol::submit::Acknowledgement;
use muster_protocol::window::{Window, WindowList, WindowSpec};

use crate::conversions::{parse_duration_ms, parse_timestamp, rfc3339};
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::identity::Caller;

/// Create a window (book nodes for a period)
///
/// Before the window, only jobs whose time limit ends before its start are placed on its nodes; during it, only jobs of
/// its tenant. Running jobs are not stopped.
#[utoipa::path(post, path = "/api/v1/windows", tag = "windows", request_body = WindowSpec,
    responses((status = 201, description = "Created", body = Window)))]
pub async fn open(
    State(app): State<AppState>,
    caller: Caller,
    Json(spec): Json<WindowSpec>,
) -> Result<Response, ApiError> {
    let now = app.cluster.now();
    let window = Box::new(parse_window(&spec, now)?);
    app.cluster.execute(caller.actor, Command::OpenWindow { window }).await?;
    let shown = app.read_state(|state| state.windows.get(&spec.name).map(|window| api_window(state, window, now)))?;
    let shown = shown.ok_or(Refusal::UnknownWindow { name: spec.name })?;
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

/// List the windows
#[utoipa::path(get, path = "/api/v1/windows", tag = "windows",
    responses((status = 200, description = "All windows", body = WindowList)))]
pub async fn list(State(app): State<AppState>, caller: Caller) -> Result<Json<WindowList>, ApiError> {
    let now = app.cluster.now();
    let windows = app.read_state(|state| {
        let seen = |mut window: Window| {
            // Names and jobs of other tenants only if the caller may see them.
            window.tenant = window.tenant.filter(|tenant| caller.sees_tenant(tenant));
            window.jobs.retain(|_| caller.tenant_scope().is_none());
            window
        };
        state.windows.values().map(|window| seen(api_window(state, window, now))).collect()
    })?;
    Ok(Json(WindowList { windows }))
}

/// Close a window
#[utoipa::path(delete, path = "/api/v1/windows/{name}", tag = "windows",
    params(("name" = String, Path, description = "The window")),
    responses((status = 200, description = "Closed", body = Acknowledgement)))]
pub async fn close(
    State(app): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Acknowledgement>, ApiError> {
    app.cluster.execute(caller.actor, Command::CloseWindow { name: name.clone() }).await?;
    Ok(Json(Acknowledgement { message: format!("window `{name}` is closed") }))
}

fn parse_window(spec: &WindowSpec, now: Timestamp) -> Result<Core, ApiError> {
    let from = spec.from.as_ref().map(|from| parse_timestamp("from", from)).transpose()?.unwrap_or(now);
    let until = match (&spec.until, &spec.duration) {
        (Some(until), None) => parse_timestamp("until", until)?,
        (None, Some(span)) => from.plus(parse_duration_ms("duration", span)?),
        _ => return Err(ApiError::invalid("until", "give either `until` or `duration`")),
    };
    let node = |name: &String| -> Result<NodeId, ApiError> {
        name.parse().map_err(|error| ApiError::invalid("nodes", format!("{error}")))
    };
    let tenant = |id: &String| -> Result<TenantId, ApiError> {
        id.parse().map_err(|error| ApiError::invalid("tenant", format!("{error}")))
    };
    Ok(Core {
        name: spec.name.clone(),
        nodes: spec.nodes.iter().map(node).collect::<Result<BTreeSet<_>, _>>()?,
        from,
        until,
        tenant: spec.tenant.as_ref().map(tenant).transpose()?,
        why: spec.why.clone(),
        by: String::new(),
    })
}

fn api_window(state: &muster_core::State, window: &Core, now: Timestamp) -> Window {
    let jobs = window.nodes.iter().flat_map(|node| state.attempts_on(node));
    let others = jobs.filter(|job| !window.is_open_to(state, &job.spec.tenant));
    let others: BTreeSet<String> = others.map(|job| job.id.to_string()).collect();
    Window {
        name: window.name.clone(),
        nodes: window.nodes.iter().map(ToString::to_string).collect(),
        from: rfc3339(window.from.0),
        from_ms: window.from.0,
        until: rfc3339(window.until.0),
        until_ms: window.until.0,
        tenant: window.tenant.as_ref().map(ToString::to_string),
        why: window.why.clone(),
        by: window.by.clone(),
        active: window.from <= now,
        jobs: others.into_iter().collect(),
    }
}
