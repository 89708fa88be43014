use std::path::PathBuf;

use muster_core::gpu::mig::tables::H200_141GB;

use super::interference::{GpuPortion, Occupant, Occupants};
use super::job_classes::{JOB_CLASSES, JobClassIndex};
use super::*;
use crate::csv_table::TraceError;

const GEMM: JobClassIndex = 0;
const STREAM: JobClassIndex = 1;
const RESNET: JobClassIndex = 2;
const BERT: JobClassIndex = 3;
const INFER: JobClassIndex = 4;

/// A made-up trace. With half shares the slowdown is 1.2 next to the first class and 2 next to the others.
struct TempInterferenceTrace(PathBuf);

impl TempInterferenceTrace {
    fn new(name: &str, leave_out: impl Fn(JobClassIndex, JobClassIndex, &str) -> bool) -> TempInterferenceTrace {
        let dir = std::env::temp_dir().join(format!("muster-share-{name}-{}", std::process::id()));
        let trace = TempInterferenceTrace(dir);
        let mut text = String::from("job_type,partner,mode,slowdown\n");
        for (job, partner) in (0..5).flat_map(|job| (0..5).map(move |partner| (job, partner))) {
            let half = if partner == GEMM { 1.2 } else { 2.0 };
            for (mode, slowdown) in [("time-slice", 1.5), ("mps", 0.9 + 0.2 * partner as f64), ("mps-50", half)] {
                if !leave_out(job, partner, mode) {
                    text += &format!("{},{},{mode},{slowdown}\n", JOB_CLASSES[job].name, JOB_CLASSES[partner].name);
                }
            }
        }
        std::fs::create_dir_all(trace.0.join("h200-interference")).unwrap();
        std::fs::write(trace.0.join("h200-interference/pairs.csv"), text).unwrap();
        trace
    }

    fn table(&self) -> Result<InterferenceTable, TraceError> {
        InterferenceTable::read(&self.0)
    }
}

impl Drop for TempInterferenceTrace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn assert_close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} is not {other}");
}

fn occupants(portion: GpuPortion, jobs: &[JobClassIndex]) -> Vec<Occupant> {
    jobs.iter().map(|job| Occupant { job: *job, portion }).collect()
}

#[test]
fn measured_pairs_are_used_and_neighbour_slowdowns_add_up() {
    let table = TempInterferenceTrace::new("pairs", |_, _, _| false).table().unwrap();
    assert_close(table.slowdown(&occupants(GpuPortion::Whole, &[GEMM]), 0), 1.0);
    assert_close(table.slowdown(&occupants(GpuPortion::TimeSlice, &[GEMM, BERT]), 0), 1.5);
    assert_close(table.slowdown(&occupants(GpuPortion::TimeSlice, &[GEMM, BERT, INFER]), 1), 2.0);
    assert_close(table.slowdown(&occupants(GpuPortion::MpsUnlimited, &[RESNET, BERT]), 0), 1.5);
    assert_close(table.slowdown(&occupants(GpuPortion::MpsUnlimited, &[RESNET, GEMM]), 0), 1.0);
    assert_close(
        table.slowdown(&occupants(GpuPortion::MpsUnlimited, &[RESNET, STREAM, BERT, INFER]), 0),
        1.0 + 0.1 + 0.5 + 0.7,
    );
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(500), &[RESNET, BERT]), 0), 2.0);
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(500), &[RESNET, GEMM]), 0), 1.2);
}

#[test]
fn slowdown_scales_with_own_and_neighbour_share() {
    let table = TempInterferenceTrace::new("shares", |_, _, _| false).table().unwrap();
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(1_000), &[INFER]), 0), 1.0);
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER]), 0), 1.6);
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER, GEMM]), 0), 1.6);
    // The other classes add two thirds at a half, and so a third at a quarter.
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER, BERT]), 0), 1.6 * (1.0 + 1.0 / 3.0));
    assert_close(
        table.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER, BERT, BERT, GEMM]), 0),
        1.6 * (1.0 + 2.0 / 3.0),
    );
}

#[test]
fn mig_slowdown_follows_multiprocessors_or_memory_slices() {
    let table = TempInterferenceTrace::new("instances", |_, _, _| false).table().unwrap();
    let profile = |name| &H200_141GB.profiles[usize::from(H200_141GB.profile(name).unwrap())];
    assert_close(table.slowdown_in_instance(RESNET, profile("7g.141gb")), 1.0);
    assert_close(table.slowdown_in_instance(RESNET, profile("1g.18gb")), 1.0 + 0.2 * (132.0 / 16.0 - 1.0));
    assert_close(table.slowdown_in_instance(STREAM, profile("3g.71gb")), 2.0);
    assert_close(table.slowdown_in_instance(STREAM, profile("7g.141gb")), 1.0);
}

#[test]
fn a_missing_half_share_pair_falls_back_to_unlimited_mps() {
    let missing = |job, partner, mode: &str| mode == "mps-50" && job == BERT && partner != GEMM;
    let table = TempInterferenceTrace::new("missing", missing).table().unwrap();
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(500), &[BERT, INFER]), 0), 1.7);
    assert_close(table.slowdown(&occupants(GpuPortion::MpsLimited(500), &[BERT, STREAM]), 0), 1.2);
    let error = TempInterferenceTrace::new("none", |_, _, mode| mode == "mps").table().unwrap_err();
    let message = error.to_string();
    assert!(message.contains("no row for `gemm-large` beside `gemm-large` in mode `mps`"), "{message}");
}

#[test]
fn every_policy_places_all_jobs_within_gpu_capacity() {
    let table = TempInterferenceTrace::new("capacity", |_, _, _| false).table().unwrap();
    let jobs = random_jobs(60, 3);
    let mut sorted = jobs.clone();
    sorted.sort_unstable();
    let placements = [
        policies::whole_gpus(&jobs),
        policies::time_sliced(&jobs),
        policies::mps_unlimited(&jobs),
        policies::best_mig_layout(&jobs, &table).1,
        planner::place_on_fewest_gpus(&jobs, IsolationMode::Ignored).unwrap(),
        planner::place_on_fewest_gpus(&jobs, IsolationMode::Requested).unwrap(),
    ];
    for gpus in &placements {
        let mut placed: Vec<JobClassIndex> = gpus.iter().flatten().map(|one| one.job).collect();
        placed.sort_unstable();
        assert_eq!(placed, sorted);
        for occupants in gpus {
            let shared =
                occupants.iter().filter(|one| !matches!(one.portion, GpuPortion::Whole | GpuPortion::Instance(_)));
            let milli: u32 = shared.map(|one| JOB_CLASSES[one.job].compute_milli).sum();
            let slices: u8 = occupants.iter().map(|one| slices(one.portion)).sum();
            assert!(milli <= 1_000 && slices <= 8 && (milli == 0 || slices == 0), "{occupants:?}");
        }
    }
    let is_isolated = |gpus: &[Occupants]| {
        let stream = gpus.iter().flatten().filter(|one| one.job == STREAM);
        stream.clone().count() > 0 && stream.clone().all(|one| matches!(one.portion, GpuPortion::Instance(_)))
    };
    assert!(is_isolated(&placements[5]) && !is_isolated(&placements[4]));
}

fn slices(portion: GpuPortion) -> u8 {
    if let GpuPortion::Instance(profile) = portion { profile.memory_slices } else { 0 }
}
