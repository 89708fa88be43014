//! A process of its own for policies that nobody vouches for.
//!
//! The bounds of [`Limits`] are looked at between the steps of the interpreter, and one step can take long. So the
//! process has bounds that the kernel keeps, and whoever asks it has a clock: beyond it the process is killed, and the next
//! request finds a new one with the same policies. Whatever a policy does, the one who asks gets an answer or an error.

mod letter;
mod process;
mod serve;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use muster_core::rules::Rules;
use serde::{Deserialize, Serialize};

use crate::error::PolicyError;
use crate::limits::Limits;
use crate::plain::Plain;
use letter::{Answer, Request, Sent};
use process::Process;

pub use serve::worker_main;

/// The bounds of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Bytes of memory beyond what it has when it begins.
    pub memory_bytes: u64,
    /// Seconds of a processor for one request. They end a worker that nobody is there to kill.
    pub cpu_seconds: u64,
    /// How long it may take to begin.
    pub start_time: Duration,
    /// How long it may take to load a bundle.
    pub load_time: Duration,
    /// How long it may take to answer a call.
    pub call_time: Duration,
    /// Bytes of one answer.
    pub answer_bytes: usize,
    /// What the interpreter looks at: most policies that go too far end here, with their line.
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

/// How a worker is started: a program and its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its words.
    pub words: Vec<OsString>,
}

impl Launch {
    /// This binary again, as `policy-worker`.
    pub fn this_binary() -> Result<Launch, PolicyError> {
        let program = std::env::current_exe()
            .map_err(|error| ended(format!("nobody knows which program this is: {error}")))?;
        Ok(Launch { program, words: vec!["policy-worker".into()] })
    }
}

/// What a bundle is, as its worker says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// What its files registered.
    pub rules: Rules,
    /// The functions that can be called, with the files that tell them.
    pub functions: BTreeMap<String, Vec<String>>,
}

/// Asks policies in a process of their own. There is one process at a time, and none before it is needed.
#[derive(Debug)]
pub struct Worker {
    launch: Launch,
    confinement: Confinement,
    process: Option<Process>,
    /// The last bundle that could be loaded: a new process begins with it.
    files: BTreeMap<String, String>,
}

impl Worker {
    /// One that has nothing loaded.
    pub fn new(launch: Launch, confinement: Confinement) -> Worker {
        Worker { launch, confinement, process: None, files: BTreeMap::new() }
    }

    /// Load a bundle in place of the one before. If it cannot be loaded, that one stays.
    pub fn load(&mut self, files: &BTreeMap<String, String>) -> Result<Loaded, PolicyError> {
        if self.process.is_none() {
            self.start()?;
        }
        let loaded = self.load_into_process(files)?;
        self.files.clone_from(files);
        Ok(loaded)
    }

    /// Call a function of the bundle.
    pub fn call(&mut self, function: &str, args: &[Plain]) -> Result<Plain, PolicyError> {
        if self.process.is_none() {
            self.start()?;
            let files = std::mem::take(&mut self.files);
            let loaded = self.load_into_process(&files);
            self.files = files;
            loaded?;
        }
        let args = args.iter().map(Sent::from).collect();
        let request = Request::Call { function: function.to_string(), args };
        match self.ask(&request, self.confinement.call_time)? {
            Answer::Value(value) => value.received().ok_or_else(|| self.nonsense()),
            _ => Err(self.nonsense()),
        }
    }

    /// The process that answers now, if there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    fn start(&mut self) -> Result<(), PolicyError> {
        self.process = Some(Process::start(&self.launch, self.confinement.answer_bytes)?);
        let confine = Request::Confine(self.confinement.clone());
        match self.ask(&confine, self.confinement.start_time)? {
            Answer::Confined => Ok(()),
            _ => Err(self.nonsense()),
        }
    }

    fn load_into_process(&mut self, files: &BTreeMap<String, String>) -> Result<Loaded, PolicyError> {
        let request = Request::Load { files: files.clone() };
        match self.ask(&request, self.confinement.load_time)? {
            Answer::Loaded(loaded) => Ok(loaded),
            _ => Err(self.nonsense()),
        }
    }

    /// The answer to a request. A process that gives none is gone afterwards.
    fn ask(&mut self, request: &Request, within: Duration) -> Result<Answer, PolicyError> {
        let Some(process) = &mut self.process else { return Err(self.nonsense()) };
        match process.ask(request, within) {
            Ok(Answer::Wrong(error)) => Err(error),
            Ok(answer) => Ok(answer),
            Err(end) => {
                let memory_mib = self.confinement.memory_bytes >> 20;
                self.process = None;
                Err(ended(end.told(within, memory_mib)))
            }
        }
    }

    /// Who answers something else than was asked is not trusted with another request.
    fn nonsense(&mut self) -> PolicyError {
        self.process = None;
        ended("its process answered something that was not asked".to_string())
    }
}

fn ended(what: String) -> PolicyError {
    PolicyError::Ended { what }
}
