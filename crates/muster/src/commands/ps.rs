//! `muster ps`: running, waiting and ended jobs.
//!
//! The server sorts the whole list before it applies the limit. In tables an array is one row.

mod pages;

use std::time::Duration;

use muster_protocol::job::{JobList, JobState, JobSummary};

use super::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, Format, ListArgs, Tint};
use crate::{gpu_share_display, units};

/// Rows without `--limit`: more than fit on a screen, few enough to be fast.
const ROWS_DEFAULT: usize = 200;
/// Pause between two updates of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);
/// Moves the cursor to the top left and clears below: less flicker than clearing first.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";

/// `muster ps`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  muster ps                                        running and waiting jobs
  muster ps --sort submitted --limit 1 -o name     the oldest of them
  muster ps --all --limit 20 -o wide
  muster ps --state failed -o name")]
pub struct Args {
    /// Include ended jobs
    #[arg(short, long)]
    all: bool,
    /// Only jobs in these states: pending, running, completed, failed, preempted, cancelled
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Only jobs of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only jobs of this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Refresh every two seconds until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// A job, and the time at which the list was printed.
struct JobRow {
    job: JobSummary,
    now_ms: i64,
}

const COLUMNS: [Column<JobRow>; 15] = [
    Column::new("ID", |row| id_text(&row.job).into()),
    Column::new("NAME", |row| row.job.name.as_str().into()),
    Column::new("STATE", |row| Cell::tinted(state_text(&row.job), tint(&row.job))),
    Column::new("GPUS", |row| gpus_text(&row.job).into()),
    Column::new("WHERE/WHY", |row| where_or_why(&row.job).into()),
    Column::new("ELAPSED", |row| Cell::or_dash(elapsed_ms(row).map(units::duration_text))),
    Column::new("LEFT", |row| Cell::or_dash(left_ms(row).map(units::duration_text))),
    Column::wide("TENANT", |row| row.job.tenant_id.as_str().into()),
    Column::wide("USER", |row| row.job.user.as_str().into()),
    Column::wide("PRIO", |row| row.job.priority.into()),
    Column::wide("SUBMITTED", |row| units::local_time_text(row.job.submitted_at_ms).into()),
    Column::wide("ATTEMPT", |row| Cell::or_dash(unless_array(row, row.job.attempts))),
    Column::wide("NODES", |row| Cell::or_dash(unless_array(row, row.job.nodes.join(" ")))),
    Column::wide("EXIT", |row| exit_cell(&row.job)),
    Column::wide("GPU-HOURS", |row| Cell::or_dash(unless_array(row, format!("{:.4}", row.job.gpu_hours)))),
];

pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    // Unknown columns are refused before a request is sent.
    output::check_columns(&args.list, &COLUMNS)?;
    loop {
        let list = pages::fetch_jobs(&args, &mut |page| client.get(page))?;
        if args.watch && options.terminal {
            output::print_stdout(CLEAR_SCREEN)?;
        }
        print_jobs(&args, options, list)?;
        if !args.watch {
            return Ok(ExitStatus::SUCCESS);
        }
        std::thread::sleep(WATCH_PAUSE);
    }
}

fn print_jobs(args: &Args, options: &Options, list: JobList) -> Result<(), CliError> {
    let now_ms = units::now_ms();
    let rows = list.jobs.iter().map(|job| JobRow { job: job.clone(), now_ms }).collect();
    // The server has already sorted and limited the rows.
    let in_this_order = ListArgs { sort: None, limit: None, ..args.list.clone() };
    output::list(&in_this_order, options.color, &COLUMNS, rows, &list)?;
    let is_table = matches!(args.list.show.output, Format::Table | Format::Wide);
    let shown = pages::matching_job_count(&list.jobs, args);
    if shown < list.total && (is_table || args.list.limit.is_none()) {
        let (shown, total) = (units::thousands_text(shown), units::thousands_text(list.total));
        output::print_stderr(&format!("showing {shown} of {total} jobs; `--limit 0` shows all"));
    }
    Ok(())
}

