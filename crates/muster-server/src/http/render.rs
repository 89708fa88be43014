//! Jobs, attempts, reasons and scores as the API shows them, mostly from rows of the tables.

use muster_core::JobSpec;
use muster_core::facts::verdict;
use muster_core::objects::job::{Mount, OnNodeLost, Phase, TaskGroup};
use muster_core::objects::score;
use muster_core::objects::secret::SecretUse;
use muster_protocol::job::{Attempt, Job, JobState, JobSummary, Reason, Task};
use muster_protocol::score::{Score, ScoreTerm};
use muster_store::rows::{self, AttemptRow, JobDetail, JobRow};

use crate::conversions::{dependency_text, early_signal_text, human_duration, micro_to_money, ms_to_hours, rfc3339};
use crate::http::gpu_share;

/// Replaces a value that the caller may not see.
pub const HIDDEN_VALUE: &str = "***";

/// The state of a job in the API.
pub fn api_job_state(state: rows::JobState) -> JobState {
    match state {
        rows::JobState::Pending => JobState::Pending,
        rows::JobState::Running => JobState::Running,
        rows::JobState::Completed => JobState::Completed,
        rows::JobState::Failed => JobState::Failed,
        rows::JobState::Preempted => JobState::Preempted,
        rows::JobState::Cancelled => JobState::Cancelled,
    }
}

fn secret_text(used: &SecretUse) -> String {
    if used.file == used.name { used.name.clone() } else { format!("{}={}", used.name, used.file) }
}

fn mount_text(mount: &Mount) -> String {
    format!("{}:{}{}", mount.source, mount.target, if mount.read_only { ":ro" } else { "" })
}

/// The state and phase of a live job.
pub fn job_state_and_phase(job: &muster_core::objects::job::Job) -> (rows::JobState, &'static str) {
    let state = match &job.phase {
        Phase::Queued { preempted: true, .. } => rows::JobState::Preempted,
        Phase::Queued { .. } | Phase::Held { .. } => rows::JobState::Pending,
        Phase::Active(attempt) if attempt.started_at.is_some() => rows::JobState::Running,
        Phase::Active(attempt) if attempt.stopping.is_some() => rows::JobState::Running,
        Phase::Active(_) => rows::JobState::Pending,
    };
    (state, job.phase_name())
}

/// A job in a list.
pub fn api_job_summary(row: JobRow, now_ms: i64) -> JobSummary {
    let row = without_former_attempt(row);
    let until = row.ended_at.map(|ended| row.ran_until.unwrap_or(ended)).unwrap_or(now_ms);
    let ran_ms = row.started_at.map(|since| (until - since).max(0));
    JobSummary {
        id: row.id.to_string(),
        job_id: row.id.to_string(),
        tenant_id: row.tenant,
        user: row.user,
        name: row.name,
        state: api_job_state(row.state),
        phase: row.phase,
        message: row.why,
        waits_for: None,
        priority: row.priority,
        gpu_count: row.gpus,
        gpu_amount: gpu_share::fractional_gpus(row.gpu_milli),
        gpu_memory_mb: row.gpu_memory_mib.checked_div(row.gpus).unwrap_or(0),
        cpu_cores: row.cpus,
        memory_mb: row.memory_mib,
        max_runtime_minutes: row.time_limit_ms.map(|ms| (ms.max(0) as u64).div_ceil(60_000)),
        max_runtime: row.time_limit_ms.map(human_duration),
        time_limit_ms: row.time_limit_ms,
        submitted_at: rfc3339(row.submitted_at),
        submitted_at_ms: row.submitted_at,
        scheduled_at: row.placed_at.map(rfc3339),
        scheduled_at_ms: row.placed_at,
        started_at: row.started_at.map(rfc3339),
        started_at_ms: row.started_at,
        completed_at: row.ended_at.map(rfc3339),
        completed_at_ms: row.ended_at,
        start_after: row.wakes_at.map(rfc3339),
        actual_duration: ran_ms.map(human_duration),
        actual_duration_ms: ran_ms,
        attempts: row.attempt,
        node_name: row.nodes.first().cloned(),
        nodes: row.nodes,
        exit_code: row.exit_code,
        signal: row.signal,
        preempted_count: row.preemptions,
        restart_count: row.restarts,
        requeue_count: row.requeues,
        gpu_hours: ms_to_hours(row.gpu_ms),
        cost: micro_to_money(row.cost_micro),
        labels: row.labels,
        array_tasks: None,
    }
}

/// A requeued job has no nodes, no start and no exit: the row has those of the former attempt, which the list of
/// attempts shows.
fn without_former_attempt(row: JobRow) -> JobRow {
    if !matches!(row.phase.as_str(), "Queued" | "Held") {
        return row;
    }
    JobRow { placed_at: None, started_at: None, nodes: Vec::new(), exit_code: None, signal: None, ..row }
}

