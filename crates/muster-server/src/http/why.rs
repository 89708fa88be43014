//! Why a job waits, and what would become of one that is not submitted.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use muster_core::command::SubmitJob as SubmitJobCommand;
use muster_core::job::PlacedTask;
use muster_core::plan::{self, Remedy, position, strength};
use muster_core::policy::Policies;
use muster_core::queue::{Bucket, waiting_since};
use muster_core::state::Decision;
use muster_core::verdict::Verdict;
use muster_core::{Answer, Command, Event, Job, JobId, JobSpec, NodeId, Refusal, Timestamp};
use muster_protocol::outlook::{Ahead, JobPhase, Outlook, Prospect, SoonerWith, WaitNote, Why};
use muster_protocol::submit::SubmitJob;
use muster_store::Tables;
use muster_store::rows::{JobRow, WaitRow};

use crate::evaluations::Evaluation;
use crate::http::Door;
use crate::http::access::Caller;
use crate::http::fault::Fault;
use crate::http::history::{of_number, oldest, tenant_of};
use crate::http::json::{Json, read_bytes};
use crate::http::phases::Phases;
use crate::http::query::Id;
use crate::http::receipts::{event, events_of};
use crate::http::start_range::StartFacts;
use crate::http::submit::{JOB_BYTES_MAX, read_ask};
use crate::http::who::Reach;
use crate::http::written::{hours, humane, stamp};
use crate::http::{holders, share, show};
use crate::identity::Who;
use crate::policies::unknown_limits;

/// Beyond so many live jobs nothing is tried for a single one: it would cost more than it is worth.
const TRIED_WITH_JOBS_MAX: usize = 50_000;
/// Jobs ahead that are named.
const AHEAD_MAX: usize = 5;
/// Up to so many live jobs, one that is new is looked ahead for when it is asked about.
const FORETOLD_WITH_JOBS_MAX: usize = 2_000;
/// Rounds of each of its two futures.
const OWN_ROUNDS_MAX: usize = 100;

/// Why a job waits
///
/// Every blocker with its numbers, the most telling first. For a whole array, of its first waiting task.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/why", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "The answer", body = Why)))]
pub async fn why(
    State(door): State<Door>,
    who: Who,
    caller: Caller,
    Id(id): Id<JobId>,
) -> Result<Json<Why>, Fault> {
    let evaluation = door.evaluations.begin(&caller.0).await?;
    let live = door.state(|state| {
        let members = state.members(id);
        let waiting = members.iter().find(|id| state.jobs.get(id).is_some_and(|job| job.attempt().is_none()));
        let job = waiting.or(members.first()).and_then(|id| state.jobs.get(id))?;
        who.sees_tenant(job.spec.tenant.as_str()).then(|| {
            let mut why = why_waiting(&door, state, job);
            why.ahead = ahead(&door, &who, state, job);
            why.may_change = who.actor.may_change(&job.spec);
            holders::add(&mut why, &who, state, job, door.cluster.now().max(state.clock));
            (job.id, why)
        })
    })?;
    if let Some((job, mut why)) = live {
        if why.waiting_since.is_some() {
            look_ahead(&door, (&who, evaluation), job, &mut why).await?;
        }
        why.history = noted(&door, job).await?;
        say_since(&mut why);
        why.phases = phases(&door, &who, job, &why.history).await?;
        return Ok(Json(why));
    }
    let row = door.tables(move |tables| row(tables, id)).await?;
    let row = row.filter(|row| who.sees_tenant(&row.tenant)).ok_or(Refusal::UnknownJob { job: id })?;
    let job = row.id;
    let mut why = why_ended(row);
    why.history = noted(&door, job).await?;
    why.phases = phases(&door, &who, job, &why.history).await?;
    Ok(Json(why))
}

