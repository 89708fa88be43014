//! Small traces with results worked out by hand, on one node of 8 GPUs and without start-up time unless a test says
//! otherwise.

use super::policies::{Easy, Fifo, Las, Sjf, Srsf, Srtf, Tiresias};
use super::{LiveJob, QueuePolicy, ReplayOutcome, TraceJob, UniformNodes, replay};

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

/// Records the end of each job.
struct EndTimesRecorder<'a> {
    policy: &'a mut dyn QueuePolicy,
    end_times: Vec<(usize, f64)>,
}

impl QueuePolicy for EndTimesRecorder<'_> {
    fn select_running(&mut self, now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        self.policy.select_running(now_s, live, nodes);
    }

    fn job_ended(&mut self, now_s: f64, job: &LiveJob) {
        self.end_times.push((job.trace_index, now_s));
        self.policy.job_ended(now_s, job);
    }

    fn next_wake_s(&self, now_s: f64, live: &[LiveJob]) -> Option<f64> {
        self.policy.next_wake_s(now_s, live)
    }
}

fn ends_and_outcome(trace: &[TraceJob], policy: &mut dyn QueuePolicy) -> (Vec<f64>, ReplayOutcome) {
    let mut ends = EndTimesRecorder { policy, end_times: Vec::new() };
    let outcome = replay(trace, 1, &mut ends);
    ends.end_times.sort_by_key(|(job, _)| *job);
    (ends.end_times.into_iter().map(|(_, end)| end).collect(), outcome)
}

/// A long job on half of the node, a longer one on all of it, a short one on half and a shorter one on all.
fn four_jobs() -> Vec<TraceJob> {
    jobs(&[(4, 0.0, 100.0), (8, 10.0, 200.0), (4, 20.0, 50.0), (8, 30.0, 10.0)])
}

/// The name of a policy, the policy, the end of each job, and the number of preemptions.
type PolicyCase = (&'static str, Box<dyn QueuePolicy>, [f64; 4], u64);

#[test]
fn each_policy_gives_the_expected_end_times() {
    let cases: [PolicyCase; 6] = [
        // The second blocks all later jobs until the first has ended.
        ("fifo", Box::new(Fifo), [100.0, 300.0, 350.0, 360.0], 0),
        // The third starts beside the first; of the two that need the whole node the shorter goes first.
        ("sjf", Box::new(Sjf), [100.0, 310.0, 70.0, 110.0], 0),
        // The third backfills: the second starts when the first has ended in any case.
        ("easy", Box::new(Easy), [100.0, 300.0, 70.0, 310.0], 0),
        // The last preempts the first and the third at 30, and both resume at 40.
        ("srtf", Box::new(Srtf), [110.0, 310.0, 80.0, 40.0], 2),
        ("srsf", Box::new(Srsf), [110.0, 310.0, 80.0, 40.0], 2),
        // At 10 the second preempts the first; at 20 the third arrives, and the first resumes beside it because the
        // second does not fit; at 30 the last arrives. At 40 the third has attained 40, the two others 80: the
        // third and the first run until 80, and then the first has attained 240.
        ("las", Box::new(Las), [310.0, 270.0, 80.0, 40.0], 5),
    ];
    for (name, mut policy, expected, preemptions) in cases {
        let (ends, outcome) = ends_and_outcome(&four_jobs(), &mut *policy);
        assert_eq!(ends, expected, "{name}");
        assert_eq!(outcome.preemptions, preemptions, "{name}");
        assert_eq!(outcome.makespan_s, expected.iter().copied().fold(0.0, f64::max), "{name}");
    }
}

#[test]
fn srtf_orders_by_time_and_srsf_by_gpu_time() {
    let trace = jobs(&[(8, 0.0, 20.0), (1, 0.0, 100.0)]);
    assert_eq!(ends_and_outcome(&trace, &mut Srtf).0, [20.0, 120.0]);
    assert_eq!(ends_and_outcome(&trace, &mut Srsf).0, [120.0, 100.0]);
}

#[test]
fn easy_backfills_jobs_that_do_not_delay_the_head() {
    // The second needs six GPUs, which are free at 100. The third ends before, the fourth fits beside it, and the
    // fifth would delay it.
    let trace = jobs(&[(4, 0.0, 100.0), (6, 1.0, 10.0), (2, 2.0, 90.0), (2, 3.0, 500.0), (2, 4.0, 500.0)]);
    assert_eq!(ends_and_outcome(&trace, &mut Easy).0, [100.0, 110.0, 92.0, 503.0, 610.0]);
}

#[test]
fn tiresias_demotes_jobs_by_attained_service() {
    // The first has attained 3,250 GPU-seconds after 407 whole seconds and is in the second queue from then on. The
    // second arrives at 500 in the first queue and preempts it. At 907 the second is demoted behind the first,
    // which runs until it has 7,200 at 1,307; then the second runs until it has 7,200 at 1,800. Now both are in the
    // last queue, the first ahead.
    let trace = jobs(&[(8, 0.0, 2_000.0), (8, 500.0, 2_000.0)]);
    let (ends, outcome) = ends_and_outcome(&trace, &mut Tiresias::default());
    assert_eq!(outcome.preemptions, 4);
    assert_eq!(ends, [2_900.0, 4_000.0]);
}

#[test]
fn tiresias_ignores_placement() {
    let trace = jobs(&[(6, 0.0, 10.0), (6, 0.0, 10.0), (4, 0.0, 10.0)]);
    assert_eq!(replay(&trace, 2, &mut Tiresias::default()).makespan_s, 10.0);
    assert_eq!(replay(&trace, 2, &mut Srtf).makespan_s, 20.0);
}

#[test]
fn start_overhead_is_deducted_between_any_two_events() {
    let mut trace = jobs(&[(1, 0.0, 100.0), (2, 10.0, 20.0), (4, 33.0, 1.0)]);
    trace[0].overhead_s = 4.0;
    // The first loses 4 at 10, 4 at 30, 3 at 33 and 1 at 34, and nothing after the last event.
    let (ends, outcome) = ends_and_outcome(&trace, &mut Srsf);
    assert_eq!(ends, [112.0, 30.0, 34.0]);
    assert_eq!(outcome.lost_gpu_s, 12.0);
}

#[test]
fn gangs_need_whole_nodes_and_the_rest_on_another() {
    let mut nodes = UniformNodes::new(3);
    assert!(nodes.place_gang(0, 1));
    assert!(nodes.place_gang(1, 12), "one empty node, and four GPUs beside the first job");
    assert!(!nodes.place_gang(2, 16), "one node is empty");
    assert!(nodes.place_gang(3, 8));
    assert_eq!(nodes.free_gpus(), 3);
    nodes.release(1);
    assert!(!nodes.clone().place_gang(2, 16), "one node is empty again, the other is not");
    assert!(nodes.place_gang(2, 15));
}

#[test]
fn outcome_figures_follow_the_published_definitions() {
    let works: Vec<(u32, f64, f64)> = (1..=200).map(|work| (8, 0.0, f64::from(work))).collect();
    let outcome = replay(&jobs(&works), 200, &mut Srtf);
    assert_eq!(outcome.avg_jct_s, 100.5);
    assert_eq!(outcome.p99_jct_s, 199.0, "the element at floor(0.99 n) from zero");
    assert_eq!(outcome.max_slowdown, 1.0);
    let two = replay(&jobs(&[(8, 0.0, 10.0), (8, 5.0, 15.0)]), 1, &mut Srtf);
    assert_eq!(two.max_slowdown, 20.0 / 15.0);
}
