//! How much slower a job is beside others than alone. Pairs are measured, on one H200; the rest follows by rules that
//! are stated here so that they can be doubted.
//!
//! * **A whole device**: 1.
//! * **In turns, and by MPS without limits**: the measured pair. Beside several, what each of them costs is added up.
//! * **By MPS with limits**: measured at a half for both. The mildest of these is what it costs to have but half of the
//!   multiprocessors, `h`; the rest is the neighbour's doing. With a share `s` that cost is `1 + (h-1)(1/s - 1)`: a part
//!   of the work that does not care, and a part that takes as much longer as there are fewer multiprocessors. What a
//!   neighbour does is scaled with its share, and added up over all of them. For a pair with halves this is what was
//!   measured. Where that is missing, the pair without limits stands in, but not below `h`.
//! * **An instance**: the same cost of having fewer multiprocessors, and no neighbours. Who is bound by memory has as
//!   much of its bandwidth as the instance has of its slices. That others have less of it too is not counted, as it
//!   was not measured: this flatters instances.
//!
//! A job that ran faster together than alone counts as undisturbed: rates vary by a tenth.

use std::path::Path;

use muster_core::gpu::mig::Profile;
use muster_core::gpu::mig::tables::H200_141GB;

use super::demand::{JobClassIndex, JOB_CLASSES};
use crate::commands::bench::traces::{self, CsvTable};
use crate::error::CliError;

/// The folder of the trace, and its file.
const TRACE_DIR: &str = "h200-interference";
const FILE: &str = "pairs.csv";
/// The number of types.
const CLASS_COUNT: usize = JOB_CLASSES.len();

/// What a job has of its device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GpuPortion {
    /// All of it.
    Whole,
    /// An instance.
    Instance(&'static Profile),
    /// All of it, in turns with others.
    TimeSlice,
    /// Whatever it gets beside others.
    MpsUnlimited,
    /// At most so many thousandths of its multiprocessors.
    MpsLimited(u32),
}

/// A job on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupant {
    pub job: JobClassIndex,
    pub part: GpuPortion,
}

/// Who sits on a device.
pub type Occupants = Vec<Occupant>;

/// The slowdown of a job beside a partner, for each two.
type SlowdownMatrix = [[f64; CLASS_COUNT]; CLASS_COUNT];

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct InterferenceTable {
    time_slice: SlowdownMatrix,
    mps_unlimited: SlowdownMatrix,
    mps_half: SlowdownMatrix,
    /// What it costs to have half of the multiprocessors.
    half_gpu: [f64; CLASS_COUNT],
}

impl InterferenceTable {
    /// Read the pairs in this folder of traces.
    pub fn read(traces: &Path) -> Result<InterferenceTable, CliError> {
        let table = CsvTable::read(&traces::trace_dir(traces, TRACE_DIR)?.join(FILE))?;
        let (in_turns, unlimited) = (measured_pairs(&table, "time-slice")?, measured_pairs(&table, "mps")?);
        let halves = measured_pairs(&table, "mps-50")?;
        let (in_turns, unlimited) =
            (fill_missing(in_turns, "time-slice", missing_pair)?, fill_missing(unlimited, "mps", missing_pair)?);
        let half: Vec<f64> = halves.iter().map(|row| lowest_slowdown(row)).collect();
        let stand_in = |_: &str, job: JobClassIndex, partner: JobClassIndex| Ok(unlimited[job][partner].max(half[job]));
        let halves = fill_missing(halves, "mps-50", stand_in)?;
        Ok(InterferenceTable { time_slice: in_turns, mps_unlimited: unlimited, mps_half: halves, half_gpu: std::array::from_fn(|job| half[job]) })
    }

