//! Output of a job: a piece at an offset, as text or as the bytes themselves, or followed as server-sent events.

mod follow;
mod task_output;

use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use muster_agent::logs::Stream;
use muster_core::{JobId, Refusal, Timestamp};
use muster_protocol::job::LogPiece;
use muster_protocol::problem::Problem;
use muster_store::rows::JobRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::CallerKey;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::http::query::{PathId, Query, check_offset};
use crate::http::sse;
use crate::identity::Caller;
use crate::log_source::LogError;
use task_output::{OutputPart, TaskOutput, find_placement};

/// Most lines of `tail`.
const TAIL_LINES_MAX: u32 = 100_000;
/// Most streams of `streams`.
const STREAMS_MAX: usize = 2_048;

/// Headers of a response with `format=raw`, besides the bytes.
const OFFSET_HEADER: HeaderName = HeaderName::from_static("muster-log-offset");
const NEXT_OFFSET_HEADER: HeaderName = HeaderName::from_static("muster-log-next-offset");
const SKIPPED_HEADER: HeaderName = HeaderName::from_static("muster-log-skipped-bytes");
const SIZE_HEADER: HeaderName = HeaderName::from_static("muster-log-size");
const COMPLETE_HEADER: HeaderName = HeaderName::from_static("muster-log-complete");

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
    /// Instead of `offset`: start this many lines before the end, 0 to 100,000. At most the last 16 MiB are searched.
    tail: Option<u32>,
    /// Instead of `offset`: start with the output since this time, in Unix milliseconds by the clock of the node. Up to some
    /// two seconds of earlier output may come with it. With `tail`, the later of the two starts.
    since_ms: Option<u64>,
    /// Follow the log as server-sent events until the attempt ends.
    follow: Option<bool>,
    /// With `follow`, instead of `rank`, `stream` and `offset`: up to 2,048 streams in one response, such as
    /// `0.stdout,0.stderr:4096,1.stdout`: rank, stream, and the first byte.
    streams: Option<String>,
    /// `json`, or `raw` for the unchanged bytes; `json` when not given. Not with `follow`.
    format: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Raw,
}

/// Read or follow the log of a job
///
/// Returns a piece of up to 256 KiB; `next_offset` is the offset of the next one. With `format=raw` the body is the
/// bytes, and the headers `muster-log-offset`, `muster-log-next-offset`, `muster-log-skipped-bytes`, `muster-log-size`
/// and `muster-log-complete` say the rest. With `follow=true` the pieces are sent as server-sent events `piece`, the
/// last one of each stream as `end`. While the node that holds the output is not connected, one event `notice`
/// contains the problem, and the stream goes on when the node is back. A stream that closes without `end` was
/// interrupted, for example by a restart of the server: read on from the last `next_offset`. If the caller's token is
/// revoked or expires, the last event is `problem` with the code `token-ended`.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/logs", tag = "jobs",
    params(("id" = String, Path, description = "The job, or one task of an array"), LogQuery),
    responses((status = 200, description = "A piece of the log", content(
        (LogPiece = "application/json"), (LogData = "text/event-stream"), (Vec<u8> = "application/octet-stream")))))]
pub async fn read(
    State(app): State<AppState>,
    caller: Caller,
    CallerKey(caller_key): CallerKey,
    PathId(job): PathId<JobId>,
    Query(query): Query<LogQuery>,
) -> Result<Response, ApiError> {
    let format = query.format()?;
    let tail = query.tail()?;
    let row = visible_job_row(&app, &caller, job).await?;
    let attempt = query.attempt(&row)?;
    let placement = app.read_tables(move |tables| find_placement(tables, job, attempt)).await?;
    let mut outputs = Vec::new();
    for StreamRef { rank, stream, offset } in query.streams()? {
        let output = TaskOutput::new(job, attempt, rank, stream, &placement);
        let offset = match offset {
            Some(offset) => offset,
            None => query.start(&app, &output, tail).await?,
        };
        outputs.push((output, offset));
    }
    if query.follow.unwrap_or(false) {
        let (writer, response) = sse::open_sse(app.rate_limiter.acquire_stream(&caller_key)?);
        follow::spawn_all(app, caller, outputs, writer);
        return Ok(response);
    }
    let Some((output, offset)) = outputs.pop() else { return Err(ApiError::invalid("streams", "names no stream")) };
    let part = output.read(&*app.logs, offset, output.has_ended_by(&row), Duration::ZERO).await?;
    Ok(match format {
        Format::Json => Json(output.log_piece(part)).into_response(),
        Format::Raw => raw_response(part),
    })
}

async fn visible_job_row(app: &AppState, caller: &Caller, job: JobId) -> Result<JobRow, ApiError> {
    let detail = app.read_tables(move |tables| Ok(tables.job(job)?)).await?;
    let row = detail.map(|detail| detail.row).filter(|row| caller.sees_tenant(&row.tenant));
    row.ok_or_else(|| ApiError::from(Refusal::UnknownJob { job }))
}

fn raw_response(part: OutputPart) -> Response {
    let number = |number: u64| HeaderValue::from(number);
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (OFFSET_HEADER, number(part.offset)),
        (NEXT_OFFSET_HEADER, number(part.next_offset())),
        (SKIPPED_HEADER, number(part.skipped_bytes)),
        (SIZE_HEADER, number(part.size)),
        (COMPLETE_HEADER, HeaderValue::from_static(if part.complete { "true" } else { "false" })),
    ];
    (headers, part.bytes).into_response()
}