/// What became of a job from its submission on. Jobs that displaced it are named where the caller may see them.
async fn phases(door: &Door, who: &Who, job: JobId, notes: &[WaitNote]) -> Result<Vec<JobPhase>, Fault> {
    let (who, notes, now) = (who.clone(), notes.to_vec(), door.cluster.now());
    let told = door.tables(move |tables| {
        let Some(detail) = tables.job(job)? else { return Ok(Vec::new()) };
        let events: Vec<Event> = events_of(tables, job)?.iter().filter_map(event).collect();
        let sees = |other: JobId| {
            tenant_of(tables, other).ok().flatten().is_some_and(|tenant| who.sees_tenant(&tenant))
        };
        Ok(Phases::new(&notes, &sees).of(Timestamp(detail.row.submitted_at), &events, now))
    });
    told.await
}

/// The first of those who are ahead, as far as the caller may see them.
fn ahead(door: &Door, who: &Who, state: &muster_core::State, job: &Job) -> Vec<Ahead> {
    let now = door.cluster.now().max(state.clock);
    let jobs = plan::first_ahead(state, job, now, AHEAD_MAX).into_iter().filter_map(|id| state.jobs.get(&id));
    let seen = jobs.filter(|job| who.sees_tenant(job.spec.tenant.as_str()));
    seen.map(|job| Ahead {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        priority: job.spec.priority,
    })
    .collect()
}

/// Since when each reason holds: since the first of the last notes that all name it, or since the job waits.
fn say_since(why: &mut Why) {
    let Some(waiting) = why.waiting_since_ms else { return };
    for reason in &mut why.reasons {
        let names_it = |note: &&WaitNote| note.reasons.iter().any(|noted| noted.reason == reason.reason);
        let first = why.history.iter().rev().take_while(names_it).last().map(|note| note.at_ms);
        let is_from_the_start = why.history.iter().all(|note| names_it(&note));
        let since = if is_from_the_start { Some(waiting) } else { first };
        reason.since_ms = since;
        reason.since = since.map(stamp);
    }
}

async fn noted(door: &Door, job: JobId) -> Result<Vec<WaitNote>, Fault> {
    let policies = door.state(|state| state.policies.told_by())?;
    door.tables(move |tables| history(tables, job, &policies)).await
}

/// Why a job has waited, until it was last placed if it no longer does, from what was noted of its bucket.
fn history(tables: &dyn Tables, id: JobId, policies: &Policies) -> Result<Vec<WaitNote>, Fault> {
    let Some(detail) = tables.job(id)? else { return Ok(Vec::new()) };
    let array = id.index.map(|_| id.number);
    // Whether its array was limited is no longer known; one of the two has no notes.
    let buckets = [Some(None), array.map(Some)].into_iter().flatten();
    // Nor is which policies were in force: those of now, or none.
    let key = |array, policies| Bucket::of_spec(&detail.spec, array, policies).key();
    let none = Policies::default();
    let buckets: BTreeSet<String> =
        buckets.flat_map(|array| [key(array, &none), key(array, policies)]).collect();
    let buckets: Vec<String> = buckets.into_iter().collect();
    let waits = matches!(detail.row.phase.as_str(), "Queued" | "Held");
    let until = detail.row.placed_at.or(detail.row.ended_at).filter(|_| !waits).unwrap_or(i64::MAX);
    let rows = tables.waits(&buckets, detail.row.submitted_at, until)?;
    Ok(rows.into_iter().filter_map(|row| note(row, detail.row.submitted_at)).collect())
}

fn note(row: WaitRow, submitted_at: i64) -> Option<WaitNote> {
    let reasons: Vec<muster_core::verdict::Reason> = muster_json::from_str(&row.reasons).ok()?;
    let at_ms = row.at_ms.max(submitted_at);
    let reasons = show::reasons(&Verdict { reasons });
    (!reasons.is_empty()).then(|| WaitNote { at: stamp(at_ms), at_ms, reasons })
}

/// A job, or the first task of an array.
fn row(tables: &dyn Tables, id: JobId) -> Result<Option<JobRow>, Fault> {
    if let Some(detail) = tables.job(id)? {
        return Ok(Some(detail.row));
    }
    let tasks = tables.jobs(&of_number(id), &oldest(1))?;
    Ok(tasks.rows.into_iter().next().filter(|_| id.index.is_none()))
}

