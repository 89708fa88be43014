//! What simulated tasks write to their logs.

use muster_core::time;
use muster_protocol::agent::{AttemptOrder, Exit, TaskOrder};

use super::effect::LogLine;
use crate::logs::Stream;

/// What the tasks write when they start.
pub(super) fn opening_lines(node: &str, order: &AttemptOrder, runtime_ms: i64) -> Vec<LogLine> {
    log_lines(order, Stream::Stdout, |task| opening_text(node, order, task, runtime_ms))
}

/// What the tasks write when they end, with the reason of the stop if there was one.
pub(super) fn closing_lines(order: &AttemptOrder, exit: &Exit, stopped_because: Option<&str>) -> Vec<LogLine> {
    let stream = if matches!(exit, Exit::NotStarted(_)) { Stream::Stderr } else { Stream::Stdout };
    log_lines(order, stream, |_| closing_text(exit, stopped_because))
}

fn log_lines(order: &AttemptOrder, stream: Stream, text: impl Fn(&TaskOrder) -> String) -> Vec<LogLine> {
    let line = |task: &TaskOrder| LogLine {
        job: order.job.clone(),
        attempt: order.attempt,
        rank: task.rank,
        stream,
        text: text(task),
    };
    order.tasks.iter().map(line).collect()
}

fn opening_text(node: &str, order: &AttemptOrder, task: &TaskOrder, runtime_ms: i64) -> String {
    let AttemptOrder { job, attempt, name, gang_size, run, .. } = order;
    let gpus = task.gpus.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    let gpus = match &task.share {
        Some(share) => format!("{}/1000 of GPU {gpus}, mode {}", share.compute_milli, share.mode),
        None if gpus.is_empty() => "no GPUs".to_string(),
        None => format!("GPUs {gpus}"),
    };
    let runs = match (&run.script, &run.image) {
        (Some(script), _) => script.lines().find(|line| !line.starts_with("#!")).unwrap_or("").to_string(),
        (None, image) => image.iter().chain(&run.command).chain(&run.args).cloned().collect::<Vec<_>>().join(" "),
    };
    let runtime = time::format_duration_ms(runtime_ms);
    format!(
        "[simulated] {job} `{name}`, attempt {attempt}: rank {} of {gang_size} on {node} with {gpus}\n\
         [simulated] would run: {runs}\n[simulated] simulates work for {runtime}\n",
        task.rank
    )
}

fn closing_text(exit: &Exit, stopped_because: Option<&str>) -> String {
    let ended = match exit {
        Exit::Code(code) => format!("ended with exit code {code}"),
        Exit::OutOfMemory { limit_mib } => format!("ended: out of memory (limit {limit_mib} MiB)"),
        Exit::Signal(signal) => format!("ended by signal {signal}"),
        Exit::NotStarted(why) => format!("did not start: {why}"),
        Exit::Unknown(why) => format!("ended, exit status unknown: {why}"),
    };
    match stopped_because {
        Some(why) => format!("[simulated] {ended} (stop requested: {why})\n"),
        None => format!("[simulated] {ended}\n"),
    }
}
