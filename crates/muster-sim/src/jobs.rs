//! Jobs as a log remembers them: when they came, what they asked for, and how long they worked.
//!
//! Each format has a file of its own, which turns lines into [`LoggedJob`]s and nothing more. What cannot be replayed,
//! because it never ran or has not ended, is left out and counted; what cannot be read is an error with its line.

mod chronus;
mod journal;
mod moments;
mod muri;
mod philly;
mod plain;
mod sacct;
mod table;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use muster_core::JobSpec;

pub use journal::{is_address, store};
pub use moments::moment_ms;
use table::{Row, Table};

/// The first bytes of a SQLite file, which is what our own journal is kept in.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The first bytes of a packed file.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// One job of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedJob {
    /// What the log calls it.
    pub id: String,
    /// For people; jobs of one name are taken to be alike.
    pub name: String,
    /// Who pays.
    pub tenant: String,
    /// Who asked.
    pub user: String,
    /// When it came: Unix milliseconds, or since some moment where the log has no date.
    pub submit_ms: i64,
    /// For how long it worked on its GPUs.
    pub work_ms: i64,
    /// Its GPUs.
    pub gpus: Gang,
    /// CPU cores of all tasks together, where it is known.
    pub cpus: Option<u32>,
    /// Main memory of all tasks together, where it is known.
    pub memory_mib: Option<u64>,
    /// The GPU model it asked for, as it was written.
    pub model: Option<String>,
    /// When it would have been stopped.
    pub time_limit_ms: Option<i64>,
    /// 0 to 10,000, where it is known.
    pub priority: Option<u32>,
    /// How often it saves its work, where it is known.
    pub saves_every_ms: Option<i64>,
    /// All that was asked, where the log is our own.
    pub spec: Option<Arc<JobSpec>>,
}

impl LoggedJob {
    /// A job of which only this is known.
    pub fn new(id: impl Into<String>, submit_ms: i64, work_ms: i64, gpus: Gang) -> LoggedJob {
        LoggedJob {
            id: id.into(),
            name: "job".to_string(),
            tenant: "everyone".to_string(),
            user: "someone".to_string(),
            submit_ms,
            work_ms,
            gpus,
            cpus: None,
            memory_mib: None,
            model: None,
            time_limit_ms: None,
            priority: None,
            saves_every_ms: None,
            spec: None,
        }
    }
}

/// How the GPUs of a job are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gang {
    /// So many, on as few nodes as hold them.
    Total(u32),
    /// So many tasks, each with so many on one node.
    Tasks {
        /// Tasks.
        count: u32,
        /// GPUs of each.
        each: u32,
    },
}

impl Gang {
    /// All GPUs together.
    pub fn total(self) -> u32 {
        match self {
            Gang::Total(gpus) => gpus,
            Gang::Tasks { count, each } => count.saturating_mul(each),
        }
    }

    /// The same by tasks, of which none has more than a node.
    pub fn tasks(self, node_gpus: u32) -> Vec<(u32, u32)> {
        let node_gpus = node_gpus.max(1);
        match self {
            Gang::Tasks { count, each } => vec![(count, each)],
            Gang::Total(gpus) if gpus <= node_gpus => vec![(1, gpus)],
            Gang::Total(gpus) => {
                let groups = [(gpus / node_gpus, node_gpus), (1, gpus % node_gpus)];
                groups.into_iter().filter(|(count, each)| count * each > 0).collect()
            }
        }
    }
}

/// A log, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// In which format it was.
    pub format: Format,
    /// The jobs in the order in which they came.
    pub jobs: Vec<LoggedJob>,
    /// What was left out, by the reason, and how often.
    pub left_out: BTreeMap<String, u64>,
}

/// What a log can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The CSV that `docs/replay.md` documents.
    Plain,
    /// The jobs of Microsoft's Philly clusters, as in `traces/philly/jobs.csv.gz`.
    Philly,
    /// The jobs with deadlines that were derived from them, as in `traces/philly/chronus_*.csv.gz`.
    Chronus,
    /// The training queues of `traces/muri`.
    Muri,
    /// What `sacct -P` of Slurm prints.
    Sacct,
    /// Our own journal, in a SQLite file or in PostgreSQL.
    Journal,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] =
        [Format::Plain, Format::Philly, Format::Chronus, Format::Muri, Format::Sacct, Format::Journal];

    /// As people write it.
    pub fn word(self) -> &'static str {
        match self {
            Format::Plain => "csv",
            Format::Philly => "philly",
            Format::Chronus => "chronus",
            Format::Muri => "muri",
            Format::Sacct => "sacct",
            Format::Journal => "journal",
        }
    }

    fn separator(self) -> char {
        if self == Format::Sacct { '|' } else { ',' }
    }

    /// The format whose line of titles this is; the journal has none.
    fn of_titles(line: &str) -> Option<Format> {
        let lines = [Format::Sacct, Format::Plain, Format::Philly, Format::Chronus, Format::Muri];
        lines.into_iter().find(|format| {
            let titles: Vec<&str> = line.split(format.separator()).map(str::trim).collect();
            format.marks().iter().all(|mark| titles.contains(mark))
        })
    }

    /// Titles that together are found in no other format.
    fn marks(self) -> &'static [&'static str] {
        match self {
            Format::Plain => plain::REQUIRED,
            Format::Philly => &["submit_s", "vc", "num_gpus", "duration_s"],
            Format::Chronus => &["user", "num_gpu", "submit_time", "duration", "expect_time_list"],
            Format::Muri => &["num_gpu", "submit_time", "iterations", "iteration_time"],
            Format::Sacct => &["JobID", "Submit"],
            Format::Journal => &[],
        }
    }
}

