//! `muster bench placement` on the OpenB trace: the published policies reproduce the published figures.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use flate2::read::GzDecoder;
use serde::Deserialize;

use super::traces::traces;

/// The deterministic policies: names here and in the published results.
const EXACT: [(&str, &str); 5] = [
    ("bestfit", "BestFit"),
    ("dotprod", "DotProd"),
    ("packing", "GpuPacking"),
    ("clustering", "GpuClustering"),
    ("fgd", "FGD"),
];
/// Published figures have two decimals.
const ROUNDING: f64 = 0.01;

#[derive(Debug, Deserialize)]
struct PlacementBenchRow {
    workload: String,
    policy: String,
    seed: u64,
    alloc_at_130: f64,
    frag_at_130: f64,
    cpu_us_per_decision: f64,
}

/// Standard output, standard error and exit code.
fn bench(args: &[&str]) -> (String, String, Option<i32>) {
    let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(["bench", "placement"]).args(args).output();
    let ran = ran.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

/// The figures at 130 % of a published file for a workload, by policy and seed.
fn published(file: PathBuf, name: &str) -> BTreeMap<(String, u64), f64> {
    let mut text = String::new();
    GzDecoder::new(File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let titles = lines.next().unwrap();
    let at = |title: &str| titles.iter().position(|known| *known == title).unwrap();
    let (workload, policy, seed, last) = (at("workload"), at("policy"), at("seed"), at("a130"));
    lines
        .filter(|line| line[workload] == name)
        .map(|line| ((line[policy].to_string(), line[seed].parse().unwrap()), line[last].parse().unwrap()))
        .collect()
}

#[test]
fn the_published_policies_give_the_published_numbers() {
    let Some(traces) = traces("openb") else { return };
    let folder = ["--traces", traces.to_str().unwrap(), "--workload", "default", "-o", "json", "--policy"];
    let policies = ["random", "bestfit", "dotprod", "packing", "clustering", "fgd"];
    let (json, stderr, code) = bench(&[&folder[..], &policies].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let outcomes: Vec<PlacementBenchRow> = muster_json::from_str(&json).unwrap();
    assert!(outcomes.iter().all(|ran| ran.workload == "default" && ran.cpu_us_per_decision > 0.0), "{json}");
    let allocs = published(traces.join("openb/published_alloc.csv.gz"), "default");
    let frags = published(traces.join("openb/published_frag.csv.gz"), "default");
    for (ours, theirs) in EXACT {
        let seeds: Vec<&PlacementBenchRow> = outcomes.iter().filter(|ran| ran.policy == ours).collect();
        assert_eq!(seeds.len(), 10, "{ours}");
        for ran in seeds {
            let name = (theirs.to_string(), ran.seed);
            assert!((ran.alloc_at_130 - allocs[&name]).abs() <= ROUNDING, "{} for {name:?}: {ran:?}", allocs[&name]);
            assert!((ran.frag_at_130 - frags[&name]).abs() <= ROUNDING, "{} for {name:?}: {ran:?}", frags[&name]);
        }
    }
    // Another random generator than in the published runs, so only the means can be compared.
    let random = |of: &dyn Fn(&PlacementBenchRow) -> f64| {
        outcomes.iter().filter(|ran| ran.policy == "random").map(of).sum::<f64>() / 10.0
    };
    let theirs = allocs.iter().filter(|((policy, _), _)| policy == "Random").map(|(_, alloc)| alloc).sum::<f64>();
    assert!((random(&|ran| ran.alloc_at_130) - theirs / 10.0).abs() <= 0.2, "{json}");
}

/// One seed. The bounds are a little below the measured figures.
#[test]
fn muster_allocates_more_than_the_best_published_policy() {
    let Some(traces) = traces("openb") else { return };
    let args = ["--workload", "default", "gpushare100", "--policy", "muster", "--seeds", "42", "-o", "json"];
    let (json, stderr, code) = bench(&[&["--traces", traces.to_str().unwrap()], &args[..]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let outcomes: Vec<PlacementBenchRow> = muster_json::from_str(&json).unwrap();
    let found: Vec<(&str, bool)> = outcomes
        .iter()
        .map(|ran| match ran.workload.as_str() {
            "default" => ("default", ran.alloc_at_130 >= 95.8),
            _ => ("gpushare100", ran.alloc_at_130 >= 87.3),
        })
        .collect();
    assert_eq!(found, [("default", true), ("gpushare100", true)], "{json}");
}

/// Where many pods request a GPU model, scores lie close to integers, so the order of float sums matters.
#[test]
fn fgd_is_exact_to_the_last_bit() {
    let Some(traces) = traces("openb") else { return };
    let args = ["--workload", "gpuspec10", "--policy", "fgd", "-o", "json"];
    let (json, stderr, code) = bench(&[&["--traces", traces.to_str().unwrap()], &args[..]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let allocs = published(traces.join("openb/published_alloc.csv.gz"), "gpuspec10");
    let outcomes: Vec<PlacementBenchRow> = muster_json::from_str(&json).unwrap();
    assert_eq!(outcomes.len(), 10);
    for ran in outcomes {
        let theirs = allocs[&("FGD".to_string(), ran.seed)];
        assert!((ran.alloc_at_130 - theirs).abs() <= ROUNDING, "{theirs}: {ran:?}");
    }
}

#[test]
fn missing_traces_workloads_and_seeds_are_reported_with_hints() {
    let (_, stderr, code) = bench(&["--traces", "/nowhere"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        stderr,
        "error: there is no trace at `/nowhere/openb`\n  \
         try: name the traces directory with `--traces DIR` or in MUSTER_TRACES\n"
    );
    let (_, stderr, code) = bench(&["--policy", "worstfit"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("bestfit, dotprod"), "{stderr}");
    let (_, stderr, code) = bench(&["--seeds", "51-42"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("`51-42` ends before it begins"), "{stderr}");
    let Some(traces) = traces("openb") else { return };
    let traces = traces.to_str().unwrap();
    let (_, stderr, code) = bench(&["--traces", traces, "--workload", "defalt"]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("there is no workload `defalt`") && stderr.contains("gpushare60"), "{stderr}");
    let (_, stderr, code) = bench(&["--traces", traces, "--workload", "default", "--seeds", "7"]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("no arrival order for seed 7"), "{stderr}");
}
