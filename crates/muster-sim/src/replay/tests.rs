//! Small traces, worked out by hand: on one node of 8 GPUs unless it is said, and without the time it takes to start
//! where that is not what is asked.

use super::policies::{Easy, Fifo, Las, Sjf, Srsf, Srtf, Tiresias};
use super::{Live, Nodes, Outcome, Policy, TraceJob, replay};

/// Jobs by GPUs, submission and work.
fn jobs(jobs: &[(u32, f64, f64)]) -> Vec<TraceJob> {
    let job = |(gpus, submit_s, work_s): &(u32, f64, f64)| TraceJob {
        gpus: *gpus,
        submit_s: *submit_s,
        work_s: *work_s,
        overhead_s: 0.0,
        model: "bert".to_string(),
    };
    jobs.iter().map(job).collect()
}

/// When each job ends.
struct Ends<'a> {
    policy: &'a mut dyn Policy,
    ends: Vec<(usize, f64)>,
}

impl Policy for Ends<'_> {
    fn choose(&mut self, now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        self.policy.choose(now_s, live, nodes);
    }

    fn ended(&mut self, now_s: f64, job: &Live) {
        self.ends.push((job.job, now_s));
        self.policy.ended(now_s, job);
    }

    fn wakes_s(&self, now_s: f64, live: &[Live]) -> Option<f64> {
        self.policy.wakes_s(now_s, live)
    }
}

fn played(trace: &[TraceJob], policy: &mut dyn Policy) -> (Vec<f64>, Outcome) {
    let mut ends = Ends { policy, ends: Vec::new() };
    let outcome = replay(trace, 1, &mut ends);
    ends.ends.sort_by_key(|(job, _)| *job);
    (ends.ends.into_iter().map(|(_, end)| end).collect(), outcome)
}

/// A long job of half the node, a longer one of all of it, a short one of a half and a shorter one of all.
fn mixed() -> Vec<TraceJob> {
    jobs(&[(4, 0.0, 100.0), (8, 10.0, 200.0), (4, 20.0, 50.0), (8, 30.0, 10.0)])
}

/// A policy by its name, when each job ends, and how often one had to stop.
type Case = (&'static str, Box<dyn Policy>, [f64; 4], u64);

#[test]
fn each_policy_has_its_order() {
    let cases: [Case; 6] = [
        // The second keeps everyone out until the first is gone.
        ("fifo", Box::new(Fifo), [100.0, 300.0, 350.0, 360.0], 0),
        // The third starts beside the first; of the two that need all of it the shorter goes first.
        ("sjf", Box::new(Sjf), [100.0, 310.0, 70.0, 110.0], 0),
        // The third passes the second, which starts when the first is gone in any case.
        ("easy", Box::new(Easy), [100.0, 300.0, 70.0, 310.0], 0),
        // The last stops the first and the third at 30, and both go on at 40.
        ("srtf", Box::new(Srtf), [110.0, 310.0, 80.0, 40.0], 2),
        ("srsf", Box::new(Srsf), [110.0, 310.0, 80.0, 40.0], 2),
        // At 10 the second stops the first; at 20 the third is new, and the first goes on beside it because the second
        // does not fit; at 30 the last is. At 40 the third has had 40, the two others 80: the third and the first go on
        // until 80, and then the first has had 240.
        ("las", Box::new(Las), [310.0, 270.0, 80.0, 40.0], 5),
    ];
    for (name, mut policy, expected, preemptions) in cases {
        let (ends, outcome) = played(&mixed(), &mut *policy);
        assert_eq!(ends, expected, "{name}");
        assert_eq!(outcome.preemptions, preemptions, "{name}");
        assert_eq!(outcome.makespan_s, expected.iter().copied().fold(0.0, f64::max), "{name}");
    }
}

#[test]
fn time_and_gpu_time_are_two_orders() {
    let trace = jobs(&[(8, 0.0, 20.0), (1, 0.0, 100.0)]);
    assert_eq!(played(&trace, &mut Srtf).0, [20.0, 120.0]);
    assert_eq!(played(&trace, &mut Srsf).0, [120.0, 100.0]);
}

#[test]
fn easy_lets_pass_who_is_over_by_then_or_beside_whom_there_is_room() {
    // The second needs six, which are there at 100. The third is over then, the fourth takes what is left beside it, and
    // the fifth would be in the way.
    let trace = jobs(&[(4, 0.0, 100.0), (6, 1.0, 10.0), (2, 2.0, 90.0), (2, 3.0, 500.0), (2, 4.0, 500.0)]);
    assert_eq!(played(&trace, &mut Easy).0, [100.0, 110.0, 92.0, 503.0, 610.0]);
}

#[test]
fn tiresias_goes_by_queues() {
    // The first has had 3,250 GPU-seconds after 407 whole seconds and stands in the second queue from then on. The second
    // comes at 500 into the first queue and stops it. At 907 it comes to stand behind it, and the first goes on until it
    // has had 7,200 at 1,307; then the second until it has at 1,800. Now both are in the last queue, the first before it.
    let trace = jobs(&[(8, 0.0, 2_000.0), (8, 500.0, 2_000.0)]);
    let (ends, outcome) = played(&trace, &mut Tiresias::default());
    assert_eq!(outcome.preemptions, 4);
    assert_eq!(ends, [2_900.0, 4_000.0]);
}

#[test]
fn tiresias_asks_only_how_many_gpus_are_free() {
    let trace = jobs(&[(6, 0.0, 10.0), (6, 0.0, 10.0), (4, 0.0, 10.0)]);
    assert_eq!(replay(&trace, 2, &mut Tiresias::default()).makespan_s, 10.0);
    assert_eq!(replay(&trace, 2, &mut Srtf).makespan_s, 20.0);
}

#[test]
fn the_time_to_start_is_taken_off_between_any_two_events() {
    let mut trace = jobs(&[(1, 0.0, 100.0), (2, 10.0, 20.0), (4, 33.0, 1.0)]);
    trace[0].overhead_s = 4.0;
    // The first loses 4 at 10, 4 at 30, 3 at 33 and 1 at 34, and nothing after the last event.
    let (ends, outcome) = played(&trace, &mut Srsf);
    assert_eq!(ends, [112.0, 30.0, 34.0]);
    assert_eq!(outcome.lost_gpu_s, 12.0);
}

#[test]
fn gangs_need_whole_nodes_and_the_rest_on_another() {
    let mut nodes = Nodes::new(3);
    assert!(nodes.seat(0, 1));
    assert!(nodes.seat(1, 12), "one node that is free, and four GPUs beside the first job");
    assert!(!nodes.seat(2, 16), "one node is free");
    assert!(nodes.seat(3, 8));
    assert_eq!(nodes.free_gpus(), 3);
    nodes.release(1);
    assert!(!nodes.clone().seat(2, 16), "one is free again, and the other never was");
    assert!(nodes.seat(2, 15));
}

#[test]
fn the_figures_are_those_that_are_published() {
    let works: Vec<(u32, f64, f64)> = (1..=200).map(|work| (8, 0.0, f64::from(work))).collect();
    let outcome = replay(&jobs(&works), 200, &mut Srtf);
    assert_eq!(outcome.avg_jct_s, 100.5);
    assert_eq!(outcome.p99_jct_s, 199.0, "the element at floor(0.99 n) from zero");
    assert_eq!(outcome.max_slowdown, 1.0);
    let two = replay(&jobs(&[(8, 0.0, 10.0), (8, 5.0, 15.0)]), 1, &mut Srtf);
    assert_eq!(two.max_slowdown, 20.0 / 15.0);
}
