//! Events of the journal: those of one job as a page, all as a stream.
//!
//! A stream starts in the journal after a given sequence number and continues with events as they become durable. A
//! client that is too slow gets `lagged` and connects again; the journal has the events it missed.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use muster_core::{JobId, Refusal};
use muster_protocol::event::{Event, EventList, Lagged};
use muster_protocol::problem::Problem;
use muster_store::Record;
use muster_store::rows::EventRow;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa::IntoParams;

use crate::cluster::Batch;
use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::CallerKey;
use crate::http::caller::TenantVisibility;
use crate::http::job_lookup::job_tenant;
use crate::http::json::Json;
use crate::http::query::{PathId, Query, page_limit};
use crate::http::render::HIDDEN_VALUE;
use crate::http::sse::{self, ClientDisconnected, KEEP_ALIVE_INTERVAL, SseWriter, TOKEN_CHECK_INTERVAL};
use crate::identity::Caller;

/// Journal entries read at a time.
const JOURNAL_PAGE_ROWS: u32 = 500;
/// Jobs whose visibility a stream caches.
const VISIBILITY_CACHE_MAX: usize = 10_000;

/// Which events of one job.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct JobEventsQuery {
    /// Only events after this sequence number; 0 when not given.
    after: Option<u64>,
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
}

/// List the events of a job, oldest first
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", tag = "jobs", operation_id = "of_job",
    params(("id" = String, Path, description = "The job or array"), JobEventsQuery),
    responses((status = 200, description = "One page of events", body = EventList)))]
pub async fn list_job_events(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
    Query(query): Query<JobEventsQuery>,
) -> Result<Json<EventList>, ApiError> {
    let after = query.after.unwrap_or(0);
    let limit = page_limit(query.limit)?;
    let found = app.read_tables(move |tables| {
        let tenant = job_tenant(tables, job)?;
        Ok(tenant.zip(Some(tables.events(after, limit, Some(job))?)))
    });
    let (_, rows) = found.await?.filter(|(tenant, _)| caller.sees_tenant(tenant)).ok_or(Refusal::UnknownJob { job })?;
    let next_after = rows.last().map_or(after, |row| row.seq);
    Ok(Json(EventList { events: rows.into_iter().map(api_event).collect(), next_after }))
}

/// Start and filter of a stream.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventStreamQuery {
    /// Start after this sequence number; with the next event when not given. `Last-Event-ID` takes precedence.
    after: Option<u64>,
    /// Only events of this job or array.
    job: Option<String>,
}

/// Stream events as server-sent events
///
/// `id` is the journal sequence number, `event` the kind, `data` an `Event`. A client that is too slow gets
/// `event: lagged` and the stream ends; the client connects again with `Last-Event-ID`. If the journal cannot be read, or
/// the token of the caller is revoked or expires (code `token-ended`), the last event is `event: problem`.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(EventStreamQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Start after this sequence number")),
    responses((status = 200, description = "A stream of events", content_type = "text/event-stream",
        body = EventData)))]
pub async fn follow(
    State(app): State<AppState>,
    caller: Caller,
    CallerKey(caller_key): CallerKey,
    headers: HeaderMap,
    Query(query): Query<EventStreamQuery>,
) -> Result<Response, ApiError> {
    let job = query.job.as_deref().map(|text| text.parse::<JobId>());
    let job = job.transpose().map_err(|error| ApiError::invalid("job", error.to_string()))?;
    // Subscribe before reading the sequence number, so that no event falls in between.
    let batches = app.cluster.subscribe();
    let now = app.read_state(|state| state.seq)?;
    let after = last_event_id(&headers)?.or(query.after);
    let (writer, response) = sse::open_sse(app.rate_limiter.acquire_stream(&caller_key)?);
    let stream = EventStream { app, caller, job, visible_jobs: HashMap::new(), last_seq: after.unwrap_or(now), writer };
    tokio::spawn(stream.run(batches));
    Ok(response)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let number = id.to_str().ok().and_then(|id| id.trim().parse().ok());
    number.map(Some).ok_or_else(|| ApiError::malformed("Last-Event-ID: send the `id` of the last event"))
}

/// The `data` of each event of the stream: an event of the journal, or why the stream ends.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // Only a schema of the OpenAPI document.
pub(crate) enum EventData {
    /// An event of the journal.
    Event(Event),
    /// The client was too slow: `event: lagged`.
    Lagged(Lagged),
    /// The stream cannot continue: `event: problem`.
    Problem(Problem),
}

struct EventStream {
    app: AppState,
    caller: Caller,
    job: Option<JobId>,
    /// Whether the caller may see jobs, by job number.
    visible_jobs: HashMap<u64, bool>,
    /// The last sequence number that was processed.
    last_seq: u64,
    writer: SseWriter,
}

/// Why a stream ends.
enum StreamEnd {
    ClientDisconnected,
    Failed(ApiError),
}

impl From<ClientDisconnected> for StreamEnd {
    fn from(_: ClientDisconnected) -> StreamEnd {
        StreamEnd::ClientDisconnected
    }
}

impl From<ApiError> for StreamEnd {
    fn from(error: ApiError) -> StreamEnd {
        StreamEnd::Failed(error)
    }
}

impl EventStream {
    async fn run(mut self, batches: Receiver<Arc<Batch>>) {
        if let Err(StreamEnd::Failed(error)) = self.send_events(batches).await {
            let _ = self.writer.send("problem", None, &error.problem()).await;
        }
    }

