//! SQLite files truncated at any byte: the next leader refuses them with an error, or finds whole batches from the
//! first on, with tables that match those batches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use muster_core::Event;
use muster_store::{Entry, Leadership, StoreConfig, StoreError, open};

use crate::fixtures::*;
use crate::test_database::{SqliteTestDatabase, TempFolder, TestDatabase};

/// Truncations of each file, for each kind of shutdown.
const CUTS_PER_FILE: u64 = 120;

/// Batches of different sizes in which jobs are submitted, run and end.
fn batches() -> Vec<Vec<Event>> {
    let mut batches = vec![vec![tenant("red", None), tenant("blue", None), node("n1", 8)]];
    for round in 0..40 {
        let first = round * 3 + 1;
        let mut batch: Vec<Event> = (first..first + 3).map(|number| submit(number, "red", 1)).collect();
        batch.extend([placed(job(first), 1, "n1", &[0]), started(job(first), 1, "n1"), cancelled(job(first + 1))]);
        batches.push(batch);
        batches.push(vec![done(job(first), 1)]);
    }
    batches.push(vec![submit_array(121, "blue", 500)]);
    batches.push(vec![placed(job(3), 1, "n1", &[5])]);
    batches
}

/// How the server ended.
#[derive(Debug, Clone, Copy)]
enum Shutdown {
    /// Killed: the log has all pages since the last checkpoint.
    Killed,
    /// Killed right after a checkpoint of the whole log; the log still exists.
    KilledAfterCheckpoint,
    /// Killed with a few new pages in the log after a checkpoint.
    KilledSoonAfterCheckpoint,
    /// Stopped normally.
    Clean,
}

/// Files as the server left them, copied while it still ran.
fn files_after(end: Shutdown) -> TempFolder {
    let database = SqliteTestDatabase::new();
    let mut writer = JournalWriter::lead(database.open());
    let checkpoint = || database.sql("PRAGMA wal_checkpoint(PASSIVE)");
    let all = batches();
    let (last, rest) = all.split_last().unwrap();
    rest.iter().for_each(|batch| writer.append(batch));
    match end {
        Shutdown::KilledSoonAfterCheckpoint => drop(checkpoint()),
        _ => writer.store.savepoints.save(3, &[7; 30_000]).unwrap(),
    }
    writer.append(last);
    match end {
        Shutdown::KilledAfterCheckpoint => drop(checkpoint()),
        Shutdown::Clean => writer.store.journal.resign().unwrap(),
        _ => {}
    }
    let files = TempFolder::new();
    copy_files(database.path().parent().unwrap(), &files.0);
    files
}

fn copy_files(from: &Path, to: &Path) {
    for name in ["muster.db", "muster.db-wal"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// All events up to each batch.
fn prefixes() -> Vec<Vec<Event>> {
    let mut prefix = Vec::new();
    let mut prefixes = vec![Vec::new()];
    for batch in batches() {
        prefix.extend(batch);
        prefixes.push(prefix.clone());
    }
    prefixes
}

/// Contents of the tables, as text.
fn contents(path: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    let tables = ["tenants", "jobs", "specs", "attempts", "leases", "gpus", "nodes", "usage", "job_counts"];
    let mut contents = vec![check];
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<String> = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
            contents.push(format!("{table} {}", cells.join(" ")));
        }
    }
    contents
}

/// The events, and the expected contents of the tables after each batch.
struct History {
    prefixes: Vec<Vec<Event>>,
    contents: BTreeMap<usize, Vec<String>>,
}

impl History {
    /// Expected contents after `batches` batches, by writing them to a new database.
    fn wanted_contents(&mut self, batches: usize) -> &Vec<String> {
        self.contents.entry(batches).or_insert_with(|| {
            let database = SqliteTestDatabase::new();
            JournalWriter::lead(database.open()).append(&self.prefixes[batches]);
            contents(&database.path())
        })
    }
}

/// Lead the database and replay its journal.
fn recover_events(path: &Path) -> Result<Vec<Event>, StoreError> {
    let mut store = open(&StoreConfig::Sqlite { path: path.to_path_buf() })?;
    match store.journal.acquire_leadership("next", LEASE_MS)? {
        Leadership::Leading { .. } => {}
        standby => panic!("{standby:?}"),
    }
    let mut events = Vec::new();
    store.journal.replay(0, &mut |entry: Entry| {
        events.push(entry.event);
        Ok(())
    })?;
    Ok(events)
}

/// Truncate one file of a copy and recover it. Returns the number of batches, or `None` if it was refused.
fn truncate_and_recover(files: &TempFolder, name: &str, length: u64, history: &mut History) -> Option<usize> {
    let copy = TempFolder::new();
    copy_files(&files.0, &copy.0);
    let file = std::fs::OpenOptions::new().write(true).open(copy.0.join(name)).unwrap();
    file.set_len(length).unwrap();
    let path = copy.0.join("muster.db");
    match recover_events(&path) {
        Err(error) => {
            assert!(
                !error.to_string().is_empty() && !error.is_recoverable_by_reload(),
                "{name} cut at {length}: {error}"
            );
            None
        }
        Ok(events) => {
            let batches = history.prefixes.iter().position(|prefix| *prefix == events);
            let batches = batches.unwrap_or_else(|| panic!("{name} cut at {length}: a batch is stored in part"));
            let same = contents(&path) == *history.wanted_contents(batches);
            assert!(same, "{name} cut at {length}: the tables do not match {batches} batches");
            Some(batches)
        }
    }
}

fn truncate_at_random_positions(end: Shutdown) {
    let files = files_after(end);
    let mut history = History { prefixes: prefixes(), contents: BTreeMap::new() };
    let mut random = SeededRandom(0x9e37_79b9_7f4a_7c15);
    for name in ["muster.db", "muster.db-wal"] {
        let Ok(facts) = std::fs::metadata(files.0.join(name)) else { continue };
        let (mut refused, mut recovered) = (0, BTreeSet::new());
        for _ in 0..CUTS_PER_FILE {
            match truncate_and_recover(&files, name, random.below(facts.len().max(1)), &mut history) {
                None => refused += 1,
                Some(batches) => drop(recovered.insert(batches)),
            }
        }
        println!("{end:?}, {name}: {refused} of {CUTS_PER_FILE} refused, the others recovered {recovered:?} batches");
    }
    // Without truncation all batches are recovered.
    let all = history.prefixes.len() - 1;
    assert_eq!(truncate_and_recover(&files, "muster.db", length(&files), &mut history), Some(all));
}

fn length(files: &TempFolder) -> u64 {
    std::fs::metadata(files.0.join("muster.db")).unwrap().len()
}

#[test]
fn truncated_files_are_refused_or_recover_whole_batches_after_a_kill() {
    truncate_at_random_positions(Shutdown::Killed);
}

#[test]
fn truncated_files_are_refused_or_recover_whole_batches_after_a_kill_and_checkpoint() {
    truncate_at_random_positions(Shutdown::KilledAfterCheckpoint);
}

#[test]
fn truncated_files_are_refused_or_recover_whole_batches_after_a_kill_soon_after_a_checkpoint() {
    truncate_at_random_positions(Shutdown::KilledSoonAfterCheckpoint);
}

#[test]
fn truncated_files_are_refused_or_recover_whole_batches_after_a_clean_stop() {
    truncate_at_random_positions(Shutdown::Clean);
}
