//! `muster window`: book nodes for a time, for maintenance or for a tenant.

use hyper::Method;
use muster_protocol::input::Span;
use muster_protocol::submit::Acknowledgement;
use muster_protocol::window::{Window, WindowList, WindowSpec};

use super::{CommandResult, ExitStatus};
use crate::client::RequestTarget;
use crate::moments::{self, ParsedMoment};
use crate::options::Options;
use crate::output::{self, Column, ListArgs};
use crate::units;

/// `muster window`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List windows
    Ls(WindowLsArgs),
    /// Book nodes
    #[command(before_help = "Examples:\n  \
        muster window add repair --node gpu01 --begin 2h --for 1h --why 'fan replacement'\n  \
        muster window add course --node gpu02 --node gpu03 --for 4h --tenant teaching")]
    Add(WindowAddArgs),
    /// Remove a window; its nodes return to service
    Rm(WindowRmArgs),
}

#[derive(Debug, clap::Args)]
pub struct WindowLsArgs {
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub struct WindowAddArgs {
    /// Name of the window
    name: String,
    /// Node to book; may be repeated
    #[arg(long, required = true, value_name = "NODE")]
    node: Vec<String>,
    /// Begin, in your time zone: 18:00, tomorrow, 2026-11-18T18:00, or a span from now such as 2h [default: now]
    #[arg(long, value_name = "WHEN", value_parser = moments::parse_moment, allow_hyphen_values = true)]
    begin: Option<ParsedMoment>,
    /// Duration, for example 4h
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_duration_ms)]
    duration_ms: i64,
    /// Tenant that may use the nodes, with its children [default: none, for maintenance]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Reason, shown by `muster why` of jobs that wait for the nodes
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

#[derive(Debug, clap::Args)]
pub struct WindowRmArgs {
    /// Name of the window
    name: String,
}

const COLUMNS: [Column<Window>; 7] = [
    Column::new("NAME", |window| window.name.as_str().into()),
    Column::new("FROM", |window| units::local_time_text(window.from_ms).into()),
    Column::new("UNTIL", |window| units::local_time_text(window.until_ms).into()),
    Column::new("NODES", |window| window.nodes.join(" ").into()),
    Column::new("FOR", |window| window.tenant.as_deref().unwrap_or("maintenance").into()),
    Column::new("JOBS", |window| window.jobs.join(" ").into()),
    Column::new("WHY", |window| window.why.as_str().into()),
];

pub fn run(verb: Verb, options: &Options) -> CommandResult {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let windows: WindowList = client.get("windows")?;
            output::list(&args.list, options.color, &COLUMNS, windows.windows.clone(), &windows)?;
        }
        Verb::Add(args) => {
            let window: Window = client.send(Method::POST, RequestTarget::new("windows"), &window_spec(args))?;
            let running = match window.jobs.len() {
                0 => String::new(),
                _ => format!("; jobs still running: {}", window.jobs.join(" ")),
            };
            output::print_stderr(&format!("window `{}` is booked{running}", window.name));
        }
        Verb::Rm(args) => {
            let done: Acknowledgement =
                client.send_without_body(Method::DELETE, RequestTarget::new("windows").segment(&args.name))?;
            output::print_stderr(&done.message);
        }
    }
    Ok(ExitStatus::SUCCESS)
}

fn window_spec(args: WindowAddArgs) -> WindowSpec {
    WindowSpec {
        name: args.name,
        nodes: args.node,
        from: args.begin.map(|begin| begin.announced_moment("begins at")),
        until: None,
        duration: Some(Span::Text(format!("{}ms", args.duration_ms))),
        tenant: args.tenant,
        why: args.why,
    }
}
