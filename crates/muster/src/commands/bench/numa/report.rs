//! What came out, as rows and as a table.

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::{NodeBandwidths, TrainingStep};
use super::placer::DevicePolicy;
use super::serve::ServedJob;

/// Jobs of one size, served in one manner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NumaRow {
    pub machine: &'static str,
    pub load: f64,
    pub gpus: u32,
    pub manner: &'static str,
    pub jobs: usize,
    /// Mean step time.
    pub step_ms: f64,
    /// Step time on the best devices of an empty node.
    pub step_ms_alone: f64,
    /// How much less a step takes than with the lowest free indexes.
    pub gain_percent: f64,
    /// Mean time from arrival to start.
    pub wait_min: f64,
    /// How much longer it is than with the lowest free indexes.
    pub wait_added_min: f64,
    /// Standard error of that: each stream is compared with itself.
    pub wait_added_min_error: f64,
}

/// The rows of one box and load, for streams served in each manner.
pub fn rows(board: &NodeBandwidths, work: TrainingStep, load: f64, runs: &[(DevicePolicy, Vec<Vec<ServedJob>>)]) -> Vec<NumaRow> {
    let mut clock = StepTimeCache { board, work, cached_ms: BTreeMap::new() };
    let mut rows = Vec::new();
    for gpus in [1, 2, 4, 8].into_iter().filter(|gpus| *gpus <= board.gpus()) {
        let alike = runs.iter().map(|(manner, streams)| (*manner, SizeStats::of_size(streams, gpus, &mut clock)));
        let alike: Vec<(DevicePolicy, SizeStats)> = alike.collect();
        let Some((_, anchor)) = alike.iter().find(|(manner, _)| *manner == DevicePolicy::Lowest) else { continue };
        for (manner, part) in &alike {
            let added: Vec<f64> =
                part.waits.iter().zip(&anchor.waits).map(|(own, other)| own - other).collect();
            rows.push(NumaRow {
                machine: board.machine,
                load,
                gpus,
                manner: manner.as_str(),
                jobs: part.jobs,
                step_ms: part.step_ms,
                step_ms_alone: clock.best_step_ms(gpus),
                gain_percent: (1.0 - part.step_ms / anchor.step_ms) * 100.0,
                wait_min: mean(part.waits.iter().copied()),
                wait_added_min: mean(added.iter().copied()),
                wait_added_min_error: standard_error(&added),
            });
        }
    }
    rows
}

/// Jobs of one size, served in one manner.
struct SizeStats {
    jobs: usize,
    step_ms: f64,
    /// Minutes, the mean of each stream.
    waits: Vec<f64>,
}

impl SizeStats {
    fn of_size(streams: &[Vec<ServedJob>], gpus: u32, clock: &mut StepTimeCache) -> SizeStats {
        let of_size = |stream: &Vec<ServedJob>| stream.iter().filter(|job| job.gpus == gpus).copied().collect();
        let streams: Vec<Vec<ServedJob>> = streams.iter().map(of_size).collect();
        let wait_min = |job: &ServedJob| job.wait_ms as f64 / 60_000.0;
        SizeStats {
            jobs: streams.iter().map(Vec::len).sum(),
            step_ms: mean(streams.iter().flatten().map(|job| clock.step_ms(job.devices))),
            waits: streams.iter().map(|stream| mean(stream.iter().map(wait_min))).collect(),
        }
    }
}

/// Step times, each set of devices reckoned once.
struct StepTimeCache<'a> {
    board: &'a NodeBandwidths,
    work: TrainingStep,
    cached_ms: BTreeMap<u64, f64>,
}

impl StepTimeCache<'_> {
    fn step_ms(&mut self, devices: u64) -> f64 {
        *self.cached_ms.entry(devices).or_insert_with(|| self.board.step_ms(devices, self.work))
    }

    fn best_step_ms(&mut self, gpus: u32) -> f64 {
        let sets = (0u64..1 << self.board.gpus()).filter(|set| set.count_ones() == gpus);
        sets.map(|set| self.step_ms(set)).fold(f64::INFINITY, f64::min)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}

fn standard_error(values: &[f64]) -> f64 {
    let (middle, count) = (mean(values.iter().copied()), values.len() as f64);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    if count < 2.0 { 0.0 } else { (squares / (count - 1.0) / count).sqrt() }
}

/// For people: a line for each size, step times and waits side by side.
pub fn table(rows: &[NumaRow]) -> String {
    let words = |manners: &[DevicePolicy], width| {
        manners.iter().map(|manner| format!("{:>width$}", manner.as_str())).collect::<String>()
    };
    let (steps, gains) = (words(&DevicePolicy::ALL, 10), words(&TOPOLOGY_AWARE, 10));
    let waits = words(&[DevicePolicy::Lowest], 8) + &words(&TOPOLOGY_AWARE, 15);
    let mut text = format!(
        "{:<38}|{:^40}|{:^20}|{:^38}\n{:<12} {:>4} {:>4} {:>6} {:>7} |{steps}|{gains}|{waits}\n",
        "",
        "mean step, ms",
        "gain over lowest",
        "mean wait, min, and what is added",
        "box",
        "load",
        "GPUs",
        "jobs",
        "alone"
    );
    for alike in rows.chunk_by(|a, b| (a.machine, a.load, a.gpus) == (b.machine, b.load, b.gpus)) {
        text += &table_line(alike);
    }
    text
}

/// Those that look at the wiring, and may let jobs wait longer for it.
const TOPOLOGY_AWARE: [DevicePolicy; 2] = [DevicePolicy::Planner, DevicePolicy::SameNuma];

fn table_line(alike: &[NumaRow]) -> String {
    let first = &alike[0];
    let of = |manner: DevicePolicy| alike.iter().find(|row| row.manner == manner.as_str()).unwrap_or(first);
    let steps = DevicePolicy::ALL.map(|manner| format!("{:>10.1}", of(manner).step_ms)).concat();
    let gains = TOPOLOGY_AWARE.map(|manner| format!("{:>9.1}%", of(manner).gain_percent)).concat();
    let added = |row: &NumaRow| format!("{:+.1} ± {:.1}", row.wait_added_min, row.wait_added_min_error);
    let added = TOPOLOGY_AWARE.map(|manner| format!("{:>15}", added(of(manner)))).concat();
    let wait_min = of(DevicePolicy::Lowest).wait_min;
    let NumaRow { machine, load, gpus, jobs, step_ms_alone, .. } = first;
    let head = format!("{machine:<12} {load:>4.1} {gpus:>4} {jobs:>6} {step_ms_alone:>7.1} ");
    format!("{head}|{steps}|{gains}|{wait_min:>8.1}{added}\n")
}
