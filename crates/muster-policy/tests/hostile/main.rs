//! Policies that mean no good, each in a worker: it is answered in time, nobody else is harmed, and the next policy is
//! answered too. Those that bounds inside a process can stop are stopped there as well.
//!
//! A binary of its own, with one test: what others do in the same process would count as memory of this one.

// Clippy knows functions marked as tests; what they share is not one of them.
#![allow(clippy::unwrap_used)]

mod corpus;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corpus::Hostile;
use muster_policy::{Confinement, Launch, Limits, Plain, PolicyError, Program, Worker};

/// What a busy machine may add to a deadline: to start a process, to be woken up.
const MARGIN: Duration = Duration::from_millis(1_000);
/// The stack of a thread as programs start them.
const STACK_BYTES: usize = 2 << 20;

fn files(source: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("policy.gsky".to_string(), source.to_string())])
}

/// What every hook is asked.
fn question() -> Plain {
    Plain::Record(vec![("gpus", Plain::Int(4)), ("tenant", Plain::text("red"))])
}

fn asks_hook(source: &str) -> bool {
    source.contains("hook")
}

/// Pages that this process holds, as bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

/// Load and ask in a worker. Each must be answered in its time.
fn in_worker(worker: &mut Worker, bounds: &Confinement, hostile: &Hostile) -> Result<Plain, PolicyError> {
    let began = Instant::now();
    let loaded = worker.load(&files(&hostile.source));
    let within = bounds.load_time + MARGIN;
    assert!(began.elapsed() < within, "{}: {:?} to load", hostile.title, began.elapsed());
    loaded?;
    if !asks_hook(&hostile.source) {
        return Ok(Plain::None);
    }
    let began = Instant::now();
    let answer = worker.call("hook", &[question()]);
    let within = bounds.call_time + MARGIN;
    assert!(began.elapsed() < within, "{}: {:?} to answer", hostile.title, began.elapsed());
    answer
}

/// The same in this process.
fn in_process(hostile: &Hostile) -> Result<Plain, PolicyError> {
    let source = hostile.source.clone();
    let run = move || {
        let program = Program::of_files(&files(&source), Limits::default())?;
        if asks_hook(&source) { program.call("hook", &[question()]) } else { Ok(Plain::None) }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap()
}

fn judge(hostile: &Hostile, answer: &Result<Plain, PolicyError>, began: Instant, wrong: &mut Vec<String>) {
    let said = match answer {
        Ok(value) => format!("answers {value}"),
        Err(error) => error.to_string(),
    };
    let short: String = said.chars().take(120).collect();
    println!("{:>6} ms  {}: {short}", began.elapsed().as_millis(), hostile.title);
    if answer.is_ok() && !hostile.harmless {
        wrong.push(format!("{}: {short}", hostile.title));
    }
}

/// A policy that means well is answered, whatever came before it.
fn check_good(worker: &mut Worker, after: &str) {
    let good = "def hook(x):\n    return x.gpus + 1\n";
    worker.load(&files(good)).unwrap_or_else(|error| panic!("after {after}: {error}"));
    // A machine that runs all tests at once may be late by itself, and hardly twice in a row.
    let answer = worker.call("hook", &[question()]).or_else(|_| worker.call("hook", &[question()]));
    assert_eq!(answer, Ok(Plain::Int(5)), "after {after}");
}

#[test]
fn nobody_is_harmed() {
    let corpus = corpus::all();
    assert!(corpus.len() >= 200, "only {} policies were found", corpus.len());
    // A machine that runs all tests at once is slow to wake anyone up; the bound itself is tested elsewhere.
    let bounds = Confinement { call_time: Duration::from_millis(250), ..Confinement::default() };
    let mut worker = Worker::new(
        Launch { program: env!("CARGO_BIN_EXE_muster-policy-worker").into(), words: Vec::new() },
        bounds.clone(),
    );
    check_good(&mut worker, "nothing");
    let mut wrong = Vec::new();
    let before = resident_bytes();
    for hostile in &corpus {
        let began = Instant::now();
        let answer = in_worker(&mut worker, &bounds, hostile);
        judge(hostile, &answer, began, &mut wrong);
        check_good(&mut worker, &hostile.title);
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{} policies in a worker; this process has grown by {} KiB", corpus.len(), grown >> 10);
    assert!(grown < 16 << 20, "this process has grown by {grown} bytes");

    let stopped_here = corpus.iter().filter(|hostile| !hostile.only_worker);
    let mut count = 0;
    for hostile in stopped_here {
        let began = Instant::now();
        let answer = in_process(hostile);
        judge(hostile, &answer, began, &mut wrong);
        let within = Limits::default().load_time + Limits::default().time + MARGIN;
        assert!(began.elapsed() < within, "{}: {:?} in this process", hostile.title, began.elapsed());
        count += 1;
    }
    println!("{count} of them without one");
    assert!(wrong.is_empty(), "these should have been refused:\n{}", wrong.join("\n"));
}
