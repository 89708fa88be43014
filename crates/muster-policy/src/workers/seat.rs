//! The process of one tenant, and what is known of how it behaves.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_core::policy::Bundle;

use super::account::Account;
use super::{Patience, no_answer};
use crate::calls::Calls;
use crate::error::PolicyError;
use crate::load::is_policy;
use crate::plain::Plain;
use crate::worker::{Loaded, Worker};

/// One tenant.
#[derive(Debug, Default)]
pub struct Seat {
    /// The bundle its process has, or would have.
    hash: String,
    process: Process,
    asked_at: Option<Instant>,
    /// What became of its process in this question, if a call ended it.
    ended: Option<PolicyError>,
    /// What it has taken of the time of others.
    pub account: Account,
}

#[derive(Debug, Default)]
enum Process {
    #[default]
    None,
    /// Somebody starts it, and brings it.
    Starting(Receiver<(Worker, Result<Loaded, PolicyError>)>),
    /// With the files that tell its functions.
    Ready(Box<Worker>, BTreeMap<String, Vec<String>>),
}

impl Seat {
    /// Be asked with a bundle. A process that has another one ends.
    pub fn serve(&mut self, bundle: &Bundle, now: Instant) {
        self.asked_at = Some(now);
        if self.hash != bundle.hash {
            self.hash.clone_from(&bundle.hash);
            self.process = Process::None;
            self.account.begin_anew();
        }
    }

    /// When it was asked last.
    pub fn asked_at(&self) -> Option<Instant> {
        self.asked_at
    }

    /// Whether there is a process, or will be soon.
    pub fn has_process(&self) -> bool {
        !matches!(self.process, Process::None)
    }

    /// Its process, once it can be asked.
    pub fn process_id(&self) -> Option<u32> {
        match &self.process {
            Process::Ready(worker, _) => worker.process_id(),
            Process::None | Process::Starting(_) => None,
        }
    }

    /// End its process: others need the room.
    pub fn leave(&mut self) {
        self.process = Process::None;
    }

    /// Have a process started, without waiting for it. It takes as long as the files take to load.
    pub fn start(&mut self, mut worker: Worker, bundle: &Bundle) {
        let (bring, brought) = mpsc::channel();
        let files = bundle.files.clone();
        std::thread::spawn(move || {
            let loaded = worker.load(&files);
            // If nobody waits for it any more it ends here.
            let _ = bring.send((worker, loaded));
        });
        self.process = Process::Starting(brought);
    }

    /// Wait until its process can be asked, but no longer than that.
    pub fn wait_until(&mut self, until: Instant) -> Result<(), PolicyError> {
        let Process::Starting(brought) = &self.process else { return Ok(()) };
        let brought = brought.recv_timeout(until.saturating_duration_since(Instant::now()));
        if let Err(RecvTimeoutError::Timeout) = brought {
            return Err(no_answer("its process is being started; it is asked again"));
        }
        self.process = Process::None;
        let (worker, loaded) = brought.map_err(|_| no_answer("its process could not be started"))?;
        self.process = Process::Ready(Box::new(worker), loaded?.functions);
        Ok(())
    }

    /// The files that tell a function, in the order of their names.
    pub fn files_with(&self, function: &str) -> Vec<String> {
        let Process::Ready(_, functions) = &self.process else { return Vec::new() };
        let files = functions.get(function).into_iter().flatten();
        // What a test tells answers nobody, even where a policy loads it.
        files.filter(|file| is_policy(file)).cloned().collect()
    }

    /// Call a function of a file with each of these arguments. A process that was ended is not replaced here.
    pub fn call_each(
        &mut self,
        file: &str,
        function: &str,
        calls: &Calls,
        within: Duration,
    ) -> Vec<Result<Plain, PolicyError>> {
        match &mut self.process {
            Process::Ready(worker, _) if worker.process_id().is_some() && !within.is_zero() => {
                let said = worker.call_each(file, function, calls, within);
                if worker.process_id().is_none() {
                    self.ended = said.last().and_then(|last| last.clone().err());
                }
                said
            }
            _ => vec![Err(no_answer("no time was left for it")); calls.len()],
        }
    }

    /// After a question: what it took, and whether its process is still there.
    pub fn settle(&mut self, patience: &Patience, began: Instant, error: Option<&PolicyError>) {
        let now = Instant::now();
        self.account.take(now.saturating_duration_since(began));
        let lost = match &self.process {
            Process::Ready(worker, _) => worker.process_id().is_none(),
            Process::None => true,
            Process::Starting(_) => false,
        };
        // Of many answers only some may be errors: then the question itself has none.
        match self.ended.take().or_else(|| error.cloned()) {
            None => self.account.praise(),
            Some(why) if lost => {
                self.process = Process::None;
                self.account.put_to_rest(patience, now, why);
            }
            Some(_) => {}
        }
    }
}
