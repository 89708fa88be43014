//! The worker itself. First it takes away from itself all that it does not need; then it answers until nobody asks.

use std::io::{self, Read, Write};

use muster_core::policy::Bundle;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;
use rustix::time::{ClockId, clock_gettime};

use super::letter::{self, Answer, Call, Prepare, Prepared, Request};
use super::{Confinement, Loaded, ended};
use crate::bundle::compile;
use crate::calls::Calls;
use crate::error::PolicyError;
use crate::program::Program;
use crate::testing::failing;

/// More than any bundle and any question.
const REQUEST_BYTES: usize = 64 << 20;
/// Standard input, output and error. With no more than these there are no files and no network.
const FILES_OPEN: u64 = 3;

/// Answer on standard output what is asked on standard input. The exit code is 0 where the other side has ended.
pub fn worker_main() -> i32 {
    // A panic of the interpreter is caught and told; its words would only hide others.
    std::panic::set_hook(Box::new(|_| {}));
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn serve(requests: &mut impl Read, answers: &mut impl Write) -> io::Result<()> {
    let Some(Request::Prepare(Prepare::Confine(confinement))) = next(requests)? else {
        return Err(io::Error::other("the bounds come first"));
    };
    confine(&confinement)?;
    letter::write(answers, &Answer::Prepared(Prepared::Confined).written())?;
    let mut desk = Desk::default();
    while let Some(request) = next(requests)? {
        renew_cpu(&confinement)?;
        let wrong = |error| Answer::Prepared(Prepared::Wrong(error));
        let answer = desk.answer(request, &confinement).unwrap_or_else(wrong);
        letter::write(answers, &written(&answer, confinement.answer_bytes))?;
    }
    Ok(())
}

fn next(requests: &mut impl Read) -> io::Result<Option<Request>> {
    let Some(letter) = letter::read(requests, REQUEST_BYTES)? else { return Ok(None) };
    let unreadable = || io::Error::other("a letter that nobody can read");
    Request::read(&letter).map(Some).ok_or_else(unreadable)
}

/// What the worker holds between two letters.
#[derive(Default)]
struct Desk {
    program: Option<Program>,
    /// The calls whose values came last.
    calls: Option<Calls>,
}

impl Desk {
    fn answer(&mut self, request: Request, confinement: &Confinement) -> Result<Answer, PolicyError> {
        match request {
            Request::Prepare(Prepare::Confine(_)) => Err(ended("the bounds are set once".to_string())),
            Request::Prepare(Prepare::Load { files }) => {
                let (Bundle { rules, hooks, mentions, .. }, loaded) = compile(files, confinement.limits)?;
                let said = Loaded { rules, hooks, mentions, functions: loaded.functions() };
                self.program = Some(loaded);
                Ok(Answer::Prepared(Prepared::Loaded(said)))
            }
            Request::Prepare(Prepare::Test { files }) => {
                Ok(Answer::Prepared(Prepared::Tested(failing(&files, &confinement.limits))))
            }
            Request::Call(call) => self.call(call),
        }
    }

    fn call(&mut self, call: Call) -> Result<Answer, PolicyError> {
        if let Some(calls) = call.calls {
            self.calls = Some(calls);
        }
        let program = self.program.as_ref().ok_or_else(|| ended("nothing is loaded".to_string()))?;
        let calls = self.calls.as_ref().filter(|calls| call.which.end <= calls.len());
        let calls = calls.ok_or_else(|| ended("a call has values that were not sent".to_string()))?;
        Ok(Answer::Values(program.call_some((&call.file, &call.function), calls, call.which)))
    }
}

/// The answer as a letter, or that it is too long for one.
fn written(answer: &Answer, most_bytes: usize) -> Vec<u8> {
    let letter = answer.written();
    if letter.len() <= most_bytes {
        return letter;
    }
    let what = format!("the answer has {} bytes, {most_bytes} are the most", letter.len());
    Answer::Prepared(Prepared::Wrong(ended(what))).written()
}

/// Take away from this process all that it does not need, for good.
fn confine(confinement: &Confinement) -> io::Result<()> {
    set_no_new_privs(true)?;
    // Nobody else reads its memory, and it leaves no image of it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let memory = address_space_bytes()?.saturating_add(confinement.memory_bytes);
    for (resource, most) in [
        (Resource::As, memory),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        // Superusers may start processes all the same; they have no program to start, for lack of files.
        (Resource::Nproc, 0),
        (Resource::Nofile, FILES_OPEN),
    ] {
        // Nobody but the superuser may have more than the server itself.
        let most = getrlimit(resource).maximum.map_or(most, |own| most.min(own));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Seconds of a processor for the next request: the limit counts from the beginning, so it moves along.
fn renew_cpu(confinement: &Confinement) -> io::Result<()> {
    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0);
    let most = used.saturating_add(confinement.cpu_seconds).saturating_add(1);
    let limit = Rlimit { current: Some(most), maximum: getrlimit(Resource::Cpu).maximum };
    Ok(setrlimit(Resource::Cpu, limit)?)
}

/// What it has at the beginning: a large binary takes much, and a policy has no part in it.
fn address_space_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other("the kernel does not say how large this process is"))
}