/// The `data` of each event of a followed log.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // Only a schema of the OpenAPI document.
pub(crate) enum LogData {
    /// `event: piece`, and `event: end` for the last one.
    Piece(LogPiece),
    /// The log cannot be read: `event: problem`; or not at the moment: `event: notice`.
    Problem(Problem),
}

impl LogQuery {
    fn format(&self) -> Result<Format, ApiError> {
        match self.format.as_deref().unwrap_or("json") {
            "json" => Ok(Format::Json),
            "raw" if self.follow == Some(true) => {
                Err(ApiError::invalid("format", "a followed log is sent as events; leave out `format` or `follow`"))
            }
            "raw" => Ok(Format::Raw),
            other => Err(ApiError::invalid("format", format!("`{other}` is neither json nor raw"))),
        }
    }

    fn tail(&self) -> Result<Option<u32>, ApiError> {
        check_offset(self.offset)?;
        match self.tail {
            Some(_) if self.offset.is_some() => Err(ApiError::invalid("tail", "give `tail` or `offset`, not both")),
            _ if self.offset.is_some() && self.since_ms.is_some() => {
                Err(ApiError::invalid("since_ms", "give `since_ms` or `offset`, not both"))
            }
            Some(lines) if lines > TAIL_LINES_MAX => {
                Err(ApiError::invalid("tail", format!("{lines} is not between 0 and {TAIL_LINES_MAX}")))
            }
            tail => Ok(tail),
        }
    }

    /// Where an output without `offset` starts.
    async fn start(&self, app: &AppState, output: &TaskOutput, tail: Option<u32>) -> Result<u64, ApiError> {
        let mut start = 0;
        if let Some(lines) = tail {
            start = output.tail_offset(&*app.logs, lines).await?;
        }
        if let Some(since_ms) = self.since_ms {
            let since = Timestamp(i64::try_from(since_ms).unwrap_or(i64::MAX));
            start = start.max(output.since_offset(&*app.logs, since).await?);
        }
        Ok(start)
    }

    fn attempt(&self, row: &JobRow) -> Result<u32, ApiError> {
        // The log of a job that has not started is that of its first attempt.
        let newest = row.attempt.max(1);
        let attempt = self.attempt.unwrap_or(newest);
        if !(1..=newest).contains(&attempt) {
            return Err(ApiError::invalid("attempt", format!("`{}` has {} attempts", row.id, row.attempt)));
        }
        Ok(attempt)
    }

    /// At least one stream.
    fn streams(&self) -> Result<Vec<StreamRef>, ApiError> {
        let Some(list) = &self.streams else {
            let stream = parse_stream(self.stream.as_deref().unwrap_or("stdout"), "stream")?;
            return Ok(vec![StreamRef { rank: self.rank.unwrap_or(0), stream, offset: self.offset }]);
        };
        if self.rank.is_some() || self.stream.is_some() || self.offset.is_some() || self.follow != Some(true) {
            return Err(ApiError::invalid("streams", "is for `follow=true`, without `rank`, `stream` and `offset`"));
        }
        let streams: Vec<StreamRef> = list.split(',').map(StreamRef::parse).collect::<Result<_, _>>()?;
        match streams.len() {
            1..=STREAMS_MAX => Ok(streams),
            count => Err(ApiError::invalid("streams", format!("{count} streams are more than {STREAMS_MAX}"))),
        }
    }
}

/// One stream of one task, and its first byte.
struct StreamRef {
    rank: u32,
    stream: Stream,
    offset: Option<u64>,
}

impl StreamRef {
    /// Parses `0.stdout` or `0.stdout:4096`.
    fn parse(text: &str) -> Result<StreamRef, ApiError> {
        let wrong = || ApiError::invalid("streams", format!("`{text}` is not like `0.stdout` or `0.stdout:4096`"));
        let (name, offset) = text.split_once(':').map_or((text, None), |(name, offset)| (name, Some(offset)));
        let (rank, stream) = name.split_once('.').ok_or_else(wrong)?;
        let offset = offset.map(str::parse::<u64>).transpose().map_err(|_| wrong())?;
        check_offset(offset)?;
        let rank = rank.parse().map_err(|_| wrong())?;
        Ok(StreamRef { rank, stream: parse_stream(stream, "streams")?, offset })
    }
}

fn parse_stream(text: &str, field: &'static str) -> Result<Stream, ApiError> {
    match text {
        "stdout" => Ok(Stream::Stdout),
        "stderr" => Ok(Stream::Stderr),
        other => Err(ApiError::invalid(field, format!("`{other}` is neither stdout nor stderr"))),
    }
}

impl From<LogError> for ApiError {
    fn from(error: LogError) -> ApiError {
        const HINT: &str = "the output stays on the disk of the node, and can be read once its agent is connected";
        let sentence = error.to_string();
        match error {
            LogError::UnknownNode { .. } => ApiError::new(StatusCode::NOT_FOUND, "log-not-here", sentence).hint(HINT),
            LogError::NotConnected { since, .. } => {
                let since = since.map_or_else(String::new, |since| format!(" since {}", rfc3339(since.0)));
                let detail = format!("{sentence}{since}");
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "node-not-connected", detail).hint(HINT).retry_after(1)
            }
            LogError::Unreadable { .. } => ApiError::internal(sentence),
        }
    }
}
