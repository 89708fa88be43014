//! Windows: nodes that are booked for a time.

use std::collections::BTreeSet;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::window::Window as Core;
use muster_core::{Command, NodeId, Refusal, TenantId, Timestamp};
use muster_protocol::submit::Done;
use muster_protocol::window::{Window, WindowList, WindowSpec};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::who::Reach;
use crate::http::written::{moment, span_ms, stamp};
use crate::identity::Who;

/// Book nodes for a time
///
/// Before it begins, only jobs with a time limit that are sure to be over by then start on its nodes; while it lasts,
/// nobody but its tenant. Jobs that run already are left alone.
#[utoipa::path(post, path = "/api/v1/windows", tag = "windows", request_body = WindowSpec,
    responses((status = 201, description = "Booked", body = Window)))]
pub async fn open(
    State(door): State<Door>,
    who: Who,
    Json(spec): Json<WindowSpec>,
) -> Result<Response, Fault> {
    let now = door.cluster.now();
    let window = Box::new(read(&spec, now)?);
    door.cluster.ask(who.actor, Command::OpenWindow { window }).await?;
    let shown = door.state(|state| state.windows.get(&spec.name).map(|window| shown(state, window, now)))?;
    let shown = shown.ok_or(Refusal::UnknownWindow { name: spec.name })?;
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

/// List the windows
#[utoipa::path(get, path = "/api/v1/windows", tag = "windows",
    responses((status = 200, description = "All of them", body = WindowList)))]
pub async fn list(State(door): State<Door>, who: Who) -> Result<Json<WindowList>, Fault> {
    let now = door.cluster.now();
    let windows = door.state(|state| {
        let seen = |mut window: Window| {
            // Other tenants' names and jobs only where the caller may see them.
            window.tenant = window.tenant.filter(|tenant| who.sees_tenant(tenant));
            window.jobs.retain(|_| who.confined_to().is_none());
            window
        };
        state.windows.values().map(|window| seen(shown(state, window, now))).collect()
    })?;
    Ok(Json(WindowList { windows }))
}

/// Give booked nodes back
#[utoipa::path(delete, path = "/api/v1/windows/{name}", tag = "windows",
    params(("name" = String, Path, description = "The window")),
    responses((status = 200, description = "Closed", body = Done)))]
pub async fn close(
    State(door): State<Door>,
    who: Who,
    Path(name): Path<String>,
) -> Result<Json<Done>, Fault> {
    door.cluster.ask(who.actor, Command::CloseWindow { name: name.clone() }).await?;
    Ok(Json(Done { message: format!("window `{name}` is closed") }))
}

fn read(spec: &WindowSpec, now: Timestamp) -> Result<Core, Fault> {
    let from = spec.from.as_ref().map(|from| moment("from", from)).transpose()?.unwrap_or(now);
    let until = match (&spec.until, &spec.duration) {
        (Some(until), None) => moment("until", until)?,
        (None, Some(span)) => from.plus(span_ms("duration", span)?),
        _ => return Err(Fault::invalid("until", "give either `until` or `duration`")),
    };
    let node = |name: &String| -> Result<NodeId, Fault> {
        name.parse().map_err(|error| Fault::invalid("nodes", format!("{error}")))
    };
    let tenant = |id: &String| -> Result<TenantId, Fault> {
        id.parse().map_err(|error| Fault::invalid("tenant", format!("{error}")))
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

fn shown(state: &muster_core::State, window: &Core, now: Timestamp) -> Window {
    let jobs = window.nodes.iter().flat_map(|node| state.attempts_on(node));
    let others = jobs.filter(|job| !window.is_open_to(state, &job.spec.tenant));
    let others: BTreeSet<String> = others.map(|job| job.id.to_string()).collect();
    Window {
        name: window.name.clone(),
        nodes: window.nodes.iter().map(ToString::to_string).collect(),
        from: stamp(window.from.0),
        from_ms: window.from.0,
        until: stamp(window.until.0),
        until_ms: window.until.0,
        tenant: window.tenant.as_ref().map(ToString::to_string),
        why: window.why.clone(),
        by: window.by.clone(),
        active: window.from <= now,
        jobs: others.into_iter().collect(),
    }
}
