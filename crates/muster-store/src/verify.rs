//! Verification of a whole database (`muster doctor`): each journal record, and each table cell against the journal.
//!
//! The journal is projected again into a temporary database, and both databases are compared row by row in key order.
//! Nothing is written to the verified database, which may be in use: it is read in one snapshot.

mod compare;
mod rebuild;

use crate::StoreConfig;
use crate::chain::check_follows;
use crate::error::StoreError;
use crate::record::{Entry, Record};
use crate::replay::PAGE_ROWS;
use crate::snapshot::Snapshot;
use crate::{postgres, sqlite};

use self::rebuild::TableRebuilder;

/// A difference between the database and what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Corruption {
    /// A journal record that is missing, altered or undecodable.
    Record { seq: u64, problem: String },
    /// A cell whose value does not follow from the journal.
    Cell {
        table: String,
        /// Key columns with their values.
        key: String,
        column: String,
        found: String,
        expected: String,
    },
    /// A row that follows from the journal is missing.
    MissingRow {
        table: String,
        /// Key columns with their values.
        key: String,
    },
    /// A row that does not follow from the journal.
    ExtraRow {
        table: String,
        /// Key columns with their values.
        key: String,
    },
    /// A savepoint that cannot be read back.
    Savepoint {
        /// The last record that it includes.
        seq: u64,
        /// What is wrong with it.
        problem: String,
    },
}

impl Corruption {
    /// A table with key and column, a journal record, or a savepoint.
    pub fn location(&self) -> String {
        match self {
            Corruption::Record { seq, .. } => format!("journal record {seq}"),
            Corruption::Cell { table, key, column, .. } => format!("{table} ({key}) {column}"),
            Corruption::MissingRow { table, key } | Corruption::ExtraRow { table, key } => {
                format!("{table} ({key})")
            }
            Corruption::Savepoint { seq, .. } => format!("savepoint {seq}"),
        }
    }

    pub fn problem(&self) -> String {
        match self {
            Corruption::Record { problem, .. } | Corruption::Savepoint { problem, .. } => problem.clone(),
            Corruption::Cell { found, expected, .. } => format!("is {found}, the journal says {expected}"),
            Corruption::MissingRow { .. } => "is missing, the journal says that it exists".to_string(),
            Corruption::ExtraRow { .. } => "is not in the journal".to_string(),
        }
    }
}

/// Counts of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerificationReport {
    pub records: u64,
    /// Records with a chain checksum; older releases wrote none.
    pub chained_records: u64,
    /// Expected rows, in all tables.
    pub rows_compared: u64,
    /// False if the journal is corrupt: then the tables cannot be rebuilt.
    pub tables_compared: bool,
}

/// Verify a database. `report` is called for each corruption, `visit` for each entry in order until the first corrupt
/// record.
pub fn verify_database(
    config: &StoreConfig,
    visit: &mut dyn FnMut(&Entry),
    report: &mut dyn FnMut(Corruption),
) -> Result<VerificationReport, StoreError> {
    let mut source: Box<dyn Snapshot> = match config {
        StoreConfig::Sqlite { path } => sqlite::open_snapshot(path)?,
        StoreConfig::Postgres(config) => postgres::open_snapshot(config)?,
    };
    let known = crate::migrations::newest_known_version(&crate::migrations::sqlite::migrations::runner());
    let found = source.schema_version()?;
    crate::migrations::refuse_newer_schema(found, known)?;
    if found != Some(known) {
        let found = found.unwrap_or(0);
        return Err(StoreError::Misconfigured(format!(
            "the database has schema version {found}, verification needs version {known}: start a server of this \
             release once to migrate it"
        )));
    }
    for (seq, problem) in source.unreadable_savepoints()? {
        report(Corruption::Savepoint { seq, problem });
    }
    let mut rebuilder = TableRebuilder::new()?;
    let mut counts = VerificationReport::default();
    let is_intact = verify_journal(source.as_mut(), &mut counts, report, &mut |entry| {
        visit(entry);
        rebuilder.add(entry.clone())
    })?;
    if is_intact {
        let mut rebuilt = rebuilder.finish()?;
        counts.rows_compared = compare::compare_tables(source.as_mut(), &mut rebuilt, report)?;
        counts.tables_compared = true;
    }
    Ok(counts)
}

/// Check every record, also those after a corrupt one. Returns false if a record is corrupt. `on_entry` is called for
/// each entry until the first corrupt record.
fn verify_journal(
    source: &mut dyn Snapshot,
    counts: &mut VerificationReport,
    report: &mut dyn FnMut(Corruption),
    on_entry: &mut dyn FnMut(&Entry) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    let (mut next, mut previous, mut is_intact) = (1, None::<Record>, true);
    loop {
        let page = source.records(next)?;
        let full = page.len() >= PAGE_ROWS as usize;
        for record in page {
            counts.records += 1;
            counts.chained_records += u64::from(record.chain.is_some());
            let mut problems = Vec::new();
            if record.seq != next {
                let missing = format!("records {next} to {} are missing", record.seq - 1);
                problems.push((next, missing));
            } else if let Err(problem) = check_follows(previous.as_ref(), &record) {
                problems.push((record.seq, problem));
            }
            match record.decode() {
                Ok(entry) if is_intact && problems.is_empty() => {
                    if let Err(error) = on_entry(&entry) {
                        problems.push((record.seq, format!("is inconsistent with the records before it: {error}")));
                    }
                }
                Ok(_) => {}
                Err(StoreError::UnreadableRecord { problem, .. }) => problems.push((record.seq, problem)),
                Err(other) => return Err(other),
            }
            is_intact &= problems.is_empty();
            for (seq, problem) in problems {
                report(Corruption::Record { seq, problem });
            }
            next = record.seq + 1;
            previous = Some(record);
        }
        if !full {
            return Ok(is_intact);
        }
    }
}
