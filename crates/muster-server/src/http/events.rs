//! What happened: one job's history as a page, and everything as a stream.
//!
//! A stream begins in the journal after the number it is given and goes on with what becomes durable. Whoever
//! is too slow is told so and connects again; the journal has what was missed.

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
use crate::http::Door;
use crate::http::access::Caller;
use crate::http::fault::Fault;
use crate::http::history::tenant_of;
use crate::http::json::Json;
use crate::http::query::{Id, Query, page_limit};
use crate::http::show::HIDDEN;
use crate::http::stream::{self, Gone, KEEP_ALIVE, TOKEN_CHECKED_EVERY, Writer};
use crate::http::who::Reach;
use crate::http::written::stamp;
use crate::identity::Who;

/// Journal entries read at a time.
const PAGE: u32 = 500;
/// Jobs whose tenant a listener remembers.
const REMEMBERED_MAX: usize = 10_000;

/// Which facts of one job.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Those after this number; 0 when not given.
    after: Option<u64>,
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
}

/// What happened to a job, oldest first
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", tag = "jobs",
    params(("id" = String, Path, description = "The job, or a whole array"), PageQuery),
    responses((status = 200, description = "Facts about it", body = EventList)))]
pub async fn of_job(
    State(door): State<Door>,
    who: Who,
    Id(job): Id<JobId>,
    Query(query): Query<PageQuery>,
) -> Result<Json<EventList>, Fault> {
    let after = query.after.unwrap_or(0);
    let limit = page_limit(query.limit)?;
    let found = door.tables(move |tables| {
        let tenant = tenant_of(tables, job)?;
        Ok(tenant.zip(Some(tables.events(after, limit, Some(job))?)))
    });
    let (_, rows) =
        found.await?.filter(|(tenant, _)| who.sees_tenant(tenant)).ok_or(Refusal::UnknownJob { job })?;
    let next_after = rows.last().map_or(after, |row| row.seq);
    Ok(Json(EventList { events: rows.into_iter().map(shown).collect(), next_after }))
}

/// Where to begin, and what to follow.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FollowQuery {
    /// Begin after this number; with what happens from now on when not given. `Last-Event-ID` says the same.
    after: Option<u64>,
    /// Only about this job or array.
    job: Option<String>,
}

/// Follow what happens, as server-sent events
///
/// Each event has the number of the fact as `id`, its kind as `event`, and an `Event` as `data`. A listener that
/// is too slow gets `event: lagged` and the stream ends; it connects again with `Last-Event-ID`. Where the journal
/// cannot be read, or when the token of the caller is revoked or expires (code `token-ended`), the last event is
/// `event: problem`.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(FollowQuery, ("Last-Event-ID" = Option<String>, Header, description = "Begin after this number")),
    responses((status = 200, description = "A stream", content_type = "text/event-stream",
        body = EventData)))]
pub async fn follow(
    State(door): State<Door>,
    who: Who,
    Caller(caller): Caller,
    headers: HeaderMap,
    Query(query): Query<FollowQuery>,
) -> Result<Response, Fault> {
    let job = query.job.as_deref().map(|text| text.parse::<JobId>());
    let job = job.transpose().map_err(|error| Fault::invalid("job", error.to_string()))?;
    // Listen before looking, so that nothing falls between.
    let batches = door.cluster.listen();
    let now = door.state(|state| state.seq)?;
    let after = last_event_id(&headers)?.or(query.after);
    let (writer, response) = stream::open(door.limits.stream(&caller)?);
    let listener = Listener { door, who, job, tenants: HashMap::new(), last: after.unwrap_or(now), writer };
    tokio::spawn(listener.run(batches));
    Ok(response)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let number = id.to_str().ok().and_then(|id| id.trim().parse().ok());
    number.map(Some).ok_or_else(|| Fault::malformed("Last-Event-ID: send the `id` of the last event"))
}

/// The `data` of each event of the stream: a fact, or why the stream ends.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // Only the document speaks of it.
pub(crate) enum EventData {
    /// A fact.
    Event(Event),
    /// The listener was too slow: `event: lagged`.
    Lagged(Lagged),
    /// The stream cannot go on: `event: problem`.
    Problem(Problem),
}

struct Listener {
    door: Door,
    who: Who,
    job: Option<JobId>,
    /// Whether jobs of this number may be seen.
    tenants: HashMap<u64, bool>,
    /// The last number that was looked at.
    last: u64,
    writer: Writer,
}

/// Why a stream ends.
enum End {
    Gone,
    Fault(Fault),
}

