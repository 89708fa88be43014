//! `muster audit`: administrative acts, done and refused.

use muster_protocol::audit::{AuditEntry, AuditList};

use super::{CommandResult, ExitStatus};
use crate::client::{Client, RequestTarget};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, Tint};
use crate::units;

/// Rows without `--limit`.
const ROWS_DEFAULT: usize = 50;
/// Maximum number of rows in a response of the server.
const PAGE_MAX: usize = 1_000;

/// `muster audit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only acts of this user or token
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only this act, for example tenant.change
    #[arg(long, value_name = "ACT")]
    action: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

const COLUMNS: [Column<AuditEntry>; 7] = [
    Column::new("SEQ", |entry| entry.seq.into()),
    Column::new("AT", |entry| units::local_time_text(entry.at_ms).into()),
    Column::new("ACTOR", |entry| entry.actor.as_str().into()),
    Column::new("KIND", |entry| entry.actor_kind.as_deref().unwrap_or("-").into()),
    Column::new("ACTION", |entry| entry.action.as_str().into()),
    Column::new("OBJECT", |entry| entry.object.as_str().into()),
    Column::new("RESULT", result_cell),
];

/// Prints the acts, newest first.
pub fn run(args: Args, options: &Options) -> CommandResult {
    output::check_columns(&args.list, &COLUMNS)?;
    let limit = args.list.row_limit(ROWS_DEFAULT);
    // `--sort` needs all entries: the limit applies after sorting.
    let enough = if args.list.sort.is_some() { usize::MAX } else { limit };
    let (list, truncated) = fetch_entries(&options.client()?, &args, enough)?;
    let shown = ListArgs { limit: Some(limit), ..args.list.clone() };
    output::list(&shown, options.color, &COLUMNS, list.entries.clone(), &list)?;
    if (truncated || list.entries.len() > limit) && args.list.limit.is_none() {
        output::print_stderr(&format!(
            "showing {limit} of {}; `--limit 0` shows all",
            units::thousands_text(list.total)
        ));
    }
    Ok(ExitStatus::SUCCESS)
}

/// Fetches pages until `enough` entries match; also returns whether there may be more.
fn fetch_entries(client: &Client, args: &Args, enough: usize) -> Result<(AuditList, bool), CliError> {
    let matches = |entry: &AuditEntry| {
        args.actor.as_ref().is_none_or(|actor| *actor == entry.actor)
            && args.action.as_ref().is_none_or(|action| *action == entry.action)
    };
    let mut list = AuditList { entries: Vec::new(), total: 0, next_cursor: None };
    let mut cursor: Option<String> = None;
    loop {
        let limit = enough.clamp(1, PAGE_MAX);
        let page: AuditList =
            client.get(RequestTarget::new("audit").query("limit", limit).query_if_some("cursor", cursor.take()))?;
        list.total = page.total;
        list.entries.extend(page.entries.into_iter().filter(matches));
        match page.next_cursor {
            Some(next) if list.entries.len() < enough => cursor = Some(next),
            next => {
                let truncated = list.entries.len() > enough || next.is_some() && list.total > enough as u64;
                list.entries.truncate(enough);
                return Ok((list, truncated));
            }
        }
    }
}

fn result_cell(entry: &AuditEntry) -> Cell {
    match (&entry.refused, entry.allowed) {
        (Some(code), _) if entry.times > 1 => {
            Cell::tinted(format!("refused: {code} ({} times)", entry.times), Tint::Bad)
        }
        (Some(code), _) => Cell::tinted(format!("refused: {code}"), Tint::Bad),
        (None, true) => Cell::from("done"),
        (None, false) => Cell::tinted("refused", Tint::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_refusals_show_their_count() {
        let entry = |times| AuditEntry {
            seq: 1,
            at: String::new(),
            at_ms: 0,
            actor: "vic".into(),
            actor_kind: Some("token".into()),
            action: "DELETE /api/v1/jobs/{id}".into(),
            object: "/api/v1/jobs/job-1".into(),
            allowed: false,
            refused: Some("forbidden".into()),
            times,
        };
        assert_eq!(result_cell(&entry(1)).text, "refused: forbidden");
        assert_eq!(result_cell(&entry(57)).text, "refused: forbidden (57 times)");
    }
}
