//! Cut the files of SQLite off at any byte: the next leader refuses loudly, or finds whole batches from the first
//! one on, with tables that say exactly what those batches say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use muster_core::Event;
use muster_store::{Entry, Leadership, StoreConfig, StoreError, open};

use crate::bench::{Bench, Folder, SqliteBench};
use crate::story::*;

/// Cuts of each file for each of the ways a server may have ended.
const CUTS: u64 = 120;

/// A small generator, so that a failing cut can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Batches of different sizes in which jobs come, run and go.
fn batches() -> Vec<Vec<Event>> {
    let mut batches = vec![vec![tenant("red", None), tenant("blue", None), node("n1", 8)]];
    for round in 0..40 {
        let first = round * 3 + 1;
        let mut batch: Vec<Event> = (first..first + 3).map(|number| submit(number, "red", 1)).collect();
        batch.extend([
            placed(job(first), 1, "n1", &[0]),
            started(job(first), 1, "n1"),
            cancelled(job(first + 1)),
        ]);
        batches.push(batch);
        batches.push(vec![done(job(first), 1)]);
    }
    batches.push(vec![submit_array(121, "blue", 500)]);
    batches.push(vec![placed(job(3), 1, "n1", &[5])]);
    batches
}

/// How a server ended.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Killed: the log holds everything that was not copied over yet.
    Killed,
    /// Killed right after everything was copied over; the log is still there.
    KilledAfterCopy,
    /// Killed with a little new in the log after a copy.
    KilledSoonAfterCopy,
    /// Stopped in peace.
    Stopped,
}

/// Files as a server left them, copied while it still ran.
fn left_behind(end: End) -> Folder {
    let bench = SqliteBench::new();
    let mut book = Book::lead(bench.open());
    let copy = || bench.sql("PRAGMA wal_checkpoint(PASSIVE)");
    let all = batches();
    let (last, rest) = all.split_last().unwrap();
    rest.iter().for_each(|batch| book.add(batch));
    match end {
        End::KilledSoonAfterCopy => drop(copy()),
        _ => book.store.savepoints.save(3, &[7; 30_000]).unwrap(),
    }
    book.add(last);
    match end {
        End::KilledAfterCopy => drop(copy()),
        End::Stopped => book.store.journal.resign().unwrap(),
        _ => {}
    }
    let files = Folder::new();
    copy_files(bench.path().parent().unwrap(), &files.0);
    files
}

fn copy_files(from: &Path, to: &Path) {
    for name in ["muster.db", "muster.db-wal"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// Everything that was written, up to each batch.
fn prefixes() -> Vec<Vec<Event>> {
    let mut prefix = Vec::new();
    let mut prefixes = vec![Vec::new()];
    for batch in batches() {
        prefix.extend(batch);
        prefixes.push(prefix.clone());
    }
    prefixes
}

/// What the tables say, as text.
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
            let cells: Vec<String> =
                (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
            contents.push(format!("{table} {}", cells.join(" ")));
        }
    }
    contents
}

/// What was written, and what the tables must say after each batch.
struct History {
    prefixes: Vec<Vec<Event>>,
    contents: BTreeMap<usize, Vec<String>>,
}

impl History {
    /// Found by writing so many batches to a fresh database.
    fn wanted_contents(&mut self, batches: usize) -> &Vec<String> {
        self.contents.entry(batches).or_insert_with(|| {
            let bench = SqliteBench::new();
            Book::lead(bench.open()).add(&self.prefixes[batches]);
            contents(&bench.path())
        })
    }
}

/// Lead what is left, and read all of it.
fn come_up(path: &Path) -> Result<Vec<Event>, StoreError> {
    let mut store = open(&StoreConfig::Sqlite { path: path.to_path_buf() })?;
    match store.journal.lead("next", LEASE_MS)? {
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

/// Cut one file of a copy and see what becomes of it. Returns the number of batches, or `None` if it was refused.
fn cut(files: &Folder, name: &str, length: u64, history: &mut History) -> Option<usize> {
    let copy = Folder::new();
    copy_files(&files.0, &copy.0);
    let file = std::fs::OpenOptions::new().write(true).open(copy.0.join(name)).unwrap();
    file.set_len(length).unwrap();
    let path = copy.0.join("muster.db");
    match come_up(&path) {
        Err(error) => {
            assert!(
                !error.to_string().is_empty() && !error.heals_by_reload(),
                "{name} cut at {length}: {error}"
            );
            None
        }
        Ok(events) => {
            let batches = history.prefixes.iter().position(|prefix| *prefix == events);
            let batches =
                batches.unwrap_or_else(|| panic!("{name} cut at {length}: a batch is there in part"));
            let same = contents(&path) == *history.wanted_contents(batches);
            assert!(same, "{name} cut at {length}: the tables do not say what {batches} batches say");
            Some(batches)
        }
    }
}

fn cut_everywhere(end: End) {
    let files = left_behind(end);
    let mut history = History { prefixes: prefixes(), contents: BTreeMap::new() };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for name in ["muster.db", "muster.db-wal"] {
        let Ok(facts) = std::fs::metadata(files.0.join(name)) else { continue };
        let (mut refused, mut came_up) = (0, BTreeSet::new());
        for _ in 0..CUTS {
            match cut(&files, name, dice.below(facts.len().max(1)), &mut history) {
                None => refused += 1,
                Some(batches) => drop(came_up.insert(batches)),
            }
        }
        println!("{end:?}, {name}: {refused} of {CUTS} refused, the others came up with {came_up:?} batches");
    }
    // Uncut, everything is there.
    let all = history.prefixes.len() - 1;
    assert_eq!(cut(&files, "muster.db", length(&files), &mut history), Some(all));
}

fn length(files: &Folder) -> u64 {
    std::fs::metadata(files.0.join("muster.db")).unwrap().len()
}

#[test]
fn after_a_kill() {
    cut_everywhere(End::Killed);
}

#[test]
fn after_a_kill_when_all_was_copied() {
    cut_everywhere(End::KilledAfterCopy);
}

#[test]
fn after_a_kill_soon_after_a_copy() {
    cut_everywhere(End::KilledSoonAfterCopy);
}

#[test]
fn after_a_stop() {
    cut_everywhere(End::Stopped);
}
