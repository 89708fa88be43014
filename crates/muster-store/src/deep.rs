//! Verify a whole database: the journal record by record, and every table cell against what the journal says.
//!
//! The journal is projected a second time, into a throwaway database, and the two are compared row by row in the order
//! of their keys. Nothing is written to the database under test, which may be in use: all of it is read in one snapshot.

mod compare;
mod rebuilt;

use crate::StoreConfig;
use crate::chain::follows;
use crate::error::StoreError;
use crate::record::{Entry, Record};
use crate::replay::PAGE;
use crate::tables::Value;
use crate::{postgres, sqlite};

use self::rebuilt::Rebuilt;

/// One thing that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// A record of the journal.
    Record {
        /// Its number.
        seq: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A cell differs from what the journal says.
    Cell {
        /// Table.
        table: String,
        /// Key columns with their values.
        key: String,
        /// Column.
        column: String,
        /// What the cell holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// A row that the journal calls for is gone.
    MissingRow {
        /// Table.
        table: String,
        /// Key columns with their values.
        key: String,
    },
    /// A row that no record of the journal explains.
    ExtraRow {
        /// Table.
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

impl Damage {
    /// Where it is: a table with its key and column, or a record.
    pub fn place(&self) -> String {
        match self {
            Damage::Record { seq, .. } => format!("journal record {seq}"),
            Damage::Cell { table, key, column, .. } => format!("{table} ({key}) {column}"),
            Damage::MissingRow { table, key } | Damage::ExtraRow { table, key } => format!("{table} ({key})"),
            Damage::Savepoint { seq, .. } => format!("savepoint {seq}"),
        }
    }

    /// What is wrong there.
    pub fn problem(&self) -> String {
        match self {
            Damage::Record { problem, .. } | Damage::Savepoint { problem, .. } => problem.clone(),
            Damage::Cell { found, expected, .. } => format!("is {found}, the journal says {expected}"),
            Damage::MissingRow { .. } => "is missing, the journal says that it exists".to_string(),
            Damage::ExtraRow { .. } => "is not in the journal".to_string(),
        }
    }
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Examined {
    /// Records of the journal.
    pub records: u64,
    /// Those of them that are chained to the record before; older releases wrote no chain.
    pub chained: u64,
    /// Rows that were compared, in all tables.
    pub rows: u64,
    /// Whether the tables were compared: not if the journal itself is damaged.
    pub compared: bool,
}

/// A database in one consistent view.
pub(crate) trait Snapshot {
    /// Up to [`PAGE`] records from a number on, in order.
    fn records(&mut self, from: u64) -> Result<Vec<Record>, StoreError>;

    /// The next rows of a table in the order of its key, after a key or from the first one on.
    fn page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError>;

    /// The newest migration that the tables have had.
    fn version(&mut self) -> Result<Option<i64>, StoreError>;

    /// Whole savepoints that cannot be read back.
    fn broken_savepoints(&mut self) -> Result<Vec<(u64, String)>, StoreError>;
}

/// A table to compare.
pub(crate) struct Table {
    pub name: String,
    pub columns: Vec<Column>,
}

/// A column of it. Those of the key come first.
pub(crate) struct Column {
    pub name: String,
    pub is_key: bool,
    pub is_text: bool,
}

impl Table {
    pub fn keys(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.is_key)
    }

    pub fn column_list(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        names.join(", ")
    }
}

/// Verify a database. `damaged` is called for each thing that is not as it was written, `visit` for each entry in
/// order as long as the journal is whole.
pub fn examine(
    config: &StoreConfig,
    visit: &mut dyn FnMut(&Entry),
    damaged: &mut dyn FnMut(Damage),
) -> Result<Examined, StoreError> {
    let mut source: Box<dyn Snapshot> = match config {
        StoreConfig::Sqlite { path } => sqlite::snapshot(path)?,
        StoreConfig::Postgres(config) => postgres::snapshot(config)?,
    };
    let known = crate::migrations::known(&crate::migrations::sqlite::migrations::runner());
    let found = source.version()?;
    crate::migrations::refuse_newer(found, known)?;
    if found != Some(known) {
        let found = found.unwrap_or(0);
        return Err(StoreError::Misconfigured(format!(
            "the database has schema version {found}, this release compares version {known}: start a server of this \
             release once, which brings the tables up to date"
        )));
    }
    for (seq, problem) in source.broken_savepoints()? {
        damaged(Damage::Savepoint { seq, problem });
    }
    let mut rebuilt = Rebuilt::new()?;
    let mut examined = Examined::default();
    let whole = read_journal(source.as_mut(), &mut examined, damaged, &mut |entry| {
        visit(entry);
        rebuilt.add(entry.clone())
    })?;
    if whole {
        let mut rebuilt = rebuilt.finish()?;
        examined.rows = compare::tables(source.as_mut(), &mut rebuilt, damaged)?;
        examined.compared = true;
    }
    Ok(examined)
}

/// Check every record, also those behind a damaged one. False if one is damaged.
fn read_journal(
    source: &mut dyn Snapshot,
    examined: &mut Examined,
    damaged: &mut dyn FnMut(Damage),
    good: &mut dyn FnMut(&Entry) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    let (mut next, mut previous, mut whole) = (1, None::<Record>, true);
    loop {
        let page = source.records(next)?;
        let full = page.len() >= PAGE as usize;
        for record in page {
            examined.records += 1;
            examined.chained += u64::from(record.chain.is_some());
            let mut problems = Vec::new();
            if record.seq != next {
                let gone = format!("records {next} to {} are gone", record.seq - 1);
                problems.push((next, gone));
            } else if let Err(problem) = follows(previous.as_ref(), &record) {
                problems.push((record.seq, problem));
            }
            match record.entry() {
                Ok(entry) if whole && problems.is_empty() => {
                    if let Err(error) = good(&entry) {
                        problems.push((record.seq, format!("does not fit the records before it: {error}")));
                    }
                }
                Ok(_) => {}
                Err(StoreError::Unreadable { problem, .. }) => problems.push((record.seq, problem)),
                Err(other) => return Err(other),
            }
            whole &= problems.is_empty();
            for (seq, problem) in problems {
                damaged(Damage::Record { seq, problem });
            }
            next = record.seq + 1;
            previous = Some(record);
        }
        if !full {
            return Ok(whole);
        }
    }
}
