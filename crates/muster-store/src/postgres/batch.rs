//! Writes a batch to PostgreSQL: statements are grouped into bulk statements and pipelined.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use muster_core::JobId;
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::connection::PostgresConnection;
use super::error_mapping::map_write_error;
use super::values::ArrayParameter;
use crate::chain;
use crate::error::StoreError;
use crate::record::Entry;
use crate::tables::{BoundStatement, ExpectedRows, ProjectionScope, Statement, journal_row, project, projection_scope};

/// Statements in flight at once. Each reply wakes all pending futures, so a higher number costs more than it saves.
const CALLS_IN_FLIGHT_MAX: usize = 64;

/// Changes with the same statement, sent together.
pub struct StatementGroup {
    statement: &'static Statement,
    changes: Vec<BoundStatement>,
    /// First entry, for messages.
    seq: u64,
}

/// One execution of a statement: its values and the number of rows that it must affect.
struct StatementCall<'a> {
    group: &'a StatementGroup,
    sql: &'static str,
    values: Vec<Box<dyn ToSql + Sync + 'a>>,
    rows: ExpectedRows,
    changes: usize,
}

/// Entries of one kind that are written together.
struct EntryRun<'a> {
    kind: &'static str,
    entries: Vec<&'a Entry>,
    jobs: HashSet<JobId>,
}

/// Group the changes of a batch: changes of one run with the same statement go together, so that a hundred submissions
/// become one statement for the specs and one for the jobs.
pub fn group_statements(batch: &[Entry], mut last: chain::ChainChecksum) -> Vec<StatementGroup> {
    let mut groups = Vec::new();
    for entry in batch {
        add_to_group(&mut groups, 0, journal_row(entry, &mut last), entry.seq);
    }
    for run in group_into_runs(batch) {
        let begin = groups.len();
        for entry in run.entries {
            for change in project(entry) {
                add_to_group(&mut groups, begin, change, entry.seq);
            }
        }
    }
    groups
}

/// Group entries of one kind into runs. An entry may move ahead of entries of other kinds if their scopes are disjoint.
fn group_into_runs(batch: &[Entry]) -> Vec<EntryRun<'_>> {
    let mut runs: Vec<EntryRun<'_>> = Vec::new();
    for entry in batch {
        let at = match joinable_run(&runs, entry) {
            Some(at) => at,
            None => {
                runs.push(EntryRun { kind: entry.event.kind(), entries: Vec::new(), jobs: HashSet::new() });
                runs.len() - 1
            }
        };
        runs[at].entries.push(entry);
        if let ProjectionScope::Job(job) | ProjectionScope::JobAndQuota(job) = projection_scope(&entry.event) {
            runs[at].jobs.insert(job);
        }
    }
    runs
}

/// The last run of the same kind, unless a later run conflicts with the entry.
fn joinable_run(runs: &[EntryRun<'_>], entry: &Entry) -> Option<usize> {
    for (at, run) in runs.iter().enumerate().rev() {
        let run_scope = run.entries.first().map_or(ProjectionScope::OwnRow, |first| projection_scope(&first.event));
        let scope = projection_scope(&entry.event);
        if run_scope == ProjectionScope::All || scope == ProjectionScope::All {
            return None;
        }
        if run.kind == entry.event.kind() {
            return Some(at);
        }
        if run.conflicts_with(scope, run_scope) {
            return None;
        }
    }
    None
}

impl EntryRun<'_> {
    fn conflicts_with(&self, other: ProjectionScope, own: ProjectionScope) -> bool {
        let uses_quota = |scope| matches!(scope, ProjectionScope::JobAndQuota(_));
        match other {
            ProjectionScope::Job(job) | ProjectionScope::JobAndQuota(job) => {
                // An array is submitted under its number, without an index.
                let same_job = self.jobs.contains(&job) || self.jobs.contains(&JobId::single(job.number));
                same_job || (uses_quota(other) && uses_quota(own))
            }
            ProjectionScope::OwnRow => false,
            ProjectionScope::All => true,
        }
    }
}

/// Add a change to the group of its statement, among the groups of this run (from `begin`).
fn add_to_group(groups: &mut Vec<StatementGroup>, begin: usize, change: BoundStatement, seq: u64) {
    let same = |group: &&mut StatementGroup| std::ptr::eq(group.statement, change.statement);
    match groups[begin..].iter_mut().find(same) {
        Some(group) => group.changes.push(change),
        None => groups.push(StatementGroup { statement: change.statement, changes: vec![change], seq }),
    }
}

impl StatementGroup {
    /// One call for all changes if there is a bulk statement, otherwise one call per change.
    fn calls(&self) -> Vec<StatementCall<'_>> {
        match &self.statement.bulk {
            Some(bulk) if self.changes.len() > 1 => {
                let width = self.changes.first().map_or(0, |change| change.values.len());
                let column = |at: usize| ArrayParameter(self.changes.iter().map(|change| &change.values[at]).collect());
                let boxed = |at: usize| Box::new(column(at)) as Box<dyn ToSql + Sync>;
                vec![StatementCall {
                    group: self,
                    sql: bulk.sql,
                    values: (0..width).map(boxed).collect(),
                    rows: bulk.rows,
                    changes: self.changes.len(),
                }]
            }
            _ => self.changes.iter().map(|change| self.single_call(change)).collect(),
        }
    }

    fn single_call<'a>(&'a self, change: &'a BoundStatement) -> StatementCall<'a> {
        let boxed = |value| Box::new(value) as Box<dyn ToSql + Sync + 'a>;
        StatementCall {
            group: self,
            sql: self.statement.sql,
            values: change.values.iter().map(boxed).collect(),
            rows: self.statement.rows,
            changes: 1,
        }
    }

    fn operation(&self) -> String {
        format!("entry {}, {}", self.seq, self.statement.name)
    }
}

