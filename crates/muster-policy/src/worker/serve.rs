//! The worker itself. First it takes away from itself all that it does not need; then it answers until nobody asks.

use std::io::{self, Read, Write};

use muster_core::objects::policy::PolicyBundle;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;
use rustix::time::{ClockId, clock_gettime};

use super::protocol::{self, Reply, CallRequest, ControlRequest, ControlReply, Request};
use super::{Confinement, LoadedBundle, worker_failed};
use crate::bundle::compile;
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::program::Program;
use crate::testing::failed_tests;

/// More than any bundle and any question.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Standard input, output and error. With no more than these there are no files and no network.
const OPEN_FILES_MAX: u64 = 3;

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
    let Some(Request::Control(ControlRequest::Confine(confinement))) = read_request(requests)? else {
        return Err(io::Error::other("the bounds come first"));
    };
    confine(&confinement)?;
    protocol::write_frame(answers, &Reply::Control(ControlReply::Confined).encode())?;
    let mut desk = WorkerState::default();
    while let Some(request) = read_request(requests)? {
        extend_cpu_limit(&confinement)?;
        let wrong = |error| Reply::Control(ControlReply::Failed(error));
        let answer = desk.handle(request, &confinement).unwrap_or_else(wrong);
        protocol::write_frame(answers, &encode_bounded(&answer, confinement.answer_bytes))?;
    }
    Ok(())
}

fn read_request(requests: &mut impl Read) -> io::Result<Option<Request>> {
    let Some(letter) = protocol::read_frame(requests, REQUEST_BYTES_MAX)? else { return Ok(None) };
    let unreadable = || io::Error::other("a letter that nobody can read");
    Request::decode(&letter).map(Some).ok_or_else(unreadable)
}

/// What the worker holds between two letters.
#[derive(Default)]
struct WorkerState {
    program: Option<Program>,
    /// The calls whose values came last.
    calls: Option<CallBatch>,
}

impl WorkerState {
    fn handle(&mut self, request: Request, confinement: &Confinement) -> Result<Reply, PolicyError> {
        match request {
            Request::Control(ControlRequest::Confine(_)) => Err(worker_failed("the bounds are set once".to_string())),
            Request::Control(ControlRequest::Load { files }) => {
                let (PolicyBundle { rules, hooks, mentions, .. }, loaded) =
                    compile(files, confinement.limits)?;
                let said = LoadedBundle { rules, hooks, mentions, functions: loaded.functions() };
                self.program = Some(loaded);
                Ok(Reply::Control(ControlReply::Loaded(said)))
            }
            Request::Control(ControlRequest::Test { files }) => {
                Ok(Reply::Control(ControlReply::Tested(failed_tests(&files, &confinement.limits))))
            }
            Request::Call(call) => self.call(call),
        }
    }

    fn call(&mut self, call: CallRequest) -> Result<Reply, PolicyError> {
        if let Some(calls) = call.calls {
            self.calls = Some(calls);
        }
        let program = self.program.as_ref().ok_or_else(|| worker_failed("nothing is loaded".to_string()))?;
        let calls = self.calls.as_ref().filter(|calls| call.which.end <= calls.len());
        let calls = calls.ok_or_else(|| worker_failed("a call has values that were not sent".to_string()))?;
        Ok(Reply::Values(program.call_range((&call.file, &call.function), calls, call.which)))
    }
}

/// The answer as a letter, or that it is too long for one.
fn encode_bounded(answer: &Reply, most_bytes: usize) -> Vec<u8> {
    let letter = answer.encode();
    if letter.len() <= most_bytes {
        return letter;
    }
    let what = format!("the answer has {} bytes, {most_bytes} are the most", letter.len());
    Reply::Control(ControlReply::Failed(worker_failed(what))).encode()
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
        (Resource::Nofile, OPEN_FILES_MAX),
    ] {
        // Nobody but the superuser may have more than the server itself.
        let most = getrlimit(resource).maximum.map_or(most, |own| most.min(own));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Seconds of a processor for the next request: the limit counts from the beginning, so it moves along.
fn extend_cpu_limit(confinement: &Confinement) -> io::Result<()> {
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
