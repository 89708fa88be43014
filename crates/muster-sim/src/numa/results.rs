//! The rows of the benchmark: step times and waits of each device policy against the baseline.

use std::collections::BTreeMap;

use serde::Serialize;

use super::allocators::DevicePolicy;
use super::bandwidth::{NodeBandwidths, TrainingStep};
use super::serve::ServedJob;

/// Jobs of one size under one device policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NumaRow {
    pub machine: &'static str,
    pub load: f64,
    pub gpus: u32,
    /// The name of the device policy.
    pub manner: &'static str,
    pub jobs: usize,
    /// Mean step time.
    pub step_ms: f64,
    /// Step time on the best GPUs of an empty node.
    pub step_ms_alone: f64,
    /// Step time saved against the baseline, the lowest free indexes.
    pub gain_percent: f64,
    /// Mean wait.
    pub wait_min: f64,
    /// Mean wait added against the baseline.
    pub wait_added_min: f64,
    /// Standard error of `wait_added_min` over the streams, each compared with itself.
    pub wait_added_min_error: f64,
}

/// The rows of one machine and load, from the streams that each device policy served.
pub fn rows(
    bandwidths: &NodeBandwidths,
    step: TrainingStep,
    load: f64,
    runs: &[(DevicePolicy, Vec<Vec<ServedJob>>)],
) -> Vec<NumaRow> {
    let mut step_times = StepTimeCache { bandwidths, step, cached_ms: BTreeMap::new() };
    let mut rows = Vec::new();
    for gpus in [1, 2, 4, 8].into_iter().filter(|gpus| *gpus <= bandwidths.gpus()) {
        let stats: Vec<(DevicePolicy, SizeStats)> = runs
            .iter()
            .map(|(policy, streams)| (*policy, SizeStats::of_size(streams, gpus, &mut step_times)))
            .collect();
        let Some((_, baseline)) = stats.iter().find(|(policy, _)| *policy == DevicePolicy::Lowest) else {
            continue;
        };
        for (policy, own) in &stats {
            let added: Vec<f64> =
                own.waits_min.iter().zip(&baseline.waits_min).map(|(own, other)| own - other).collect();
            rows.push(NumaRow {
                machine: bandwidths.machine,
                load,
                gpus,
                manner: policy.as_str(),
                jobs: own.jobs,
                step_ms: own.step_ms,
                step_ms_alone: step_times.best_step_ms(gpus),
                gain_percent: (1.0 - own.step_ms / baseline.step_ms) * 100.0,
                wait_min: mean(own.waits_min.iter().copied()),
                wait_added_min: mean(added.iter().copied()),
                wait_added_min_error: standard_error(&added),
            });
        }
    }
    rows
}

/// Jobs of one size under one device policy.
struct SizeStats {
    jobs: usize,
    step_ms: f64,
    /// The mean wait of each stream.
    waits_min: Vec<f64>,
}

impl SizeStats {
    fn of_size(streams: &[Vec<ServedJob>], gpus: u32, step_times: &mut StepTimeCache) -> SizeStats {
        let of_size = |stream: &Vec<ServedJob>| stream.iter().filter(|job| job.gpus == gpus).copied().collect();
        let streams: Vec<Vec<ServedJob>> = streams.iter().map(of_size).collect();
        let wait_min = |job: &ServedJob| job.wait_ms as f64 / 60_000.0;
        SizeStats {
            jobs: streams.iter().map(Vec::len).sum(),
            step_ms: mean(streams.iter().flatten().map(|job| step_times.step_ms(job.devices))),
            waits_min: streams.iter().map(|stream| mean(stream.iter().map(wait_min))).collect(),
        }
    }
}

/// Step times by set of GPUs, each computed once.
struct StepTimeCache<'a> {
    bandwidths: &'a NodeBandwidths,
    step: TrainingStep,
    cached_ms: BTreeMap<u64, f64>,
}

impl StepTimeCache<'_> {
    fn step_ms(&mut self, devices: u64) -> f64 {
        *self.cached_ms.entry(devices).or_insert_with(|| self.bandwidths.step_ms(devices, self.step))
    }

    fn best_step_ms(&mut self, gpus: u32) -> f64 {
        let sets = (0u64..1 << self.bandwidths.gpus()).filter(|set| set.count_ones() == gpus);
        sets.map(|set| self.step_ms(set)).fold(f64::INFINITY, f64::min)
    }
}

/// The mean; 0 without values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}

/// The standard error of the mean; 0 with fewer than two values.
fn standard_error(values: &[f64]) -> f64 {
    let (mean, count) = (mean(values.iter().copied()), values.len() as f64);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if count < 2.0 { 0.0 } else { (squares / (count - 1.0) / count).sqrt() }
}
