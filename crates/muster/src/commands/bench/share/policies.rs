//! Manners of seating jobs that know nothing of the product. Jobs are seated in the order in which they come, on the
//! first device that has room.

use muster_core::gpu::mig::tables::H200_141GB;
use muster_core::gpu::mig::{Layout, Profile};

use super::demand::{JobClassIndex, JOB_CLASSES};
use super::interference::{Occupants, Occupant, InterferenceTable, GpuPortion};

/// Memory of a device.
pub const GPU_MEMORY_MIB: u64 = 143_771;

/// A device for each.
pub fn whole_gpus(jobs: &[JobClassIndex]) -> Vec<Occupants> {
    jobs.iter().map(|job| vec![Occupant { job: *job, part: GpuPortion::Whole }]).collect()
}

/// Shares are added up and nobody keeps to them: by turns.
pub fn time_sliced(jobs: &[JobClassIndex]) -> Vec<Occupants> {
    first_fit(jobs, GpuPortion::TimeSlice)
}

/// Shares are added up and nobody keeps to them: by MPS without limits.
pub fn mps_unlimited(jobs: &[JobClassIndex]) -> Vec<Occupants> {
    first_fit(jobs, GpuPortion::MpsUnlimited)
}

fn first_fit(jobs: &[JobClassIndex], part: GpuPortion) -> Vec<Occupants> {
    let mut devices: Vec<Occupants> = Vec::new();
    for job in jobs {
        let guest = Occupant { job: *job, part };
        match devices.iter_mut().find(|device| has_capacity(device, *job)) {
            Some(device) => device.push(guest),
            None => devices.push(vec![guest]),
        }
    }
    devices
}

fn has_capacity(device: &Occupants, job: JobClassIndex) -> bool {
    let all = || device.iter().map(|guest| guest.job).chain([job]);
    all().map(|job| JOB_CLASSES[job].compute_milli).sum::<u32>() <= 1_000
        && all().map(|job| JOB_CLASSES[job].memory_mib).sum::<u64>() <= GPU_MEMORY_MIB
}

/// Every device cut in the same way, the best there is for these jobs: with the fewest beyond what they tolerate, then
/// with the fewest devices. With what it is called.
pub fn best_mig_layout(jobs: &[JobClassIndex], pairs: &InterferenceTable) -> (String, Vec<Occupants>) {
    let layouts: Vec<Vec<&'static Profile>> = H200_141GB.layouts().iter().filter_map(plain_profiles).collect();
    let seated = layouts.into_iter().map(|layout| {
        let devices = StaticMigPlacer { layout: &layout, jobs, pairs }.place_jobs();
        let beyond = devices.iter().flatten().filter(|guest| !is_within_tolerance(**guest, pairs)).count();
        let names: Vec<&str> = layout.iter().map(|profile| profile.name).collect();
        (beyond, devices.len(), names.join(" + "), devices)
    });
    let best = seated.min_by(|one, other| (one.0, one.1, &one.2).cmp(&(other.0, other.1, &other.2)));
    best.map(|(_, _, names, devices)| (names, devices)).unwrap_or_default()
}

/// The profiles of a layout, the smallest first, if there is nothing special among them.
fn plain_profiles(layout: &Layout) -> Option<Vec<&'static Profile>> {
    let profile = |index: u8| H200_141GB.profiles.get(usize::from(index)).filter(|one| one.is_plain());
    let mut profiles: Vec<&Profile> =
        layout.instances().iter().map(|one| profile(one.profile)).collect::<Option<_>>()?;
    profiles.sort_by_key(|one| (one.multiprocessors, one.memory_slices));
    Some(profiles)
}

fn is_within_tolerance(guest: Occupant, pairs: &InterferenceTable) -> bool {
    pairs.slowdown(&[guest], 0) <= JOB_CLASSES[guest.job].slowdown_max
}

/// Jobs on devices that are all cut alike.
struct StaticMigPlacer<'a> {
    /// The smallest first.
    layout: &'a [&'static Profile],
    jobs: &'a [JobClassIndex],
    pairs: &'a InterferenceTable,
}

impl StaticMigPlacer<'_> {
    /// Each job in the smallest instance that would do for it, on a device in use if one is free there.
    fn place_jobs(&self) -> Vec<Occupants> {
        let (mut devices, mut free): (Vec<Occupants>, Vec<(usize, &Profile)>) = (Vec::new(), Vec::new());
        for job in self.jobs {
            let would_do = self.suitable_profiles(*job);
            let suits = |(_, profile): &&(usize, &Profile)| would_do.contains(profile);
            if !free.iter().any(|one| suits(&one)) {
                free.extend(self.layout.iter().map(|profile| (devices.len(), *profile)));
                devices.push(Vec::new());
            }
            let size =
                |(at, (device, one)): &(usize, &(usize, &Profile))| (one.multiprocessors, *device, *at);
            let taken = free.iter().enumerate().filter(|(_, one)| suits(one)).min_by_key(size);
            let Some((at, (device, profile))) = taken.map(|(at, (device, one))| (at, (*device, *one))) else {
                continue;
            };
            free.remove(at);
            devices[device].push(Occupant { job: *job, part: GpuPortion::Instance(profile) });
        }
        devices
    }

    /// The instances in which a job is within what it tolerates; if there are none, the richest.
    fn suitable_profiles(&self, job: JobClassIndex) -> Vec<&'static Profile> {
        let large = |one: &&&'static Profile| one.memory_mib >= JOB_CLASSES[job].memory_mib;
        let large: Vec<&'static Profile> = self.layout.iter().filter(large).copied().collect();
        let fine = |one: &&&'static Profile| is_within_tolerance(Occupant { job, part: GpuPortion::Instance(one) }, self.pairs);
        let fine: Vec<&'static Profile> = large.iter().filter(fine).copied().collect();
        if fine.is_empty() { large.last().copied().into_iter().collect() } else { fine }
    }
}
