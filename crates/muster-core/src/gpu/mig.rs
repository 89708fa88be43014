//! MIG geometry: which instances a GPU can be partitioned into, and at which memory slices each may start.
//!
//! A device has a row of memory slices and a number of compute slices. A profile takes some of both and may start only
//! at certain memory slices. From this table follow the legal layouts, the profiles that still fit, and the start that
//! leaves most further placements possible. Nothing here changes a device: agents partition it, and the planner checks
//! here what is possible.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

pub mod tables;

/// The MIG profiles of a device.
#[derive(Debug, PartialEq, Eq)]
pub struct MigTable {
    /// Length of the row of memory slices, at most 16.
    pub memory_slices: u8,
    /// Compute slices of the device.
    pub compute_slices: u8,
    /// From the smallest to the whole device.
    pub profiles: &'static [Profile],
}

/// A MIG profile: the size of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// The driver's spelling: `1g.18gb`.
    pub name: &'static str,
    /// The id that `nvidia-smi mig -lgip` prints.
    pub nvml_id: u8,
    pub compute_slices: u8,
    pub memory_slices: u8,
    /// Memory that a job can use.
    pub memory_mib: u64,
    pub multiprocessors: u16,
    /// Memory slices at which it may start.
    pub starts: &'static [u8],
    /// Most instances of this profile on one device.
    pub instances_max: u8,
}

/// A MIG instance on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// First memory slice. The first field, so that instances sort by position.
    pub start: u8,
    /// Index into `MigTable::profiles`.
    pub profile: u8,
}

/// The instances of a device, sorted by position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Instance>", into = "Vec<Instance>")]
pub struct MigLayout(Vec<Instance>);

