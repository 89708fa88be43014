use std::path::PathBuf;

use muster_core::gpu::mig::tables::H200_141GB;

use super::demand::{JobClassIndex, JOB_CLASSES};
use super::interference::{Occupant, GpuPortion};
use super::*;

const GEMM: JobClassIndex = 0;
const STREAM: JobClassIndex = 1;
const RESNET: JobClassIndex = 2;
const BERT: JobClassIndex = 3;
const INFER: JobClassIndex = 4;

/// A trace of our own: with halves everyone is 1.2 times as slow beside the first type, and twice beside the others.
struct TempInterferenceTrace(PathBuf);

impl TempInterferenceTrace {
    fn new(name: &str, leave_out: impl Fn(JobClassIndex, JobClassIndex, &str) -> bool) -> TempInterferenceTrace {
        let made = TempInterferenceTrace(std::env::temp_dir().join(format!("muster-share-{name}-{}", std::process::id())));
        let mut text = String::from("job_type,partner,mode,slowdown\n");
        for (job, partner) in (0..5).flat_map(|job| (0..5).map(move |partner| (job, partner))) {
            let half = if partner == GEMM { 1.2 } else { 2.0 };
            for (mode, slowdown) in
                [("time-slice", 1.5), ("mps", 0.9 + 0.2 * partner as f64), ("mps-50", half)]
            {
                if !leave_out(job, partner, mode) {
                    text += &format!("{},{},{mode},{slowdown}\n", JOB_CLASSES[job].name, JOB_CLASSES[partner].name);
                }
            }
        }
        std::fs::create_dir_all(made.0.join("h200-interference")).unwrap();
        std::fs::write(made.0.join("h200-interference/pairs.csv"), text).unwrap();
        made
    }

    fn pairs(&self) -> Result<InterferenceTable, CliError> {
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

fn occupants(part: GpuPortion, jobs: &[JobClassIndex]) -> Vec<Occupant> {
    jobs.iter().map(|job| Occupant { job: *job, part }).collect()
}

#[test]
fn measured_pairs_are_used_and_neighbour_slowdowns_add_up() {
    let pairs = TempInterferenceTrace::new("pairs", |_, _, _| false).pairs().unwrap();
    assert_close(pairs.slowdown(&occupants(GpuPortion::Whole, &[GEMM]), 0), 1.0);
    assert_close(pairs.slowdown(&occupants(GpuPortion::TimeSlice, &[GEMM, BERT]), 0), 1.5);
    assert_close(pairs.slowdown(&occupants(GpuPortion::TimeSlice, &[GEMM, BERT, INFER]), 1), 2.0);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsUnlimited, &[RESNET, BERT]), 0), 1.5);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsUnlimited, &[RESNET, GEMM]), 0), 1.0);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsUnlimited, &[RESNET, STREAM, BERT, INFER]), 0), 1.0 + 0.1 + 0.5 + 0.7);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(500), &[RESNET, BERT]), 0), 2.0);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(500), &[RESNET, GEMM]), 0), 1.2);
}

#[test]
fn slowdown_scales_with_own_and_neighbour_share() {
    let pairs = TempInterferenceTrace::new("shares", |_, _, _| false).pairs().unwrap();
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(1_000), &[INFER]), 0), 1.0);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER]), 0), 1.6);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER, GEMM]), 0), 1.6);
    // At a half each other type costs two thirds on top, so a third at a quarter.
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER, BERT]), 0), 1.6 * (1.0 + 1.0 / 3.0));
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(250), &[INFER, BERT, BERT, GEMM]), 0), 1.6 * (1.0 + 2.0 / 3.0));
}

#[test]
fn mig_slowdown_follows_multiprocessors_or_memory_slices() {
    let pairs = TempInterferenceTrace::new("instances", |_, _, _| false).pairs().unwrap();
    let profile = |name| &H200_141GB.profiles[usize::from(H200_141GB.profile(name).unwrap())];
    assert_close(pairs.slowdown_in_instance(RESNET, profile("7g.141gb")), 1.0);
    assert_close(pairs.slowdown_in_instance(RESNET, profile("1g.18gb")), 1.0 + 0.2 * (132.0 / 16.0 - 1.0));
    assert_close(pairs.slowdown_in_instance(STREAM, profile("3g.71gb")), 2.0);
    assert_close(pairs.slowdown_in_instance(STREAM, profile("7g.141gb")), 1.0);
}

#[test]
fn a_missing_half_share_pair_falls_back_to_unlimited_mps() {
    let missing = |job, partner, mode: &str| mode == "mps-50" && job == BERT && partner != GEMM;
    let pairs = TempInterferenceTrace::new("missing", missing).pairs().unwrap();
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(500), &[BERT, INFER]), 0), 1.7);
    assert_close(pairs.slowdown(&occupants(GpuPortion::MpsLimited(500), &[BERT, STREAM]), 0), 1.2);
    let error = TempInterferenceTrace::new("none", |_, _, mode| mode == "mps").pairs().unwrap_err();
    assert!(error.message.contains("no row for `gemm-large` beside `gemm-large` in mode `mps`"), "{error:?}");
}

/// Everyone finds room, and nobody has more than there is.
#[test]
fn every_policy_places_all_jobs_within_gpu_capacity() {
    let pairs = TempInterferenceTrace::new("seats", |_, _, _| false).pairs().unwrap();
    let jobs = demand::random_jobs(60, 3);
    let mut sorted = jobs.clone();
    sorted.sort_unstable();
    let seated = [
        policies::whole_gpus(&jobs),
        policies::time_sliced(&jobs),
        policies::mps_unlimited(&jobs),
        policies::best_mig_layout(&jobs, &pairs).1,
        planner::place_on_fewest_gpus(&jobs, IsolationMode::Ignored).unwrap(),
        planner::place_on_fewest_gpus(&jobs, IsolationMode::Requested).unwrap(),
    ];
    for devices in &seated {
        let mut there: Vec<JobClassIndex> = devices.iter().flatten().map(|guest| guest.job).collect();
        there.sort_unstable();
        assert_eq!(there, sorted);
        for device in devices {
            let shared = device.iter().filter(|guest| !matches!(guest.part, GpuPortion::Whole | GpuPortion::Instance(_)));
            let milli: u32 = shared.map(|guest| JOB_CLASSES[guest.job].compute_milli).sum();
            let slices: u8 = device.iter().map(|guest| slices(guest.part)).sum();
            assert!(milli <= 1_000 && slices <= 8 && (milli == 0 || slices == 0), "{device:?}");
        }
    }
    let apart = |devices: &[interference::Occupants]| {
        let stream = devices.iter().flatten().filter(|guest| guest.job == STREAM);
        stream.clone().count() > 0 && stream.clone().all(|guest| matches!(guest.part, GpuPortion::Instance(_)))
    };
    assert!(apart(&seated[5]) && !apart(&seated[4]));
}

fn slices(part: GpuPortion) -> u8 {
    if let GpuPortion::Instance(profile) = part { profile.memory_slices } else { 0 }
}
