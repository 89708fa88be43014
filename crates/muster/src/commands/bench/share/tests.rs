use std::path::PathBuf;

use muster_core::mig::tables::H200_141GB;

use super::demand::{Job, TYPES};
use super::harm::{Guest, Part};
use super::*;

const GEMM: Job = 0;
const STREAM: Job = 1;
const RESNET: Job = 2;
const BERT: Job = 3;
const INFER: Job = 4;

/// A trace of our own: with halves everyone is 1.2 times as slow beside the first type, and twice beside the others.
struct Made(PathBuf);

impl Made {
    fn new(name: &str, leave_out: impl Fn(Job, Job, &str) -> bool) -> Made {
        let made = Made(std::env::temp_dir().join(format!("muster-share-{name}-{}", std::process::id())));
        let mut text = String::from("job_type,partner,mode,slowdown\n");
        for (job, partner) in (0..5).flat_map(|job| (0..5).map(move |partner| (job, partner))) {
            let half = if partner == GEMM { 1.2 } else { 2.0 };
            for (mode, slowdown) in
                [("time-slice", 1.5), ("mps", 0.9 + 0.2 * partner as f64), ("mps-50", half)]
            {
                if !leave_out(job, partner, mode) {
                    text += &format!("{},{},{mode},{slowdown}\n", TYPES[job].name, TYPES[partner].name);
                }
            }
        }
        std::fs::create_dir_all(made.0.join("h200-interference")).unwrap();
        std::fs::write(made.0.join("h200-interference/pairs.csv"), text).unwrap();
        made
    }

    fn pairs(&self) -> Result<Pairs, CliError> {
        Pairs::read(&self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} is not {other}");
}

fn on(part: Part, jobs: &[Job]) -> Vec<Guest> {
    jobs.iter().map(|job| Guest { job: *job, part }).collect()
}

#[test]
fn pairs_are_as_measured_and_neighbours_add_up() {
    let pairs = Made::new("pairs", |_, _, _| false).pairs().unwrap();
    close(pairs.slowdown(&on(Part::Whole, &[GEMM]), 0), 1.0);
    close(pairs.slowdown(&on(Part::Turns, &[GEMM, BERT]), 0), 1.5);
    close(pairs.slowdown(&on(Part::Turns, &[GEMM, BERT, INFER]), 1), 2.0);
    close(pairs.slowdown(&on(Part::Unlimited, &[RESNET, BERT]), 0), 1.5);
    close(pairs.slowdown(&on(Part::Unlimited, &[RESNET, GEMM]), 0), 1.0);
    close(pairs.slowdown(&on(Part::Unlimited, &[RESNET, STREAM, BERT, INFER]), 0), 1.0 + 0.1 + 0.5 + 0.7);
    close(pairs.slowdown(&on(Part::Limited(500), &[RESNET, BERT]), 0), 2.0);
    close(pairs.slowdown(&on(Part::Limited(500), &[RESNET, GEMM]), 0), 1.2);
}

#[test]
fn less_than_half_costs_more_and_a_small_neighbour_less() {
    let pairs = Made::new("shares", |_, _, _| false).pairs().unwrap();
    close(pairs.slowdown(&on(Part::Limited(1_000), &[INFER]), 0), 1.0);
    close(pairs.slowdown(&on(Part::Limited(250), &[INFER]), 0), 1.6);
    close(pairs.slowdown(&on(Part::Limited(250), &[INFER, GEMM]), 0), 1.6);
    // At a half each other type costs two thirds on top, so a third at a quarter.
    close(pairs.slowdown(&on(Part::Limited(250), &[INFER, BERT]), 0), 1.6 * (1.0 + 1.0 / 3.0));
    close(pairs.slowdown(&on(Part::Limited(250), &[INFER, BERT, BERT, GEMM]), 0), 1.6 * (1.0 + 2.0 / 3.0));
}

#[test]
fn an_instance_is_as_slow_as_its_multiprocessors_or_its_memory() {
    let pairs = Made::new("instances", |_, _, _| false).pairs().unwrap();
    let profile = |name| &H200_141GB.profiles[usize::from(H200_141GB.profile(name).unwrap())];
    close(pairs.in_instance(RESNET, profile("7g.141gb")), 1.0);
    close(pairs.in_instance(RESNET, profile("1g.18gb")), 1.0 + 0.2 * (132.0 / 16.0 - 1.0));
    close(pairs.in_instance(STREAM, profile("3g.71gb")), 2.0);
    close(pairs.in_instance(STREAM, profile("7g.141gb")), 1.0);
}

#[test]
fn a_pair_without_halves_is_taken_from_the_one_without_limits() {
    let missing = |job, partner, mode: &str| mode == "mps-50" && job == BERT && partner != GEMM;
    let pairs = Made::new("missing", missing).pairs().unwrap();
    close(pairs.slowdown(&on(Part::Limited(500), &[BERT, INFER]), 0), 1.7);
    close(pairs.slowdown(&on(Part::Limited(500), &[BERT, STREAM]), 0), 1.2);
    let error = Made::new("none", |_, _, mode| mode == "mps").pairs().unwrap_err();
    assert!(error.what.contains("no row for `gemm-large` beside `gemm-large` in mode `mps`"), "{error:?}");
}

/// Everyone finds room, and nobody has more than there is.
#[test]
fn each_manner_seats_every_job_and_overfills_nothing() {
    let pairs = Made::new("seats", |_, _, _| false).pairs().unwrap();
    let jobs = demand::jobs(60, 3);
    let mut sorted = jobs.clone();
    sorted.sort_unstable();
    let seated = [
        policies::whole(&jobs),
        policies::in_turns(&jobs),
        policies::side_by_side(&jobs),
        policies::partitioned(&jobs, &pairs).1,
        planner::fewest(&jobs, Wall::Nobody).unwrap(),
        planner::fewest(&jobs, Wall::AsAsked).unwrap(),
    ];
    for devices in &seated {
        let mut there: Vec<Job> = devices.iter().flatten().map(|guest| guest.job).collect();
        there.sort_unstable();
        assert_eq!(there, sorted);
        for device in devices {
            let shared = device.iter().filter(|guest| !matches!(guest.part, Part::Whole | Part::Instance(_)));
            let milli: u32 = shared.map(|guest| TYPES[guest.job].compute_milli).sum();
            let slices: u8 = device.iter().map(|guest| slices(guest.part)).sum();
            assert!(milli <= 1_000 && slices <= 8 && (milli == 0 || slices == 0), "{device:?}");
        }
    }
    let apart = |devices: &[harm::Device]| {
        let stream = devices.iter().flatten().filter(|guest| guest.job == STREAM);
        stream.clone().count() > 0 && stream.clone().all(|guest| matches!(guest.part, Part::Instance(_)))
    };
    assert!(apart(&seated[5]) && !apart(&seated[4]));
}

fn slices(part: Part) -> u8 {
    if let Part::Instance(profile) = part { profile.memory_slices } else { 0 }
}
