//! The jobs: what waits, what runs, and what became of the others.

use std::time::Duration;

use muster_protocol::job::{JobList, JobState, JobSummary};

use super::{Code, Ending};
use crate::client::{Client, Target};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, Tint};
use crate::{shares, units};

/// Rows when nobody says how many; more than fit on a screen, few enough to be quick.
const LIMIT_DEFAULT: usize = 200;
/// Most rows the server gives at once.
const PAGE_MAX: usize = 1_000;
/// Pause between two looks of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);
/// Move to the top left and clear what is below: less flicker than clearing first.
const HOME: &str = "\x1b[H\x1b[J";

/// `muster ps`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  muster ps                 what waits and what runs
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
    Column::new("ID", |row| row.job.id.as_str().into()),
    Column::new("NAME", |row| row.job.name.as_str().into()),
    Column::new("STATE", |row| Cell::tinted(row.job.phase.clone(), tint(&row.job))),
    Column::new("GPUS", |row| shares::of_job(&row.job).into()),
    Column::new("WHERE/WHY", |row| where_or_why(&row.job).into()),
    Column::new("ELAPSED", |row| Cell::or_dash(elapsed_ms(row).map(units::span))),
    Column::new("LEFT", |row| Cell::or_dash(left_ms(row).map(units::span))),
    Column::wide("TENANT", |row| row.job.tenant_id.as_str().into()),
    Column::wide("USER", |row| row.job.user.as_str().into()),
    Column::wide("PRIO", |row| row.job.priority.into()),
    Column::wide("SUBMITTED", |row| units::moment(row.job.submitted_at_ms).into()),
    Column::wide("ATTEMPT", |row| row.job.attempts.into()),
    Column::wide("NODES", |row| row.job.nodes.join(" ").into()),
    Column::wide("EXIT", |row| exit(&row.job)),
    Column::wide("GPU-HOURS", |row| format!("{:.4}", row.job.gpu_hours).into()),
];

/// Print the jobs.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    loop {
        let page = fetch(&client, &args)?;
        if args.watch && options.terminal {
            output::print(HOME)?;
        }
        print(&args, options, page)?;
        if !args.watch {
            return Ok(Code::DONE);
        }
        std::thread::sleep(WATCH_PAUSE);
    }
}

fn print(args: &Args, options: &Options, page: JobList) -> Result<(), CliError> {
    let now_ms = units::now_ms();
    let hidden = page.total.saturating_sub(page.jobs.len() as u64);
    let rows = page.jobs.iter().map(|job| Row { job: job.clone(), now_ms }).collect();
    output::list(&args.list, options.color, &COLUMNS, rows, &page)?;
    if hidden > 0 && args.list.limit.is_none() {
        output::talk(&format!("{hidden} more; `--limit N` shows them"));
    }
    Ok(())
}

/// Pages until there are enough.
fn fetch(client: &Client, args: &Args) -> Result<JobList, CliError> {
    let limit = args.list.limit.unwrap_or(LIMIT_DEFAULT).max(1);
    let mut whole: JobList = client.get(target(args, limit.min(PAGE_MAX)))?;
    while let Some(cursor) = whole.next_cursor.take().filter(|_| whole.jobs.len() < limit) {
        let more = (limit - whole.jobs.len()).min(PAGE_MAX);
        let page: JobList = client.get(target(args, more).with("cursor", cursor))?;
        whole.jobs.extend(page.jobs);
        whole.next_cursor = page.next_cursor;
    }
    Ok(whole)
}

fn target(args: &Args, limit: usize) -> Target {
    let states = match (&args.state[..], args.all) {
        ([], false) => Some("pending,running,preempted".to_string()),
        ([], true) => None,
        (states, _) => Some(states.join(",")),
    };
    Target::new("jobs")
        .with("limit", limit)
        .with_some("state", states)
        .with_some("tenant_id", args.tenant.as_ref())
        .with_some("user", args.user.as_ref())
}

fn tint(job: &JobSummary) -> Tint {
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
    match job.state {
        JobState::Failed | JobState::Cancelled => job.message.clone(),
        _ if waits => job.waits_for.clone().unwrap_or_else(|| job.message.clone()),
        _ => job.nodes.join(" "),
    }
}

/// How long it has run or ran; how long it has waited, if it never did.
fn elapsed_ms(row: &Row) -> Option<i64> {
    let job = &row.job;
    match (job.started_at_ms, job.completed_at_ms) {
        (Some(start), Some(end)) => Some(end - start),
        (Some(start), None) if job.state == JobState::Running => Some(row.now_ms - start),
        (_, None) => Some(row.now_ms - job.submitted_at_ms),
        (None, Some(_)) => None,
    }
}

fn left_ms(row: &Row) -> Option<i64> {
    let limit = row.job.time_limit_ms.filter(|_| row.job.state == JobState::Running)?;
    Some((row.job.started_at_ms? + limit - row.now_ms).max(0))
}

fn exit(job: &JobSummary) -> Cell {
    match (job.exit_code, job.signal) {
        (_, Some(signal)) => format!("signal {signal}").into(),
        (code, None) => Cell::or_dash(code),
    }
}
