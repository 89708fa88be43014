//! Manners of seating jobs that know nothing of the product. Jobs are seated in the order in which they come, on the
//! first device that has room.

use muster_core::mig::tables::H200_141GB;
use muster_core::mig::{Layout, Profile};

use super::demand::{Job, TYPES};
use super::harm::{Device, Guest, Pairs, Part};

/// Memory of a device.
pub const DEVICE_MIB: u64 = 143_771;

/// A device for each.
pub fn whole(jobs: &[Job]) -> Vec<Device> {
    jobs.iter().map(|job| vec![Guest { job: *job, part: Part::Whole }]).collect()
}

/// Shares are added up and nobody keeps to them: by turns.
pub fn in_turns(jobs: &[Job]) -> Vec<Device> {
    first_fit(jobs, Part::Turns)
}

/// Shares are added up and nobody keeps to them: by MPS without limits.
pub fn side_by_side(jobs: &[Job]) -> Vec<Device> {
    first_fit(jobs, Part::Unlimited)
}

fn first_fit(jobs: &[Job], part: Part) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for job in jobs {
        let guest = Guest { job: *job, part };
        match devices.iter_mut().find(|device| has_room(device, *job)) {
            Some(device) => device.push(guest),
            None => devices.push(vec![guest]),
        }
    }
    devices
}

fn has_room(device: &Device, job: Job) -> bool {
    let all = || device.iter().map(|guest| guest.job).chain([job]);
    all().map(|job| TYPES[job].compute_milli).sum::<u32>() <= 1_000
        && all().map(|job| TYPES[job].memory_mib).sum::<u64>() <= DEVICE_MIB
}

/// Every device cut in the same way, the best there is for these jobs: with the fewest beyond what they tolerate, then
/// with the fewest devices. With what it is called.
pub fn partitioned(jobs: &[Job], pairs: &Pairs) -> (String, Vec<Device>) {
    let layouts: Vec<Vec<&'static Profile>> = H200_141GB.layouts().iter().filter_map(plain).collect();
    let seated = layouts.into_iter().map(|layout| {
        let devices = Cut { layout: &layout, jobs, pairs }.seated();
        let beyond = devices.iter().flatten().filter(|guest| !tolerates(**guest, pairs)).count();
        let names: Vec<&str> = layout.iter().map(|profile| profile.name).collect();
        (beyond, devices.len(), names.join(" + "), devices)
    });
    let best = seated.min_by(|one, other| (one.0, one.1, &one.2).cmp(&(other.0, other.1, &other.2)));
    best.map(|(_, _, names, devices)| (names, devices)).unwrap_or_default()
}

/// The profiles of a layout, the smallest first, if there is nothing special among them.
fn plain(layout: &Layout) -> Option<Vec<&'static Profile>> {
    let profile = |index: u8| H200_141GB.profiles.get(usize::from(index)).filter(|one| one.is_plain());
    let mut profiles: Vec<&Profile> =
        layout.instances().iter().map(|one| profile(one.profile)).collect::<Option<_>>()?;
    profiles.sort_by_key(|one| (one.multiprocessors, one.memory_slices));
    Some(profiles)
}

fn tolerates(guest: Guest, pairs: &Pairs) -> bool {
    pairs.slowdown(&[guest], 0) <= TYPES[guest.job].tolerance
}

/// Jobs on devices that are all cut alike.
struct Cut<'a> {
    /// The smallest first.
    layout: &'a [&'static Profile],
    jobs: &'a [Job],
    pairs: &'a Pairs,
}

impl Cut<'_> {
    /// Each job in the smallest instance that would do for it, on a device in use if one is free there.
    fn seated(&self) -> Vec<Device> {
        let (mut devices, mut free): (Vec<Device>, Vec<(usize, &Profile)>) = (Vec::new(), Vec::new());
        for job in self.jobs {
            let would_do = self.would_do(*job);
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
            devices[device].push(Guest { job: *job, part: Part::Instance(profile) });
        }
        devices
    }

    /// The instances in which a job is within what it tolerates; if there are none, the richest.
    fn would_do(&self, job: Job) -> Vec<&'static Profile> {
        let large = |one: &&&'static Profile| one.memory_mib >= TYPES[job].memory_mib;
        let large: Vec<&'static Profile> = self.layout.iter().filter(large).copied().collect();
        let fine = |one: &&&'static Profile| tolerates(Guest { job, part: Part::Instance(one) }, self.pairs);
        let fine: Vec<&'static Profile> = large.iter().filter(fine).copied().collect();
        if fine.is_empty() { large.last().copied().into_iter().collect() } else { fine }
    }
}
