//! A batch on its way into PostgreSQL: few statements, sent without waiting for each answer.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use muster_core::JobId;
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::fault::fault;
use super::link::Link;
use super::values::Column;
use crate::chain;
use crate::error::StoreError;
use crate::record::Entry;
use crate::tables::{Change, Reach, Rows, Statement, journal_row, project, reach};

/// Statements on their way at once. Each answer wakes all that wait, so more would cost more than they save.
const IN_FLIGHT: usize = 64;

/// Changes by one statement, to be sent together.
pub struct Group {
    statement: &'static Statement,
    changes: Vec<Change>,
    /// The first entry it comes from, for messages.
    seq: u64,
}

/// One round trip: a text, the values for it, and how many rows it must touch.
struct Call<'a> {
    group: &'a Group,
    sql: &'static str,
    values: Vec<Box<dyn ToSql + Sync + 'a>>,
    rows: Rows,
    changes: usize,
}

/// Entries of one kind that are written together.
struct Run<'a> {
    kind: &'static str,
    entries: Vec<&'a Entry>,
    jobs: HashSet<JobId>,
}

/// Put the changes of a batch into groups: those of a run that have a statement in common go together, so that a
/// hundred submissions become one statement for the specs and one for the jobs.
pub fn groups(batch: &[Entry], mut last: chain::Link) -> Vec<Group> {
    let mut groups = Vec::new();
    for entry in batch {
        add(&mut groups, 0, journal_row(entry, &mut last), entry.seq);
    }
    for run in runs(batch) {
        let begin = groups.len();
        for entry in run.entries {
            for change in project(entry) {
                add(&mut groups, begin, change, entry.seq);
            }
        }
    }
    groups
}

/// Gather entries of one kind, also if others stand between them that they may overtake.
fn runs(batch: &[Entry]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for entry in batch {
        let at = match joinable(&runs, entry) {
            Some(at) => at,
            None => {
                runs.push(Run { kind: entry.event.kind(), entries: Vec::new(), jobs: HashSet::new() });
                runs.len() - 1
            }
        };
        runs[at].entries.push(entry);
        if let Reach::Job(job) | Reach::JobAndQuota(job) = reach(&entry.event) {
            runs[at].jobs.insert(job);
        }
    }
    runs
}

/// The last run of the same kind, unless something in its way must come first.
fn joinable(runs: &[Run<'_>], entry: &Entry) -> Option<usize> {
    for (at, run) in runs.iter().enumerate().rev() {
        let reaches = run.entries.first().map_or(Reach::Itself, |first| reach(&first.event));
        let reach = reach(&entry.event);
        if reaches == Reach::All || reach == Reach::All {
            return None;
        }
        if run.kind == entry.event.kind() {
            return Some(at);
        }
        if run.is_in_the_way_of(reach, reaches) {
            return None;
        }
    }
    None
}

impl Run<'_> {
    fn is_in_the_way_of(&self, other: Reach, own: Reach) -> bool {
        let quota = |reach| matches!(reach, Reach::JobAndQuota(_));
        match other {
            Reach::Job(job) | Reach::JobAndQuota(job) => {
                // An array is submitted under its number alone.
                let touched = self.jobs.contains(&job) || self.jobs.contains(&JobId::single(job.number));
                touched || (quota(other) && quota(own))
            }
            Reach::Itself => false,
            Reach::All => true,
        }
    }
}

/// To the group of its statement, among those of this run.
fn add(groups: &mut Vec<Group>, begin: usize, change: Change, seq: u64) {
    let same = |group: &&mut Group| std::ptr::eq(group.statement, change.statement);
    match groups[begin..].iter_mut().find(same) {
        Some(group) => group.changes.push(change),
        None => groups.push(Group { statement: change.statement, changes: vec![change], seq }),
    }
}

impl Group {
    /// One call for all changes where the statement knows how, else one for each.
    fn calls(&self) -> Vec<Call<'_>> {
        match &self.statement.bulk {
            Some(bulk) if self.changes.len() > 1 => {
                let width = self.changes.first().map_or(0, |change| change.values.len());
                let column =
                    |at: usize| Column(self.changes.iter().map(|change| &change.values[at]).collect());
                let boxed = |at: usize| Box::new(column(at)) as Box<dyn ToSql + Sync>;
                vec![Call {
                    group: self,
                    sql: bulk.sql,
                    values: (0..width).map(boxed).collect(),
                    rows: bulk.rows,
                    changes: self.changes.len(),
                }]
            }
            _ => self.changes.iter().map(|change| self.single(change)).collect(),
        }
    }

    fn single<'a>(&'a self, change: &'a Change) -> Call<'a> {
        let boxed = |value| Box::new(value) as Box<dyn ToSql + Sync + 'a>;
        Call {
            group: self,
            sql: self.statement.sql,
            values: change.values.iter().map(boxed).collect(),
            rows: self.statement.rows,
            changes: 1,
        }
    }

    fn doing(&self) -> String {
        format!("entry {}, {}", self.seq, self.statement.name)
    }
}

