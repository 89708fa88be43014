//! Arbitrary bytes as policies and as values, from a seed: `FUZZ=` says how many, `SEED=` from where.

// Clippy knows functions marked as tests; what they share is not one of them.
#![allow(clippy::unwrap_used)]

mod bodies;
#[path = "../conformance/corpus.rs"]
#[allow(dead_code)] // What is to come of a program is of no interest here.
mod conformance;
#[path = "../hostile/corpus.rs"]
#[allow(dead_code)] // Nor is what should stop it.
mod hostile;
mod mutator;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use muster_policy::{Confinement, Launch, Limits, PolicyError, Worker};
use mutator::{Random, mutant};

fn told(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Every short program that the other tests know.
fn sources() -> Vec<Vec<u8>> {
    let known = conformance::cases().into_iter().flat_map(|case| case.files.into_values());
    let hostile = hostile::all().into_iter().map(|hostile| hostile.source);
    known.chain(hostile).filter(|source| source.len() < 2 << 10).map(String::into_bytes).collect()
}

/// What became of a policy, in a word. A worker that crashes is not among them.
fn outcome(answer: Result<(), PolicyError>, source: &[u8]) -> &'static str {
    let shown = || String::from_utf8_lossy(source).into_owned();
    match answer {
        Ok(()) => "loaded",
        Err(PolicyError::Ended { what }) if what.contains("more memory than") => "ended for its memory",
        Err(PolicyError::Ended { what }) if what.contains("took longer") => "ended for its time",
        Err(PolicyError::Ended { what }) if what.contains("the answer has") => "too much to tell",
        Err(PolicyError::Ended { what }) => panic!("{what}\n{}", shown()),
        Err(error) if error.to_string().contains("grows beyond all bounds") => {
            "ended by the interpreter itself"
        }
        Err(_) => "refused",
    }
}

#[test]
fn any_bytes_are_a_policy_or_refused() {
    let (count, mut random) = (told("FUZZ", 12_000), Random(told("SEED", 7)));
    let corpus = sources();
    let limits = Limits { steps: 2_000, ..Limits::default() };
    let bounds = Confinement { load_time: Duration::from_millis(500), limits, ..Confinement::default() };
    let launch = Launch { program: env!("CARGO_BIN_EXE_muster-policy-worker").into(), words: Vec::new() };
    let mut worker = Worker::new(launch, bounds);
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let source = mutant(&mut random, &corpus);
        let began = Instant::now();
        let answer = worker.load(&bodies::bundle(&source)).map(drop);
        longest = longest.max(began.elapsed());
        *outcomes.entry(outcome(answer, &source)).or_default() += 1;
    }
    println!("{count} policies: {outcomes:?}; the slowest took {longest:?}");
    assert!(longest < Duration::from_secs(2), "the slowest took {longest:?}");
    assert!(outcomes["loaded"] > count / 50 && outcomes["refused"] > count / 50, "{outcomes:?}");
}

#[test]
fn any_value_comes_back_as_it_went() {
    let (count, mut random) = (told("FUZZ", 12_000), Random(told("SEED", 7)));
    let program = bodies::echo();
    for _ in 0..count {
        let length = random.below(120);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        bodies::policy_values(&program, &bytes);
    }
    println!("{count} values went and came back");
}
