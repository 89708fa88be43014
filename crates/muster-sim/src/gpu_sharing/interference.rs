//! Interference model: the slowdown of a job on a shared GPU against the same job alone. Pairs were measured on one
//! H200; the rules extend them.
//!
//! * **Whole GPU**: 1.
//! * **Time slices, and MPS without limits**: the measured pair. With several neighbours their slowdowns add up.
//! * **MPS with limits**: measured at one half each. The lowest measured slowdown `h` is attributed to having half of
//!   the multiprocessors, the rest to the neighbour. At share `s` the own cost is `1 + (h-1)(1/s - 1)`: one part of the
//!   work does not depend on the number of multiprocessors, the other is inversely proportional to it. A neighbour's
//!   effect scales with its share, and effects add up. For a pair of halves this is the measured value. Where that
//!   is missing, the pair without limits is used, but at least `h`.
//! * **MIG instance**: the same cost of fewer multiprocessors, without neighbours. A memory-bound job gets the share of
//!   bandwidth that the instance has of the memory slices. The smaller bandwidth of other jobs is not modelled, because
//!   it was not measured: this favours instances.
//!
//! A job that ran faster in a pair than alone counts as slowdown 1: measured rates vary by a tenth.

use std::path::Path;

use muster_core::gpu::mig::Profile;
use muster_core::gpu::mig::tables::H200_141GB;

use super::job_classes::{JOB_CLASSES, JobClassIndex};
use crate::csv_table::{CsvTable, TraceError, trace_dir};

/// The directory of the trace in the traces directory, and its file.
const TRACE_DIR: &str = "h200-interference";
const FILE: &str = "pairs.csv";
const CLASS_COUNT: usize = JOB_CLASSES.len();

/// The part of a GPU that a job holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GpuPortion {
    Whole,
    /// A MIG instance.
    Instance(&'static Profile),
    /// All multiprocessors, by turns.
    TimeSlice,
    /// MPS without a limit.
    MpsUnlimited,
    /// MPS with a limit, in thousandths of the multiprocessors.
    MpsLimited(u32),
}

/// A job on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupant {
    pub job: JobClassIndex,
    pub portion: GpuPortion,
}

/// The jobs of one GPU.
pub type Occupants = Vec<Occupant>;

/// The slowdown of a job class (row) next to a neighbour's class (column).
type SlowdownMatrix = [[f64; CLASS_COUNT]; CLASS_COUNT];

/// The measured slowdowns.
#[derive(Debug, Clone, PartialEq)]
pub struct InterferenceTable {
    time_slice: SlowdownMatrix,
    mps_unlimited: SlowdownMatrix,
    mps_half: SlowdownMatrix,
    /// The slowdown from having half of the multiprocessors, `h` above.
    half_gpu: [f64; CLASS_COUNT],
}

impl InterferenceTable {
    /// Read the measured pairs from this traces directory.
    pub fn read(traces: &Path) -> Result<InterferenceTable, TraceError> {
        let path = trace_dir(traces, TRACE_DIR)?.join(FILE);
        let table = CsvTable::read(&path)?;
        let all_pairs = |mode| {
            let missing = |job, partner| Err(missing_pair(&path, mode, job, partner));
            fill_missing(measured_pairs(&table, mode)?, missing)
        };
        let (time_slice, mps_unlimited) = (all_pairs("time-slice")?, all_pairs("mps")?);
        let halves = measured_pairs(&table, "mps-50")?;
        let half_gpu: [f64; CLASS_COUNT] = std::array::from_fn(|job| lowest_slowdown(&halves[job]));
        let mps_half = fill_missing(halves, |job, partner| Ok(mps_unlimited[job][partner].max(half_gpu[job])))?;
        Ok(InterferenceTable { time_slice, mps_unlimited, mps_half, half_gpu })
    }

