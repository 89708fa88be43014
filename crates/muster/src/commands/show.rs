//! `muster show`: the details of a job.

use std::collections::BTreeMap;

use muster_protocol::job::{Attempt, AttemptList, Job, JobSummary, Task};
use serde::Serialize;

use super::{CommandResult, ExitStatus};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, Card, ShowArgs};
use crate::{gpu_share_display, placement_display, units};

/// `muster show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Job id; `-` is your newest job
    job: JobRef,
    #[command(flatten)]
    show: ShowArgs,
}

/// The output of `-o json`: a job with its attempts.
#[derive(Serialize)]
struct JobReport<'a> {
    #[serde(flatten)]
    job: &'a Job,
    attempt_list: &'a [Attempt],
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let job = jobs::fetch_job(&client, id)?;
    let attempts = client.get::<AttemptList>(jobs::job_target(id).segment("attempts"))?.attempts;
    let report = JobReport { job: &job, attempt_list: &attempts };
    output::show(&args.show, &job_card(&job, &attempts), &job.summary.id, &report)?;
    Ok(ExitStatus::SUCCESS)
}

fn job_card(job: &Job, attempts: &[Attempt]) -> Card {
    let card = identity_fields(job);
    // For an array these fields would be those of its first job.
    let card =
        if job.array.is_some() { card } else { time_fields(placement_fields(card, job, attempts), &job.summary) };
    let (ended, current): (Vec<&Attempt>, Vec<&Attempt>) =
        attempts.iter().partition(|attempt| attempt.ended_at.is_some());
    let waits = current.is_empty() && matches!(job.summary.phase.as_str(), "Queued" | "Held");
    let title = if waits || !current.is_empty() && !ended.is_empty() { "former attempts" } else { "attempts" };
    spec_fields(card, job)
        .field("attempt", joined_lines(current.into_iter().map(attempt_line)))
        .field(title, joined_lines(ended.into_iter().map(attempt_line)))
}

fn identity_fields(job: &Job) -> Card {
    let summary = &job.summary;
    let state = if job.array.is_some() { "array" } else { &summary.phase };
    Card::default()
        .field("job", summary.id.clone())
        .field("name", summary.name.clone())
        .field("state", state)
        .field("message", summary.message.clone())
        .field("tenant", summary.tenant_id.clone())
        .field("user", summary.user.clone())
        .field("priority", summary.priority.to_string())
        .field("submitted", units::local_time_text(summary.submitted_at_ms))
}

fn placement_fields(card: Card, job: &Job, attempts: &[Attempt]) -> Card {
    let newest = attempts.last().and_then(|attempt| Some((attempt, attempt.score.as_ref()?)));
    let position = job.queue_position.map(|position| match job.queue_length {
        Some(length) => format!("{position} of {length}"),
        None => position.to_string(),
    });
    card.field(
        "blocked by",
        joined_lines(job.reasons.iter().map(|reason| units::localize_timestamps(&reason.sentence))),
    )
    .field_if_some("position", position)
    .field("nodes", job.summary.nodes.join(" "))
    .field("gpus", gpu_share_display::gpu_list_text(&job.allocated_gpus, &job.shares))
    .field_if_some("gpu power", job.gpu_power_max_watts.map(|watts| format!("at most {watts} W each")))
    .field_if_some(
        "placed",
        newest.and_then(|(attempt, score)| placement_display::placement_summary(&attempt.nodes, score)),
    )
    .field_if_some("exit code", job.summary.exit_code)
    .field_if_some("signal", job.summary.signal)
}

fn time_fields(card: Card, summary: &JobSummary) -> Card {
    let counted = |count: u32| (count > 0).then_some(count);
    card.field_if_some("started", summary.started_at_ms.map(units::local_time_text))
        .field_if_some("ended", summary.completed_at_ms.map(units::local_time_text))
        .field_if_some("ran for", summary.actual_duration_ms.map(units::runtime_text))
        .field_if_some("time limit", summary.time_limit_ms.map(units::duration_text))
        .field_if_some("preempted", counted(summary.preempted_count).map(times_text))
        .field_if_some("restarted", counted(summary.restart_count).map(times_text))
        .field_if_some("requeued", counted(summary.requeue_count).map(times_text))
        .field("gpu-hours", if summary.gpu_hours > 0.0 { format!("{:.4}", summary.gpu_hours) } else { String::new() })
}

