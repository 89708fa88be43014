//! `muster events`: the events of the cluster or of one job, past or as they happen.

use std::time::Duration;

use muster_core::JobId;
use muster_protocol::cluster::ClusterStatus;
use muster_protocol::event::{Event, EventList};
use muster_protocol::problem::Problem;

use super::{CommandResult, ExitStatus};
use crate::client::{Client, EventStream, RequestTarget, stream_error};
use crate::error::CliError;
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, Cell, Column, Format, ListArgs};
use crate::units;
use crate::waiter::{WaitOutcome, Waiter};

/// Events without `--limit`.
const EVENTS_DEFAULT: u64 = 50;
/// Maximum number of events in a response of the server.
const PAGE_MAX: usize = 1_000;
/// Past events are complete if no further one arrives for this long.
const HISTORY_IDLE_TIMEOUT: Duration = Duration::from_millis(500);

/// `muster events`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster events -f\n  muster events --job job-42 -o json")]
pub struct Args {
    /// Only events of this job or array
    #[arg(long, value_name = "JOB")]
    job: Option<JobRef>,
    /// Print new events as they happen, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Begin after this sequence number
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    #[command(flatten)]
    list: ListArgs,
}

const COLUMNS: [Column<Event>; 5] = [
    Column::new("SEQ", |event| event.seq.into()),
    Column::new("AT", |event| units::local_time_text(event.at_ms).into()),
    Column::new("KIND", |event| event.kind.as_str().into()),
    Column::new("JOB", |event| Cell::or_dash(event.job_id.clone())),
    Column::wide("DATA", |event| muster_json::to_string(&event.data).into()),
];

/// Prints events, oldest first.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let job = args.job.map(|job| job.resolve(&client)).transpose()?;
    let limit = args.list.row_limit(EVENTS_DEFAULT as usize) as u64;
    if let (Some(job), false) = (job, args.follow) {
        return list_job_events(&client, job, &args, options);
    }
    let newest = client.get::<ClusterStatus>("cluster/status")?.seq;
    let after = args.after.unwrap_or(if args.follow { newest } else { newest.saturating_sub(limit) });
    let target = RequestTarget::new("events").query("after", after).query_if_some("job", job);
    let stream = client.open_event_stream(target)?;
    if args.follow {
        follow_events(&client, stream, &args, options)
    } else {
        list_past_events(&client, stream, newest, &args, options)
    }
}

/// Prints the newest events of a job, or the first ones after `--after`.
fn list_job_events(client: &Client, job: JobId, args: &Args, options: &Options) -> CommandResult {
    let limit = args.list.row_limit(EVENTS_DEFAULT as usize);
    let mut events: Vec<Event> = Vec::new();
    let mut after = args.after.unwrap_or(0);
    loop {
        let target = jobs::job_target(job).segment("events").query("limit", PAGE_MAX).query("after", after);
        let page: EventList = client.get(target)?;
        let last = page.events.len() < PAGE_MAX;
        after = page.next_after;
        events.extend(page.events);
        if last || args.after.is_some() && events.len() >= limit {
            break;
        }
    }
    let all = events.len();
    match args.after {
        Some(_) => events.truncate(limit),
        None => drop(events.drain(..all.saturating_sub(limit))),
    }
    let (shown, which) = (events.len(), if args.after.is_some() { "first" } else { "last" });
    let list = EventList { next_after: events.last().map_or(after, |event| event.seq), events };
    output::list(&args.list, options.color, &COLUMNS, list.events.clone(), &list)?;
    if shown < all && args.list.limit.is_none() {
        output::print_stderr(&format!(
            "showing the {which} {shown} of {}; `--limit 0` shows all",
            units::thousands_text(all as u64)
        ));
    }
    Ok(ExitStatus::SUCCESS)
}

/// Prints the events up to `newest` that the caller may see.
fn list_past_events(
    client: &Client,
    mut stream: EventStream,
    newest: u64,
    args: &Args,
    options: &Options,
) -> CommandResult {
    let mut events: Vec<Event> = Vec::new();
    while events.last().is_none_or(|event| event.seq < newest) {
        let next = client.block_on(async { tokio::time::timeout(HISTORY_IDLE_TIMEOUT, stream.next()).await });
        match next {
            Ok(message) => match message? {
                Some(message) => events.push(parse_event(&message.event, &message.data)?),
                None => break,
            },
            Err(_) => break,
        }
    }
    let list = EventList { next_after: events.last().map_or(0, |event| event.seq), events };
    output::list(&args.list, options.color, &COLUMNS, list.events.clone(), &list)?;
    Ok(ExitStatus::SUCCESS)
}

/// Prints one line per event as it happens. JSON is one object per line, so that it can be parsed as a stream.
fn follow_events(client: &Client, mut stream: EventStream, args: &Args, options: &Options) -> CommandResult {
    let mut waiter = Waiter::new(client, None)?;
    let lines = ListArgs { no_headers: true, ..args.list.clone() };
    loop {
        let message = match waiter.wait_for(stream.next()) {
            WaitOutcome::Ready(message) => message?,
            WaitOutcome::Interrupted | WaitOutcome::TimedOut => return Ok(ExitStatus::SUCCESS),
        };
        let Some(message) = message else {
            return Err(CliError::failed("the server ended the stream"));
        };
        let event = parse_event(&message.event, &message.data)?;
        match args.list.show.output {
            Format::Json => output::print_stdout(&format!("{}\n", muster_json::to_string(&event)))?,
            _ => output::list(&lines, options.color, &COLUMNS, vec![event.clone()], &event)?,
        }
    }
}

fn parse_event(kind: &str, data: &str) -> Result<Event, CliError> {
    let unreadable = |error| CliError::failed(format!("the server sent an unreadable event: {error}"));
    match kind {
        "problem" => {
            let problem: Problem = muster_json::from_str(data).map_err(unreadable)?;
            Err(stream_error(problem))
        }
        "lagged" => {
            Err(CliError::failed("the client was too slow and missed events").hint("begin again with `--after SEQ`"))
        }
        _ => muster_json::from_str(data).map_err(unreadable),
    }
}