/// Run all groups in order.
pub async fn write(link: &mut Link, groups: &[Group]) -> Result<(), StoreError> {
    let calls: Vec<Call> = groups.iter().flat_map(Group::calls).collect();
    for call in &calls {
        link.prepare(call.sql).await?;
    }
    for calls in calls.chunks(IN_FLIGHT) {
        send(link, calls).await?;
    }
    Ok(())
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + 'a>>;

async fn send(link: &Link, calls: &[Call<'_>]) -> Result<(), StoreError> {
    let mut answers: Vec<Answer<'_>> = Vec::with_capacity(calls.len());
    for call in calls {
        let statement = link.prepared(call.sql)?;
        let values = call.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        answers.push(Box::pin(link.client.execute_raw(statement, values)));
    }
    // The first failure tells why; those behind it only say that the transaction has failed.
    for (call, touched) in calls.iter().zip(all(answers).await) {
        let touched = touched.map_err(|error| fault(&call.group.doing())(error))?;
        if !call.rows.allow(touched, call.changes) {
            return Err(wrong_rows(call, touched));
        }
    }
    Ok(())
}

fn wrong_rows(call: &Call<'_>, touched: u64) -> StoreError {
    match call.group.changes.as_slice() {
        [change] => change.wrong_rows(&call.group.doing(), touched),
        changes => StoreError::broken(format!(
            "{} and those after it: touched {touched} rows for {} changes",
            call.group.doing(),
            changes.len()
        )),
    }
}

/// Wait for all. The first look at a future sends its request, so they are sent in order.
async fn all(mut answers: Vec<Answer<'_>>) -> Vec<Result<u64, Error>> {
    let mut results: Vec<Option<Result<u64, Error>>> = answers.iter().map(|_| None).collect();
    poll_fn(move |context| {
        for (answer, result) in answers.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(done) = answer.as_mut().poll(context)
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
    use muster_core::event::Next;
    use muster_core::job::{Exit, Outcome};
    use muster_core::ledger::Charge;
    use muster_core::{Event, Timestamp};

    const AT: Timestamp = Timestamp(0);

    fn event(word: &str, number: u64) -> Event {
        let job = JobId::single(number);
        match word {
            "woken" => Event::JobWoken { job, at: AT },
            "cancelled" => Event::JobEnded { job, outcome: Outcome::Cancelled, why: String::new(), at: AT },
            "placed" => Event::JobPlaced {
                job,
                attempt: 1,
                epoch: 1,
                tasks: Vec::new(),
                effective: None,
                expected_ms: None,
                lent: false,
                score: None,
                held: None,
                at: AT,
            },
            "done" => Event::AttemptEnded {
                receipt: None,
                job,
                attempt: 1,
                exit: Exit::Code { code: 0 },
                next: Next::Ended { outcome: Outcome::Done, why: String::new() },
                charge: Charge::default(),
                charged_until: None,
                held: None,
                at: AT,
            },
            "revoked" => Event::TokenRevoked { id: "t-1".to_string(), at: AT },
            _ => Event::Forgotten { before: AT, trimmed_before: None },
        }
    }

    /// `woken 1, cancelled 2` becomes the runs as text.
    fn check(story: &str, wanted: &str) {
        let batch: Vec<Entry> = (1..)
            .zip(story.split(", "))
            .map(|(seq, line)| {
                let (word, number) = line.split_once(' ').unwrap_or((line, "0"));
                Entry { seq, epoch: 1, at: AT, event: event(word, number.parse().unwrap()) }
            })
            .collect();
        let run = |run: Run<'_>| {
            let seqs: Vec<String> = run.entries.iter().map(|entry| entry.seq.to_string()).collect();
            seqs.join(" ")
        };
        let found: Vec<String> = runs(&batch).into_iter().map(run).collect();
        assert_eq!(found.join(" | "), wanted, "{story}");
    }

    #[test]
    fn events_of_one_kind_are_gathered() {
        check("woken 1, cancelled 2, woken 3, forgotten, cancelled 4", "1 3 | 2 5 | 4");
        check("placed 1, cancelled 2, placed 3, woken 4, placed 5", "1 3 5 | 2 | 4");
    }

    #[test]
    fn a_job_never_overtakes_itself() {
        check("woken 1, cancelled 2, woken 2", "1 | 2 | 3");
        check("cancelled 1, woken 1, cancelled 1", "1 | 2 | 3");
    }

    #[test]
    fn what_is_taken_never_overtakes_what_is_given_back() {
        check("placed 1, done 2, placed 3, done 4", "1 | 2 | 3 | 4");
        check("done 2, cancelled 5, done 4, placed 3, placed 6", "1 3 | 2 | 4 5");
    }

    #[test]
    fn nothing_overtakes_what_reaches_everywhere() {
        check("woken 1, revoked, woken 2, revoked", "1 | 2 | 3 | 4");
    }
}
