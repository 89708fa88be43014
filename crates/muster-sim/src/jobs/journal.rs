//! Our own journal: what was submitted, and how long it really worked.
//!
//! The work of a job is what its attempts ran, less what was lost when one was displaced; a try that failed and was made
//! again counts nothing. Tasks of an array are jobs of their own. Only finished jobs that ran can be replayed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use muster_core::event::{Back, Event, Next};
use muster_core::{JobId, JobSpec, Timestamp};
use muster_store::{Store, StoreConfig, StoreError};

use super::{Format, Gang, Log, LogError, LoggedJob};

/// Entries read at once.
const PAGE: u32 = 1_000;

/// Whether it is the address of a database and no file.
pub fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("postgres://") || text.starts_with("postgresql://"))
}

/// Where a journal is: a file, or the address of a database.
pub fn store(path: &Path) -> Result<Store, StoreError> {
    let config = match path.to_str().filter(|_| is_address(path)) {
        Some(address) => StoreConfig::Postgres(address.parse()?),
        None => StoreConfig::Sqlite { path: path.to_path_buf() },
    };
    muster_store::open(&config)
}

/// Read the journal of a file or a database; it may be in use.
pub fn read(path: &Path) -> Result<Log, LogError> {
    // An address may hold a password, which is nobody's business.
    let shown = if is_address(path) { Path::new("PostgreSQL") } else { path };
    let wrong = |what: String| LogError::Journal { path: shown.to_path_buf(), what };
    let failed = |error: StoreError| wrong(error.to_string());
    let store = store(path).map_err(failed)?;
    let (mut memory, mut after) = (Memory::default(), 0);
    loop {
        let page = store.tables.events(after, PAGE, None).map_err(failed)?;
        let Some(last) = page.last().map(|row| row.seq) else { break };
        for row in &page {
            let event = muster_json::from_str(&row.payload);
            memory.note(event.map_err(|error| wrong(format!("entry {}: {error}", row.seq)))?);
        }
        after = last;
    }
    Ok(memory.into_log())
}

/// What is remembered of the events read so far.
#[derive(Debug, Default)]
struct Memory {
    jobs: BTreeMap<JobId, Seen>,
}

/// What is known of one job.
#[derive(Debug)]
struct Seen {
    spec: Arc<JobSpec>,
    submit_ms: i64,
    started_at: Option<Timestamp>,
    work_ms: i64,
    over: bool,
}

impl Memory {
    fn note(&mut self, event: Event) {
        match event {
            Event::JobSubmitted { job, spec, array, at, .. } => {
                let indexes = array.map(|array| array.indexes);
                let members = indexes.into_iter().flatten().map(|index| JobId::of_array(job.number, index));
                let mut members: Vec<JobId> = members.collect();
                if members.is_empty() {
                    members.push(job);
                }
                for member in members {
                    let (spec, submit_ms) = (spec.clone(), at.0);
                    let seen = Seen { spec, submit_ms, started_at: None, work_ms: 0, over: false };
                    self.jobs.insert(member, seen);
                }
            }
            Event::AttemptStarted { job, whole: true, at, .. } => {
                self.of(job, |seen| seen.started_at = Some(at));
            }
            Event::AttemptEnded { job, next, receipt, at, .. } => {
                let lost_gpu_ms = receipt.map_or(0, |receipt| receipt.lost_gpu_ms);
                self.of(job, |seen| seen.end(&next, lost_gpu_ms, at));
            }
            Event::JobEnded { job, .. } => self.of(job, |seen| seen.over = true),
            _ => {}
        }
    }

    fn of(&mut self, job: JobId, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.jobs.get_mut(&job) {
            change(seen);
        }
    }

    fn into_log(self) -> Log {
        let mut log = Log { format: Format::Journal, jobs: Vec::new(), left_out: BTreeMap::new() };
        for (id, seen) in self.jobs {
            match &seen {
                seen if seen.spec.gpus() == 0 => log.leave_out("asked for no GPU"),
                Seen { over: false, .. } => log.leave_out("had not ended"),
                Seen { work_ms: 0, .. } => log.leave_out("did not run"),
                _ => log.jobs.push(seen.into_job(id)),
            }
        }
        log
    }
}

impl Seen {
    /// An attempt is over.
    fn end(&mut self, next: &Next, lost_gpu_ms: u64, at: Timestamp) {
        let ran_ms = self.started_at.take().map_or(0, |started| at.since(started));
        match next {
            Next::Ended { .. } => {
                self.work_ms += ran_ms;
                self.over = true;
            }
            Next::Queued { because: Back::Preempted, .. } => {
                let lost_ms = lost_gpu_ms / u64::from(self.spec.gpus().max(1));
                self.work_ms += (ran_ms - i64::try_from(lost_ms).unwrap_or(i64::MAX)).max(0);
            }
            Next::Queued { .. } | Next::Held { .. } => {}
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
            saves_every_ms: spec.checkpoint.as_ref().and_then(|rule| rule.every_ms),
            spec: Some(self.spec.clone()),
            ..LoggedJob::new(id.to_string(), self.submit_ms, self.work_ms, gang(spec))
        }
    }
}

/// One group is told as it is, several together.
fn gang(spec: &JobSpec) -> Gang {
    match &spec.tasks[..] {
        [group] => Gang::Tasks { count: group.count, each: group.each.gpus },
        _ => Gang::Total(spec.gpus()),
    }
}
