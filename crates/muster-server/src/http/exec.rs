//! Programs inside running jobs: `muster exec`, `muster attach` and `muster cp`.
//!
//! The request is upgraded to a stream of frames both ways (`muster_wire::exec_frames`). The act is in the audit log, with
//! the command line, before the program starts.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use muster_core::facts::command::JobEntry;
use muster_core::{Command, JobId, NodeId, Refusal};
use muster_protocol::exec::{CopyDirection, ExecEnd, ExecMessage, ExecOrder, ExecRequest, WINDOW_BYTES};
use muster_wire::exec_frames::{self, MessageReader};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

use crate::exec_source::{ExecError, ExecPipe, ProgramInput};
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::CallerKey;
use crate::http::jobs::send_job_command;
use crate::http::json::{BODY_BYTES_MAX, read_bytes};
use crate::http::query::PathId;
use crate::http::rate_limit::StreamPermit;
use crate::http::sse::TOKEN_CHECK_INTERVAL;
use crate::identity::Caller;
use crate::request_json::parse;

/// Names of terminals are far shorter.
const TERMINAL_KIND_BYTES_MAX: usize = 255;

/// The agent has a shorter limit for the start itself.
const START_TIMEOUT: Duration = Duration::from_secs(70);
const READ_BYTES: usize = 32 << 10;
/// Credit is passed on in parts of the window, not for each message.
const CREDIT_STEP: u32 = WINDOW_BYTES / 4;

type UpgradedConnection = TokioIo<Upgraded>;

/// Run a program inside a running job
///
/// The program gets the cgroup, the mounts, the user, the devices and the environment of a task. The request needs the
/// headers `Connection: Upgrade` and `Upgrade: muster-exec`. After the response 101 both sides send frames: the length in
/// four bytes, most significant first, then the protobuf message `muster.v1.ExecFrame`. `credit` grants the other side bytes
/// of standard input; the last frame is `ended`. The program ends with the connection. Allowed for the owner of the job,
/// the tenant-admin, operators and admins; recorded in the audit log.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/exec", tag = "jobs", request_body = ExecRequest,
    params(("id" = String, Path, description = "The job, or one task of an array")),
    responses((status = 101, description = "The program has started")))]
pub async fn exec(
    State(app): State<AppState>,
    caller: Caller,
    CallerKey(caller_key): CallerKey,
    PathId(job): PathId<JobId>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let wants_upgrade = parts.headers.get(UPGRADE).is_some_and(|protocol| protocol == exec_frames::UPGRADE);
    let request: ExecRequest = parse(&read_bytes(&parts.headers, body, BODY_BYTES_MAX).await?)?;
    check(&request)?;
    let Some(upgrade) = upgrade.filter(|_| wants_upgrade) else {
        let detail = "this request needs an upgraded HTTP/1.1 connection";
        return Err(ApiError::new(StatusCode::UPGRADE_REQUIRED, "upgrade-required", detail)
            .hint("send `Connection: Upgrade` and `Upgrade: muster-exec`; a proxy on the way must pass them on"));
    };
    let permit = app.rate_limiter.acquire_stream(&caller_key)?;
    let (entry, detail) = described(&request);
    send_job_command(&app, caller.clone(), job, Command::EnterJob { job, entry, detail }).await?;
    let (node, order) = app.read_state(|state| placed(state, job, &request))??;
    let mut pipe = app.programs.open(&node, order)?;
    wait_for_start(&node, &mut pipe).await?;
    tokio::spawn(async move {
        // An error means that the client is gone; dropping the pipe ends the program.
        if let Ok(upgraded) = upgrade.await {
            relay(app, caller, permit, TokioIo::new(upgraded), pipe).await;
        }
    });
    let headers =
        [(CONNECTION, HeaderValue::from_static("upgrade")), (UPGRADE, HeaderValue::from_static(exec_frames::UPGRADE))];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

fn check(request: &ExecRequest) -> Result<(), ApiError> {
    if request.copy.is_some() && (!request.command.is_empty() || request.terminal.is_some()) {
        return Err(ApiError::invalid("copy", "is without `command` and `terminal`"));
    }
    if request.command.iter().any(|word| word.contains('\0')) {
        return Err(ApiError::invalid("command", "contains a null character"));
    }
    let kind = request.terminal.as_ref().map_or("", |terminal| terminal.kind.as_str());
    if kind.len() > TERMINAL_KIND_BYTES_MAX || !kind.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ApiError::invalid("terminal", "its kind is a name such as xterm-256color"));
    }
    Ok(())
}

/// For the audit log.
fn described(request: &ExecRequest) -> (JobEntry, String) {
    match &request.copy {
        Some(copy) if copy.direction == CopyDirection::In => (JobEntry::CopyIn, copy.path.clone()),
        Some(copy) => (JobEntry::CopyOut, copy.path.clone()),
        None if request.command.is_empty() => (JobEntry::Exec, "login shell".to_string()),
        None => (JobEntry::Exec, request.command.join(" ")),
    }
}

