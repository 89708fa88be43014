//! Runs policies in a worker process, so that no policy runs in the process of a server.
//!
//! The interpreter checks [`Limits`] only between steps, and one step can take long. The worker process therefore has
//! kernel resource limits, and the caller enforces a deadline: a late process is killed, and the next request starts
//! a new one with the same bundle. Whatever a policy does, the caller gets an answer or an error.

mod pipe;
mod process;
mod protocol;
mod serve;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use muster_core::objects::policy::Hook;
use muster_core::objects::policy::rules::Rules;
use serde::{Deserialize, Serialize};

use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::policy_value::PolicyValue;
use process::WorkerProcess;
use protocol::{ControlReply, ControlRequest, Reply};

pub use serve::worker_main;

/// Calls in the first message of a batch. Even if each takes as long as [`Limits`] allow, all of them fit into the call
/// time that a server gives the bundle of the cluster.
const FIRST_MESSAGE_CALLS: usize = 32;
/// After a fast reply the next message has this many times the calls of the previous one; after a slow reply it has
/// [`FIRST_MESSAGE_CALLS`] again.
const MESSAGE_GROWTH_FACTOR: usize = 8;
/// The most calls of a message. Their usual answers fit into [`Confinement::answer_bytes`].
const MESSAGE_CALLS_MAX: usize = 4_096;
/// The time for the tests of a bundle, in multiples of [`Confinement::load_time`].
const TEST_TIME_FACTOR: u32 = 5;
/// A reply is fast if it took less than this part of [`Confinement::call_time`].
const FAST_REPLY_DIVISOR: u32 = 16;

/// The resource limits of a worker process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Address space beyond what the process has at its start.
    pub memory_bytes: u64,
    /// CPU seconds for one request. They stop a worker whose caller is gone and cannot kill it.
    pub cpu_seconds: u64,
    /// Deadline for the start of the process.
    pub start_time: Duration,
    /// Deadline for loading a bundle.
    pub load_time: Duration,
    /// Deadline for a message with calls.
    pub call_time: Duration,
    /// Bytes of one reply.
    pub answer_bytes: usize,
    /// Limits that the interpreter checks. Most policies that exceed a limit stop here, with the line in the error.
    pub limits: Limits,
}

impl Default for Confinement {
    fn default() -> Confinement {
        Confinement {
            memory_bytes: 256 << 20,
            cpu_seconds: 3,
            start_time: Duration::from_secs(5),
            load_time: Duration::from_secs(2),
            call_time: Duration::from_millis(50),
            answer_bytes: 1 << 20,
            limits: Limits::default(),
        }
    }
}

/// The command that starts a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl WorkerCommand {
    /// The running binary with the argument `policy-worker`. It is the same binary even if its file was replaced.
    pub fn this_binary() -> WorkerCommand {
        WorkerCommand { program: "/proc/self/exe".into(), args: vec!["policy-worker".into()] }
    }
}

/// What a worker reports about the bundle it loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadedBundle {
    pub rules: Rules,
    /// The hooks that the files define.
    pub hooks: BTreeSet<Hook>,
    /// Attribute names and string literals of the files.
    pub mentions: BTreeSet<String>,
    /// The callable functions, with the files that define them.
    pub functions: BTreeMap<String, Vec<String>>,
}

/// Calls policies in a worker process. There is at most one process at a time; it is started when it is needed.
#[derive(Debug)]
pub struct Worker {
    command: WorkerCommand,
    confinement: Confinement,
    process: Option<WorkerProcess>,
    /// The batch whose values the process has cached.
    cached_batch_id: Option<u64>,
    /// Calls of the next message, by function. A batch continues with the size that the previous batch reached.
    calls_per_message: BTreeMap<String, usize>,
    /// The last bundle that loaded without error. A new process starts with it.
    files: BTreeMap<String, String>,
    /// The functions of that bundle, with the files that define them.
    functions: BTreeMap<String, Vec<String>>,
}

impl Worker {
    /// A worker without a bundle.
    pub fn new(command: WorkerCommand, confinement: Confinement) -> Worker {
        Worker {
            command,
            confinement,
            process: None,
            cached_batch_id: None,
            calls_per_message: BTreeMap::new(),
            files: BTreeMap::new(),
            functions: BTreeMap::new(),
        }
    }

    /// Replace the bundle. If the new one does not load, the previous one stays.
    pub fn load(&mut self, files: &BTreeMap<String, String>) -> Result<LoadedBundle, PolicyError> {
        if self.process.is_none() {
            self.start()?;
        }
        let loaded = self.load_into_process(files)?;
        self.files.clone_from(files);
        self.functions.clone_from(&loaded.functions);
        Ok(loaded)
    }

    /// Run the tests of a bundle, and return one line for each that fails.
    pub fn run_tests(&mut self, files: &BTreeMap<String, String>) -> Result<Vec<String>, PolicyError> {
        if self.process.is_none() {
            self.start()?;
        }
        let test = ControlRequest::Test { files: files.clone() }.encode();
        let time = self.confinement.load_time * TEST_TIME_FACTOR;
        match self.send_request(test, (time, time))? {
            Reply::Control(ControlReply::Tested(failed)) => Ok(failed),
            _ => Err(self.protocol_violation()),
        }
    }

