//! The outcome of a baseline replay, in the published figures.

use super::TraceJob;

/// The figures of a baseline replay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReplayOutcome {
    /// The mean job completion time (JCT), from submission to the end.
    pub avg_jct_s: f64,
    /// The 99th percentile of the JCT.
    pub p99_jct_s: f64,
    /// The end of the last job.
    pub makespan_s: f64,
    /// The largest ratio of JCT to work.
    pub max_slowdown: f64,
    /// How often a running job was preempted.
    pub preemptions: u64,
    /// GPU-seconds that were held without progress.
    pub lost_gpu_s: f64,
}

impl ReplayOutcome {
    pub(super) fn from_end_times(
        jobs: &[TraceJob],
        ended_s: &[f64],
        preemptions: u64,
        lost_gpu_s: f64,
    ) -> ReplayOutcome {
        let mut times: Vec<f64> = jobs.iter().zip(ended_s).map(|(job, end)| end - job.submit_s).collect();
        let slowdowns = jobs.iter().zip(&times).map(|(job, time)| time / job.work_s.max(f64::MIN_POSITIVE));
        let max_slowdown = slowdowns.fold(0.0, f64::max);
        let avg_jct_s = times.iter().sum::<f64>() / times.len().max(1) as f64;
        times.sort_by(f64::total_cmp);
        ReplayOutcome {
            avg_jct_s,
            p99_jct_s: times.get((times.len() as f64 * 0.99) as usize).copied().unwrap_or_default(),
            makespan_s: ended_s.iter().copied().fold(0.0, f64::max),
            max_slowdown,
            preemptions,
            lost_gpu_s,
        }
    }
}
