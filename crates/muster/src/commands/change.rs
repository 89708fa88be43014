//! Change what may change of a job that has not ended.

use hyper::Method;
use muster_protocol::submit::{Acknowledgement, JobChange};
use muster_protocol::input::{Priority, Span};

use super::{ExitStatus, CommandResult};
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
    time: Option<TimeLimitChange>,
    /// Its priority: a number, or low, medium, high, critical
    #[arg(long, value_name = "N", group = "what")]
    priority: Option<String>,
    /// Its name
    #[arg(long, value_name = "TEXT", group = "what")]
    name: Option<String>,
}

/// A time limit, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TimeLimitChange(Option<TimeLimit>);

fn parse_time_limit_change(text: &str) -> Result<TimeLimitChange, String> {
    if text == "none" { Ok(TimeLimitChange(None)) } else { units::parse_time_limit(text).map(|limit| TimeLimitChange(Some(limit))) }
}

/// Change it, and say so.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    args.time.iter().filter_map(|limit| limit.0.as_ref()?.note.as_ref()).for_each(|note| output::print_stderr(note));
    let priority = |text: String| text.parse().map_or(Priority::Name(text.clone()), Priority::Number);
    let change = JobChange {
        name: args.name,
        priority: args.priority.map(priority),
        time_limit: args.time.map(|TimeLimitChange(limit)| limit.map(|limit| Span::Text(format!("{}ms", limit.ms)))),
        labels: None,
    };
    let done: Acknowledgement = client.send(Method::PATCH, jobs::job_target(id), &change)?;
    output::print_stderr(&done.message);
    Ok(ExitStatus::SUCCESS)
}
