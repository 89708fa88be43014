//! `muster change`: change the time limit, priority or name of a job that has not ended.

use hyper::Method;
use muster_protocol::input::{Priority, Span};
use muster_protocol::submit::{Acknowledgement, JobChange};

use super::{CommandResult, ExitStatus};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;
use crate::units::{self, TimeLimit};

/// `muster change`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster change job-42 --time 30m")]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
pub struct Args {
    /// Job id; `-` is your newest job
    job: JobRef,
    /// New time limit, for example 2h; `none` removes it
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit_change, group = "what")]
    time: Option<TimeLimitChange>,
    /// New priority: a number, or low, medium, high, critical
    #[arg(long, value_name = "N", group = "what")]
    priority: Option<String>,
    /// New name
    #[arg(long, value_name = "TEXT", group = "what")]
    name: Option<String>,
}

/// The new time limit; `None` removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TimeLimitChange(Option<TimeLimit>);

fn parse_time_limit_change(text: &str) -> Result<TimeLimitChange, String> {
    if text == "none" {
        Ok(TimeLimitChange(None))
    } else {
        units::parse_time_limit(text).map(|limit| TimeLimitChange(Some(limit)))
    }
}

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