    /// Call a function in the first file that defines it.
    pub fn call(&mut self, function: &str, args: &[PolicyValue]) -> Result<PolicyValue, PolicyError> {
        let Some(file) = self.functions.get(function).and_then(|files| files.first()).cloned() else {
            let message = format!("there is no function `{function}`");
            return Err(PolicyError::Invalid { file: "policy".to_string(), message });
        };
        let answers = self.call_each(&file, function, &CallBatch::single(args.to_vec()), Duration::MAX);
        answers.into_iter().next().unwrap_or_else(|| Err(self.protocol_violation()))
    }

    /// Call a function of a file once for each call of the batch. The values are sent once, and the calls in few
    /// messages. The error of a failed call is among the answers; the failure of the process is the answer of all
    /// calls that it has not answered. A message has [`Confinement::call_time`], and all messages together have
    /// `within`.
    pub fn call_each(
        &mut self,
        file: &str,
        function: &str,
        calls: &CallBatch,
        within: Duration,
    ) -> Vec<Result<PolicyValue, PolicyError>> {
        let started_at = Instant::now();
        let mut size = self.calls_per_message.remove(function).unwrap_or(FIRST_MESSAGE_CALLS);
        let mut answers = Vec::with_capacity(calls.len());
        while answers.len() < calls.len() {
            let range = answers.len()..calls.len().min(answers.len() + size);
            let sent_at = Instant::now();
            let left = within.saturating_sub(sent_at.duration_since(started_at));
            match self.call_range((file, function), calls, range, left) {
                Ok(values) => answers.extend(values),
                Err(error) => answers.resize(calls.len(), Err(error)),
            }
            let is_fast = sent_at.elapsed() * FAST_REPLY_DIVISOR < self.confinement.call_time;
            size = if is_fast { (size * MESSAGE_GROWTH_FACTOR).min(MESSAGE_CALLS_MAX) } else { FIRST_MESSAGE_CALLS };
        }
        if self.process.is_some() {
            self.calls_per_message.insert(function.to_string(), size);
        }
        answers
    }

    fn call_range(
        &mut self,
        function: (&str, &str),
        calls: &CallBatch,
        range: Range<usize>,
        within: Duration,
    ) -> Result<Vec<Result<PolicyValue, PolicyError>>, PolicyError> {
        self.ensure_process()?;
        let call_time = self.confinement.call_time;
        let is_cached = self.cached_batch_id == Some(calls.id());
        let message = protocol::encode_calls(function, (calls, is_cached), &range);
        match self.send_request(message, (within.min(call_time), call_time))? {
            Reply::Values(answers) if answers.len() == range.len() => {
                self.cached_batch_id = Some(calls.id());
                Ok(answers)
            }
            _ => Err(self.protocol_violation()),
        }
    }

    /// Start a process with the last bundle, unless one is running.
    fn ensure_process(&mut self) -> Result<(), PolicyError> {
        if self.process.is_some() {
            return Ok(());
        }
        self.start()?;
        let files = std::mem::take(&mut self.files);
        let loaded = self.load_into_process(&files);
        self.files = files;
        loaded.map(drop)
    }

    /// The id of the running process.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(WorkerProcess::id)
    }

    fn start(&mut self) -> Result<(), PolicyError> {
        self.process = Some(WorkerProcess::start(&self.command, self.confinement.answer_bytes)?);
        self.cached_batch_id = None;
        self.calls_per_message.clear();
        let confine = ControlRequest::Confine(self.confinement.clone()).encode();
        match self.send_request(confine, (self.confinement.start_time, self.confinement.start_time))? {
            Reply::Control(ControlReply::Confined) => Ok(()),
            _ => Err(self.protocol_violation()),
        }
    }

    fn load_into_process(&mut self, files: &BTreeMap<String, String>) -> Result<LoadedBundle, PolicyError> {
        let load = ControlRequest::Load { files: files.clone() }.encode();
        match self.send_request(load, (self.confinement.load_time, self.confinement.load_time))? {
            Reply::Control(ControlReply::Loaded(loaded)) => Ok(loaded),
            _ => Err(self.protocol_violation()),
        }
    }

    /// Send a request and wait for its reply for `time_left`; the error names `time_limit`. A process that does not
    /// reply is killed.
    fn send_request(
        &mut self,
        message: Vec<u8>,
        (time_left, time_limit): (Duration, Duration),
    ) -> Result<Reply, PolicyError> {
        let Some(process) = &mut self.process else { return Err(self.protocol_violation()) };
        match process.request(&message, time_left) {
            Ok(Reply::Control(ControlReply::Failed(error))) => Err(error),
            Ok(reply) => Ok(reply),
            Err(failure) => {
                let memory_mib = self.confinement.memory_bytes >> 20;
                self.process = None;
                Err(worker_failed(failure.message(time_limit, memory_mib)))
            }
        }
    }

    /// Kill a process that sent an unexpected reply: it is not trusted with another request.
    fn protocol_violation(&mut self) -> PolicyError {
        self.process = None;
        worker_failed("the worker sent a reply that does not match the request".to_string())
    }
}

fn worker_failed(message: String) -> PolicyError {
    PolicyError::WorkerFailed { message }
}
