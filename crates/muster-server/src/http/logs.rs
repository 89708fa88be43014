//! The output of a job, piece by piece or as it comes.

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

use crate::http::Door;
use crate::http::access::Caller;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::{Id, Query};
use crate::http::stream::{self, Gone, KEEP_ALIVE, Writer};
use crate::http::who::Reach;
use crate::identity::Who;

/// Most bytes of one piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pause between two looks at a log that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Which output.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Of this attempt; the newest when not given.
    attempt: Option<u32>,
    /// Of this task of the gang; 0 when not given.
    rank: Option<u32>,
    /// `stdout` or `stderr`; `stdout` when not given.
    stream: Option<String>,
    /// From this byte on; 0 when not given.
    offset: Option<u64>,
    /// Go on as the job writes, as server-sent events, until the attempt ends.
    follow: Option<bool>,
}

/// The output of a job
///
/// A piece of up to 256 KiB; `next_offset` is where to go on. With `follow=true` the pieces come as server-sent
/// events named `piece`, and `end` is the last one. When the caller's token is revoked or expires, the last event is
/// `problem` with the code `token-ended`.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/logs", tag = "jobs",
    params(("id" = String, Path, description = "The job, or one task of an array"), LogQuery),
    responses((status = 200, description = "A piece of the output", content(
        (LogPiece = "application/json"), (LogData = "text/event-stream")))))]
pub async fn read(
    State(door): State<Door>,
    who: Who,
    Caller(caller): Caller,
    Id(job): Id<JobId>,
    Query(query): Query<LogQuery>,
) -> Result<Response, Fault> {
    let row = job_row(&door, &who, job).await?;
    let log = Log::of(&door.data_dir, &row, &query)?;
    let offset = query.offset.unwrap_or(0);
    if !query.follow.unwrap_or(false) {
        let active = matches!(row.phase.as_str(), "Starting" | "Running" | "Stopping");
        let ended = row.ended_at.is_some() || log.has_ended(row.attempt, active);
        return Ok(Json(log.piece(offset, ended).await?).into_response());
    }
    let (writer, response) = stream::open(door.limits.stream(&caller)?);
    tokio::spawn(async move {
        let _ = follow(door, who, log, offset, writer).await;
    });
    Ok(response)
}

async fn job_row(door: &Door, who: &Who, job: JobId) -> Result<JobRow, Fault> {
    let detail = door.tables(move |tables| Ok(tables.job(job)?)).await?;
    let row = detail.map(|detail| detail.row).filter(|row| who.sees_tenant(&row.tenant));
    row.ok_or_else(|| Fault::from(Refusal::UnknownJob { job }))
}

/// The `data` of each event of a log that is followed.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // Only the document speaks of it.
pub(crate) enum LogData {
    /// `event: piece`, and `event: end` for the last one.
    Piece(LogPiece),
    /// The log cannot be read: `event: problem`.
    Problem(Problem),
}

/// One log file of one task of one attempt.
struct Log {
    job: JobId,
    attempt: u32,
    rank: u32,
    stream: Stream,
    path: PathBuf,
}

impl Log {
    fn of(data_dir: &Path, row: &JobRow, query: &LogQuery) -> Result<Log, Fault> {
        let stream = match query.stream.as_deref().unwrap_or("stdout") {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            other => return Err(Fault::invalid("stream", format!("`{other}` is neither stdout nor stderr"))),
        };
        // A job that has not started yet is followed from its first attempt on.
        let newest = row.attempt.max(1);
        let attempt = query.attempt.unwrap_or(newest);
        if !(1..=newest).contains(&attempt) {
            return Err(Fault::invalid("attempt", format!("`{}` has {} attempts", row.id, row.attempt)));
        }
        let rank = query.rank.unwrap_or(0);
        let path = logs::log_path(data_dir, &row.id.to_string(), attempt, rank, stream)
            .map_err(|error| Fault::malformed(error.to_string()))?;
        Ok(Log { job: row.id, attempt, rank, stream, path })
    }

    /// Whether nothing more will be written, by how many attempts were made and whether one is under way.
    fn has_ended(&self, attempts: u32, active: bool) -> bool {
        self.attempt < attempts || (self.attempt == attempts && !active)
    }

    /// The same, asked of the state. A job that is not there has ended.
    fn has_ended_now(&self, door: &Door) -> Result<bool, Fault> {
        door.state(|state| {
            let job = state.jobs.get(&self.job);
            job.is_none_or(|job| self.has_ended(job.attempts, job.attempt().is_some()))
        })
    }

    async fn piece(&self, offset: u64, ended: bool) -> Result<LogPiece, Fault> {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || logs::read_from(&path, offset, PIECE_BYTES));
        let (mut bytes, _) = match reading.await {
            Ok(Ok(piece)) => piece,
            Ok(Err(error)) => return Err(Fault::internal(format!("the log could not be read: {error}"))),
            Err(_) => return Err(Fault::internal("the reading ended early")),
        };
        let complete = ended && bytes.len() < PIECE_BYTES;
        if !complete {
            bytes.truncate(whole_characters(&bytes));
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

/// How many bytes to show so that a character that is still being written is not torn.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Send what is written until the attempt has ended or the reader has gone.
async fn follow(door: Door, who: Who, log: Log, mut offset: u64, writer: Writer) -> Result<(), Gone> {
    let mut spoke = Instant::now();
    loop {
        if let Err(fault) = door.check_token(&who) {
            return writer.send("problem", None, &fault.problem()).await;
        }
        // Look at the job before the file: what was written before its end is then surely there.
        let ended = *door.stopping.borrow() || log.has_ended_now(&door).unwrap_or(false);
        let piece = match log.piece(offset, ended).await {
            Ok(piece) => piece,
            Err(fault) => return writer.send("problem", None, &fault.problem()).await,
        };
        offset = piece.next_offset;
        if piece.complete {
            return writer.send("end", Some(offset), &piece).await;
        }
        if !piece.text.is_empty() {
            writer.send("piece", Some(offset), &piece).await?;
            spoke = Instant::now();
        } else if spoke.elapsed() >= KEEP_ALIVE {
            writer.keep_alive().await?;
            spoke = Instant::now();
        }
        if piece.text.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