    /// The slowdown of the job at index `at` among the jobs of a GPU.
    pub fn slowdown(&self, occupants: &[Occupant], at: usize) -> f64 {
        let Occupant { job, portion } = occupants[at];
        let others = || occupants.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, other)| other);
        let together = |pairs: &SlowdownMatrix| 1.0 + others().map(|other| pairs[job][other.job] - 1.0).sum::<f64>();
        match portion {
            GpuPortion::Whole => 1.0,
            GpuPortion::Instance(profile) => self.slowdown_in_instance(job, profile),
            GpuPortion::TimeSlice => together(&self.time_slice),
            GpuPortion::MpsUnlimited => together(&self.mps_unlimited),
            GpuPortion::MpsLimited(milli) => {
                let added: f64 = others().map(|other| self.neighbour_slowdown(job, other)).sum();
                self.slowdown_alone(job, f64::from(milli) / 1_000.0) * (1.0 + added)
            }
        }
    }

    /// The slowdown in a MIG instance.
    pub fn slowdown_in_instance(&self, job: JobClassIndex, profile: &Profile) -> f64 {
        let all = H200_141GB.profiles.iter().map(|profile| profile.multiprocessors).max().unwrap_or(1);
        let fewer = self.slowdown_alone(job, f64::from(profile.multiprocessors) / f64::from(all));
        let slices = f64::from(H200_141GB.memory_slices) / f64::from(profile.memory_slices);
        if JOB_CLASSES[job].memory_bound { fewer.max(slices) } else { fewer }
    }

    /// The slowdown with a share of the multiprocessors and without neighbours.
    fn slowdown_alone(&self, job: JobClassIndex, share: f64) -> f64 {
        1.0 + (self.half_gpu[job] - 1.0) * (1.0 / share - 1.0)
    }

    /// The slowdown that a neighbour with an MPS limit adds.
    fn neighbour_slowdown(&self, job: JobClassIndex, other: &Occupant) -> f64 {
        let GpuPortion::MpsLimited(milli) = other.portion else { return 0.0 };
        let halves = f64::from(milli) / 500.0;
        (self.mps_half[job][other.job] / self.half_gpu[job] - 1.0) * halves
    }
}

/// The measured pairs of a sharing mode; `None` for a pair that was not measured.
fn measured_pairs(table: &CsvTable, mode: &str) -> Result<[[Option<f64>; CLASS_COUNT]; CLASS_COUNT], TraceError> {
    let mut pairs = [[None; CLASS_COUNT]; CLASS_COUNT];
    let class = |name: &str| JOB_CLASSES.iter().position(|one| one.name == name);
    for row in table.rows() {
        let row = row?;
        if let (Some(job), Some(partner)) = (class(row.text("job_type")?), class(row.text("partner")?))
            && row.text("mode")? == mode
        {
            pairs[job][partner] = Some(row.number::<f64>("slowdown")?.max(1.0));
        }
    }
    Ok(pairs)
}

fn lowest_slowdown(row: &[Option<f64>]) -> f64 {
    let lowest = row.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    // A class without measurement is assumed to scale with the multiprocessors.
    if lowest.is_finite() { lowest } else { 2.0 }
}

/// All pairs of a mode, with `otherwise` for those that were not measured.
fn fill_missing(
    pairs: [[Option<f64>; CLASS_COUNT]; CLASS_COUNT],
    otherwise: impl Fn(JobClassIndex, JobClassIndex) -> Result<f64, TraceError>,
) -> Result<SlowdownMatrix, TraceError> {
    let mut matrix = [[1.0; CLASS_COUNT]; CLASS_COUNT];
    for (job, partner) in (0..CLASS_COUNT).flat_map(|job| (0..CLASS_COUNT).map(move |partner| (job, partner))) {
        matrix[job][partner] = match pairs[job][partner] {
            Some(slowdown) => slowdown,
            None => otherwise(job, partner)?,
        };
    }
    Ok(matrix)
}

fn missing_pair(path: &Path, mode: &str, job: JobClassIndex, partner: JobClassIndex) -> TraceError {
    let (job, partner) = (JOB_CLASSES[job].name, JOB_CLASSES[partner].name);
    let message = format!("has no row for `{job}` beside `{partner}` in mode `{mode}`");
    TraceError::Incomplete { path: path.to_path_buf(), message }
}
