//! A process of its own for policies: no policy runs in the process of a server.
//!
//! The bounds of [`Limits`] are looked at between the steps of the interpreter, and one step can take long. So the
//! process has bounds that the kernel keeps, and whoever asks it has a clock: beyond it the process is killed, and the next
//! request finds a new one with the same policies. Whatever a policy does, the one who asks gets an answer or an error.

mod letter;
mod pipe;
mod process;
mod serve;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use muster_core::policy::Hook;
use muster_core::rules::Rules;
use serde::{Deserialize, Serialize};

use crate::calls::Calls;
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::plain::Plain;
use letter::{Answer, Prepare, Prepared};
use process::Process;

pub use serve::worker_main;

/// Calls of the first letter to a function. Each may take as long as [`Limits`] let it, and all of them still fit into the
/// clock of a server's own bundle.
const FIRST_LETTER: usize = 32;
/// Each letter holds this many times the calls of the letter before it while the worker answers soon. After a slow answer the
/// next letter has [`FIRST_LETTER`] calls again.
const LETTER_GROWTH: usize = 8;
/// The most calls of a letter: their answers fit into [`Confinement::answer_bytes`].
const LETTER_MAX: usize = 4_096;
/// The tests of a bundle may take so many times as long as its files to load.
const TESTS_TIME: u32 = 5;
/// A letter that took less than this part of its clock was answered soon.
const SOON: u32 = 16;

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
    /// How long it may take to answer a letter of calls.
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
    /// This binary again, as `policy-worker`. The same one, even where another lies in its place by now.
    pub fn this_binary() -> Launch {
        Launch { program: "/proc/self/exe".into(), words: vec!["policy-worker".into()] }
    }
}

/// What a bundle is, as its worker says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// What its files registered.
    pub rules: Rules,
    /// The questions they answer.
    pub hooks: BTreeSet<Hook>,
    /// Names and texts that they write.
    pub mentions: BTreeSet<String>,
    /// The functions that can be called, with the files that tell them.
    pub functions: BTreeMap<String, Vec<String>>,
}

/// Asks policies in a process of their own. There is one process at a time, and none before it is needed.
#[derive(Debug)]
pub struct Worker {
    launch: Launch,
    confinement: Confinement,
    process: Option<Process>,
    /// The calls whose values the process holds.
    held: Option<u64>,
    /// Calls of the next letter, by function: a batch goes on with the size that the one before has reached.
    letter_sizes: BTreeMap<String, usize>,
    /// The last bundle that could be loaded: a new process begins with it.
    files: BTreeMap<String, String>,
    /// Its functions, with the files that tell them.
    functions: BTreeMap<String, Vec<String>>,
}

impl Worker {
    /// One that has nothing loaded.
    pub fn new(launch: Launch, confinement: Confinement) -> Worker {
        Worker {
            launch,
            confinement,
            process: None,
            held: None,
            letter_sizes: BTreeMap::new(),
            files: BTreeMap::new(),
            functions: BTreeMap::new(),
        }
    }

    /// Load a bundle in place of the one before. If it cannot be loaded, that one stays.
    pub fn load(&mut self, files: &BTreeMap<String, String>) -> Result<Loaded, PolicyError> {
        if self.process.is_none() {
            self.start()?;
        }
        let loaded = self.load_into_process(files)?;
        self.files.clone_from(files);
        self.functions.clone_from(&loaded.functions);
        Ok(loaded)
    }

    /// Run the tests of a bundle, and say which fail.
    pub fn test(&mut self, files: &BTreeMap<String, String>) -> Result<Vec<String>, PolicyError> {
        if self.process.is_none() {
            self.start()?;
        }
        let test = Prepare::Test { files: files.clone() }.written();
        let within = self.confinement.load_time * TESTS_TIME;
        match self.ask(test, (within, within))? {
            Answer::Prepared(Prepared::Tested(failing)) => Ok(failing),
            _ => Err(self.nonsense()),
        }
    }

