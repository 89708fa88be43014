//! The worker itself. First it takes away from itself all that it does not need; then it answers until nobody asks.

use std::io::{self, Read, Write};

use muster_core::policy::Bundle;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;
use rustix::time::{ClockId, clock_gettime};

use super::letter::{self, Answer, Request, Sent};
use super::{Confinement, Loaded, ended};
use crate::bundle::compile;
use crate::calls::Calls;
use crate::error::PolicyError;
use crate::program::Program;

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
    let Some(Request::Confine(confinement)) = next(requests)? else {
        return Err(io::Error::other("the bounds come first"));
    };
    confine(&confinement)?;
    letter::write(answers, &muster_json::to_vec(&Answer::Confined))?;
    let mut program = None;
    while let Some(request) = next(requests)? {
        renew_cpu(&confinement)?;
        let answer = answer(request, &mut program, &confinement).unwrap_or_else(Answer::Wrong);
        letter::write(answers, &written(&answer, confinement.answer_bytes))?;
    }
    Ok(())
}

fn next(requests: &mut impl Read) -> io::Result<Option<Request>> {
    let Some(letter) = letter::read(requests, REQUEST_BYTES)? else { return Ok(None) };
    muster_json::from_slice(&letter).map(Some).map_err(io::Error::other)
}

fn answer(
    request: Request,
    program: &mut Option<Program>,
    confinement: &Confinement,
) -> Result<Answer, PolicyError> {
    match request {
        Request::Confine(_) => Err(ended("the bounds are set once".to_string())),
        Request::Load { files } => {
            let (Bundle { rules, hooks, mentions, .. }, loaded) = compile(files, confinement.limits)?;
            let said = Loaded { rules, hooks, mentions, functions: loaded.functions() };
            *program = Some(loaded);
            Ok(Answer::Loaded(said))
        }
        Request::CallEach { file, function, values, manner } => {
            let program = program.as_ref().ok_or_else(|| ended("nothing is loaded".to_string()))?;
            let calls = Calls::told(values.into_iter().map(Sent::given).collect(), manner);
            let calls = calls.ok_or_else(|| ended("a call has values that were not sent".to_string()))?;
            let said = program.call_each(&file, &function, &calls).into_iter();
            Ok(Answer::Values(
                said.map(|value| value.as_ref().map(Sent::from).map_err(Clone::clone)).collect(),
            ))
        }
    }
}

/// The answer as a letter, or that it is too long for one.
fn written(answer: &Answer, most_bytes: usize) -> Vec<u8> {
    let letter = muster_json::to_vec(answer);
    if letter.len() <= most_bytes {
        return letter;
    }
    let what = format!("the answer has {} bytes, {most_bytes} are the most", letter.len());
    muster_json::to_vec(&Answer::Wrong(ended(what)))
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
