//! Rows of the tables as the API shows them.

use muster_core::JobSpec;
use muster_core::job::{OnNodeLost, TaskGroup};
use muster_core::plan::{FairShare, score};
use muster_core::verdict;
use muster_protocol::job::{Attempt, Job, JobState, JobSummary, Reason, Task};
use muster_protocol::score::{Score, Term};
use muster_store::rows::{self, AttemptRow, JobDetail, JobRow};

use crate::http::share;
use crate::http::written::{dependency_text, hours, humane, money, stamp};

/// What stands in place of a value that the caller may not see.
pub const HIDDEN: &str = "***";

/// A state in the words of the API.
pub fn state(state: rows::JobState) -> JobState {
    match state {
        rows::JobState::Pending => JobState::Pending,
        rows::JobState::Running => JobState::Running,
        rows::JobState::Completed => JobState::Completed,
        rows::JobState::Failed => JobState::Failed,
        rows::JobState::Preempted => JobState::Preempted,
        rows::JobState::Cancelled => JobState::Cancelled,
    }
}

/// A job as lists show it.
pub fn summary(row: JobRow, now_ms: i64) -> JobSummary {
    let row = without_former_attempt(row);
    let until = row.ended_at.map(|ended| row.ran_until.unwrap_or(ended)).unwrap_or(now_ms);
    let ran_ms = row.started_at.map(|since| (until - since).max(0));
    JobSummary {
        id: row.id.to_string(),
        job_id: row.id.to_string(),
        tenant_id: row.tenant,
        user: row.user,
        name: row.name,
        state: state(row.state),
        phase: row.phase,
        message: row.why,
        waits_for: None,
        priority: row.priority,
        gpu_count: row.gpus,
        gpu_amount: share::in_parts(row.gpu_milli),
        gpu_memory_mb: row.gpu_memory_mib.checked_div(row.gpus).unwrap_or(0),
        cpu_cores: row.cpus,
        memory_mb: row.memory_mib,
        max_runtime_minutes: row.time_limit_ms.map(|ms| (ms.max(0) as u64).div_ceil(60_000)),
        max_runtime: row.time_limit_ms.map(humane),
        time_limit_ms: row.time_limit_ms,
        submitted_at: stamp(row.submitted_at),
        submitted_at_ms: row.submitted_at,
        scheduled_at: row.placed_at.map(stamp),
        scheduled_at_ms: row.placed_at,
        started_at: row.started_at.map(stamp),
        started_at_ms: row.started_at,
        completed_at: row.ended_at.map(stamp),
        completed_at_ms: row.ended_at,
        start_after: row.wakes_at.map(stamp),
        actual_duration: ran_ms.map(humane),
        actual_duration_ms: ran_ms,
        attempts: row.attempt,
        node_name: row.nodes.first().cloned(),
        nodes: row.nodes,
        exit_code: row.exit_code,
        signal: row.signal,
        preempted_count: row.preemptions,
        restart_count: row.restarts,
        requeue_count: row.requeues,
        gpu_hours: hours(row.gpu_ms),
        cost: money(row.cost_micro),
        labels: row.labels,
        array_tasks: None,
    }
}

/// A job that waits again has no nodes, no start and no exit: those are of a former attempt, which is in the list of
/// attempts.
fn without_former_attempt(row: JobRow) -> JobRow {
    if !matches!(row.phase.as_str(), "Queued" | "Held") {
        return row;
    }
    JobRow { placed_at: None, started_at: None, nodes: Vec::new(), exit_code: None, signal: None, ..row }
}

/// A job with all that was asked. What only the leader knows is filled in by the caller.
pub fn job(detail: JobDetail, now_ms: i64) -> Job {
    let JobDetail { row, spec } = detail;
    let submitted_at = row.submitted_at;
    let updated_at = [Some(submitted_at), row.placed_at, row.started_at, row.ended_at];
    let updated_at = updated_at.into_iter().flatten().max().unwrap_or(submitted_at);
    let logs = format!("/api/v1/jobs/{}/logs", row.id);
    let gpu_models = models(&spec);
    let metrics = [
        ("gpu_seconds".to_string(), row.gpu_ms as f64 / 1_000.0),
        ("cpu_seconds".to_string(), row.cpu_ms as f64 / 1_000.0),
    ];
    Job {
        summary: summary(row, now_ms),
        allocated_gpus: Vec::new(),
        shares: Vec::new(),
        gpu_power_max_watts: None,
        queue_position: None,
        queue_length: None,
        estimated_wait: None,
        reasons: Vec::new(),
        array: None,
        logs,
        metrics: metrics.into(),
        tasks: spec.tasks.into_iter().map(task).collect(),
        gang_scheduling: spec.gang_scheduling.unwrap_or(true),
        topology: spec.topology.word().to_string(),
        allow_cross_numa: spec.allow_cross_numa,
        prefer_nvlink: spec.prefer_nvlink,
        gpu_models,
        node_labels: spec.node_labels,
        pool: spec.pool,
        script: spec.run.script,
        environment: spec.run.env,
        environment_hidden: false,
        image: spec.run.image,
        command: spec.run.command,
        args: spec.run.args,
        directory: spec.run.directory,
        after: spec.after.iter().map(dependency_text).collect(),
        max_restarts: spec.restart.max_restarts,
        max_requeues: spec.restart.max_requeues,
        on_node_lost: on_node_lost(spec.on_node_lost).to_string(),
        checkpoint_enabled: spec.checkpoint.is_some(),
        checkpoint_path: spec.checkpoint.map(|rule| rule.path).filter(|path| !path.is_empty()),
        annotations: spec.annotations,
        estimated_duration: None,
        prediction_confidence: None,
        gpu_utilization: None,
        created_at: stamp(submitted_at),
        updated_at: stamp(updated_at),
    }
}

