//! Reads muster's own journal as a job log: the submissions, and the work of each job.
//!
//! The work of a job is the runtime of its attempts less the work lost to preemption; failed attempts that were
//! restarted do not count. The members of an array are separate jobs. Only jobs that ran and have ended can be
//! replayed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use muster_core::facts::event::{Event, NextPhase, RequeueCause};
use muster_core::{JobId, JobSpec, Timestamp};
use muster_store::{Store, StoreConfig, StoreError};

use super::{GangShape, JobLog, LogError, LogFormat, LoggedJob};

/// Journal entries per query.
const ENTRIES_PER_PAGE: u32 = 1_000;

/// True if the path is the address of a database, not a file.
pub fn is_database_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("postgres://") || text.starts_with("postgresql://"))
}

/// Opens a store: a SQLite file, or the address of a database.
pub fn open_store(path: &Path) -> Result<Store, StoreError> {
    let config = match path.to_str().filter(|_| is_database_url(path)) {
        Some(address) => StoreConfig::Postgres(address.parse()?),
        None => StoreConfig::Sqlite { path: path.to_path_buf() },
    };
    muster_store::open(&config)
}

/// Reads the journal of a file or a database, which may be in use.
pub fn read(path: &Path) -> Result<JobLog, LogError> {
    // An address may contain a password, which must not be shown.
    let shown = if is_database_url(path) { Path::new("PostgreSQL") } else { path };
    let journal_error = |what: String| LogError::Journal { path: shown.to_path_buf(), what };
    let failed = |error: StoreError| journal_error(error.to_string());
    let store = open_store(path).map_err(failed)?;
    let (mut journal_jobs, mut after) = (JournalJobs::default(), 0);
    loop {
        let page = store.tables.events(after, ENTRIES_PER_PAGE, None).map_err(failed)?;
        let Some(last) = page.last().map(|row| row.seq) else { break };
        for row in &page {
            journal_jobs.add_event(row.event().map_err(failed)?);
        }
        after = last;
    }
    Ok(journal_jobs.into_log())
}

/// The jobs of the events read so far.
#[derive(Debug, Default)]
struct JournalJobs {
    jobs: BTreeMap<JobId, JournalJob>,
}

/// The work of one job so far.
#[derive(Debug)]
struct JournalJob {
    spec: Arc<JobSpec>,
    submit_ms: i64,
    started_at: Option<Timestamp>,
    work_ms: i64,
    has_ended: bool,
}

impl JournalJobs {
    fn add_event(&mut self, event: Event) {
        match event {
            Event::JobSubmitted { job, spec, array, at, .. } => {
                let indexes = array.as_ref().map(|array| &array.indexes[..]);
                for id in jobs_of_submission(job, indexes) {
                    let (spec, submit_ms) = (spec.clone(), at.0);
                    let job = JournalJob { spec, submit_ms, started_at: None, work_ms: 0, has_ended: false };
                    self.jobs.insert(id, job);
                }
            }
            Event::AttemptStarted { job, whole: true, at, .. } => {
                self.update_job(job, |job| job.started_at = Some(at));
            }
            Event::AttemptEnded { job, next, receipt, at, .. } => {
                let lost_gpu_ms = receipt.map_or(0, |receipt| receipt.lost_gpu_ms);
                self.update_job(job, |job| job.end_attempt(&next, lost_gpu_ms, at));
            }
            Event::JobEnded { job, .. } => self.update_job(job, |job| job.has_ended = true),
            _ => {}
        }
    }

    fn update_job(&mut self, job: JobId, change: impl FnOnce(&mut JournalJob)) {
        if let Some(job) = self.jobs.get_mut(&job) {
            change(job);
        }
    }

    fn into_log(self) -> JobLog {
        let mut log = JobLog { format: LogFormat::Journal, jobs: Vec::new(), left_out: BTreeMap::new() };
        for (id, job) in self.jobs {
            match &job {
                job if job.spec.gpus() == 0 => log.count_left_out("requested no GPU"),
                JournalJob { has_ended: false, .. } => log.count_left_out("had not ended"),
                JournalJob { work_ms: 0, .. } => log.count_left_out("did not run"),
                _ => log.jobs.push(job.into_job(id)),
            }
        }
        log
    }
}

impl JournalJob {
    /// Adds the work of an ended attempt.
    fn end_attempt(&mut self, next: &NextPhase, lost_gpu_ms: u64, at: Timestamp) {
        let ran_ms = self.started_at.take().map_or(0, |started| at.since(started));
        match next {
            NextPhase::Ended { .. } => {
                self.work_ms += ran_ms;
                self.has_ended = true;
            }
            NextPhase::Queued { cause: RequeueCause::Preempted, .. } => {
                let lost_ms = lost_gpu_ms / u64::from(self.spec.gpus().max(1));
                self.work_ms += (ran_ms - i64::try_from(lost_ms).unwrap_or(i64::MAX)).max(0);
            }
            NextPhase::Queued { .. } | NextPhase::Held { .. } => {}
        }
    }

    fn into_job(self, id: JobId) -> LoggedJob {
        let spec = &self.spec;
        LoggedJob {
            name: spec.name.clone(),
            tenant: spec.tenant.to_string(),
            user: spec.user.clone(),
            time_limit_ms: spec.time_limit_ms,
            priority: Some(spec.priority),
            checkpoint_every_ms: spec.checkpoint.as_ref().and_then(|rule| rule.every_ms),
            spec: Some(self.spec.clone()),
            ..LoggedJob::new(id.to_string(), self.submit_ms, self.work_ms, gang_shape(spec))
        }
    }
}

/// The jobs of a submission: the job itself, or one for each index of an array.
pub(crate) fn jobs_of_submission(job: JobId, indexes: Option<&[u32]>) -> Vec<JobId> {
    match indexes {
        Some(indexes) => indexes.iter().map(|index| JobId::of_array(job.number, *index)).collect(),
        None => vec![job],
    }
}

/// One task group keeps its shape; several become a total.
fn gang_shape(spec: &JobSpec) -> GangShape {
    match &spec.tasks[..] {
        [group] => GangShape::Tasks { count: group.count, each: group.each.gpus },
        _ => GangShape::Total(spec.gpus()),
    }
}
