//! Hostile policies, each in a worker: the caller gets an answer in time and stays unharmed, and the next policy is
//! served. Those that the interpreter's limits can stop are run in this process as well.
//!
//! A separate binary with one test, because other tests in the process would count towards its memory.

// Clippy exempts only functions marked as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod corpus;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corpus::Hostile;
use muster_policy::{Confinement, Limits, PolicyError, PolicyValue, Program, Worker, WorkerCommand};

/// The delay that a busy machine may add to a deadline, for starting a process and for scheduling.
const MARGIN: Duration = Duration::from_millis(1_000);
/// The default stack of a Rust thread.
const STACK_BYTES: usize = 2 << 20;

fn files(source: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("policy.gsky".to_string(), source.to_string())])
}

fn hook_argument() -> PolicyValue {
    PolicyValue::Record(vec![("gpus", PolicyValue::Int(4)), ("tenant", PolicyValue::text("red"))])
}

fn asks_hook(source: &str) -> bool {
    source.contains("hook")
}

/// The resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

/// Load and call the policy in a worker, each within its deadline.
fn in_worker(worker: &mut Worker, confinement: &Confinement, hostile: &Hostile) -> Result<PolicyValue, PolicyError> {
    let started_at = Instant::now();
    let loaded = worker.load(&files(&hostile.source));
    let within = confinement.load_time + MARGIN;
    assert!(started_at.elapsed() < within, "{}: {:?} to load", hostile.title, started_at.elapsed());
    loaded?;
    if !asks_hook(&hostile.source) {
        return Ok(PolicyValue::None);
    }
    let started_at = Instant::now();
    let answer = worker.call("hook", &[hook_argument()]);
    let within = confinement.call_time + MARGIN;
    assert!(started_at.elapsed() < within, "{}: {:?} to answer", hostile.title, started_at.elapsed());
    answer
}

/// Load and call the policy in this process.
fn in_process(hostile: &Hostile) -> Result<PolicyValue, PolicyError> {
    let source = hostile.source.clone();
    let run = move || {
        let program = Program::compile_files(&files(&source), Limits::default())?;
        if asks_hook(&source) { program.call("hook", &[hook_argument()]) } else { Ok(PolicyValue::None) }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap()
}

fn report_answer(
    hostile: &Hostile,
    answer: &Result<PolicyValue, PolicyError>,
    started_at: Instant,
    not_stopped: &mut Vec<String>,
) {
    let text = match answer {
        Ok(value) => format!("answers {value}"),
        Err(error) => error.to_string(),
    };
    let short: String = text.chars().take(120).collect();
    println!("{:>6} ms  {}: {short}", started_at.elapsed().as_millis(), hostile.title);
    if answer.is_ok() && !hostile.harmless {
        not_stopped.push(format!("{}: {short}", hostile.title));
    }
}

/// A benign policy is served, whatever ran before it.
fn check_benign_policy(worker: &mut Worker, after: &str) {
    let good = "def hook(x):\n    return x.gpus + 1\n";
    worker.load(&files(good)).unwrap_or_else(|error| panic!("after {after}: {error}"));
    // A machine that runs all tests at once may be late once, but hardly twice in a row.
    let answer = worker.call("hook", &[hook_argument()]).or_else(|_| worker.call("hook", &[hook_argument()]));
    assert_eq!(answer, Ok(PolicyValue::Int(5)), "after {after}");
}

#[test]
fn hostile_policies_are_stopped_and_leave_the_caller_unharmed() {
    let corpus = corpus::all();
    assert!(corpus.len() >= 200, "found only {} policies", corpus.len());
    // Generous: a busy machine must not fail the test. The default deadline is tested elsewhere.
    let confinement = Confinement { call_time: Duration::from_millis(250), ..Confinement::default() };
    let mut worker = Worker::new(
        WorkerCommand { program: env!("CARGO_BIN_EXE_muster-policy-worker").into(), args: Vec::new() },
        confinement.clone(),
    );
    check_benign_policy(&mut worker, "nothing");
    let mut not_stopped = Vec::new();
    let before = resident_bytes();
    for hostile in &corpus {
        let started_at = Instant::now();
        let answer = in_worker(&mut worker, &confinement, hostile);
        report_answer(hostile, &answer, started_at, &mut not_stopped);
        check_benign_policy(&mut worker, &hostile.title);
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{} policies in a worker; this process has grown by {} KiB", corpus.len(), grown >> 10);
    assert!(grown < 16 << 20, "this process has grown by {grown} bytes");

    let stoppable_in_process = corpus.iter().filter(|hostile| !hostile.only_worker);
    let mut count = 0;
    for hostile in stoppable_in_process {
        let started_at = Instant::now();
        let answer = in_process(hostile);
        report_answer(hostile, &answer, started_at, &mut not_stopped);
        let within = Limits::default().load_time + Limits::default().call_time + MARGIN;
        assert!(started_at.elapsed() < within, "{}: {:?} in this process", hostile.title, started_at.elapsed());
        count += 1;
    }
    println!("{count} of them in this process");
    assert!(not_stopped.is_empty(), "these should have been stopped:\n{}", not_stopped.join("\n"));
}
