//! Job logs: recorded jobs with their submission times, requests and runtimes.
//!
//! Each format has its own file, which turns lines into [`LoggedJob`]s. Jobs that cannot be replayed, because they
//! never ran or have not ended, are left out and counted. A line that cannot be parsed is an error with its number.

mod chronus;
mod journal;
mod muri;
mod muster_csv;
mod philly;
mod sacct;
mod table;
mod timestamps;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use muster_core::JobSpec;

pub(crate) use journal::jobs_of_submission;
pub use journal::{is_database_url, open_store};
use table::{LogRow, LogTable};
pub use timestamps::parse_timestamp_ms;

/// The first bytes of a SQLite file, the format of muster's own journal.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// The first bytes of a gzip file.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// One job of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedJob {
    /// As in the log.
    pub id: String,
    /// Jobs of one name count as one job type.
    pub name: String,
    pub tenant: String,
    pub user: String,
    /// The submission in Unix milliseconds, or since an arbitrary start if the log has no dates.
    pub submit_ms: i64,
    /// The work on its GPUs.
    pub work_ms: i64,
    pub gpus: GangShape,
    /// CPU cores of all tasks, if recorded.
    pub cpus: Option<u32>,
    /// Memory of all tasks, if recorded.
    pub memory_mib: Option<u64>,
    /// The requested GPU model, as in the log.
    pub gpu_model: Option<String>,
    pub time_limit_ms: Option<i64>,
    /// 0 to 10,000, if recorded.
    pub priority: Option<u32>,
    /// The checkpoint interval, if recorded.
    pub checkpoint_every_ms: Option<i64>,
    /// The full spec, if the log is muster's own journal.
    pub spec: Option<Arc<JobSpec>>,
}

impl LoggedJob {
    /// A job with only these fields recorded.
    pub fn new(id: impl Into<String>, submit_ms: i64, work_ms: i64, gpus: GangShape) -> LoggedJob {
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
            gpu_model: None,
            time_limit_ms: None,
            priority: None,
            checkpoint_every_ms: None,
            spec: None,
        }
    }
}

/// The GPUs of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GangShape {
    /// A total, on as few nodes as possible.
    Total(u32),
    /// Tasks with `each` GPUs on one node.
    Tasks { count: u32, each: u32 },
}

impl GangShape {
    /// The number of GPUs of all tasks.
    pub fn total(self) -> u32 {
        match self {
            GangShape::Total(gpus) => gpus,
            GangShape::Tasks { count, each } => count.saturating_mul(each),
        }
    }

    /// The groups of equal tasks (count, GPUs each); no task of a `Total` exceeds a node.
    pub fn tasks(self, node_gpus: u32) -> Vec<(u32, u32)> {
        let node_gpus = node_gpus.max(1);
        match self {
            GangShape::Tasks { count, each } => vec![(count, each)],
            GangShape::Total(gpus) if gpus <= node_gpus => vec![(1, gpus)],
            GangShape::Total(gpus) => {
                let groups = [(gpus / node_gpus, node_gpus), (1, gpus % node_gpus)];
                groups.into_iter().filter(|(count, each)| count * each > 0).collect()
            }
        }
    }
}

/// A parsed log.
#[derive(Debug, Clone, PartialEq)]
pub struct JobLog {
    pub format: LogFormat,
    /// The jobs in the order of submission.
    pub jobs: Vec<LoggedJob>,
    /// The number of jobs that were left out, by reason.
    pub left_out: BTreeMap<String, u64>,
}

/// The format of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// The CSV that `docs/replay.md` documents.
    Plain,
    /// The jobs of Microsoft's Philly clusters, as in `traces/philly/jobs.csv.gz`.
    Philly,
    /// Philly jobs with deadlines, as in `traces/philly/chronus_*.csv.gz`.
    Chronus,
    /// The training queues of `traces/muri`.
    Muri,
    /// The output of Slurm's `sacct -P`.
    Sacct,
    /// muster's own journal, in a SQLite file or in PostgreSQL.
    Journal,
}

