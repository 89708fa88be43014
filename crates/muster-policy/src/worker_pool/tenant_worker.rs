//! The worker process of one tenant, and its account.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_core::objects::policy::PolicyBundle;

use super::time_account::TimeAccount;
use super::{WorkerPoolSettings, unavailable};
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::policy_files::is_policy_file;
use crate::policy_value::PolicyValue;
use crate::worker::{LoadedBundle, Worker};

/// The worker of one tenant or of one bundle of the cluster.
#[derive(Debug, Default)]
pub struct TenantWorker {
    /// The hash of the bundle that the process has, or will have.
    hash: String,
    state: ProcessState,
    last_query_at: Option<Instant>,
    /// The failure of the process in the current query.
    failure: Option<PolicyError>,
    pub account: TimeAccount,
}

#[derive(Debug, Default)]
enum ProcessState {
    #[default]
    NotStarted,
    /// A thread starts the process and sends it with the outcome of the load.
    Starting(Receiver<(Worker, Result<LoadedBundle, PolicyError>)>),
    /// With its functions and the files that define them.
    Ready(Box<Worker>, BTreeMap<String, Vec<String>>),
}

impl TenantWorker {
    /// Start a query with this bundle. A process with another bundle is stopped, and its failures are forgotten.
    pub fn use_bundle(&mut self, bundle: &PolicyBundle, now: Instant) {
        self.last_query_at = Some(now);
        if self.hash != bundle.hash {
            self.hash.clone_from(&bundle.hash);
            self.state = ProcessState::NotStarted;
            self.account.reset_failures();
        }
    }

    pub fn last_query_at(&self) -> Option<Instant> {
        self.last_query_at
    }

    /// True if a process is running or starting.
    pub fn has_process(&self) -> bool {
        !matches!(self.state, ProcessState::NotStarted)
    }

    /// The id of the process once it is ready.
    pub fn process_id(&self) -> Option<u32> {
        match &self.state {
            ProcessState::Ready(worker, _) => worker.process_id(),
            ProcessState::NotStarted | ProcessState::Starting(_) => None,
        }
    }

    /// Stop the process.
    pub fn stop(&mut self) {
        self.state = ProcessState::NotStarted;
    }

    /// Start a process and load the bundle, in the background.
    pub fn start(&mut self, mut worker: Worker, bundle: &PolicyBundle) {
        let (sender, receiver) = mpsc::channel();
        let files = bundle.files.clone();
        std::thread::spawn(move || {
            let loaded = worker.load(&files);
            // If the receiver is gone, the process is stopped here.
            let _ = sender.send((worker, loaded));
        });
        self.state = ProcessState::Starting(receiver);
    }

    /// Wait for a starting process until the deadline.
    pub fn wait_until_ready(&mut self, deadline: Instant) -> Result<(), PolicyError> {
        let ProcessState::Starting(receiver) = &self.state else { return Ok(()) };
        let started = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        if let Err(RecvTimeoutError::Timeout) = started {
            return Err(unavailable("the policy worker is starting; the call will be retried"));
        }
        self.state = ProcessState::NotStarted;
        let (worker, loaded) = started.map_err(|_| unavailable("the policy worker could not be started"))?;
        self.state = ProcessState::Ready(Box::new(worker), loaded?.functions);
        Ok(())
    }

    /// The files that define a function, in the order of file names.
    pub fn files_defining(&self, function: &str) -> Vec<String> {
        let ProcessState::Ready(_, functions) = &self.state else { return Vec::new() };
        let files = functions.get(function).into_iter().flatten();
        // Functions of test files are no hooks, even if a policy loads the file.
        files.filter(|file| is_policy_file(file)).cloned().collect()
    }

    /// Call a function of a file once for each call of the batch. A killed process is not replaced within the query.
    pub fn call_each(
        &mut self,
        file: &str,
        function: &str,
        calls: &CallBatch,
        within: Duration,
    ) -> Vec<Result<PolicyValue, PolicyError>> {
        match &mut self.state {
            ProcessState::Ready(worker, _) if worker.process_id().is_some() && !within.is_zero() => {
                let answers = worker.call_each(file, function, calls, within);
                if worker.process_id().is_none() {
                    self.failure = answers.last().and_then(|last| last.clone().err());
                }
                answers
            }
            _ => {
                vec![Err(unavailable("the time limit was reached before the call was made")); calls.len()]
            }
        }
    }

    /// Charge the time of a query, and record its success or the failure of the process.
    pub fn finish_query(&mut self, settings: &WorkerPoolSettings, started_at: Instant, error: Option<&PolicyError>) {
        let now = Instant::now();
        self.account.charge(now.saturating_duration_since(started_at));
        let is_process_lost = match &self.state {
            ProcessState::Ready(worker, _) => worker.process_id().is_none(),
            ProcessState::NotStarted => true,
            ProcessState::Starting(_) => false,
        };
        // A batched query succeeds even if some of its answers are errors, so the failure of the process is kept apart.
        match self.failure.take().or_else(|| error.cloned()) {
            None => self.account.record_success(),
            Some(error) if is_process_lost => {
                self.state = ProcessState::NotStarted;
                self.account.record_failure(settings, now, error);
            }
            Some(_) => {}
        }
    }
}