impl From<Gone> for End {
    fn from(_: Gone) -> End {
        End::Gone
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> End {
        End::Fault(fault)
    }
}

impl Listener {
    async fn run(mut self, batches: Receiver<Arc<Batch>>) {
        if let Err(End::Fault(fault)) = self.tell(batches).await {
            let _ = self.writer.send("problem", None, &fault.problem()).await;
        }
    }

    async fn tell(&mut self, mut batches: Receiver<Arc<Batch>>) -> Result<(), End> {
        self.writer.keep_alive().await?;
        self.catch_up().await?;
        let mut stopping = self.door.stopping.clone();
        let mut checks = tokio::time::interval(TOKEN_CHECKED_EVERY);
        let mut spoke = Instant::now();
        loop {
            tokio::select! {
                news = batches.recv() => match news {
                    Ok(batch) => {
                        self.door.check_token(&self.who)?;
                        self.live(&batch).await?;
                    }
                    Err(RecvError::Lagged(_)) => return Ok(self.lagged().await?),
                    Err(RecvError::Closed) => return Ok(()),
                },
                _ = checks.tick() => {
                    self.door.check_token(&self.who)?;
                    if spoke.elapsed() >= KEEP_ALIVE {
                        self.writer.keep_alive().await?;
                        spoke = Instant::now();
                    }
                }
                () = stopped(&mut stopping) => return Ok(()),
            }
        }
    }

    /// What the journal has after the last number.
    async fn catch_up(&mut self) -> Result<(), End> {
        loop {
            let (after, job) = (self.last, self.job);
            let rows = self.door.tables(move |tables| Ok(tables.events(after, PAGE, job)?)).await?;
            self.door.check_token(&self.who)?;
            let more = rows.len() == PAGE as usize;
            for row in rows {
                self.pass_on(row).await?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    async fn live(&mut self, batch: &Batch) -> Result<(), End> {
        let last = self.last;
        for entry in batch.entries.iter().filter(|entry| entry.seq > last) {
            let record = Record::of(entry);
            let row = EventRow {
                seq: record.seq,
                epoch: record.epoch,
                at_ms: record.at_ms,
                kind: record.kind,
                payload: record.payload,
            };
            self.pass_on(row).await?;
        }
        Ok(())
    }

    async fn pass_on(&mut self, row: EventRow) -> Result<(), End> {
        if row.seq <= self.last {
            return Ok(());
        }
        self.last = row.seq;
        let event = shown(row);
        if self.wanted(&event) && self.visible(&event).await? {
            self.writer.send(&event.kind, Some(event.seq), &event).await?;
        }
        Ok(())
    }

    fn wanted(&self, event: &Event) -> bool {
        let Some(wanted) = self.job else { return true };
        let job = event.job_id.as_deref().and_then(|id| id.parse::<JobId>().ok());
        job.is_some_and(|job| job == wanted || (wanted.index.is_none() && job.number == wanted.number))
    }

    /// Roles of one tenant see its jobs and itself, and the machines.
    async fn visible(&mut self, event: &Event) -> Result<bool, End> {
        if self.who.confined_to().is_none() {
            return Ok(true);
        }
        let job = event.job_id.as_deref().and_then(|id| id.parse::<JobId>().ok());
        let Some(job) = job else {
            let own = event.data.get("id").and_then(Value::as_str).is_some_and(|id| self.who.sees_tenant(id));
            let about_tenant = event.kind.starts_with("Tenant");
            return Ok((about_tenant && own)
                || event.kind.starts_with("Node")
                || event.kind.starts_with("Gpu"));
        };
        if let Some(seen) = self.tenants.get(&job.number) {
            return Ok(*seen);
        }
        let tenant = self.door.tables(move |tables| Ok(tenant_of(tables, job)?)).await?;
        let seen = tenant.is_some_and(|tenant| self.who.sees_tenant(&tenant));
        if self.tenants.len() >= REMEMBERED_MAX {
            self.tenants.clear();
        }
        self.tenants.insert(job.number, seen);
        Ok(seen)
    }

    async fn lagged(&self) -> Result<(), Gone> {
        let message = "too slow: connect again with this number as Last-Event-ID".to_string();
        self.writer.send("lagged", None, &Lagged { after: self.last, message }).await
    }
}

/// Wait until the server stops. The borrowed value must not live on in the caller's future.
async fn stopped(stopping: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// A fact as it is shown: what is secret stays in the journal. Its readers include others than the job's owner, so
/// environment values are hidden from all; `GET /api/v1/jobs/{id}` shows them to the owner.
fn shown(row: EventRow) -> Event {
    let mut data: Value = muster_json::from_str(&row.payload).unwrap_or(Value::Null);
    redact(&mut data);
    Event {
        seq: row.seq,
        epoch: row.epoch,
        at: stamp(row.at_ms),
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
        env.values_mut().for_each(|value| *value = Value::from(HIDDEN));
    }
}
