//! Administrative acts, done and refused.

use muster_protocol::audit::{AuditEntry, AuditList};

use super::{Code, Ending};
use crate::client::Target;
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, Tint};
use crate::units;

/// Rows when nobody says how many.
const LIMIT_DEFAULT: usize = 50;

/// `muster audit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only acts of this person or token
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only this act, for example tenant.change
    #[arg(long, value_name = "ACT")]
    action: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

const COLUMNS: [Column<AuditEntry>; 6] = [
    Column::new("SEQ", |entry| entry.seq.into()),
    Column::new("AT", |entry| units::moment(entry.at_ms).into()),
    Column::new("ACTOR", |entry| entry.actor.as_str().into()),
    Column::new("ACTION", |entry| entry.action.as_str().into()),
    Column::new("OBJECT", |entry| entry.object.as_str().into()),
    Column::new("RESULT", result),
];

/// Print the acts, newest first.
pub fn run(args: Args, options: &Options) -> Ending {
    let target = Target::new("audit")
        .with("limit", args.list.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, 1_000))
        .with_some("actor", args.actor)
        .with_some("action", args.action);
    let page: AuditList = options.client()?.get(target)?;
    output::list(&args.list, options.color, &COLUMNS, page.entries.clone(), &page)?;
    Ok(Code::DONE)
}

fn result(entry: &AuditEntry) -> Cell {
    match (&entry.refused, entry.allowed) {
        (Some(code), _) if entry.times > 1 => {
            Cell::tinted(format!("refused {} times: {code}", entry.times), Tint::Bad)
        }
        (Some(code), _) => Cell::tinted(format!("refused: {code}"), Tint::Bad),
        (None, true) => Cell::from("done"),
        (None, false) => Cell::tinted("refused", Tint::Bad),
    }
}
