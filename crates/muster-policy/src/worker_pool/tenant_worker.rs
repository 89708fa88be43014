//! The process of one tenant, and what is known of how it behaves.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_core::objects::policy::PolicyBundle;

use super::time_account::TimeAccount;
use super::{WorkerPoolSettings, unavailable};
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::load::is_policy_file;
use crate::policy_value::PolicyValue;
use crate::worker::{LoadedBundle, Worker};

/// One tenant.
#[derive(Debug, Default)]
pub struct TenantWorker {
    /// The bundle its process has, or would have.
    hash: String,
    state: ProcessState,
    last_query_at: Option<Instant>,
    /// What became of its process in this question, if a call ended it.
    failure: Option<PolicyError>,
    /// What it has taken of the time of others.
    pub account: TimeAccount,
}

#[derive(Debug, Default)]
enum ProcessState {
    #[default]
    NotStarted,
    /// Somebody starts it, and brings it.
    Starting(Receiver<(Worker, Result<LoadedBundle, PolicyError>)>),
    /// With the files that tell its functions.
    Ready(Box<Worker>, BTreeMap<String, Vec<String>>),
}

impl TenantWorker {
    /// Be asked with a bundle. A process that has another one ends.
    pub fn use_bundle(&mut self, bundle: &PolicyBundle, now: Instant) {
        self.last_query_at = Some(now);
        if self.hash != bundle.hash {
            self.hash.clone_from(&bundle.hash);
            self.state = ProcessState::NotStarted;
            self.account.reset_failures();
        }
    }

    /// When it was asked last.
    pub fn last_query_at(&self) -> Option<Instant> {
        self.last_query_at
    }

    /// Whether there is a process, or will be soon.
    pub fn has_process(&self) -> bool {
        !matches!(self.state, ProcessState::NotStarted)
    }

    /// Its process, once it can be asked.
    pub fn process_id(&self) -> Option<u32> {
        match &self.state {
            ProcessState::Ready(worker, _) => worker.process_id(),
            ProcessState::NotStarted | ProcessState::Starting(_) => None,
        }
    }

    /// End its process: others need the room.
    pub fn stop(&mut self) {
        self.state = ProcessState::NotStarted;
    }

    /// Have a process started, without waiting for it. It takes as long as the files take to load.
    pub fn start(&mut self, mut worker: Worker, bundle: &PolicyBundle) {
        let (bring, brought) = mpsc::channel();
        let files = bundle.files.clone();
        std::thread::spawn(move || {
            let loaded = worker.load(&files);
            // If nobody waits for it any more it ends here.
            let _ = bring.send((worker, loaded));
        });
        self.state = ProcessState::Starting(brought);
    }

    /// Wait until its process can be asked, but no longer than that.
    pub fn wait_until_ready(&mut self, until: Instant) -> Result<(), PolicyError> {
        let ProcessState::Starting(brought) = &self.state else { return Ok(()) };
        let brought = brought.recv_timeout(until.saturating_duration_since(Instant::now()));
        if let Err(RecvTimeoutError::Timeout) = brought {
            return Err(unavailable("its process is being started; it is asked again"));
        }
        self.state = ProcessState::NotStarted;
        let (worker, loaded) = brought.map_err(|_| unavailable("its process could not be started"))?;
        self.state = ProcessState::Ready(Box::new(worker), loaded?.functions);
        Ok(())
    }

    /// The files that tell a function, in the order of their names.
    pub fn files_defining(&self, function: &str) -> Vec<String> {
        let ProcessState::Ready(_, functions) = &self.state else { return Vec::new() };
        let files = functions.get(function).into_iter().flatten();
        // What a test tells answers nobody, even where a policy loads it.
        files.filter(|file| is_policy_file(file)).cloned().collect()
    }

    /// Call a function of a file with each of these arguments. A process that was ended is not replaced here.
    pub fn call_each(
        &mut self,
        file: &str,
        function: &str,
        calls: &CallBatch,
        within: Duration,
    ) -> Vec<Result<PolicyValue, PolicyError>> {
        match &mut self.state {
            ProcessState::Ready(worker, _) if worker.process_id().is_some() && !within.is_zero() => {
                let said = worker.call_each(file, function, calls, within);
                if worker.process_id().is_none() {
                    self.failure = said.last().and_then(|last| last.clone().err());
                }
                said
            }
            _ => vec![Err(unavailable("no time was left for it")); calls.len()],
        }
    }

    /// After a question: what it took, and whether its process is still there.
    pub fn finish_query(&mut self, patience: &WorkerPoolSettings, began: Instant, error: Option<&PolicyError>) {
        let now = Instant::now();
        self.account.charge(now.saturating_duration_since(began));
        let lost = match &self.state {
            ProcessState::Ready(worker, _) => worker.process_id().is_none(),
            ProcessState::NotStarted => true,
            ProcessState::Starting(_) => false,
        };
        // Of many answers only some may be errors: then the question itself has none.
        match self.failure.take().or_else(|| error.cloned()) {
            None => self.account.record_success(),
            Some(why) if lost => {
                self.state = ProcessState::NotStarted;
                self.account.record_failure(patience, now, why);
            }
            Some(_) => {}
        }
    }
}
