//! The jobs: what runs, what waits, and what became of the others.
//!
//! The list is sorted before it is cut, by the server, which has all of it. For people an array is one row.

mod pages;

use std::time::Duration;

use muster_protocol::job::{JobList, JobState, JobSummary};

use super::{Code, Ending};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, Format, ListArgs, Tint};
use crate::{shares, units};

/// Rows when nobody says how many; more than fit on a screen, few enough to be quick.
const LIMIT_DEFAULT: usize = 200;
/// Pause between two looks of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);
/// Move to the top left and clear what is below: less flicker than clearing first.
const HOME: &str = "\x1b[H\x1b[J";

/// `muster ps`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  muster ps                 what runs and what waits
  muster ps --sort submitted --limit 1 -o name     the oldest
  muster ps --all --limit 20 -o wide
  muster ps --state failed -o name")]
pub struct Args {
    /// Ended jobs too
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
    /// Show it again every two seconds until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// A job at a moment.
struct Row {
    job: JobSummary,
    now_ms: i64,
}

const COLUMNS: [Column<Row>; 15] = [
    Column::new("ID", |row| id(&row.job).into()),
    Column::new("NAME", |row| row.job.name.as_str().into()),
    Column::new("STATE", |row| Cell::tinted(state(&row.job), tint(&row.job))),
    Column::new("GPUS", |row| gpus(&row.job).into()),
    Column::new("WHERE/WHY", |row| where_or_why(&row.job).into()),
    Column::new("ELAPSED", |row| Cell::or_dash(elapsed_ms(row).map(units::span))),
    Column::new("LEFT", |row| Cell::or_dash(left_ms(row).map(units::span))),
    Column::wide("TENANT", |row| row.job.tenant_id.as_str().into()),
    Column::wide("USER", |row| row.job.user.as_str().into()),
    Column::wide("PRIO", |row| row.job.priority.into()),
    Column::wide("SUBMITTED", |row| units::moment(row.job.submitted_at_ms).into()),
    Column::wide("ATTEMPT", |row| Cell::or_dash(of_one(row, row.job.attempts))),
    Column::wide("NODES", |row| Cell::or_dash(of_one(row, row.job.nodes.join(" ")))),
    Column::wide("EXIT", |row| exit(&row.job)),
    Column::wide("GPU-HOURS", |row| Cell::or_dash(of_one(row, format!("{:.4}", row.job.gpu_hours)))),
];

/// Print the jobs.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    // A column that does not exist is an error before the server is asked.
    output::check_columns(&args.list, &COLUMNS)?;
    loop {
        let list = pages::fetch(&client, &args)?;
        if args.watch && options.terminal {
            output::print(HOME)?;
        }
        print(&args, options, list)?;
        if !args.watch {
            return Ok(Code::DONE);
        }
        std::thread::sleep(WATCH_PAUSE);
    }
}

fn print(args: &Args, options: &Options, list: JobList) -> Result<(), CliError> {
    let now_ms = units::now_ms();
    let rows = list.jobs.iter().map(|job| Row { job: job.clone(), now_ms }).collect();
    // The pages came in this order and are no more than asked for.
    let as_they_came = ListArgs { sort: None, limit: None, ..args.list.clone() };
    output::list(&as_they_came, options.color, &COLUMNS, rows, &list)?;
    let for_people = matches!(args.list.show.output, Format::Table | Format::Wide);
    let shown = pages::matching(&list.jobs, args);
    if shown < list.total && (for_people || args.list.limit.is_none()) {
        let (shown, total) = (units::thousands(shown), units::thousands(list.total));
        output::talk(&format!("showing {shown} of {total} jobs; `--limit 0` shows all"));
    }
    Ok(())
}

/// `job-42`, or `job-42 [0-99]` for a whole array.
fn id(job: &JobSummary) -> String {
    match &job.array_tasks {
        None => job.id.clone(),
        Some(array) if array.tasks == 1 => format!("{} [{}]", job.id, array.first),
        Some(array) if array.tasks == array.last - array.first + 1 => {
            format!("{} [{}-{}]", job.id, array.first, array.last)
        }
        Some(array) => {
            let tasks = units::thousands(array.tasks);
            format!("{} [{} in {}-{}]", job.id, tasks, array.first, array.last)
        }
    }
}

/// What is true of one job only: tasks of an array differ in it.
fn of_one<T>(row: &Row, value: T) -> Option<T> {
    row.job.array_tasks.is_none().then_some(value)
}

/// The phase of a job; of an array how many tasks run, wait and have ended.
fn state(job: &JobSummary) -> String {
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
    counts.map(|(count, word)| format!("{} {word}", units::thousands(count))).collect::<Vec<_>>().join(", ")
}

fn gpus(job: &JobSummary) -> String {
    let gpus = shares::of_job(job);
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

/// Nodes while it runs, the top blocker while it waits, the cause when it did not end well.
fn where_or_why(job: &JobSummary) -> String {
    let waits = matches!(job.phase.as_str(), "Queued" | "Held");
    let reason = job.waits_for.as_deref().map(units::localized);
    if job.array_tasks.is_some() {
        return reason.unwrap_or_default();
    }
    match job.state {
        JobState::Failed | JobState::Cancelled => job.message.clone(),
        _ if waits => reason.unwrap_or_else(|| job.message.clone()),
        _ => job.nodes.join(" "),
    }
}

/// How long it has run or ran; how long it has waited, if it never did. An array since it was submitted.
fn elapsed_ms(row: &Row) -> Option<i64> {
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

fn left_ms(row: &Row) -> Option<i64> {
    let one = row.job.array_tasks.is_none();
    let limit = row.job.time_limit_ms.filter(|_| one && row.job.state == JobState::Running)?;
    Some((row.job.started_at_ms? + limit - row.now_ms).max(0))
}

fn exit(job: &JobSummary) -> Cell {
    if job.array_tasks.is_some() {
        return Cell::or_dash(None::<i32>);
    }
    match (job.exit_code, job.signal) {
        (_, Some(signal)) => format!("signal {signal}").into(),
        (code, None) => Cell::or_dash(code),
    }
}