/// Execute all groups in order.
pub async fn write(connection: &mut PostgresConnection, groups: &[StatementGroup]) -> Result<(), StoreError> {
    let calls: Vec<StatementCall> = groups.iter().flat_map(StatementGroup::calls).collect();
    for call in &calls {
        connection.prepare(call.sql).await?;
    }
    for calls in calls.chunks(CALLS_IN_FLIGHT_MAX) {
        send_calls(connection, calls).await?;
    }
    Ok(())
}

type PendingRowCount<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + 'a>>;

async fn send_calls(connection: &PostgresConnection, calls: &[StatementCall<'_>]) -> Result<(), StoreError> {
    let mut pending: Vec<PendingRowCount<'_>> = Vec::with_capacity(calls.len());
    for call in calls {
        let statement = connection.prepared(call.sql)?;
        let values = call.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        pending.push(Box::pin(connection.client.execute_raw(statement, values)));
    }
    // The first error is the cause; later errors only say that the transaction is aborted.
    for (call, affected) in calls.iter().zip(join_all(pending).await) {
        let affected = affected.map_err(|error| map_write_error(&call.group.operation())(error))?;
        if !call.rows.allows(affected, call.changes) {
            return Err(wrong_row_count(call, affected));
        }
    }
    Ok(())
}

fn wrong_row_count(call: &StatementCall<'_>, affected: u64) -> StoreError {
    match call.group.changes.as_slice() {
        [change] => change.wrong_row_count(&call.group.operation(), affected),
        changes => StoreError::invariant_violated(format!(
            "{} and following entries: affected {affected} rows for {} changes",
            call.group.operation(),
            changes.len()
        )),
    }
}

/// Wait for all replies. The first poll of a future sends its request, so the requests are sent in order.
async fn join_all(mut pending: Vec<PendingRowCount<'_>>) -> Vec<Result<u64, Error>> {
    let mut results: Vec<Option<Result<u64, Error>>> = pending.iter().map(|_| None).collect();
    poll_fn(move |context| {
        for (future, result) in pending.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(done) = future.as_mut().poll(context)
            {
                *result = Some(done);
            }
        }
        match results.iter().all(Option::is_some) {
            true => Poll::Ready(std::mem::take(&mut results).into_iter().flatten().collect()),
            false => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::facts::event::NextPhase;
    use muster_core::objects::charge::Charge;
    use muster_core::objects::job::{Exit, Outcome};
    use muster_core::{Event, Timestamp};

    const AT: Timestamp = Timestamp(0);

    fn event(name: &str, number: u64) -> Event {
        let job = JobId::single(number);
        match name {
            "woken" => Event::JobWoken { job, at: AT },
            "cancelled" => Event::JobEnded { job, outcome: Outcome::Cancelled, why: String::new(), at: AT },
            "placed" => Event::JobPlaced {
                job,
                attempt: 1,
                epoch: 1,
                tasks: Vec::new(),
                effective_priority: None,
                expected_ms: None,
                revocable: false,
                score: None,
                held: None,
                self_fence: None,
                master_port: None,
                start_bound_ms: None,
                at: AT,
            },
            "done" => Event::AttemptEnded {
                receipt: None,
                job,
                attempt: 1,
                exit: Exit::Code { code: 0 },
                next: NextPhase::Ended { outcome: Outcome::Done, why: String::new() },
                charge: Charge::default(),
                charged_until: None,
                held: None,
                at: AT,
            },
            "revoked" => Event::TokenRevoked { id: "t-1".to_string(), at: AT },
            _ => Event::Forgotten { before: AT, trimmed_before: None },
        }
    }

    /// Events such as `woken 1, cancelled 2`, and the entry numbers of the expected runs.
    fn check(events: &str, expected: &str) {
        let batch: Vec<Entry> = (1..)
            .zip(events.split(", "))
            .map(|(seq, line)| {
                let (name, number) = line.split_once(' ').unwrap_or((line, "0"));
                Entry { seq, epoch: 1, at: AT, event: event(name, number.parse().unwrap()) }
            })
            .collect();
        let run = |run: EntryRun<'_>| {
            let seqs: Vec<String> = run.entries.iter().map(|entry| entry.seq.to_string()).collect();
            seqs.join(" ")
        };
        let found: Vec<String> = group_into_runs(&batch).into_iter().map(run).collect();
        assert_eq!(found.join(" | "), expected, "{events}");
    }

    #[test]
    fn events_of_one_kind_are_grouped_into_one_run() {
        check("woken 1, cancelled 2, woken 3, forgotten, cancelled 4", "1 3 | 2 5 | 4");
        check("placed 1, cancelled 2, placed 3, woken 4, placed 5", "1 3 5 | 2 | 4");
    }

    #[test]
    fn events_of_one_job_keep_their_order() {
        check("woken 1, cancelled 2, woken 2", "1 | 2 | 3");
        check("cancelled 1, woken 1, cancelled 1", "1 | 2 | 3");
    }

    #[test]
    fn placements_and_releases_of_quota_keep_their_order() {
        check("placed 1, done 2, placed 3, done 4", "1 | 2 | 3 | 4");
        check("done 2, cancelled 5, done 4, placed 3, placed 6", "1 3 | 2 | 4 5");
    }

    #[test]
    fn no_event_is_moved_across_an_event_of_scope_all() {
        check("woken 1, revoked, woken 2, revoked", "1 | 2 | 3 | 4");
    }
}