/// `job-42`, or `job-42 [0-99]` for a whole array.
fn id_text(job: &JobSummary) -> String {
    match &job.array_tasks {
        None => job.id.clone(),
        Some(array) if array.tasks == 1 => format!("{} [{}]", job.id, array.first),
        Some(array) if array.tasks == array.last - array.first + 1 => {
            format!("{} [{}-{}]", job.id, array.first, array.last)
        }
        Some(array) => {
            let tasks = units::thousands_text(array.tasks);
            format!("{} [{} in {}-{}]", job.id, tasks, array.first, array.last)
        }
    }
}

/// `None` for an array, whose jobs differ in the value.
fn unless_array<T>(row: &JobRow, value: T) -> Option<T> {
    row.job.array_tasks.is_none().then_some(value)
}

/// The phase of a job; for an array the number of jobs that run, wait and have ended.
fn state_text(job: &JobSummary) -> String {
    let Some(array) = &job.array_tasks else { return job.phase.clone() };
    let count = |states: &[&str]| states.iter().filter_map(|state| array.by_state.get(*state)).sum::<u64>();
    let counts = [
        (count(&["running"]), "running"),
        (count(&["pending", "preempted"]), "waiting"),
        (count(&["completed"]), "completed"),
        (count(&["failed"]), "failed"),
        (count(&["cancelled"]), "cancelled"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, word)| format!("{} {word}", units::thousands_text(count))).collect::<Vec<_>>().join(", ")
}

fn gpus_text(job: &JobSummary) -> String {
    let gpus = gpu_share_display::job_gpus_text(job);
    if job.array_tasks.is_some() { format!("{gpus} each") } else { gpus }
}

fn tint(job: &JobSummary) -> Tint {
    if job.array_tasks.is_some() && job.state == JobState::Running {
        return Tint::Good;
    }
    match (job.state, job.phase.as_str()) {
        (JobState::Running, "Running") => Tint::Good,
        (JobState::Running | JobState::Preempted, _) | (_, "Held" | "Starting") => Tint::Warn,
        (JobState::Failed, _) => Tint::Bad,
        (JobState::Completed | JobState::Cancelled, _) => Tint::Faint,
        (JobState::Pending, _) => Tint::Plain,
    }
}

/// The nodes of a running job, the first reason of a waiting job, the cause of a failure.
fn where_or_why(job: &JobSummary) -> String {
    let waits = matches!(job.phase.as_str(), "Queued" | "Held");
    let reason = job.waits_for.as_deref().map(units::localize_timestamps);
    if job.array_tasks.is_some() {
        return reason.unwrap_or_default();
    }
    match job.state {
        JobState::Failed | JobState::Cancelled => job.message.clone(),
        _ if waits => reason.unwrap_or_else(|| job.message.clone()),
        _ => job.nodes.join(" "),
    }
}

/// The runtime of a job; the wait of a job that has not started; for an array the time since its submission.
fn elapsed_ms(row: &JobRow) -> Option<i64> {
    let job = &row.job;
    if job.array_tasks.is_some() {
        return Some(row.now_ms - job.submitted_at_ms);
    }
    match (job.started_at_ms, job.completed_at_ms) {
        (Some(start), Some(end)) => Some(end - start),
        (Some(start), None) if job.state == JobState::Running => Some(row.now_ms - start),
        (_, None) => Some(row.now_ms - job.submitted_at_ms),
        (None, Some(_)) => None,
    }
}

fn left_ms(row: &JobRow) -> Option<i64> {
    let is_array = row.job.array_tasks.is_some();
    let limit = row.job.time_limit_ms.filter(|_| !is_array && row.job.state == JobState::Running)?;
    Some((row.job.started_at_ms? + limit - row.now_ms).max(0))
}

fn exit_cell(job: &JobSummary) -> Cell {
    if job.array_tasks.is_some() {
        return Cell::or_dash(None::<i32>);
    }
    match (job.exit_code, job.signal) {
        (_, Some(signal)) => format!("signal {signal}").into(),
        (code, None) => Cell::or_dash(code),
    }
}
