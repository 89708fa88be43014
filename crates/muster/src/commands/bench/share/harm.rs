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

use muster_core::mig::Profile;
use muster_core::mig::tables::H200_141GB;

use super::demand::{Job, TYPES};
use crate::commands::bench::traces::{self, Table};
use crate::error::CliError;

/// The folder of the trace, and its file.
const TRACE: &str = "h200-interference";
const FILE: &str = "pairs.csv";
/// The number of types.
const COUNT: usize = TYPES.len();

/// What a job has of its device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part {
    /// All of it.
    Whole,
    /// An instance.
    Instance(&'static Profile),
    /// All of it, in turns with others.
    Turns,
    /// Whatever it gets beside others.
    Unlimited,
    /// At most so many thousandths of its multiprocessors.
    Limited(u32),
}

/// A job on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guest {
    pub job: Job,
    pub part: Part,
}

/// Who sits on a device.
pub type Device = Vec<Guest>;

/// The slowdown of a job beside a partner, for each two.
type Matrix = [[f64; COUNT]; COUNT];

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs {
    in_turns: Matrix,
    unlimited: Matrix,
    halves: Matrix,
    /// What it costs to have half of the multiprocessors.
    half: [f64; COUNT],
}

impl Pairs {
    /// Read the pairs in this folder of traces.
    pub fn read(traces: &Path) -> Result<Pairs, CliError> {
        let table = Table::read(&traces::trace(traces, TRACE)?.join(FILE))?;
        let (in_turns, unlimited) = (measured(&table, "time-slice")?, measured(&table, "mps")?);
        let halves = measured(&table, "mps-50")?;
        let (in_turns, unlimited) =
            (complete(in_turns, "time-slice", missing)?, complete(unlimited, "mps", missing)?);
        let half: Vec<f64> = halves.iter().map(|row| mildest(row)).collect();
        let stand_in = |_: &str, job: Job, partner: Job| Ok(unlimited[job][partner].max(half[job]));
        let halves = complete(halves, "mps-50", stand_in)?;
        Ok(Pairs { in_turns, unlimited, halves, half: std::array::from_fn(|job| half[job]) })
    }

    /// How much slower one of those on a device is than alone.
    pub fn slowdown(&self, device: &[Guest], at: usize) -> f64 {
        let Guest { job, part } = device[at];
        let others = || device.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, guest)| guest);
        let together = |pairs: &Matrix| 1.0 + others().map(|other| pairs[job][other.job] - 1.0).sum::<f64>();
        match part {
            Part::Whole => 1.0,
            Part::Instance(profile) => self.in_instance(job, profile),
            Part::Turns => together(&self.in_turns),
            Part::Unlimited => together(&self.unlimited),
            Part::Limited(milli) => {
                let noise: f64 = others().map(|other| self.noise(job, other)).sum();
                self.alone_on(job, f64::from(milli) / 1_000.0) * (1.0 + noise)
            }
        }
    }

    /// How much slower a job is in an instance.
    pub fn in_instance(&self, job: Job, profile: &Profile) -> f64 {
        let all = H200_141GB.profiles.iter().map(|profile| profile.multiprocessors).max().unwrap_or(1);
        let fewer = self.alone_on(job, f64::from(profile.multiprocessors) / f64::from(all));
        let slices = f64::from(H200_141GB.memory_slices) / f64::from(profile.memory_slices);
        if TYPES[job].memory_bound { fewer.max(slices) } else { fewer }
    }

    /// How much slower a job is with a share of the multiprocessors and nobody beside it.
    fn alone_on(&self, job: Job, share: f64) -> f64 {
        1.0 + (self.half[job] - 1.0) * (1.0 / share - 1.0)
    }

    /// What a neighbour with a share adds.
    fn noise(&self, job: Job, other: &Guest) -> f64 {
        let Part::Limited(milli) = other.part else { return 0.0 };
        let halves = f64::from(milli) / 500.0;
        (self.halves[job][other.job] / self.half[job] - 1.0) * halves
    }
}

/// The rows of a mode; nothing where there is none.
fn measured(table: &Table, mode: &str) -> Result<[[Option<f64>; COUNT]; COUNT], CliError> {
    let mut pairs = [[None; COUNT]; COUNT];
    let place = |name: &str| TYPES.iter().position(|one| one.name == name);
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

fn mildest(row: &[Option<f64>]) -> f64 {
    let mildest = row.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    // Whoever was never measured with a half is as slow as the arithmetic says.
    if mildest.is_finite() { mildest } else { 2.0 }
}

/// All pairs; what is missing is said by another.
fn complete(
    pairs: [[Option<f64>; COUNT]; COUNT],
    mode: &str,
    otherwise: impl Fn(&str, Job, Job) -> Result<f64, CliError>,
) -> Result<Matrix, CliError> {
    let mut whole = [[1.0; COUNT]; COUNT];
    for (job, partner) in (0..COUNT).flat_map(|job| (0..COUNT).map(move |partner| (job, partner))) {
        whole[job][partner] = match pairs[job][partner] {
            Some(slowdown) => slowdown,
            None => otherwise(mode, job, partner)?,
        };
    }
    Ok(whole)
}

fn missing(mode: &str, job: Job, partner: Job) -> Result<f64, CliError> {
    let (job, partner) = (TYPES[job].name, TYPES[partner].name);
    Err(CliError::failed(format!("`{FILE}` has no row for `{job}` beside `{partner}` in mode `{mode}`")))
}