fn why_waiting(door: &Door, state: &muster_core::State, job: &Job) -> Why {
    let now = door.cluster.now().max(state.clock);
    let place = position(state, job, now);
    let verdicts = door.cluster.verdicts();
    let reasons = show::reasons(&verdicts.of(state, job, now));
    let since = waiting_since(job);
    let strength = since.map(|_| strength(state, job, now));
    let (api_state, phase) = crate::http::cluster::state_of(job);
    let summary = match (reasons.first(), job.attempt()) {
        (Some(first), _) => format!("waits: {}", first.sentence),
        (None, Some(_)) => format!("does not wait: it is {phase}"),
        (None, None) => "waits for the next round".to_string(),
    };
    Why {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        state: show::state(api_state),
        phase: phase.to_string(),
        summary,
        waiting_since: since.map(|at| stamp(at.0)),
        waiting_since_ms: since.map(|at| at.0),
        waited: since.map(|at| humane(now.since(at))),
        queue_position: place.map(|place| place.position),
        queue_length: place.map(|place| place.of),
        nodes: nodes_of(job),
        score: show::score_of(job),
        priority: job.spec.priority,
        effective_priority: strength.map(|strength| strength.effective()),
        aging: strength.map(|strength| strength.aging),
        fair_share_penalty: strength.map(|strength| strength.penalty),
        fair_share_factor: strength.and_then(|strength| strength.share).map(show::factor),
        expected_gpu_hours: strength.and_then(|strength| strength.size_gpu_ms).map(hours),
        reasons,
        estimated_start: None,
        expected_start: None,
        no_estimate: None,
        reserved_at_ms: verdicts.reserved_at(job.id).filter(|_| since.is_some()).map(|at| at.0),
        gpus: job.spec.gpus(),
        holders: Vec::new(),
        other_holders: 0,
        sooner_with: Vec::new(),
        may_change: false,
        ahead: Vec::new(),
        history: Vec::new(),
        phases: Vec::new(),
    }
}

fn nodes_of(job: &Job) -> Vec<String> {
    let nodes = job.attempt().map(|attempt| attempt.nodes()).unwrap_or_default();
    nodes.iter().map(ToString::to_string).collect()
}

/// When it starts, and what would help the caller. Many rounds are drawn up on the shared copy of the state; a job that
/// the last forecast does not know yet has its own, where that costs little.
async fn look_ahead(
    door: &Door,
    (who, evaluation): (&Who, Evaluation),
    job: JobId,
    why: &mut Why,
) -> Result<(), Fault> {
    let (forecast, position) = (door.cluster.forecast(), why.queue_position);
    let reserved = why.reserved_at_ms.map(Timestamp);
    let told = position.and_then(|position| forecast.of(job).or_else(|| forecast.of_position(position)));
    let (door, by) = (door.clone(), who.actor.clone());
    let looking = tokio::task::spawn_blocking(move || {
        // The work is counted until it is done, also when its caller no longer waits for it.
        let _evaluation = evaluation;
        let now = door.cluster.now();
        let (jobs, facts) =
            door.state(|state| (state.jobs.len(), StartFacts::of(state, job, reserved, now)))?;
        let copy = (jobs <= TRIED_WITH_JOBS_MAX).then(|| door.evaluations.shared(&door.cluster, Some(job)));
        let small = copy.as_ref().filter(|copy| copy.state().jobs.len() <= FORETOLD_WITH_JOBS_MAX);
        let own = || small.filter(|_| position.is_some())?.forecast(OWN_ROUNDS_MAX).of(job);
        // A range that is over was wrong.
        let range = facts.told(told.filter(|range| range.to > now).or_else(own));
        Ok((range, copy.map(|copy| copy.remedies(&by, job)).unwrap_or_default()))
    });
    let found = looking.await.unwrap_or_else(|_| Err(Fault::internal("looking ahead ended early")));
    let (range, remedies) = found?;
    match range {
        Ok(range) => {
            let reserved = why.reserved_at_ms.map(|at| range.reservation(Timestamp(at)).0);
            let range = range.shown();
            why.reserved_at_ms = reserved;
            why.estimated_start = Some(format!("{} to {}", range.from, range.to));
            why.expected_start = Some(range);
        }
        // A job that is held or waits for another has no turn to estimate.
        Err(because) => why.no_estimate = why.queue_position.map(|_| because),
    }
    why.sooner_with = remedies.iter().map(shown_remedy).collect();
    Ok(())
}