impl LogFormat {
    pub const ALL: [LogFormat; 6] = [
        LogFormat::Plain,
        LogFormat::Philly,
        LogFormat::Chronus,
        LogFormat::Muri,
        LogFormat::Sacct,
        LogFormat::Journal,
    ];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            LogFormat::Plain => "csv",
            LogFormat::Philly => "philly",
            LogFormat::Chronus => "chronus",
            LogFormat::Muri => "muri",
            LogFormat::Sacct => "sacct",
            LogFormat::Journal => "journal",
        }
    }

    fn separator(self) -> char {
        if self == LogFormat::Sacct { '|' } else { ',' }
    }

    /// The format of a header line; `None` if it matches no format.
    fn from_header(line: &str) -> Option<LogFormat> {
        let lines = [LogFormat::Sacct, LogFormat::Plain, LogFormat::Philly, LogFormat::Chronus, LogFormat::Muri];
        lines.into_iter().find(|format| {
            let columns_error: Vec<&str> = line.split(format.separator()).map(str::trim).collect();
            format.identifying_columns().iter().all(|column| columns_error.contains(column))
        })
    }

    /// Columns that together occur in no other format.
    fn identifying_columns(self) -> &'static [&'static str] {
        match self {
            LogFormat::Plain => muster_csv::REQUIRED,
            LogFormat::Philly => &["submit_s", "vc", "num_gpus", "duration_s"],
            LogFormat::Chronus => &["user", "num_gpu", "submit_time", "duration", "expect_time_list"],
            LogFormat::Muri => &["num_gpu", "submit_time", "iterations", "iteration_time"],
            LogFormat::Sacct => &["JobID", "Submit"],
            LogFormat::Journal => &[],
        }
    }
}

/// What to do with lines that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadLinePolicy {
    /// Fail at the first one.
    Stop,
    /// Skip and count them.
    Skip,
}

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot read `{path}`: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// The beginning of the first line matches no format.
    #[error("`{path}` begins with `{begins}`, which is the header of no known log format")]
    UnknownFormat { path: PathBuf, begins: String },
    /// A column is missing or unknown.
    #[error("`{path}`, line 1: {what}")]
    Columns { path: PathBuf, what: String },
    /// A line, counted from one, cannot be parsed.
    #[error("`{path}`, line {line}: {what}")]
    Line { path: PathBuf, line: usize, what: String },
    #[error("cannot read the journal in `{path}`: {what}")]
    Journal { path: PathBuf, what: String },
}

impl LogError {
    /// What the user can do about the error.
    pub fn hint(&self) -> String {
        match self {
            LogError::Unreadable { .. } => "check the path; the file may be compressed with gzip".to_string(),
            LogError::UnknownFormat { .. } => {
                let names: Vec<&str> = LogFormat::ALL.iter().map(|format| format.as_str()).collect();
                format!("add a header line, or pass `--format` with one of {}", names.join(", "))
            }
            LogError::Columns { .. } => "the columns are listed in docs/replay.md".to_string(),
            LogError::Line { .. } => "correct the line, or skip and count such lines with `--skip-bad`".to_string(),
            LogError::Journal { .. } => {
                "give the file `muster.db` of a server's data directory, or `postgres://…`".to_string()
            }
        }
    }
}