/// What happens with lines that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadLines {
    /// The first one is an error.
    Stop,
    /// They are counted and passed.
    Skip,
}

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file could not be read.
    #[error("cannot read `{path}`: {source}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing tells what it is.
    #[error("`{path}` begins with `{begins}`, which is the first line of no format known here")]
    Unknown {
        /// Which file.
        path: PathBuf,
        /// The first line, as far as it fits into one.
        begins: String,
    },
    /// A column is not there, or one is there that nobody knows.
    #[error("`{path}`, line 1: {what}")]
    Titles {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A line makes no sense.
    #[error("`{path}`, line {line}: {what}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The journal could not be read.
    #[error("cannot read the journal in `{path}`: {what}")]
    Journal {
        /// Which file.
        path: PathBuf,
        /// Why.
        what: String,
    },
}

impl LogError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            LogError::Unreadable { .. } => "check the path; it may be packed with gzip".to_string(),
            LogError::Unknown { .. } => {
                let words: Vec<&str> = Format::ALL.iter().map(|format| format.word()).collect();
                format!("a line of titles, or `--format` with one of {}", words.join(", "))
            }
            LogError::Titles { .. } => "the columns are listed in docs/replay.md".to_string(),
            LogError::Line { .. } => {
                "mend the line, or leave such lines out and count them with `--skip-bad`".to_string()
            }
            LogError::Journal { .. } => {
                "the file `muster.db` of a server's data folder, or `postgres://…`".to_string()
            }
        }
    }
}

/// What one line comes to.
enum Line {
    Job(Box<LoggedJob>),
    /// It cannot be replayed, and why.
    LeftOut(&'static str),
    /// It is no job.
    Nothing,
}

impl From<LoggedJob> for Line {
    fn from(job: LoggedJob) -> Line {
        Line::Job(Box::new(job))
    }
}

/// Read a log; the format is told by its first bytes unless it is given.
pub fn read(path: &Path, format: Option<Format>, bad: BadLines) -> Result<Log, LogError> {
    if journal::is_address(path) {
        return journal::read(path).map(in_order);
    }
    let bytes = bytes_of(path)?;
    if format == Some(Format::Journal) || (format.is_none() && bytes.starts_with(SQLITE)) {
        return journal::read(path).map(in_order);
    }
    let text = String::from_utf8_lossy(&bytes);
    let first = text.lines().next().unwrap_or_default();
    let unknown = || LogError::Unknown { path: path.to_path_buf(), begins: first.chars().take(60).collect() };
    let format = format.or_else(|| Format::of_titles(first)).ok_or_else(unknown)?;
    read_lines(path, &text, format, bad).map(in_order)
}

/// The bytes of a file, unpacked.
fn bytes_of(path: &Path) -> Result<Vec<u8>, LogError> {
    let unreadable = |source| LogError::Unreadable { path: path.to_path_buf(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(unreadable)?;
    if !bytes.starts_with(GZIP) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).map_err(unreadable)?;
    Ok(unpacked)
}

fn read_lines(path: &Path, text: &str, format: Format, bad: BadLines) -> Result<Log, LogError> {
    let table = Table::of(text, format.separator());
    let titles = |what| LogError::Titles { path: path.to_path_buf(), what };
    table.has_all(format.marks()).map_err(titles)?;
    if format == Format::Plain {
        table.has_only(&[plain::REQUIRED, plain::OPTIONAL].concat()).map_err(titles)?;
    }
    let mut log = Log { format, jobs: Vec::new(), left_out: BTreeMap::new() };
    for (line, row) in table.rows() {
        match row.and_then(|row| job_of(format, &row)) {
            Ok(Line::Job(job)) => log.jobs.push(*job),
            Ok(Line::LeftOut(why)) => log.leave_out(why),
            Ok(Line::Nothing) => {}
            Err(_) if bad == BadLines::Skip => log.leave_out("could not be read"),
            Err(what) => return Err(LogError::Line { path: path.to_path_buf(), line, what }),
        }
    }
    Ok(log)
}

fn job_of(format: Format, row: &Row) -> Result<Line, String> {
    let read = match format {
        Format::Plain => plain::job(row)?,
        Format::Philly => philly::job(row)?,
        Format::Chronus => chronus::job(row)?,
        Format::Muri => muri::job(row)?,
        Format::Sacct => sacct::job(row)?,
        Format::Journal => Line::Nothing,
    };
    Ok(match read {
        Line::Job(job) if job.gpus.total() == 0 => Line::LeftOut("asked for no GPU"),
        Line::Job(job) if job.work_ms <= 0 => Line::LeftOut("did not run"),
        other => other,
    })
}

/// Logs are often sorted by their ends.
fn in_order(mut log: Log) -> Log {
    log.jobs.sort_by_key(|job| job.submit_ms);
    log
}

impl Log {
    fn leave_out(&mut self, why: &str) {
        *self.left_out.entry(why.to_string()).or_default() += 1;
    }

    /// Only the jobs that came at or after one moment and before another.
    pub fn between(&mut self, since_ms: Option<i64>, until_ms: Option<i64>) {
        let all = self.jobs.len();
        let inside = |job: &LoggedJob| {
            since_ms.is_none_or(|since| job.submit_ms >= since)
                && until_ms.is_none_or(|until| job.submit_ms < until)
        };
        self.jobs.retain(inside);
        let outside = (all - self.jobs.len()) as u64;
        if outside > 0 {
            *self.left_out.entry("came before or after".to_string()).or_default() += outside;
        }
    }
}

#[cfg(test)]
mod tests;
