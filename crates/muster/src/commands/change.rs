//! Change what may change of a job that has not ended.

use hyper::Method;
use muster_protocol::submit::{Done, JobChange};
use muster_protocol::written::{Priority, Span};

use super::{Code, Ending};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;
use crate::units::{self, TimeLimit};

/// `muster change`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster change job-42 --time 30m")]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
pub struct Args {
    /// Which job; `-` is your newest
    job: JobRef,
    /// Its time limit, for example 2h; `none` lifts it
    #[arg(long, value_name = "TIME", value_parser = limit, group = "what")]
    time: Option<Limit>,
    /// Its priority: a number, or low, medium, high, critical
    #[arg(long, value_name = "N", group = "what")]
    priority: Option<String>,
    /// Its name
    #[arg(long, value_name = "TEXT", group = "what")]
    name: Option<String>,
}

/// A time limit, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limit(Option<TimeLimit>);

fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { units::time_limit(text).map(|limit| Limit(Some(limit))) }
}

/// Change it, and say so.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    args.time.iter().filter_map(|limit| limit.0.as_ref()?.note.as_ref()).for_each(|note| output::talk(note));
    let priority = |text: String| text.parse().map_or(Priority::Name(text.clone()), Priority::Number);
    let change = JobChange {
        name: args.name,
        priority: args.priority.map(priority),
        time_limit: args.time.map(|Limit(limit)| limit.map(|limit| Span::Text(format!("{}ms", limit.ms)))),
        labels: None,
    };
    let done: Done = client.send(Method::PATCH, jobs::target(id), &change)?;
    output::talk(&done.message);
    Ok(Code::DONE)
}