/// The result of one line.
enum ParsedLine {
    Job(Box<LoggedJob>),
    /// Why the job cannot be replayed.
    LeftOut(&'static str),
    /// Not a job, for example a job step.
    NotAJob,
}

impl From<LoggedJob> for ParsedLine {
    fn from(job: LoggedJob) -> ParsedLine {
        ParsedLine::Job(Box::new(job))
    }
}

/// Reads a log. The format is detected from the first bytes unless it is given.
pub fn read(path: &Path, format: Option<LogFormat>, bad: BadLinePolicy) -> Result<JobLog, LogError> {
    if journal::is_database_url(path) {
        return journal::read(path).map(sorted_by_submission);
    }
    let bytes = read_unpacked(path)?;
    if format == Some(LogFormat::Journal) || (format.is_none() && bytes.starts_with(SQLITE_MAGIC)) {
        return journal::read(path).map(sorted_by_submission);
    }
    let text = String::from_utf8_lossy(&bytes);
    let first = text.lines().next().unwrap_or_default();
    let unknown = || LogError::UnknownFormat { path: path.to_path_buf(), begins: first.chars().take(60).collect() };
    let format = format.or_else(|| LogFormat::from_header(first)).ok_or_else(unknown)?;
    read_lines(path, &text, format, bad).map(sorted_by_submission)
}

/// The bytes of a file, decompressed if it is a gzip file.
fn read_unpacked(path: &Path) -> Result<Vec<u8>, LogError> {
    let unreadable = |source| LogError::Unreadable { path: path.to_path_buf(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(unreadable)?;
    if !bytes.starts_with(GZIP_MAGIC) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).map_err(unreadable)?;
    Ok(unpacked)
}

fn read_lines(path: &Path, text: &str, format: LogFormat, bad: BadLinePolicy) -> Result<JobLog, LogError> {
    let table = LogTable::parse(text, format.separator());
    let columns_error = |what| LogError::Columns { path: path.to_path_buf(), what };
    table.check_required_columns(format.identifying_columns()).map_err(columns_error)?;
    if format == LogFormat::Plain {
        table.check_known_columns(&[muster_csv::REQUIRED, muster_csv::OPTIONAL].concat()).map_err(columns_error)?;
    }
    let mut log = JobLog { format, jobs: Vec::new(), left_out: BTreeMap::new() };
    for (line, row) in table.rows() {
        match row.and_then(|row| parse_row(format, &row)) {
            Ok(ParsedLine::Job(job)) => log.jobs.push(*job),
            Ok(ParsedLine::LeftOut(why)) => log.count_left_out(why),
            Ok(ParsedLine::NotAJob) => {}
            Err(_) if bad == BadLinePolicy::Skip => log.count_left_out("could not be read"),
            Err(what) => return Err(LogError::Line { path: path.to_path_buf(), line, what }),
        }
    }
    Ok(log)
}

fn parse_row(format: LogFormat, row: &LogRow) -> Result<ParsedLine, String> {
    let read = match format {
        LogFormat::Plain => muster_csv::job(row)?,
        LogFormat::Philly => philly::job(row)?,
        LogFormat::Chronus => chronus::job(row)?,
        LogFormat::Muri => muri::job(row)?,
        LogFormat::Sacct => sacct::job(row)?,
        LogFormat::Journal => ParsedLine::NotAJob,
    };
    Ok(match read {
        ParsedLine::Job(job) if job.gpus.total() == 0 => ParsedLine::LeftOut("requested no GPU"),
        ParsedLine::Job(job) if job.work_ms <= 0 => ParsedLine::LeftOut("did not run"),
        other => other,
    })
}

/// Logs are often sorted by end, not by submission.
fn sorted_by_submission(mut log: JobLog) -> JobLog {
    log.jobs.sort_by_key(|job| job.submit_ms);
    log
}

impl JobLog {
    fn count_left_out(&mut self, why: &str) {
        *self.left_out.entry(why.to_string()).or_default() += 1;
    }

    /// Keeps the jobs submitted at or after `since_ms` and before `until_ms`.
    pub fn retain_submitted_between(&mut self, since_ms: Option<i64>, until_ms: Option<i64>) {
        let all = self.jobs.len();
        let is_inside = |job: &LoggedJob| {
            since_ms.is_none_or(|since| job.submit_ms >= since) && until_ms.is_none_or(|until| job.submit_ms < until)
        };
        self.jobs.retain(is_inside);
        let outside_count = (all - self.jobs.len()) as u64;
        if outside_count > 0 {
            *self.left_out.entry("submitted outside the time range".to_string()).or_default() += outside_count;
        }
    }
}

#[cfg(test)]
mod tests;
