//! A batch on its way into PostgreSQL: few statements, sent without waiting for each answer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::fault::fault;
use super::link::Link;
use super::values::Column;
use crate::error::StoreError;
use crate::record::Entry;
use crate::tables::{Change, Rows, Statement, groups_by_statement, journal_row, project};

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

/// Put the changes of a batch into groups. Neighbouring entries of one kind that do not get in each other's way
/// are taken together, so that a hundred submissions become one statement for the specs and one for the jobs.
pub fn groups(batch: &[Entry]) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut journal = batch.iter().map(journal_row);
    if let (Some(first), Some(entry)) = (journal.next(), batch.first()) {
        let statement = first.statement;
        groups.push(Group {
            statement,
            changes: [first].into_iter().chain(journal).collect(),
            seq: entry.seq,
        });
    }
    for run in batch.chunk_by(|a, b| a.event.kind() == b.event.kind() && groups_by_statement(&a.event)) {
        let begin = groups.len();
        for entry in run {
            for change in project(entry) {
                add(&mut groups, begin, change, entry.seq);
            }
        }
    }
    groups
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