fn shown_remedy(remedy: &Remedy) -> SoonerWith {
    SoonerWith {
        words: remedy.words(),
        keeps_its_place: remedy.keeps_its_place(),
        change: serde_json::to_value(remedy).unwrap_or_default(),
    }
}

fn why_ended(row: JobRow) -> Why {
    let because = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
    Why {
        job_id: row.id.to_string(),
        name: row.name,
        tenant_id: row.tenant,
        state: show::state(row.state),
        summary: format!("does not wait: it has ended as {}{because}", row.phase),
        phase: row.phase,
        waiting_since: None,
        waiting_since_ms: None,
        waited: None,
        queue_position: None,
        queue_length: None,
        nodes: Vec::new(),
        score: None,
        priority: row.priority,
        effective_priority: None,
        aging: None,
        fair_share_penalty: None,
        fair_share_factor: None,
        expected_gpu_hours: None,
        reasons: Vec::new(),
        estimated_start: None,
        expected_start: None,
        no_estimate: None,
        reserved_at_ms: None,
        gpus: u32::try_from(row.gpus).unwrap_or(u32::MAX),
        holders: Vec::new(),
        other_holders: 0,
        sooner_with: Vec::new(),
        may_change: false,
        ahead: Vec::new(),
        history: Vec::new(),
        phases: Vec::new(),
    }
}

/// What would become of a job, without submitting it
#[utoipa::path(post, path = "/api/v1/jobs/plan", tag = "jobs", request_body = SubmitJob,
    responses((status = 200, description = "What would happen", body = Outlook)))]