/// Hide the values of a job's environment, and keep the names.
pub fn hide_environment(job: &mut Job) {
    job.environment.values_mut().for_each(|value| *value = HIDDEN.to_string());
    job.environment_hidden = true;
}

fn models(spec: &JobSpec) -> Vec<String> {
    let all: std::collections::BTreeSet<&String> =
        spec.tasks.iter().flat_map(|group| &group.each.gpu_models).collect();
    all.into_iter().cloned().collect()
}

fn task(group: TaskGroup) -> Task {
    let isolation = group.each.is_shared().then(|| group.each.isolation.word().to_string());
    Task {
        isolation,
        name: group.name,
        count: group.count,
        max_count: group.count_max.filter(|max| *max > group.count),
        gpus: group.each.gpus,
        gpu_models: group.each.gpu_models.into_iter().collect(),
        gpu_memory_mb: group.each.gpu_memory_mib,
        gpu_share: f64::from(group.each.gpu_compute_milli) / 1_000.0,
        cpu_cores: group.each.cpus,
        memory_mb: group.each.memory_mib,
    }
}

fn on_node_lost(rule: OnNodeLost) -> &'static str {
    match rule {
        OnNodeLost::Wait => "wait",
        OnNodeLost::Requeue => "requeue",
        OnNodeLost::RequeueUnsafe => "requeue-unsafe",
    }
}

/// A fair-share factor as people know it.
pub fn factor(share: FairShare) -> f64 {
    f64::from(share.factor_milli) / 1_000.0
}

/// The reasons of a verdict, word and sentence.
pub fn reasons(verdict: &verdict::Verdict) -> Vec<Reason> {
    let reason = |reason: &verdict::Reason| Reason {
        reason: reason.word().to_string(),
        sentence: reason.sentence(),
        since: None,
        since_ms: None,
    };
    verdict.reasons.iter().map(reason).collect()
}

/// One try at running a job. What only the leader knows is filled in by the caller.
pub fn attempt(row: AttemptRow) -> Attempt {
    Attempt {
        job_id: row.job.to_string(),
        attempt: row.attempt,
        state: row.state,
        epoch: row.epoch,
        placed_at: stamp(row.placed_at),
        placed_at_ms: row.placed_at,
        started_at: row.started_at.map(stamp),
        started_at_ms: row.started_at,
        ended_at: row.ended_at.map(stamp),
        ended_at_ms: row.ended_at,
        stop_cause: row.stop_cause.as_deref().map(|cause| stop_cause(cause).0),
        exit: row.exit,
        exit_code: row.exit_code,
        signal: row.signal,
        message: row.why,
        gpu_count: row.gpus,
        nodes: row.nodes,
        score: None,
        gpu_hours: hours(row.gpu_ms),
        cost: money(row.cost_micro),
        charged_until: row.charged_until.map(stamp),
        charged_until_ms: row.charged_until,
    }
}

/// Why a place was chosen.
pub fn score(score: &score::Score) -> Score {
    let term = |term: &score::Term| Term { name: term.name.word().to_string(), milli: term.milli };
    Score { terms: score.terms.iter().map(term).collect(), compared: score.compared }
}

/// Why the attempt of a job that is under way has its place, where there was a choice.
pub fn score_of(job: &muster_core::Job) -> Option<Score> {
    job.attempt()?.score.as_deref().map(score)
}

/// Why an attempt was told to stop, and by whom, from the event's own JSON.
pub fn stop_cause(json: &str) -> (String, Option<String>) {
    #[derive(serde::Deserialize)]
    struct Told {
        cause: String,
        #[serde(default)]
        by: Option<String>,
    }
    match muster_json::from_str::<Told>(json) {
        Ok(told) => (told.cause, told.by),
        Err(_) => (json.to_string(), None),
    }
}