    async fn send_events(&mut self, mut batches: Receiver<Arc<Batch>>) -> Result<(), StreamEnd> {
        self.writer.keep_alive().await?;
        self.catch_up().await?;
        let mut stopping = self.app.stopping.clone();
        let mut checks = tokio::time::interval(TOKEN_CHECK_INTERVAL);
        let mut last_keep_alive = Instant::now();
        loop {
            tokio::select! {
                received = batches.recv() => match received {
                    Ok(batch) => {
                        self.app.check_token(&self.caller)?;
                        self.send_batch(&batch).await?;
                    }
                    Err(RecvError::Lagged(_)) => return Ok(self.send_lagged().await?),
                    Err(RecvError::Closed) => return Ok(()),
                },
                _ = checks.tick() => {
                    self.app.check_token(&self.caller)?;
                    if last_keep_alive.elapsed() >= KEEP_ALIVE_INTERVAL {
                        self.writer.keep_alive().await?;
                        last_keep_alive = Instant::now();
                    }
                }
                () = wait_for_stop(&mut stopping) => return Ok(()),
            }
        }
    }

    /// Send the journal entries after the last sequence number.
    async fn catch_up(&mut self) -> Result<(), StreamEnd> {
        loop {
            let (after, job) = (self.last_seq, self.job);
            let rows = self.app.read_tables(move |tables| Ok(tables.events(after, JOURNAL_PAGE_ROWS, job)?)).await?;
            self.app.check_token(&self.caller)?;
            let more = rows.len() == JOURNAL_PAGE_ROWS as usize;
            for row in rows {
                self.send_row(row).await?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    async fn send_batch(&mut self, batch: &Batch) -> Result<(), StreamEnd> {
        let last = self.last_seq;
        for entry in batch.entries.iter().filter(|entry| entry.seq > last) {
            self.send_row(EventRow::from(Record::from_entry(entry))).await?;
        }
        Ok(())
    }

    async fn send_row(&mut self, row: EventRow) -> Result<(), StreamEnd> {
        if row.seq <= self.last_seq {
            return Ok(());
        }
        self.last_seq = row.seq;
        let event = api_event(row);
        if self.matches_job(&event) && self.is_visible(&event).await? {
            self.writer.send(&event.kind, Some(event.seq), &event).await?;
        }
        Ok(())
    }

    fn matches_job(&self, event: &Event) -> bool {
        let Some(wanted) = self.job else { return true };
        let job = event.job_id.as_deref().and_then(|id| id.parse::<JobId>().ok());
        job.is_some_and(|job| job == wanted || (wanted.index.is_none() && job.number == wanted.number))
    }

    /// Roles of one tenant see events of its jobs, of the tenant itself, and of nodes and GPUs.
    async fn is_visible(&mut self, event: &Event) -> Result<bool, StreamEnd> {
        if self.caller.tenant_scope().is_none() {
            return Ok(true);
        }
        let job = event.job_id.as_deref().and_then(|id| id.parse::<JobId>().ok());
        let Some(job) = job else {
            let own = event.data.get("id").and_then(Value::as_str).is_some_and(|id| self.caller.sees_tenant(id));
            let about_tenant = event.kind.starts_with("Tenant");
            return Ok((about_tenant && own) || event.kind.starts_with("Node") || event.kind.starts_with("Gpu"));
        };
        if let Some(seen) = self.visible_jobs.get(&job.number) {
            return Ok(*seen);
        }
        let tenant = self.app.read_tables(move |tables| Ok(job_tenant(tables, job)?)).await?;
        let seen = tenant.is_some_and(|tenant| self.caller.sees_tenant(&tenant));
        if self.visible_jobs.len() >= VISIBILITY_CACHE_MAX {
            self.visible_jobs.clear();
        }
        self.visible_jobs.insert(job.number, seen);
        Ok(seen)
    }

    async fn send_lagged(&self) -> Result<(), ClientDisconnected> {
        let message = "too slow: connect again with `after` as Last-Event-ID".to_string();
        self.writer.send("lagged", None, &Lagged { after: self.last_seq, message }).await
    }
}

/// Wait until the server stops. A separate function, so that the borrowed value does not live on in the caller's
/// future.
async fn wait_for_stop(stopping: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// An event as the API shows it, without secrets. Not only the owner of a job reads its events, so environment values
/// are hidden from all; `GET /api/v1/jobs/{id}` shows them to the owner.
fn api_event(row: EventRow) -> Event {
    let mut data: Value = muster_json::from_str(&row.payload).unwrap_or(Value::Null);
    redact(&mut data);
    Event {
        seq: row.seq,
        epoch: row.epoch,
        at: rfc3339(row.at_ms),
        at_ms: row.at_ms,
        kind: row.kind,
        job_id: data.get("job").and_then(Value::as_str).map(str::to_string),
        data,
    }
}

fn redact(data: &mut Value) {
    let Some(fields) = data.as_object_mut() else { return };
    fields.remove("key");
    if let Some(token) = fields.get_mut("token").and_then(Value::as_object_mut) {
        token.remove("hash");
    }
    let run = fields.get_mut("spec").and_then(|spec| spec.get_mut("run")).and_then(Value::as_object_mut);
    if let Some(env) = run.and_then(|run| run.get_mut("env")).and_then(Value::as_object_mut) {
        env.values_mut().for_each(|value| *value = Value::from(HIDDEN_VALUE));
    }
}
