//! What came of a replay, in the figures that are published.

use super::TraceJob;

/// What came of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outcome {
    /// The mean time from submission to the end.
    pub avg_jct_s: f64,
    /// Of a hundred jobs one took longer.
    pub p99_jct_s: f64,
    /// When the last job was done.
    pub makespan_s: f64,
    /// The longest that a job took, in times its own work.
    pub max_slowdown: f64,
    /// How often a running job had to stop before its end.
    pub preemptions: u64,
    /// GPU-seconds that were held and did not bring the work forward.
    pub lost_gpu_s: f64,
}

impl Outcome {
    /// The figures, from when each job ended.
    pub(super) fn of(jobs: &[TraceJob], ended_s: &[f64], preemptions: u64, lost_gpu_s: f64) -> Outcome {
        let mut times: Vec<f64> = jobs.iter().zip(ended_s).map(|(job, end)| end - job.submit_s).collect();
        let slowdowns = jobs.iter().zip(&times).map(|(job, time)| time / job.work_s.max(f64::MIN_POSITIVE));
        let max_slowdown = slowdowns.fold(0.0, f64::max);
        let avg_jct_s = times.iter().sum::<f64>() / times.len().max(1) as f64;
        times.sort_by(f64::total_cmp);
        Outcome {
            avg_jct_s,
            p99_jct_s: times.get((times.len() as f64 * 0.99) as usize).copied().unwrap_or_default(),
            makespan_s: ended_s.iter().copied().fold(0.0, f64::max),
            max_slowdown,
            preemptions,
            lost_gpu_s,
        }
    }
}