pub async fn plan(
    State(door): State<Door>,
    who: Who,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Outlook>, Fault> {
    let bytes = read_bytes(&headers, body, JOB_BYTES_MAX).await?;
    let ask = read_ask(&door, &who, &bytes).await?;
    let evaluation = door.evaluations.begin(&caller.0).await?;
    // A whole round is drawn up, which may take a while in a large cluster.
    let looking = tokio::task::spawn_blocking(move || {
        let _evaluation = evaluation;
        dry_run(&door, &who, &Command::SubmitJob(ask))
    });
    let outlook = looking.await.unwrap_or_else(|_| Err(Fault::internal("the outlook ended early")))?;
    Ok(Json(outlook))
}

/// Plan the round with the job on the shared copy. Whether it would be accepted, the state of now decides.
fn dry_run(door: &Door, who: &Who, submit: &Command) -> Result<Outlook, Fault> {
    let Command::SubmitJob(SubmitJobCommand { spec, .. }) = submit else {
        return Err(Fault::internal("only a submission has an outlook"));
    };
    let decide = |state: &muster_core::State| state.decide(&who.actor, submit, door.cluster.now());
    let (jobs, decided) = door.state(|state| (state.jobs.len(), decide(state)))?;
    if let Err(refusal) = decided {
        return Ok(refused(refusal));
    }
    if jobs > TRIED_WITH_JOBS_MAX {
        // A copy would cost more than the round.
        return door.state(|state| foreseen(plan::outlook(state, spec, door.cluster.now().max(state.clock))));
    }
    let copy = door.evaluations.shared(&door.cluster, None);
    let now = door.cluster.now().max(copy.state().clock);
    let limited = with_own_limits(door, copy.state(), spec, now);
    let state = limited.as_ref().unwrap_or(copy.state());
    let mut outlook = foreseen(plan::outlook(state, spec, now));
    if outlook.outcome == Prospect::Waits
        && jobs <= FORETOLD_WITH_JOBS_MAX
        && let Ok(decision) = decide(state)
    {
        foretell(state, who, &decision, now, &mut outlook);
    }
    Ok(outlook)
}

/// The cluster with what policies let the tenant of a job hold, where that is not known because nobody of it waits.
fn with_own_limits(
    door: &Door,
    state: &muster_core::State,
    spec: &JobSpec,
    now: Timestamp,
) -> Option<muster_core::State> {
    let limits = unknown_limits(state, &spec.tenant, door.interpreter.as_deref()?, now);
    (!limits.is_empty()).then(|| state.with_limits(limits))
}

/// When it would start, and what would help: the job is submitted to a copy of the cluster.
fn foretell(
    state: &muster_core::State,
    who: &Who,
    decision: &Decision,
    now: Timestamp,
    outlook: &mut Outlook,
) {
    let mut copy = state.clone();
    decision.events.iter().for_each(|event| copy.apply(event));
    let Answer::Job(job) = decision.answer else { return };
    let range = plan::forecast(&copy, now, OWN_ROUNDS_MAX).of(job);
    match StartFacts::of(&copy, job, None, now).told(range) {
        Ok(range) => outlook.expected_start = Some(range.shown()),
        Err(because) => outlook.no_estimate = Some(because),
    }
    outlook.sooner_with = plan::remedies(&copy, &who.actor, job, now).iter().map(shown_remedy).collect();
}

fn refused(refusal: Refusal) -> Outlook {
    Outlook {
        outcome: Prospect::Refused,
        summary: format!("would be refused: {refusal}"),
        node_name: None,
        gpus: Vec::new(),
        shares: Vec::new(),
        score: None,
        victims: Vec::new(),
        queue_position: None,
        queue_length: None,
        reasons: Vec::new(),
        refusal: Some(Fault::from(refusal).problem()),
        expected_start: None,
        no_estimate: None,
        sooner_with: Vec::new(),
    }
}

fn foreseen(outlook: plan::Outlook) -> Outlook {
    let reasons = show::reasons(&outlook.verdict);
    let (outcome, summary) = match (&outlook.start, &outlook.room) {
        (Some(_), _) => (Prospect::Starts, "would start in the next round".to_string()),
        (None, Some(room)) => (
            Prospect::Preempts,
            format!("{} would make room for it on {}", jobs(room.victims.len()), nodes(&room.tasks)),
        ),
        (None, None) => {
            let first = reasons.first().map_or("its turn has not come", |reason| reason.sentence.as_str());
            (Prospect::Waits, format!("would wait: {first}"))
        }
    };
    let starts = outlook.start.as_deref().unwrap_or_default();
    let room = outlook.room.as_ref();
    let tasks = || starts.iter().chain(room.into_iter().flat_map(|room| &room.tasks));
    Outlook {
        outcome,
        summary,
        node_name: tasks().next().map(|task| task.node.to_string()),
        gpus: share::gpus_of(tasks()),
        shares: share::shares_of(tasks()),
        score: outlook.score.as_deref().map(show::score),
        victims: room.into_iter().flat_map(|room| room.victims.iter().map(ToString::to_string)).collect(),
        queue_position: outlook.start.is_none().then_some(outlook.position.position),
        queue_length: outlook.start.is_none().then_some(outlook.position.of),
        reasons,
        refusal: None,
        expected_start: None,
        no_estimate: None,
        sooner_with: Vec::new(),
    }
}

fn jobs(count: usize) -> String {
    format!("{count} job{}", if count == 1 { "" } else { "s" })
}

/// The nodes of a gang, in words.
fn nodes(tasks: &[PlacedTask]) -> String {
    let nodes: BTreeSet<&NodeId> = tasks.iter().map(|task| &task.node).collect();
    match nodes.first() {
        Some(node) if nodes.len() == 1 => format!("`{node}`"),
        _ => format!("{} nodes", nodes.len()),
    }
}
