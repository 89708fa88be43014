//! What happens in the cluster, fact by fact.

use std::time::Duration;

use muster_core::JobId;
use muster_protocol::cluster::ClusterStatus;
use muster_protocol::event::{Event, EventList};
use muster_protocol::problem::Problem;

use super::{Code, Ending};
use crate::client::{Client, Stream, Target, stream_error};
use crate::error::CliError;
use crate::follow::{Came, Patience};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, Cell, Column, Format, ListArgs};
use crate::units;

/// Facts when nobody says how many.
const LIMIT_DEFAULT: u64 = 50;
/// Most facts the server gives at once.
const PAGE_MAX: usize = 1_000;
/// The past has been told when nothing more comes for this long.
const QUIET: Duration = Duration::from_millis(500);

/// `muster events`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster events -f\n  muster events --job job-42 -o json")]
pub struct Args {
    /// Only about this job or array
    #[arg(long, value_name = "JOB")]
    job: Option<JobRef>,
    /// Go on as things happen, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Begin after this number
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    #[command(flatten)]
    list: ListArgs,
}

const COLUMNS: [Column<Event>; 5] = [
    Column::new("SEQ", |event| event.seq.into()),
    Column::new("AT", |event| units::moment(event.at_ms).into()),
    Column::new("KIND", |event| event.kind.as_str().into()),
    Column::new("JOB", |event| Cell::or_dash(event.job_id.clone())),
    Column::wide("DATA", |event| muster_json::to_string(&event.data).into()),
];

/// Print facts, oldest first.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let job = args.job.map(|job| job.resolve(&client)).transpose()?;
    let limit = args.list.most(LIMIT_DEFAULT as usize) as u64;
    if let (Some(job), false) = (job, args.follow) {
        return of_job(&client, job, &args, options);
    }
    let newest = client.get::<ClusterStatus>("cluster/status")?.seq;
    let after = args.after.unwrap_or(if args.follow { newest } else { newest.saturating_sub(limit) });
    let target = Target::new("events").with("after", after).with_some("job", job);
    let stream = client.follow(target)?;
    if args.follow {
        follow(&client, stream, &args, options)
    } else {
        past(&client, stream, newest, &args, options)
    }
}

/// The newest facts about a job, or the first ones after a number.
fn of_job(client: &Client, job: JobId, args: &Args, options: &Options) -> Ending {
    let most = args.list.most(LIMIT_DEFAULT as usize);
    let mut events: Vec<Event> = Vec::new();
    let mut after = args.after.unwrap_or(0);
    loop {
        let target = jobs::target(job).at("events").with("limit", PAGE_MAX).with("after", after);
        let page: EventList = client.get(target)?;
        let last = page.events.len() < PAGE_MAX;
        after = page.next_after;
        events.extend(page.events);
        if last || args.after.is_some() && events.len() >= most {
            break;
        }
    }
    let all = events.len();
    match args.after {
        Some(_) => events.truncate(most),
        None => drop(events.drain(..all.saturating_sub(most))),
    }
    let (shown, which) = (events.len(), if args.after.is_some() { "first" } else { "last" });
    let list = EventList { next_after: events.last().map_or(after, |event| event.seq), events };
    output::list(&args.list, options.color, &COLUMNS, list.events.clone(), &list)?;
    if shown < all && args.list.limit.is_none() {
        output::talk(&format!(
            "showing the {which} {shown} of {}; `--limit 0` shows all",
            units::thousands(all as u64)
        ));
    }
    Ok(Code::DONE)
}

/// What has happened up to `newest`, as far as we may see it.
fn past(client: &Client, mut stream: Stream, newest: u64, args: &Args, options: &Options) -> Ending {
    let mut events: Vec<Event> = Vec::new();
    while events.last().is_none_or(|event| event.seq < newest) {
        let next = client.block_on(async { tokio::time::timeout(QUIET, stream.next()).await });
        match next {
            Ok(message) => match message? {
                Some(message) => events.push(read(&message.event, &message.data)?),
                None => break,
            },
            Err(_) => break,
        }
    }
    let list = EventList { next_after: events.last().map_or(0, |event| event.seq), events };
    output::list(&args.list, options.color, &COLUMNS, list.events.clone(), &list)?;
    Ok(Code::DONE)
}

/// One line for each, as it comes. JSON is one object a line, so that it can be read as it comes.
fn follow(client: &Client, mut stream: Stream, args: &Args, options: &Options) -> Ending {
    let mut patience = Patience::new(client, None)?;
    let lines = ListArgs { no_headers: true, ..args.list.clone() };
    loop {
        let message = match patience.wait_for(stream.next()) {
            Came::This(message) => message?,
            Came::Interrupt | Came::Deadline => return Ok(Code::DONE),
        };
        let Some(message) = message else {
            return Err(CliError::failed("the server ended the stream"));
        };
        let event = read(&message.event, &message.data)?;
        match args.list.show.output {
            Format::Json => output::print(&format!("{}\n", muster_json::to_string(&event)))?,
            _ => output::list(&lines, options.color, &COLUMNS, vec![event.clone()], &event)?,
        }
    }
}

fn read(kind: &str, data: &str) -> Result<Event, CliError> {
    let strange = |error| CliError::failed(format!("the server sends something else than events: {error}"));
    match kind {
        "problem" => {
            let problem: Problem = muster_json::from_str(data).map_err(strange)?;
            Err(stream_error(problem))
        }
        "lagged" => {
            Err(CliError::failed("too slow: facts were missed").hint("begin again with `--after SEQ`"))
        }
        _ => muster_json::from_str(data).map_err(strange),
    }
}