fn spec_fields(card: Card, job: &Job) -> Card {
    card.field("requests", joined_lines(job.tasks.iter().map(task_line)))
        .field("topology", topology_text(job))
        .field_if_some("early signal", job.early_signal.clone())
        .field("after", job.after.join(" "))
        .field_if_some("not before", job.summary.start_after.as_deref().map(units::localize_timestamps))
        .field_if_some("image", job.image.clone())
        .field_if_some("mounts", Some(job.mounts.join(" ")).filter(|mounts| !mounts.is_empty()))
        .field_if_some("secrets", Some(job.secrets.join(" ")).filter(|secrets| !secrets.is_empty()))
        .field("command", command_line(job))
        .field_if_some("script", job.script.clone())
        .field_if_some("directory", job.directory.clone())
        .field("environment", pairs_text(&job.environment))
        .field("labels", pairs_text(&job.summary.labels))
        .field("annotations", pairs_text(&job.annotations))
}

/// The required and preferred locality; empty if the job has none.
fn topology_text(job: &Job) -> String {
    let required = (job.topology != "any").then_some(job.topology.as_str());
    let numa = (job.allow_cross_numa == Some(false)).then_some("no cross-numa");
    let nvlink = job.prefer_nvlink.then_some("NVLink preferred");
    [required, numa, nvlink].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn task_line(task: &Task) -> String {
    let mut parts = vec![gpus_text(task)];
    if !task.gpu_models.is_empty() {
        parts.push(format!("of {}", task.gpu_models.join(" or ")));
    }
    if task.gpu_memory_mb > 0 {
        parts.push(format!("with {}", units::memory_text(task.gpu_memory_mb)));
    }
    parts.push(format!("and {}, {}", units::count_text(task.cpu_cores, "core"), units::memory_text(task.memory_mb)));
    let each = parts.join(" ");
    match (task.count, task.max_count) {
        (1, None) => each,
        (count, None) => format!("{count} × {}: {each}", task.name),
        (count, Some(max)) => format!("{count} to {max} × {}: {each}", task.name),
    }
}

fn gpus_text(task: &Task) -> String {
    let isolation = task.isolation.as_deref().filter(|isolation| *isolation != "none");
    match (task.gpus, isolation) {
        (1, None) if task.gpu_share < 1.0 => format!("{} of a GPU", task.gpu_share),
        (1, Some(isolation)) => format!("{} of a GPU (isolation {isolation})", task.gpu_share),
        (gpus, _) => units::count_text(gpus, "GPU"),
    }
}

fn command_line(job: &Job) -> String {
    job.command.iter().chain(&job.args).map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" ")
}

fn shell_quoted(word: &str) -> String {
    let plain =
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte));
    if plain { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn attempt_line(attempt: &Attempt) -> String {
    // The processes may have exited before the server received the report.
    let end = attempt.ended_at_ms.map(|ended| attempt.charged_until_ms.unwrap_or(ended).min(ended));
    let ran = match (attempt.started_at_ms, end) {
        (Some(start), Some(end)) => format!(", ran {}", units::runtime_text(end - start)),
        _ => String::new(),
    };
    let exit = match (attempt.exit_code, attempt.signal) {
        (_, Some(signal)) => format!(", signal {signal}"),
        (Some(code), None) => format!(", exit code {code}"),
        (None, None) => String::new(),
    };
    // The message usually contains the exit code.
    let exit = if attempt.message.is_empty() { exit } else { String::new() };
    let cause = attempt.stop_cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    let message = if attempt.message.is_empty() { String::new() } else { format!(": {}", attempt.message) };
    let nodes = attempt.nodes.join(" ");
    let master = attempt.master.as_ref().map(|master| format!(", master {master}")).unwrap_or_default();
    format!("{} {}{cause} on {nodes}{master}{ran}{exit}{message}", attempt.attempt, attempt.state)
}

fn times_text(count: u32) -> String {
    if count == 1 { "once".to_string() } else { format!("{count} times") }
}

fn pairs_text(map: &BTreeMap<String, String>) -> String {
    joined_lines(map.iter().map(|(key, value)| format!("{key}={value}")))
}

fn joined_lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_words_are_quoted_for_a_shell() {
        assert_eq!(shell_quoted("--lr=3e-4"), "--lr=3e-4");
        assert_eq!(shell_quoted("it's me"), "'it'\\''s me'");
        assert_eq!(shell_quoted(""), "''");
    }
}
