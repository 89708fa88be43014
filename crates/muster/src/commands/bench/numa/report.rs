//! What came out, as rows and as a table.

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::{Board, Work};
use super::placer::Manner;
use super::serve::Served;

/// Jobs of one size, served in one manner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
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
pub fn rows(board: &Board, work: Work, load: f64, runs: &[(Manner, Vec<Vec<Served>>)]) -> Vec<Row> {
    let mut clock = Clock { board, work, known: BTreeMap::new() };
    let mut rows = Vec::new();
    for gpus in [1, 2, 4, 8].into_iter().filter(|gpus| *gpus <= board.gpus()) {
        let alike = runs.iter().map(|(manner, streams)| (*manner, Part::of(streams, gpus, &mut clock)));
        let alike: Vec<(Manner, Part)> = alike.collect();
        let Some((_, anchor)) = alike.iter().find(|(manner, _)| *manner == Manner::Lowest) else { continue };
        for (manner, part) in &alike {
            let added: Vec<f64> =
                part.waits.iter().zip(&anchor.waits).map(|(own, other)| own - other).collect();
            rows.push(Row {
                machine: board.machine,
                load,
                gpus,
                manner: manner.word(),
                jobs: part.jobs,
                step_ms: part.step_ms,
                step_ms_alone: clock.alone_ms(gpus),
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
struct Part {
    jobs: usize,
    step_ms: f64,
    /// Minutes, the mean of each stream.
    waits: Vec<f64>,
}

impl Part {
    fn of(streams: &[Vec<Served>], gpus: u32, clock: &mut Clock) -> Part {
        let of_size = |stream: &Vec<Served>| stream.iter().filter(|job| job.gpus == gpus).copied().collect();
        let streams: Vec<Vec<Served>> = streams.iter().map(of_size).collect();
        let wait_min = |job: &Served| job.waited_ms as f64 / 60_000.0;
        Part {
            jobs: streams.iter().map(Vec::len).sum(),
            step_ms: mean(streams.iter().flatten().map(|job| clock.step_ms(job.devices))),
            waits: streams.iter().map(|stream| mean(stream.iter().map(wait_min))).collect(),
        }
    }
}

/// Step times, each set of devices reckoned once.
struct Clock<'a> {
    board: &'a Board,
    work: Work,
    known: BTreeMap<u64, f64>,
}

impl Clock<'_> {
    fn step_ms(&mut self, devices: u64) -> f64 {
        *self.known.entry(devices).or_insert_with(|| self.board.step_ms(devices, self.work))
    }

    fn alone_ms(&mut self, gpus: u32) -> f64 {
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
pub fn table(rows: &[Row]) -> String {
    let words = |manners: &[Manner], width| {
        manners.iter().map(|manner| format!("{:>width$}", manner.word())).collect::<String>()
    };
    let (steps, gains) = (words(&Manner::ALL, 10), words(&GAINS, 10));
    let waits = words(&[Manner::Lowest], 8) + &words(&GAINS, 15);
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
        text += &line(alike);
    }
    text
}

/// Those that look at the wiring, and may let jobs wait longer for it.
const GAINS: [Manner; 2] = [Manner::Planner, Manner::SameNuma];

fn line(alike: &[Row]) -> String {
    let first = &alike[0];
    let of = |manner: Manner| alike.iter().find(|row| row.manner == manner.word()).unwrap_or(first);
    let steps = Manner::ALL.map(|manner| format!("{:>10.1}", of(manner).step_ms)).concat();
    let gains = GAINS.map(|manner| format!("{:>9.1}%", of(manner).gain_percent)).concat();
    let added = |row: &Row| format!("{:+.1} ± {:.1}", row.wait_added_min, row.wait_added_min_error);
    let added = GAINS.map(|manner| format!("{:>15}", added(of(manner)))).concat();
    let wait_min = of(Manner::Lowest).wait_min;
    let Row { machine, load, gpus, jobs, step_ms_alone, .. } = first;
    let head = format!("{machine:<12} {load:>4.1} {gpus:>4} {jobs:>6} {step_ms_alone:>7.1} ");
    format!("{head}|{steps}|{gains}|{wait_min:>8.1}{added}\n")
}