    /// How much slower one of those on a device is than alone.
    pub fn slowdown(&self, device: &[Occupant], at: usize) -> f64 {
        let Occupant { job, part } = device[at];
        let others = || device.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, guest)| guest);
        let together = |pairs: &SlowdownMatrix| 1.0 + others().map(|other| pairs[job][other.job] - 1.0).sum::<f64>();
        match part {
            GpuPortion::Whole => 1.0,
            GpuPortion::Instance(profile) => self.slowdown_in_instance(job, profile),
            GpuPortion::TimeSlice => together(&self.time_slice),
            GpuPortion::MpsUnlimited => together(&self.mps_unlimited),
            GpuPortion::MpsLimited(milli) => {
                let noise: f64 = others().map(|other| self.neighbour_slowdown(job, other)).sum();
                self.slowdown_alone(job, f64::from(milli) / 1_000.0) * (1.0 + noise)
            }
        }
    }

    /// How much slower a job is in an instance.
    pub fn slowdown_in_instance(&self, job: JobClassIndex, profile: &Profile) -> f64 {
        let all = H200_141GB.profiles.iter().map(|profile| profile.multiprocessors).max().unwrap_or(1);
        let fewer = self.slowdown_alone(job, f64::from(profile.multiprocessors) / f64::from(all));
        let slices = f64::from(H200_141GB.memory_slices) / f64::from(profile.memory_slices);
        if JOB_CLASSES[job].memory_bound { fewer.max(slices) } else { fewer }
    }

    /// How much slower a job is with a share of the multiprocessors and nobody beside it.
    fn slowdown_alone(&self, job: JobClassIndex, share: f64) -> f64 {
        1.0 + (self.half_gpu[job] - 1.0) * (1.0 / share - 1.0)
    }

    /// What a neighbour with a share adds.
    fn neighbour_slowdown(&self, job: JobClassIndex, other: &Occupant) -> f64 {
        let GpuPortion::MpsLimited(milli) = other.part else { return 0.0 };
        let halves = f64::from(milli) / 500.0;
        (self.mps_half[job][other.job] / self.half_gpu[job] - 1.0) * halves
    }
}

/// The rows of a mode; nothing where there is none.
fn measured_pairs(table: &CsvTable, mode: &str) -> Result<[[Option<f64>; CLASS_COUNT]; CLASS_COUNT], CliError> {
    let mut pairs = [[None; CLASS_COUNT]; CLASS_COUNT];
    let place = |name: &str| JOB_CLASSES.iter().position(|one| one.name == name);
    for row in table.rows() {
        let row = row?;
        if let (Some(job), Some(partner)) = (place(row.text("job_type")?), place(row.text("partner")?))
            && row.text("mode")? == mode
        {
            pairs[job][partner] = Some(row.number::<f64>("slowdown")?.max(1.0));
        }
    }
    Ok(pairs)
}

fn lowest_slowdown(row: &[Option<f64>]) -> f64 {
    let mildest = row.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    // Whoever was never measured with a half is as slow as the arithmetic says.
    if mildest.is_finite() { mildest } else { 2.0 }
}

/// All pairs; what is missing is said by another.
fn fill_missing(
    pairs: [[Option<f64>; CLASS_COUNT]; CLASS_COUNT],
    mode: &str,
    otherwise: impl Fn(&str, JobClassIndex, JobClassIndex) -> Result<f64, CliError>,
) -> Result<SlowdownMatrix, CliError> {
    let mut whole = [[1.0; CLASS_COUNT]; CLASS_COUNT];
    for (job, partner) in (0..CLASS_COUNT).flat_map(|job| (0..CLASS_COUNT).map(move |partner| (job, partner))) {
        whole[job][partner] = match pairs[job][partner] {
            Some(slowdown) => slowdown,
            None => otherwise(mode, job, partner)?,
        };
    }
    Ok(whole)
}

fn missing_pair(mode: &str, job: JobClassIndex, partner: JobClassIndex) -> Result<f64, CliError> {
    let (job, partner) = (JOB_CLASSES[job].name, JOB_CLASSES[partner].name);
    Err(CliError::failed(format!("`{FILE}` has no row for `{job}` beside `{partner}` in mode `{mode}`")))
}