/// The node and the order for the newest attempt.
fn placed(state: &muster_core::State, job: JobId, request: &ExecRequest) -> Result<(NodeId, ExecOrder), ApiError> {
    let attempt = state.jobs.get(&job).and_then(|found| found.attempt());
    let attempt = attempt.ok_or_else(|| ApiError::from(Refusal::UnknownJob { job }))?;
    let is_meant = |rank: u32, node: &NodeId| {
        request.rank.is_none_or(|wanted| wanted == rank)
            && request.node.as_ref().is_none_or(|wanted| wanted == node.as_str())
    };
    let tasks = attempt.tasks.iter().filter(|task| is_meant(task.rank, &task.node));
    let Some(task) = tasks.min_by_key(|task| task.rank) else {
        let detail = format!("`{job}` has no task of this rank or on this node");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "unknown-task", detail)
            .hint(format!("`muster show {job}` lists its tasks")));
    };
    let order = ExecOrder {
        job: job.to_string(),
        attempt: attempt.number,
        rank: task.rank,
        command: request.command.clone(),
        copy: request.copy.clone(),
        terminal: request.terminal.clone(),
    };
    Ok((task.node.clone(), order))
}

async fn wait_for_start(node: &NodeId, pipe: &mut ExecPipe) -> Result<(), ApiError> {
    let conflict = |code: String, why: String| ApiError::new(StatusCode::CONFLICT, known_code(&code), why);
    match timeout(START_TIMEOUT, pipe.from_program.recv()).await {
        Ok(Some(ExecMessage::Started)) => Ok(()),
        Ok(Some(ExecMessage::Ended(ExecEnd::Failed { code, why }))) => Err(conflict(code, why)),
        Ok(Some(_)) => Err(ApiError::internal(format!("node `{node}` answered out of order"))),
        Ok(None) => Err(ExecError::NotConnected { node: node.clone() }.into()),
        Err(_) => {
            let detail = format!("the agent of node `{node}` does not answer");
            Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "agent-silent", detail)
                .hint("agents of an older release cannot run programs inside jobs"))
        }
    }
}

/// The codes that agents report; one of a newer agent is passed on as a failure.
fn known_code(code: &str) -> &'static str {
    match code {
        "attempt-not-running" => "attempt-not-running",
        "attempt-ended" => "attempt-ended",
        "program-not-started" => "program-not-started",
        "too-many-programs" => "too-many-programs",
        _ => "exec-failed",
    }
}

impl From<ExecError> for ApiError {
    fn from(error: ExecError) -> ApiError {
        let sentence = error.to_string();
        match error {
            ExecError::NotConnected { .. } => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "node-not-connected", sentence).retry_after(1)
            }
            ExecError::Busy { .. } => {
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many-programs", sentence).retry_after(1)
            }
            ExecError::Simulated { .. } => ApiError::new(StatusCode::CONFLICT, "node-simulated", sentence)
                .hint("`muster dev --real` runs jobs as processes of this machine"),
        }
    }
}

/// Moves messages both ways until the program has ended or the person is gone.
async fn relay(app: AppState, caller: Caller, _permit: StreamPermit, connection: UpgradedConnection, pipe: ExecPipe) {
    let (reader, mut writer) = tokio::io::split(connection);
    let ExecPipe { to_program, mut from_program } = pipe;
    let end = {
        let sent = send_output(&app, &caller, &mut writer, &mut from_program, &*to_program);
        tokio::select! {
            end = sent => end,
            () = take_input(reader, &*to_program) => None,
        }
    };
    if let Some(end) = end {
        let _ = writer.write_all(&exec_frames::encode(ExecMessage::Ended(end))).await;
        let _ = writer.shutdown().await;
    }
}

/// `None` if the person is gone.
async fn send_output(
    app: &AppState,
    caller: &Caller,
    writer: &mut WriteHalf<UpgradedConnection>,
    from_program: &mut mpsc::Receiver<ExecMessage>,
    to_program: &dyn ProgramInput,
) -> Option<ExecEnd> {
    let mut stopping = app.stopping.clone();
    let mut checks = interval(TOKEN_CHECK_INTERVAL);
    let mut taken = 0;
    writer.write_all(&exec_frames::encode(ExecMessage::Started)).await.ok()?;
    loop {
        let message = tokio::select! {
            message = from_program.recv() => message,
            _ = stopping.wait_for(|stopping| *stopping) => {
                return Some(ExecEnd::failed("server-stopping", "the server is stopping"));
            }
            _ = checks.tick() => match app.check_token(caller) {
                Ok(()) => continue,
                Err(error) => return Some(ExecEnd::failed("token-ended", error.problem().detail)),
            },
        };
        match message {
            None => {
                return Some(ExecEnd::failed("node-not-connected", "the connection to the node of the job was lost"));
            }
            Some(ExecMessage::Ended(end)) => return Some(end),
            Some(message) => {
                taken += message.cost();
                writer.write_all(&exec_frames::encode(message)).await.ok()?;
            }
        }
        if taken >= CREDIT_STEP {
            to_program.take(ExecMessage::Credit(std::mem::take(&mut taken)));
        }
    }
}

/// Returns when the person is gone, or does not speak the protocol.
async fn take_input(mut reader: ReadHalf<UpgradedConnection>, to_program: &dyn ProgramInput) {
    let mut bytes = vec![0; READ_BYTES];
    let mut messages = MessageReader::default();
    loop {
        match reader.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(read) => messages.push(&bytes[..read]),
        }
        loop {
            match messages.next_message() {
                Ok(Some(ExecMessage::Credit(_))) => {} // The TCP connection limits the output.
                Ok(Some(message)) => to_program.take(message),
                Ok(None) => break,
                Err(error) => return tracing::debug!(%error, "closed a stream to a program inside a job"),
            }
        }
    }
}
