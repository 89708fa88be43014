//! Change what may change of a job that has not ended.

use hyper::Method;
use muster_protocol::submit::{Done, JobChange};
use muster_protocol::written::{Priority, Span};

use super::{Code, Ending};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;
use crate::units;

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

/// A time limit in milliseconds, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit(Option<i64>);

fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { units::duration_ms(text).map(|ms| Limit(Some(ms))) }
}

/// Change it, and say so.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let priority = |text: String| text.parse().map_or(Priority::Name(text.clone()), Priority::Number);
    let change = JobChange {
        name: args.name,
        priority: args.priority.map(priority),
        time_limit: args.time.map(|Limit(ms)| ms.map(|ms| Span::Text(format!("{ms}ms")))),
        labels: None,
    };
    let done: Done = client.send(Method::PATCH, jobs::target(id), &change)?;
    output::talk(&done.message);
    Ok(Code::DONE)
}