    /// Call the function of this name in the first file that tells it.
    pub fn call(&mut self, function: &str, args: &[Plain]) -> Result<Plain, PolicyError> {
        let Some(file) = self.functions.get(function).and_then(|files| files.first()).cloned() else {
            let what = format!("there is no function `{function}`");
            return Err(PolicyError::Somewhere { file: "policy".to_string(), what });
        };
        let said = self.call_each(&file, function, &Calls::one(args.to_vec()), Duration::MAX);
        said.into_iter().next().unwrap_or_else(|| Err(self.nonsense()))
    }

    /// Call a function of a file with each of these arguments. Their values are sent once, and the calls by few letters.
    /// A call that fails is an error among the answers; a process that gives none is the same error for all that were
    /// not answered before. A letter has [`Confinement::call_time`], and all of them together no more than `within`.
    pub fn call_each(
        &mut self,
        file: &str,
        function: &str,
        calls: &Calls,
        within: Duration,
    ) -> Vec<Result<Plain, PolicyError>> {
        let began = Instant::now();
        let mut size = self.letter_sizes.remove(function).unwrap_or(FIRST_LETTER);
        let mut said = Vec::with_capacity(calls.len());
        while said.len() < calls.len() {
            let which = said.len()..calls.len().min(said.len() + size);
            let asked_at = Instant::now();
            let left = within.saturating_sub(asked_at.duration_since(began));
            match self.values((file, function), calls, which, left) {
                Ok(values) => said.extend(values),
                Err(error) => said.resize(calls.len(), Err(error)),
            }
            let soon = asked_at.elapsed() * SOON < self.confinement.call_time;
            size = if soon { (size * LETTER_GROWTH).min(LETTER_MAX) } else { FIRST_LETTER };
        }
        if self.process.is_some() {
            self.letter_sizes.insert(function.to_string(), size);
        }
        said
    }

    fn values(
        &mut self,
        function: (&str, &str),
        calls: &Calls,
        which: Range<usize>,
        within: Duration,
    ) -> Result<Vec<Result<Plain, PolicyError>>, PolicyError> {
        self.revive()?;
        let most = self.confinement.call_time;
        let is_held = self.held == Some(calls.number());
        let letter = letter::written_calls(function, (calls, is_held), &which);
        match self.ask(letter, (within.min(most), most))? {
            Answer::Values(said) if said.len() == which.len() => {
                self.held = Some(calls.number());
                Ok(said)
            }
            _ => Err(self.nonsense()),
        }
    }

    /// A process with the last bundle, where there is none.
    fn revive(&mut self) -> Result<(), PolicyError> {
        if self.process.is_some() {
            return Ok(());
        }
        self.start()?;
        let files = std::mem::take(&mut self.files);
        let loaded = self.load_into_process(&files);
        self.files = files;
        loaded.map(drop)
    }

    /// The process that answers now, if there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    fn start(&mut self) -> Result<(), PolicyError> {
        self.process = Some(Process::start(&self.launch, self.confinement.answer_bytes)?);
        self.held = None;
        self.letter_sizes.clear();
        let confine = Prepare::Confine(self.confinement.clone()).written();
        match self.ask(confine, (self.confinement.start_time, self.confinement.start_time))? {
            Answer::Prepared(Prepared::Confined) => Ok(()),
            _ => Err(self.nonsense()),
        }
    }

    fn load_into_process(&mut self, files: &BTreeMap<String, String>) -> Result<Loaded, PolicyError> {
        let load = Prepare::Load { files: files.clone() }.written();
        match self.ask(load, (self.confinement.load_time, self.confinement.load_time))? {
            Answer::Prepared(Prepared::Loaded(loaded)) => Ok(loaded),
            _ => Err(self.nonsense()),
        }
    }

    /// The answer to a request, within what is left of the most that it may take. A process that gives none is gone
    /// afterwards.
    fn ask(&mut self, letter: Vec<u8>, (left, most): (Duration, Duration)) -> Result<Answer, PolicyError> {
        let Some(process) = &mut self.process else { return Err(self.nonsense()) };
        match process.ask(&letter, left) {
            Ok(Answer::Prepared(Prepared::Wrong(error))) => Err(error),
            Ok(answer) => Ok(answer),
            Err(end) => {
                let memory_mib = self.confinement.memory_bytes >> 20;
                self.process = None;
                Err(ended(end.told(most, memory_mib)))
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
