//! Book nodes for a time, for maintenance or for a tenant.

use hyper::Method;
use muster_protocol::submit::Done;
use muster_protocol::window::{Window, WindowList, WindowSpec};
use muster_protocol::written::Span;

use super::{Code, Ending};
use crate::client::Target;
use crate::options::Options;
use crate::output::{self, Column, ListArgs};
use crate::units;
use crate::when::{self, Given};

/// `muster window`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List the windows
    Ls(LsArgs),
    /// Book nodes
    #[command(before_help = "Examples:\n  \
        muster window add repair --node gpu01 --begin 2h --for 1h --why 'a new fan'\n  \
        muster window add course --node gpu02 --node gpu03 --for 4h --tenant teaching")]
    Add(AddArgs),
    /// Give booked nodes back
    Rm(RmArgs),
}

#[derive(Debug, clap::Args)]
pub struct LsArgs {
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub struct AddArgs {
    /// What to call it
    name: String,
    /// Which node; may be repeated
    #[arg(long, required = true, value_name = "NODE")]
    node: Vec<String>,
    /// From when, in your time zone: 18:00, tomorrow, 2026-11-18T18:00, or a span from now such as 2h; now when not
    /// given
    #[arg(long, value_name = "WHEN", value_parser = when::moment, allow_hyphen_values = true)]
    begin: Option<Given>,
    /// How long, for example 4h
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration_ms)]
    lasts: i64,
    /// For this tenant and all below it; for nobody when not given
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Why, for those who wait
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

#[derive(Debug, clap::Args)]
pub struct RmArgs {
    /// Which window
    name: String,
}

const COLUMNS: [Column<Window>; 7] = [
    Column::new("NAME", |window| window.name.as_str().into()),
    Column::new("FROM", |window| units::moment(window.from_ms).into()),
    Column::new("UNTIL", |window| units::moment(window.until_ms).into()),
    Column::new("NODES", |window| window.nodes.join(" ").into()),
    Column::new("FOR", |window| window.tenant.as_deref().unwrap_or("maintenance").into()),
    Column::new("STILL THERE", |window| window.jobs.join(" ").into()),
    Column::new("WHY", |window| window.why.as_str().into()),
];

/// Do one of them.
pub fn run(verb: Verb, options: &Options) -> Ending {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let windows: WindowList = client.get("windows")?;
            output::list(&args.list, options.color, &COLUMNS, windows.windows.clone(), &windows)?;
        }
        Verb::Add(args) => {
            let window: Window = client.send(Method::POST, Target::new("windows"), &spec(args))?;
            let running = match window.jobs.len() {
                0 => String::new(),
                _ => format!("; still there: {}", window.jobs.join(" ")),
            };
            output::talk(&format!("window `{}` is booked{running}", window.name));
        }
        Verb::Rm(args) => {
            let done: Done = client.act(Method::DELETE, Target::new("windows").at(&args.name))?;
            output::talk(&done.message);
        }
    }
    Ok(Code::DONE)
}

fn spec(args: AddArgs) -> WindowSpec {
    WindowSpec {
        name: args.name,
        nodes: args.node,
        from: args.begin.map(|begin| begin.told("begins at")),
        until: None,
        duration: Some(Span::Text(format!("{}ms", args.lasts))),
        tenant: args.tenant,
        why: args.why,
    }
}
