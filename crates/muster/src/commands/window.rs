//! Book nodes for a time, for maintenance or for a tenant.

use hyper::Method;
use muster_protocol::submit::Acknowledgement;
use muster_protocol::window::{Window, WindowList, WindowSpec};
use muster_protocol::input::Span;

use super::{ExitStatus, CommandResult};
use crate::client::RequestTarget;
use crate::options::Options;
use crate::output::{self, Column, ListArgs};
use crate::units;
use crate::moments::{self, ParsedMoment};

/// `muster window`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List the windows
    Ls(WindowLsArgs),
    /// Book nodes
    #[command(before_help = "Examples:\n  \
        muster window add repair --node gpu01 --begin 2h --for 1h --why 'a new fan'\n  \
        muster window add course --node gpu02 --node gpu03 --for 4h --tenant teaching")]
    Add(WindowAddArgs),
    /// Give booked nodes back
    Rm(WindowRmArgs),
}

#[derive(Debug, clap::Args)]
pub struct WindowLsArgs {
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub struct WindowAddArgs {
    /// What to call it
    name: String,
    /// Which node; may be repeated
    #[arg(long, required = true, value_name = "NODE")]
    node: Vec<String>,
    /// From when, in your time zone: 18:00, tomorrow, 2026-11-18T18:00, or a span from now such as 2h; now when not
    /// given
    #[arg(long, value_name = "WHEN", value_parser = when::moment, allow_hyphen_values = true)]
    begin: Option<ParsedMoment>,
    /// How long, for example 4h
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration_ms)]
    duration_ms: i64,
    /// For this tenant and all below it; for nobody when not given
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Why, for those who wait
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

#[derive(Debug, clap::Args)]
pub struct WindowRmArgs {
    /// Which window
    name: String,
}

const COLUMNS: [Column<Window>; 7] = [
    Column::new("NAME", |window| window.name.as_str().into()),
    Column::new("FROM", |window| units::local_time_text(window.from_ms).into()),
    Column::new("UNTIL", |window| units::local_time_text(window.until_ms).into()),
    Column::new("NODES", |window| window.nodes.join(" ").into()),
    Column::new("FOR", |window| window.tenant.as_deref().unwrap_or("maintenance").into()),
    Column::new("STILL THERE", |window| window.jobs.join(" ").into()),
    Column::new("WHY", |window| window.why.as_str().into()),
];

/// Do one of them.
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
                _ => format!("; still there: {}", window.jobs.join(" ")),
            };
            output::print_stderr(&format!("window `{}` is booked{running}", window.name));
        }
        Verb::Rm(args) => {
            let done: Acknowledgement = client.send_without_body(Method::DELETE, RequestTarget::new("windows").segment(&args.name))?;
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
