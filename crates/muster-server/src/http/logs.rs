//! Logs of a job: a piece at an offset, or followed as server-sent events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use muster_agent::logs::{self, Stream};
use muster_core::{JobId, Refusal};
use muster_protocol::job::LogPiece;
use muster_protocol::problem::Problem;
use muster_store::rows::JobRow;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use crate::http::AppState;
use crate::http::access::CallerKey;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::http::query::{PathId, Query};
use crate::http::sse::{self, ClientDisconnected, KEEP_ALIVE_INTERVAL, SseWriter};
use crate::identity::Caller;

/// Largest piece.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Pause between two reads of a followed log.
const LOG_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Which log, and from where.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Of this attempt; the newest when not given.
    attempt: Option<u32>,
    /// Of the task of this rank; 0 when not given.
    rank: Option<u32>,
    /// `stdout` or `stderr`; `stdout` when not given.
    stream: Option<String>,
    /// First byte; 0 when not given.
    offset: Option<u64>,
    /// Follow the log as server-sent events until the attempt ends.
    follow: Option<bool>,
}

/// Read or follow the log of a job
///
/// Returns a piece of up to 256 KiB; `next_offset` is the offset of the next one. With `follow=true` the pieces are
/// sent as server-sent events `piece`, the last one as `end`. If the caller's token is revoked or expires, the last
/// event is `problem` with the code `token-ended`.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/logs", tag = "jobs",
    params(("id" = String, Path, description = "The job, or one task of an array"), LogQuery),
    responses((status = 200, description = "A piece of the log", content(
        (LogPiece = "application/json"), (LogData = "text/event-stream")))))]
pub async fn read(
    State(app): State<AppState>,
    caller: Caller,
    CallerKey(caller_key): CallerKey,
    PathId(job): PathId<JobId>,
    Query(query): Query<LogQuery>,
) -> Result<Response, ApiError> {
    let row = visible_job_row(&app, &caller, job).await?;
    let log = LogFile::locate(&app.data_dir, &row, &query)?;
    let offset = query.offset.unwrap_or(0);
    if !query.follow.unwrap_or(false) {
        let active = matches!(row.phase.as_str(), "Starting" | "Running" | "Stopping");
        let ended = row.ended_at.is_some() || log.has_ended(row.attempt, active);
        return Ok(Json(log.read_piece(offset, ended).await?).into_response());
    }
    let (writer, response) = sse::open_sse(app.rate_limiter.acquire_stream(&caller_key)?);
    tokio::spawn(async move {
        let _ = follow_log(app, caller, log, offset, writer).await;
    });
    Ok(response)
}

async fn visible_job_row(app: &AppState, caller: &Caller, job: JobId) -> Result<JobRow, ApiError> {
    let detail = app.read_tables(move |tables| Ok(tables.job(job)?)).await?;
    let row = detail.map(|detail| detail.row).filter(|row| caller.sees_tenant(&row.tenant));
    row.ok_or_else(|| ApiError::from(Refusal::UnknownJob { job }))
}

/// The `data` of each event of a followed log.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // Only a schema of the OpenAPI document.
pub(crate) enum LogData {
    /// `event: piece`, and `event: end` for the last one.
    Piece(LogPiece),
    /// The log cannot be read: `event: problem`.
    Problem(Problem),
}

/// One log file of one task of one attempt.
struct LogFile {
    job: JobId,
    attempt: u32,
    rank: u32,
    stream: Stream,
    path: PathBuf,
}

impl LogFile {
    fn locate(data_dir: &Path, row: &JobRow, query: &LogQuery) -> Result<LogFile, ApiError> {
        let stream = match query.stream.as_deref().unwrap_or("stdout") {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            other => {
                return Err(ApiError::invalid("stream", format!("`{other}` is neither stdout nor stderr")));
            }
        };
        // The log of a job that has not started is that of its first attempt.
        let newest = row.attempt.max(1);
        let attempt = query.attempt.unwrap_or(newest);
        if !(1..=newest).contains(&attempt) {
            return Err(ApiError::invalid("attempt", format!("`{}` has {} attempts", row.id, row.attempt)));
        }
        let rank = query.rank.unwrap_or(0);
        let path = logs::log_path(data_dir, &row.id.to_string(), attempt, rank, stream)
            .map_err(|error| ApiError::malformed(error.to_string()))?;
        Ok(LogFile { job: row.id, attempt, rank, stream, path })
    }

    /// Whether the log is complete, from the number of attempts and whether the last of them is live.
    fn has_ended(&self, attempts: u32, active: bool) -> bool {
        self.attempt < attempts || (self.attempt == attempts && !active)
    }

    /// [`LogFile::has_ended`] by the state. A job that is not in the state has ended.
    fn has_ended_now(&self, app: &AppState) -> Result<bool, ApiError> {
        app.read_state(|state| {
            let job = state.jobs.get(&self.job);
            job.is_none_or(|job| self.has_ended(job.attempts, job.attempt().is_some()))
        })
    }

    async fn read_piece(&self, offset: u64, ended: bool) -> Result<LogPiece, ApiError> {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || logs::read_from(&path, offset, PIECE_BYTES_MAX));
        let (mut bytes, _) = match reading.await {
            Ok(Ok(piece)) => piece,
            Ok(Err(error)) => return Err(ApiError::internal(format!("could not read the log: {error}"))),
            Err(_) => return Err(ApiError::internal("reading the log was aborted")),
        };
        let complete = ended && bytes.len() < PIECE_BYTES_MAX;
        if !complete {
            bytes.truncate(complete_utf8_len(&bytes));
        }
        Ok(LogPiece {
            job_id: self.job.to_string(),
            attempt: self.attempt,
            rank: self.rank,
            stream: match self.stream {
                Stream::Stdout => "stdout".to_string(),
                Stream::Stderr => "stderr".to_string(),
            },
            offset,
            next_offset: offset + bytes.len() as u64,
            complete,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }
}

/// The length of the bytes without an incomplete UTF-8 character at the end, which the job may still be writing.
fn complete_utf8_len(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Send new output until the attempt has ended or the client has disconnected.
async fn follow_log(
    app: AppState,
    caller: Caller,
    log: LogFile,
    mut offset: u64,
    writer: SseWriter,
) -> Result<(), ClientDisconnected> {
    let mut last_sent = Instant::now();
    loop {
        if let Err(error) = app.check_token(&caller) {
            return writer.send("problem", None, &error.problem()).await;
        }
        // Read the state before the file, so that the last piece contains all output written before the end.
        let ended = *app.stopping.borrow() || log.has_ended_now(&app).unwrap_or(false);
        let piece = match log.read_piece(offset, ended).await {
            Ok(piece) => piece,
            Err(error) => return writer.send("problem", None, &error.problem()).await,
        };
        offset = piece.next_offset;
        if piece.complete {
            return writer.send("end", Some(offset), &piece).await;
        }
        if !piece.text.is_empty() {
            writer.send("piece", Some(offset), &piece).await?;
            last_sent = Instant::now();
        } else if last_sent.elapsed() >= KEEP_ALIVE_INTERVAL {
            writer.keep_alive().await?;
            last_sent = Instant::now();
        }
        if piece.text.is_empty() {
            tokio::time::sleep(LOG_POLL_INTERVAL).await;
        }
    }
}