/// A job with its whole spec. The caller of this function fills in the fields that only the leader knows.
pub fn api_job(detail: JobDetail, now_ms: i64) -> Job {
    let JobDetail { row, spec } = detail;
    let submitted_at = row.submitted_at;
    let updated_at = [Some(submitted_at), row.placed_at, row.started_at, row.ended_at];
    let updated_at = updated_at.into_iter().flatten().max().unwrap_or(submitted_at);
    let logs = format!("/api/v1/jobs/{}/logs", row.id);
    let gpu_models = requested_gpu_models(&spec);
    let metrics = [
        ("gpu_seconds".to_string(), row.gpu_ms as f64 / 1_000.0),
        ("cpu_seconds".to_string(), row.cpu_ms as f64 / 1_000.0),
    ];
    Job {
        summary: api_job_summary(row, now_ms),
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
        tasks: spec.tasks.into_iter().map(api_task).collect(),
        gang_scheduling: spec.gang_scheduling.unwrap_or(true),
        topology: spec.topology.as_str().to_string(),
        allow_cross_numa: spec.allow_cross_numa,
        prefer_nvlink: spec.prefer_nvlink,
        early_signal: spec.early_signal.map(early_signal_text),
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
        mounts: spec.run.mounts.iter().map(mount_text).collect(),
        secrets: spec.run.secrets.iter().map(secret_text).collect(),
        after: spec.after.iter().map(dependency_text).collect(),
        max_restarts: spec.restart.max_restarts,
        max_requeues: spec.restart.max_requeues,
        on_node_lost: on_node_lost_str(spec.on_node_lost).to_string(),
        checkpoint_enabled: spec.checkpoint.is_some(),
        checkpoint_path: spec.checkpoint.map(|rule| rule.path).filter(|path| !path.is_empty()),
        annotations: spec.annotations,
        estimated_duration: None,
        prediction_confidence: None,
        gpu_utilization: None,
        created_at: rfc3339(submitted_at),
        updated_at: rfc3339(updated_at),
    }
}

/// Hide the values of a job's environment variables; the names stay.
pub fn hide_environment(job: &mut Job) {
    job.environment.values_mut().for_each(|value| *value = HIDDEN_VALUE.to_string());
    job.environment_hidden = true;
}

fn requested_gpu_models(spec: &JobSpec) -> Vec<String> {
    let all: std::collections::BTreeSet<&String> = spec.tasks.iter().flat_map(|group| &group.each.gpu_models).collect();
    all.into_iter().cloned().collect()
}

fn api_task(group: TaskGroup) -> Task {
    let isolation = group.each.is_shared().then(|| group.each.isolation.as_str().to_string());
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

fn on_node_lost_str(rule: OnNodeLost) -> &'static str {
    match rule {
        OnNodeLost::Wait => "wait",
        OnNodeLost::Requeue => "requeue",
        OnNodeLost::RequeueUnsafe => "requeue-unsafe",
    }
}

/// The reasons of a verdict: code and sentence.
pub fn api_reasons(verdict: &verdict::Verdict) -> Vec<Reason> {
    let reason = |reason: &verdict::Reason| Reason {
        reason: reason.code().to_string(),
        sentence: reason.sentence(),
        since: None,
        since_ms: None,
    };
    verdict.reasons.iter().map(reason).collect()
}

/// One attempt of a job. The caller of this function fills in the fields that only the leader knows.
pub fn api_attempt(row: AttemptRow) -> Attempt {
    Attempt {
        job_id: row.job.to_string(),
        attempt: row.attempt,
        state: row.state,
        epoch: row.epoch,
        placed_at: rfc3339(row.placed_at),
        placed_at_ms: row.placed_at,
        started_at: row.started_at.map(rfc3339),
        started_at_ms: row.started_at,
        ended_at: row.ended_at.map(rfc3339),
        ended_at_ms: row.ended_at,
        stop_cause: row.stop_cause.as_deref().map(|cause| parse_stop_cause(cause).0),
        exit: row.exit,
        exit_code: row.exit_code,
        signal: row.signal,
        message: row.why,
        gpu_count: row.gpus,
        nodes: row.nodes,
        master: row.master.zip(row.master_port).map(|(node, port)| format!("{node}:{port}")),
        score: None,
        gpu_hours: ms_to_hours(row.gpu_ms),
        cost: micro_to_money(row.cost_micro),
        charged_until: row.charged_until.map(rfc3339),
        charged_until_ms: row.charged_until,
    }
}

/// The score of a placement: its terms, such as `fragmentation` and `locality`, in thousandths of a GPU.
pub fn api_score(score: &score::Score) -> Score {
    let term = |term: &score::Term| ScoreTerm { name: term.name.as_str().to_string(), milli: term.milli };
    Score { terms: score.terms.iter().map(term).collect(), compared: score.compared }
}

/// The score of the placement of a job's current attempt; `None` if there was no choice.
pub fn attempt_score(job: &muster_core::objects::job::Job) -> Option<Score> {
    job.attempt()?.score.as_deref().map(api_score)
}

/// The cause of a stop and its originator, from the JSON of the event.
pub fn parse_stop_cause(json: &str) -> (String, Option<String>) {
    #[derive(serde::Deserialize)]
    struct StopCauseJson {
        cause: String,
        #[serde(default)]
        by: Option<String>,
    }
    match muster_json::from_str::<StopCauseJson>(json) {
        Ok(parsed) => (parsed.cause, parsed.by),
        Err(_) => (json.to_string(), None),
    }
}
