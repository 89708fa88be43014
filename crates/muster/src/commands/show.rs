//! All about one job.

use std::collections::BTreeMap;

use muster_protocol::job::{Attempt, AttemptList, Job, JobSummary, Task};
use serde::Serialize;

use super::{Code, Ending};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, Card, ShowArgs};
use crate::{places, shares, units};

/// `muster show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which job; `-` is your newest
    job: JobRef,
    #[command(flatten)]
    show: ShowArgs,
}

/// A job with its attempts, as machines read it.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    job: &'a Job,
    attempt_list: &'a [Attempt],
}

/// Print a job.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let job = jobs::fetch(&client, id)?;
    let attempts = client.get::<AttemptList>(jobs::target(id).at("attempts"))?.attempts;
    let whole = Whole { job: &job, attempt_list: &attempts };
    output::show(&args.show, &card(&job, &attempts), &job.summary.id, &whole)?;
    Ok(Code::DONE)
}

fn card(job: &Job, attempts: &[Attempt]) -> Card {
    let card = who(job);
    // Of an array these would be those of its first task.
    let card = if job.array.is_some() { card } else { times(place(card, job, attempts), &job.summary) };
    let (former, now): (Vec<&Attempt>, Vec<&Attempt>) =
        attempts.iter().partition(|attempt| attempt.ended_at.is_some());
    let waits = now.is_empty() && matches!(job.summary.phase.as_str(), "Queued" | "Held");
    let title = if waits || !now.is_empty() && !former.is_empty() { "former attempts" } else { "attempts" };
    what(card, job)
        .field("attempt", lines(now.into_iter().map(attempt_line)))
        .field(title, lines(former.into_iter().map(attempt_line)))
}

fn who(job: &Job) -> Card {
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
        .field("submitted", units::moment(summary.submitted_at_ms))
}

fn place(card: Card, job: &Job, attempts: &[Attempt]) -> Card {
    let newest = attempts.last().and_then(|attempt| Some((attempt, attempt.score.as_ref()?)));
    let place = job.queue_position.map(|place| match job.queue_length {
        Some(length) => format!("{place} of {length}"),
        None => place.to_string(),
    });
    card.field("blocked by", lines(job.reasons.iter().map(|reason| units::localized(&reason.sentence))))
        .maybe("position", place)
        .field("nodes", job.summary.nodes.join(" "))
        .field("gpus", shares::placed(&job.allocated_gpus, &job.shares))
        .maybe("gpu power", job.gpu_power_max_watts.map(|watts| format!("at most {watts} W each")))
        .maybe("placed", newest.and_then(|(attempt, score)| places::placed(&attempt.nodes, score)))
        .maybe("exit code", job.summary.exit_code)
        .maybe("signal", job.summary.signal)
}

fn times(card: Card, summary: &JobSummary) -> Card {
    let counted = |count: u32| (count > 0).then_some(count);
    card.maybe("started", summary.started_at_ms.map(units::moment))
        .maybe("ended", summary.completed_at_ms.map(units::moment))
        .maybe("ran for", summary.actual_duration_ms.map(units::ran))
        .maybe("time limit", summary.time_limit_ms.map(units::span))
        .maybe("preempted", counted(summary.preempted_count).map(times_word))
        .maybe("restarted", counted(summary.restart_count).map(times_word))
        .maybe("requeued", counted(summary.requeue_count).map(times_word))
        .field(
            "gpu-hours",
            if summary.gpu_hours > 0.0 { format!("{:.4}", summary.gpu_hours) } else { String::new() },
        )
}

fn what(card: Card, job: &Job) -> Card {
    card.field("asks for", lines(job.tasks.iter().map(task_line)))
        .field("topology", topology(job))
        .field("after", job.after.join(" "))
        .maybe("not before", job.summary.start_after.as_deref().map(units::localized))
        .maybe("image", job.image.clone())
        .field("command", command_line(job))
        .maybe("script", job.script.clone())
        .maybe("directory", job.directory.clone())
        .field("environment", pairs(&job.environment))
        .field("labels", pairs(&job.summary.labels))
        .field("annotations", pairs(&job.annotations))
}

/// How close together its GPUs must be or should be, where something was said about it.
fn topology(job: &Job) -> String {
    let demand = (job.topology != "any").then_some(job.topology.as_str());
    let numa = (job.allow_cross_numa == Some(false)).then_some("no cross-numa");
    let nvlink = job.prefer_nvlink.then_some("NVLink preferred");
    [demand, numa, nvlink].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn task_line(task: &Task) -> String {
    let mut parts = vec![gpus(task)];
    if !task.gpu_models.is_empty() {
        parts.push(format!("of {}", task.gpu_models.join(" or ")));
    }
    if task.gpu_memory_mb > 0 {
        parts.push(format!("with {}", units::memory(task.gpu_memory_mb)));
    }
    parts.push(format!("and {}, {}", units::count(task.cpu_cores, "core"), units::memory(task.memory_mb)));
    let each = parts.join(" ");
    match (task.count, task.max_count) {
        (1, None) => each,
        (count, None) => format!("{count} × {}: {each}", task.name),
        (count, Some(most)) => format!("{count} to {most} × {}: {each}", task.name),
    }
}

fn gpus(task: &Task) -> String {
    let isolation = task.isolation.as_deref().filter(|word| *word != "none");
    match (task.gpus, isolation) {
        (1, None) if task.gpu_share < 1.0 => format!("{} of a GPU", task.gpu_share),
        (1, Some(word)) => format!("{} of a GPU (isolation {word})", task.gpu_share),
        (gpus, _) => units::count(gpus, "GPU"),
    }
}

fn command_line(job: &Job) -> String {
    job.command.iter().chain(&job.args).map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// As a shell would take it.
fn quoted(word: &str) -> String {
    let plain = !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte));
    if plain { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn attempt_line(attempt: &Attempt) -> String {
    // Its processes may have been gone before the server heard of it.
    let over = attempt.ended_at_ms.map(|ended| attempt.charged_until_ms.unwrap_or(ended).min(ended));
    let ran = match (attempt.started_at_ms, over) {
        (Some(start), Some(end)) => format!(", ran {}", units::ran(end - start)),
        _ => String::new(),
    };
    let exit = match (attempt.exit_code, attempt.signal) {
        (_, Some(signal)) => format!(", signal {signal}"),
        (Some(code), None) => format!(", exit code {code}"),
        (None, None) => String::new(),
    };
    // The sentence usually says the same as the exit.
    let exit = if attempt.message.is_empty() { exit } else { String::new() };
    let cause = attempt.stop_cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    let message = if attempt.message.is_empty() { String::new() } else { format!(": {}", attempt.message) };
    let nodes = attempt.nodes.join(" ");
    format!("{} {}{cause} on {nodes}{ran}{exit}{message}", attempt.attempt, attempt.state)
}

fn times_word(count: u32) -> String {
    if count == 1 { "once".to_string() } else { format!("{count} times") }
}

fn pairs(map: &BTreeMap<String, String>) -> String {
    lines(map.iter().map(|(key, value)| format!("{key}={value}")))
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_shell_would_take_it() {
        assert_eq!(quoted("--lr=3e-4"), "--lr=3e-4");
        assert_eq!(quoted("it's me"), "'it'\\''s me'");
        assert_eq!(quoted(""), "''");
    }
}
