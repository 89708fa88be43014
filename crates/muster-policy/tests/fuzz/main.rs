//! Arbitrary bytes as policies and as values, from a seed: `FUZZ=` sets the number of cases, `SEED=` the seed.

// Clippy exempts only functions marked as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod bodies;
#[path = "../conformance/corpus.rs"]
#[allow(dead_code)] // The expected results are not used here.
mod conformance;
#[path = "../hostile/corpus.rs"]
#[allow(dead_code)] // The flags are not used here.
mod hostile;
mod mutator;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use muster_policy::{Confinement, Limits, PolicyError, Worker, WorkerCommand};
use mutator::{Random, mutated_source};

fn env_number_or(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Every short program of the other test corpora.
fn sources() -> Vec<Vec<u8>> {
    let conformance = conformance::cases().into_iter().flat_map(|case| case.files.into_values());
    let hostile = hostile::all().into_iter().map(|hostile| hostile.source);
    conformance.chain(hostile).filter(|source| source.len() < 2 << 10).map(String::into_bytes).collect()
}

/// The class of an outcome. Panics if the worker crashed.
fn outcome(loaded: Result<(), PolicyError>, source: &[u8]) -> &'static str {
    let shown = || String::from_utf8_lossy(source).into_owned();
    match loaded {
        Ok(()) => "loaded",
        Err(PolicyError::WorkerFailed { message }) if message.contains("exceeded its memory limit") => "over memory",
        Err(PolicyError::WorkerFailed { message }) if message.contains("exceeded its time limit") => "over time",
        Err(PolicyError::WorkerFailed { message }) if message.contains("the answer has") => "answer too large",
        Err(PolicyError::WorkerFailed { message }) => panic!("{message}\n{}", shown()),
        Err(error) if error.to_string().contains("exceeds what the interpreter can represent") => {
            "interpreter panicked"
        }
        Err(_) => "rejected",
    }
}

#[test]
fn arbitrary_bytes_load_or_are_rejected() {
    let (count, mut random) = (env_number_or("FUZZ", 12_000), Random(env_number_or("SEED", 7)));
    let corpus = sources();
    let limits = Limits { steps: 2_000, ..Limits::default() };
    let confinement = Confinement { load_time: Duration::from_millis(500), limits, ..Confinement::default() };
    let command = WorkerCommand { program: env!("CARGO_BIN_EXE_muster-policy-worker").into(), args: Vec::new() };
    let mut worker = Worker::new(command, confinement);
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let source = mutated_source(&mut random, &corpus);
        let started_at = Instant::now();
        let loaded = worker.load(&bodies::bundle(&source)).map(drop);
        longest = longest.max(started_at.elapsed());
        *outcomes.entry(outcome(loaded, &source)).or_default() += 1;
    }
    println!("{count} policies: {outcomes:?}; the slowest took {longest:?}");
    assert!(longest < Duration::from_secs(2), "the slowest took {longest:?}");
    assert!(outcomes["loaded"] > count / 50 && outcomes["rejected"] > count / 50, "{outcomes:?}");
}

#[test]
fn arbitrary_values_round_trip() {
    let (count, mut random) = (env_number_or("FUZZ", 12_000), Random(env_number_or("SEED", 7)));
    let program = bodies::echo();
    for _ in 0..count {
        let length = random.below(120);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        bodies::policy_values(&program, &bytes);
    }
    println!("{count} values came back unchanged");
}
