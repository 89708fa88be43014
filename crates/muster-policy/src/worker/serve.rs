//! The worker process: it drops its privileges, sets its resource limits, and then serves requests until its standard
//! input is closed.

use std::io::{self, Read, Write};

use muster_core::objects::policy::PolicyBundle;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;
use rustix::time::{ClockId, clock_gettime};

use super::protocol::{self, CallRequest, ControlReply, ControlRequest, Reply, Request};
use super::{Confinement, LoadedBundle, worker_failed};
use crate::bundle::compile;
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::program::Program;
use crate::testing::failed_tests;

/// More than any bundle or batch of calls needs.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Standard input, output and error. The process can open no further files and no sockets.
const OPEN_FILES_MAX: u64 = 3;

/// Serve requests from standard input on standard output. Returns the exit code: 0 after the end of the input.
pub fn worker_main() -> i32 {
    // A panic of the interpreter is caught and reported; its output would displace the tail of standard error.
    std::panic::set_hook(Box::new(|_| {}));
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn serve(requests: &mut impl Read, replies: &mut impl Write) -> io::Result<()> {
    let Some(Request::Control(ControlRequest::Confine(confinement))) = read_request(requests)? else {
        return Err(io::Error::other("the first request must be `Confine`"));
    };
    confine(&confinement)?;
    protocol::write_frame(replies, &Reply::Control(ControlReply::Confined).encode())?;
    let mut state = WorkerState::default();
    while let Some(request) = read_request(requests)? {
        extend_cpu_limit(&confinement)?;
        let failed = |error| Reply::Control(ControlReply::Failed(error));
        let reply = state.handle(request, &confinement).unwrap_or_else(failed);
        protocol::write_frame(replies, &encode_bounded(&reply, confinement.answer_bytes))?;
    }
    Ok(())
}

fn read_request(requests: &mut impl Read) -> io::Result<Option<Request>> {
    let Some(message) = protocol::read_frame(requests, REQUEST_BYTES_MAX)? else { return Ok(None) };
    let malformed = || io::Error::other("the request is malformed");
    Request::decode(&message).map(Some).ok_or_else(malformed)
}

/// What the worker keeps between two requests.
#[derive(Default)]
struct WorkerState {
    program: Option<Program>,
    /// The last batch that was sent.
    calls: Option<CallBatch>,
}

impl WorkerState {
    fn handle(&mut self, request: Request, confinement: &Confinement) -> Result<Reply, PolicyError> {
        match request {
            Request::Control(ControlRequest::Confine(_)) => {
                Err(worker_failed("the limits can be set only once".to_string()))
            }
            Request::Control(ControlRequest::Load { files }) => {
                let (PolicyBundle { rules, hooks, mentions, .. }, program) = compile(files, confinement.limits)?;
                let loaded = LoadedBundle { rules, hooks, mentions, functions: program.functions() };
                self.program = Some(program);
                Ok(Reply::Control(ControlReply::Loaded(loaded)))
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
        let program = self.program.as_ref().ok_or_else(|| worker_failed("no bundle is loaded".to_string()))?;
        let calls = self.calls.as_ref().filter(|calls| call.range.end <= calls.len());
        let calls = calls.ok_or_else(|| worker_failed("the request refers to calls that were not sent".to_string()))?;
        Ok(Reply::Values(program.call_range((&call.file, &call.function), calls, call.range)))
    }
}

/// The encoded reply, or an error in its place if it is too large.
fn encode_bounded(reply: &Reply, bytes_max: usize) -> Vec<u8> {
    let encoded = reply.encode();
    if encoded.len() <= bytes_max {
        return encoded;
    }
    let message = format!("the answer has {} bytes; the limit is {bytes_max}", encoded.len());
    Reply::Control(ControlReply::Failed(worker_failed(message))).encode()
}

/// Drop privileges and set resource limits, irrevocably.
fn confine(confinement: &Confinement) -> io::Result<()> {
    set_no_new_privs(true)?;
    // No other process may trace this one, and it writes no core dump.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let memory = address_space_bytes()?.saturating_add(confinement.memory_bytes);
    for (resource, limit) in [
        (Resource::As, memory),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        // The limit does not bind root, but without open files there is no program to start.
        (Resource::Nproc, 0),
        (Resource::Nofile, OPEN_FILES_MAX),
    ] {
        // Only root may raise a hard limit above the one inherited from the server.
        let limit = getrlimit(resource).maximum.map_or(limit, |inherited| limit.min(inherited));
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

/// Grant CPU seconds for the next request. The kernel counts from the start of the process, so the limit is raised.
fn extend_cpu_limit(confinement: &Confinement) -> io::Result<()> {
    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0);
    let seconds = used.saturating_add(confinement.cpu_seconds).saturating_add(1);
    let limit = Rlimit { current: Some(seconds), maximum: getrlimit(Resource::Cpu).maximum };
    Ok(setrlimit(Resource::Cpu, limit)?)
}

/// The address space at the start. A large binary needs much of it, which is not charged to the policy.
fn address_space_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("`/proc/self/status` has no `VmSize`"))
}
