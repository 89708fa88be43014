//! The sharing policies that the planner is compared with. Jobs are placed first fit in arrival order.

use muster_core::gpu::mig::tables::H200_141GB;
use muster_core::gpu::mig::{MigLayout, Profile};

use super::interference::{GpuPortion, InterferenceTable, Occupant, Occupants};
use super::job_classes::{JOB_CLASSES, JobClassIndex};

/// Memory of an H200.
pub const GPU_MEMORY_MIB: u64 = 143_771;

/// One GPU per job.
pub fn whole_gpus(jobs: &[JobClassIndex]) -> Vec<Occupants> {
    jobs.iter().map(|job| vec![Occupant { job: *job, portion: GpuPortion::Whole }]).collect()
}

/// Time slices: the requested shares of a GPU add up to at most 1, and are not enforced.
pub fn time_sliced(jobs: &[JobClassIndex]) -> Vec<Occupants> {
    first_fit(jobs, GpuPortion::TimeSlice)
}

/// MPS without limits: the requested shares of a GPU add up to at most 1, and are not enforced.
pub fn mps_unlimited(jobs: &[JobClassIndex]) -> Vec<Occupants> {
    first_fit(jobs, GpuPortion::MpsUnlimited)
}

fn first_fit(jobs: &[JobClassIndex], portion: GpuPortion) -> Vec<Occupants> {
    let mut devices: Vec<Occupants> = Vec::new();
    for job in jobs {
        let occupant = Occupant { job: *job, portion };
        match devices.iter_mut().find(|occupants| has_capacity(occupants, *job)) {
            Some(occupants) => occupants.push(occupant),
            None => devices.push(vec![occupant]),
        }
    }
    devices
}

fn has_capacity(occupants: &Occupants, job: JobClassIndex) -> bool {
    let all = || occupants.iter().map(|occupant| occupant.job).chain([job]);
    all().map(|job| JOB_CLASSES[job].compute_milli).sum::<u32>() <= 1_000
        && all().map(|job| JOB_CLASSES[job].memory_mib).sum::<u64>() <= GPU_MEMORY_MIB
}

/// Static MIG: every GPU has the same layout, the best one for these jobs. The best layout has the fewest jobs beyond
/// their tolerance, then the fewest GPUs. Returns its profiles and the jobs of each GPU.
pub fn best_mig_layout(jobs: &[JobClassIndex], pairs: &InterferenceTable) -> (String, Vec<Occupants>) {
    let layouts: Vec<Vec<&'static Profile>> = H200_141GB.layouts().iter().filter_map(plain_profiles).collect();
    let placed = layouts.into_iter().map(|layout| {
        let devices = StaticMigPlacer { layout: &layout, jobs, pairs }.place_jobs();
        let beyond = devices.iter().flatten().filter(|occupant| !is_within_tolerance(**occupant, pairs)).count();
        let names: Vec<&str> = layout.iter().map(|profile| profile.name).collect();
        (beyond, devices.len(), names.join(" + "), devices)
    });
    let best = placed.min_by(|one, other| (one.0, one.1, &one.2).cmp(&(other.0, other.1, &other.2)));
    best.map(|(_, _, names, devices)| (names, devices)).unwrap_or_default()
}

/// The profiles of a layout, the smallest first. `None` if one is special, such as those with media extensions.
fn plain_profiles(layout: &MigLayout) -> Option<Vec<&'static Profile>> {
    let profile = |index: u8| H200_141GB.profiles.get(usize::from(index)).filter(|one| one.is_plain());
    let mut profiles: Vec<&Profile> =
        layout.instances().iter().map(|one| profile(one.profile)).collect::<Option<_>>()?;
    profiles.sort_by_key(|one| (one.multiprocessors, one.memory_slices));
    Some(profiles)
}

fn is_within_tolerance(occupant: Occupant, pairs: &InterferenceTable) -> bool {
    pairs.slowdown(&[occupant], 0) <= JOB_CLASSES[occupant.job].slowdown_max
}

/// Places jobs on GPUs with one MIG layout.
struct StaticMigPlacer<'a> {
    /// The smallest profile first.
    layout: &'a [&'static Profile],
    jobs: &'a [JobClassIndex],
    pairs: &'a InterferenceTable,
}

impl StaticMigPlacer<'_> {
    /// Place each job in the smallest suitable free instance; add a GPU only if there is none.
    fn place_jobs(&self) -> Vec<Occupants> {
        let (mut devices, mut free): (Vec<Occupants>, Vec<(usize, &Profile)>) = (Vec::new(), Vec::new());
        for job in self.jobs {
            let suitable = self.suitable_profiles(*job);
            let suits = |(_, profile): &&(usize, &Profile)| suitable.contains(profile);
            if !free.iter().any(|one| suits(&one)) {
                free.extend(self.layout.iter().map(|profile| (devices.len(), *profile)));
                devices.push(Vec::new());
            }
            let size = |(at, (device, one)): &(usize, &(usize, &Profile))| (one.multiprocessors, *device, *at);
            let taken = free.iter().enumerate().filter(|(_, one)| suits(one)).min_by_key(size);
            let Some((at, (device, profile))) = taken.map(|(at, (device, one))| (at, (*device, *one))) else {
                continue;
            };
            free.remove(at);
            devices[device].push(Occupant { job: *job, portion: GpuPortion::Instance(profile) });
        }
        devices
    }

    /// The profiles that keep a job within its tolerance; if there are none, the largest.
    fn suitable_profiles(&self, job: JobClassIndex) -> Vec<&'static Profile> {
        let large = |one: &&&'static Profile| one.memory_mib >= JOB_CLASSES[job].memory_mib;
        let large: Vec<&'static Profile> = self.layout.iter().filter(large).copied().collect();
        let fine = |one: &&&'static Profile| {
            is_within_tolerance(Occupant { job, portion: GpuPortion::Instance(one) }, self.pairs)
        };
        let fine: Vec<&'static Profile> = large.iter().filter(fine).copied().collect();
        if fine.is_empty() { large.last().copied().into_iter().collect() } else { fine }
    }
}