/// Why a layout is not possible on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IllegalLayout {
    /// The table of the device has no such profile.
    #[error("the device has no profile number {profile}")]
    UnknownProfile { profile: u8 },
    /// The profile may not start at this memory slice.
    #[error("`{profile}` cannot begin at {start}")]
    StartNotAllowed { profile: &'static str, start: u8 },
    /// Two instances use the same memory slices.
    #[error("`{first}` and `{second}` overlap")]
    Overlap {
        /// Profile of the instance with the lower start.
        first: &'static str,
        /// Profile of the instance that starts before the first one ends.
        second: &'static str,
    },
    /// More instances of a profile than the driver creates.
    #[error("{count} instances of `{profile}`, a device has at most {most}")]
    TooManyInstances { profile: &'static str, count: usize, most: u8 },
    /// The instances together need more compute slices than the device has.
    #[error("{wanted} compute slices, the device has {most}")]
    TooManyComputeSlices { wanted: u32, most: u8 },
    /// More than one instance with media extensions: a device has one set of media engines.
    #[error("two instances with media extensions, a device has at most one")]
    TwoMediaExtensions,
}

impl Profile {
    /// True without media extensions or other suffixes: a profile for jobs that ask for memory and compute only.
    pub fn is_plain(&self) -> bool {
        !self.name.contains(['+', '-'])
    }

    fn has_media_extensions(&self) -> bool {
        self.name.ends_with("+me")
    }

    /// The memory slices of an instance at `start`, as a bit mask.
    fn span(&self, start: u8) -> u32 {
        ((1 << self.memory_slices) - 1) << start
    }
}

impl MigLayout {
    /// The instances, sorted by position.
    pub fn instances(&self) -> &[Instance] {
        &self.0
    }

    /// The layout with one more instance.
    pub fn with(&self, instance: Instance) -> MigLayout {
        let mut instances = self.0.clone();
        let index = instances.partition_point(|each| *each <= instance);
        instances.insert(index, instance);
        MigLayout(instances)
    }

    /// True if every instance of `other` is in this layout.
    pub fn contains(&self, other: &MigLayout) -> bool {
        other.0.iter().all(|instance| self.0.binary_search(instance).is_ok())
    }
}

impl From<Vec<Instance>> for MigLayout {
    fn from(mut instances: Vec<Instance>) -> MigLayout {
        instances.sort_unstable();
        MigLayout(instances)
    }
}

impl FromIterator<Instance> for MigLayout {
    fn from_iter<I: IntoIterator<Item = Instance>>(instances: I) -> MigLayout {
        instances.into_iter().collect::<Vec<_>>().into()
    }
}

impl From<MigLayout> for Vec<Instance> {
    fn from(layout: MigLayout) -> Vec<Instance> {
        layout.0
    }
}

impl MigTable {
    /// The index of the profile with this name; a prefix `MIG` is ignored.
    pub fn profile(&self, name: &str) -> Option<u8> {
        let name = name.strip_prefix("MIG ").unwrap_or(name);
        self.profiles.iter().position(|profile| profile.name == name).map(|index| index as u8)
    }

    /// Checks that a layout is possible on the device.
    pub fn is_legal(&self, layout: &MigLayout) -> Result<(), IllegalLayout> {
        self.check_places(layout)?;
        self.check_counts(layout)
    }

    /// The starts at which one more instance of a profile fits into a layout. The layout must be legal.
    pub fn free_starts(&self, layout: &MigLayout, profile: u8) -> impl Iterator<Item = u8> + use<> {
        let wanted = self.profiles.get(usize::from(profile)).filter(|wanted| self.may_have_more(layout, wanted));
        let taken = self.instances(layout).fold(0, |taken, (start, each)| taken | each.span(start));
        let free = move |wanted: &'static Profile| {
            wanted.starts.iter().copied().filter(move |start| wanted.span(*start) & taken == 0)
        };
        wanted.into_iter().flat_map(free)
    }

    /// The best start for one more instance of a profile: the one that leaves most further placements possible,
    /// weighted by memory. Ties go to the lowest start.
    pub fn best_start(&self, layout: &MigLayout, profile: u8) -> Option<u8> {
        let after = |start| self.possibilities(&layout.with(Instance { start, profile }));
        self.free_starts(layout, profile).max_by_key(|start| (after(*start), Reverse(*start)))
    }

    /// The smallest plain profile, by compute and then by memory, with at least this much memory and compute.
    pub fn smallest_profile(&self, memory_mib: u64, compute_milli: u32) -> Option<u8> {
        let enough = |index: &u8| {
            let profile = &self.profiles[usize::from(*index)];
            profile.is_plain() && profile.memory_mib >= memory_mib && self.compute_milli(*index) >= compute_milli
        };
        let size = |index: &u8| {
            let profile = &self.profiles[usize::from(*index)];
            (profile.compute_slices, profile.memory_slices, *index)
        };
        (0..self.profiles.len() as u8).filter(enough).min_by_key(size)
    }

    /// The compute of a profile, in thousandths of the largest profile. 0 for an unknown profile.
    ///
    /// It counts multiprocessors, because slices differ in size: `1g.35gb` of an H200 has over half as many again as
    /// `1g.18gb`. It is rounded up, so that a request for a seventh is met by a seventh.
    pub fn compute_milli(&self, profile: u8) -> u32 {
        let (own, all) = self.multiprocessors(profile);
        (own * 1_000).div_ceil(all)
    }

    /// Thousandths of the device that an instance of a profile counts as held. Rounded down, so that the instances of a
    /// device never add up to more than the device.
    pub fn held_milli(&self, profile: u8) -> u32 {
        let (own, all) = self.multiprocessors(profile);
        own * 1_000 / all
    }

    /// The multiprocessors of a profile, 0 if it is unknown, and of the largest profile.
    fn multiprocessors(&self, profile: u8) -> (u32, u32) {
        let own = self.profiles.get(usize::from(profile)).map_or(0, |profile| profile.multiprocessors);
        let all = self.profiles.iter().map(|profile| profile.multiprocessors).max().unwrap_or(0);
        (u32::from(own), u32::from(all.max(1)))
    }

    /// Every maximal legal layout: no instance can be added. Sorted.
    pub fn layouts(&self) -> Vec<MigLayout> {
        let mut found = Vec::new();
        self.extend(&MigLayout::default(), &mut |layout| {
            if self.is_full(layout) {
                found.push(layout.clone());
            }
        });
        found.sort_unstable();
        found
    }

    /// The layout `keep` plus the wanted number of instances of each profile. Of several legal layouts, the one that
    /// leaves most further placements possible, ties to the lowest. `None` if there is none.
    pub fn layout_for(&self, keep: &MigLayout, wanted: &[(u8, u32)]) -> Option<MigLayout> {
        self.is_legal(keep).ok()?;
        let count = wanted.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
        if count > u64::from(self.memory_slices) {
            return None;
        }
        let more: Vec<u8> = wanted.iter().flat_map(|(profile, count)| (0..*count).map(|_| *profile)).collect();
        let mut best: Option<(u32, Reverse<MigLayout>)> = None;
        self.place_all(keep, None, &more, &mut |layout| {
            let found = (self.possibilities(&layout), Reverse(layout));
            best = best.take().max(Some(found));
        });
        best.map(|(_, Reverse(layout))| layout)
    }

    fn check_places(&self, layout: &MigLayout) -> Result<(), IllegalLayout> {
        let mut before: Option<(u32, &'static str)> = None;
        for Instance { profile, start } in layout.instances() {
            let known = self.profiles.get(usize::from(*profile));
            let known = known.ok_or(IllegalLayout::UnknownProfile { profile: *profile })?;
            if !known.starts.contains(start) {
                return Err(IllegalLayout::StartNotAllowed { profile: known.name, start: *start });
            }
            // Instances are sorted, and the earlier ones do not overlap: only the previous one can overlap this one.
            let end = u32::from(*start) + u32::from(known.memory_slices);
            match before {
                Some((previous_end, first)) if u32::from(*start) < previous_end => {
                    return Err(IllegalLayout::Overlap { first, second: known.name });
                }
                _ => before = Some((end, known.name)),
            }
        }
        Ok(())
    }

    fn check_counts(&self, layout: &MigLayout) -> Result<(), IllegalLayout> {
        for profile in self.profiles {
            let count = self.count(layout, profile);
            if count > usize::from(profile.instances_max) {
                let most = profile.instances_max;
                return Err(IllegalLayout::TooManyInstances { profile: profile.name, count, most });
            }
        }
        let wanted = self.compute_wanted(layout);
        if wanted > u32::from(self.compute_slices) {
            return Err(IllegalLayout::TooManyComputeSlices { wanted, most: self.compute_slices });
        }
        match self.instances(layout).filter(|(_, each)| each.has_media_extensions()).count() {
            0 | 1 => Ok(()),
            _ => Err(IllegalLayout::TwoMediaExtensions),
        }
    }

    /// True if the counts allow one more instance, at any start.
    fn may_have_more(&self, layout: &MigLayout, wanted: &Profile) -> bool {
        let media_taken = || self.instances(layout).any(|(_, each)| each.has_media_extensions());
        self.count(layout, wanted) < usize::from(wanted.instances_max)
            && self.compute_wanted(layout) + u32::from(wanted.compute_slices) <= u32::from(self.compute_slices)
            && !(wanted.has_media_extensions() && media_taken())
    }

    fn instances<'a>(&'a self, layout: &'a MigLayout) -> impl Iterator<Item = (u8, &'static Profile)> + 'a {
        let known = |each: &Instance| Some((each.start, self.profiles.get(usize::from(each.profile))?));
        layout.instances().iter().filter_map(known)
    }

    fn count(&self, layout: &MigLayout, profile: &Profile) -> usize {
        self.instances(layout).filter(|(_, each)| each.name == profile.name).count()
    }

    fn compute_wanted(&self, layout: &MigLayout) -> u32 {
        self.instances(layout).map(|(_, each)| u32::from(each.compute_slices)).sum()
    }

    /// The number of placements of plain profiles that are still possible, weighted by memory slices.
    fn possibilities(&self, layout: &MigLayout) -> u32 {
        let plain = (0..).zip(self.profiles).filter(|(_, profile)| profile.is_plain());
        let weighted = plain
            .map(|(index, profile)| u32::from(profile.memory_slices) * self.free_starts(layout, index).count() as u32);
        weighted.sum()
    }

    fn is_full(&self, layout: &MigLayout) -> bool {
        (0..self.profiles.len() as u8).all(|profile| self.free_starts(layout, profile).next().is_none())
    }

    /// Visits every legal layout that extends this one, each once: instances are only added after the last.
    fn extend(&self, layout: &MigLayout, visit: &mut impl FnMut(&MigLayout)) {
        visit(layout);
        for profile in 0..self.profiles.len() as u8 {
            for start in self.free_starts(layout, profile) {
                let instance = Instance { start, profile };
                if layout.instances().last().is_none_or(|last| *last < instance) {
                    self.extend(&layout.with(instance), visit);
                }
            }
        }
    }

    /// Visits every way to place further instances. Equal profiles are adjacent and placed in ascending order of start,
    /// so no layout is visited twice.
    fn place_all(&self, layout: &MigLayout, last: Option<Instance>, more: &[u8], visit: &mut impl FnMut(MigLayout)) {
        let Some((profile, rest)) = more.split_first() else { return visit(layout.clone()) };
        let from = last.filter(|last| last.profile == *profile).map_or(0, |last| last.start);
        for start in self.free_starts(layout, *profile).filter(|start| *start >= from) {
            let instance = Instance { start, profile: *profile };
            self.place_all(&layout.with(instance), Some(instance), rest, visit);
        }
    }
}

#[cfg(test)]
mod tests;
