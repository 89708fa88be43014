//! MIG as arithmetic: which instances a GPU may be cut into, and where each may lie.
//!
//! A device has a row of memory slices and a number of compute slices. A profile takes so many of each, and may begin
//! only at certain places of the row. Everything else follows: what is legal, what still fits, where an instance
//! spoils least. Nothing here cuts a device: agents do, and planners ask here before they want it.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

pub mod tables;

/// What a device may be cut into.
#[derive(Debug, PartialEq, Eq)]
pub struct MigTable {
    /// Places in the row, at most 16.
    pub memory_slices: u8,
    /// Compute slices that all instances share.
    pub compute_slices: u8,
    /// What an instance may be, from the smallest to the whole device.
    pub profiles: &'static [Profile],
}

/// A kind of instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// As the driver spells it: `1g.18gb`.
    pub name: &'static str,
    /// As `nvidia-smi mig -lgip` numbers it.
    pub nvml_id: u8,
    /// Compute slices it takes.
    pub compute_slices: u8,
    /// Places of the row it takes.
    pub memory_slices: u8,
    /// What a job can use of its memory.
    pub memory_mib: u64,
    /// Multiprocessors it has.
    pub multiprocessors: u16,
    /// Where it may begin.
    pub starts: &'static [u8],
    /// How many a device can have.
    pub instances_max: u8,
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// Where it begins. First, so that instances sort as they lie.
    pub start: u8,
    /// What it is: an index into the profiles of its table.
    pub profile: u8,
}

/// What a device is cut into, in the order in which it lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Instance>", into = "Vec<Instance>")]
pub struct Layout(Vec<Instance>);

/// Why a device cannot be cut like that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IllegalLayout {
    /// The table of the device has no such profile.
    #[error("the device has no profile number {profile}")]
    UnknownProfile {
        /// Its index.
        profile: u8,
    },
    /// Instances of this profile begin elsewhere.
    #[error("`{profile}` cannot begin at {start}")]
    StartNotAllowed {
        /// Which profile.
        profile: &'static str,
        /// Where it was to begin.
        start: u8,
    },
    /// Two instances want the same memory.
    #[error("`{first}` and `{second}` overlap")]
    Overlap {
        /// The one that begins first.
        first: &'static str,
        /// The one that begins before the first has ended.
        second: &'static str,
    },
    /// The driver makes fewer of this profile.
    #[error("{count} instances of `{profile}`, a device has at most {most}")]
    TooManyInstances {
        /// Which profile.
        profile: &'static str,
        /// How many were to be there.
        count: usize,
        /// How many there can be.
        most: u8,
    },
    /// The instances together want more than the device has.
    #[error("{wanted} compute slices, the device has {most}")]
    TooManyComputeSlices {
        /// How many they want together.
        wanted: u32,
        /// How many there are.
        most: u8,
    },
    /// A device has one set of media engines to give away.
    #[error("two instances with media extensions, a device has at most one")]
    TwoMediaExtensions,
}

impl Profile {
    /// Neither with media extensions nor otherwise special: what a job gets that asks for memory and compute.
    pub fn is_plain(&self) -> bool {
        !self.name.contains(['+', '-'])
    }

    fn has_media_extensions(&self) -> bool {
        self.name.ends_with("+me")
    }

    /// The places of the row it takes, as bits.
    fn span(&self, start: u8) -> u32 {
        ((1 << self.memory_slices) - 1) << start
    }
}

impl Layout {
    /// What lies on the device, by place.
    pub fn instances(&self) -> &[Instance] {
        &self.0
    }

    /// This and one more.
    pub fn with(&self, instance: Instance) -> Layout {
        let mut instances = self.0.clone();
        let place = instances.partition_point(|each| *each <= instance);
        instances.insert(place, instance);
        Layout(instances)
    }

    /// Whether all of another layout is in this one.
    pub fn contains(&self, other: &Layout) -> bool {
        other.0.iter().all(|instance| self.0.binary_search(instance).is_ok())
    }
}

impl From<Vec<Instance>> for Layout {
    fn from(mut instances: Vec<Instance>) -> Layout {
        instances.sort_unstable();
        Layout(instances)
    }
}

impl FromIterator<Instance> for Layout {
    fn from_iter<I: IntoIterator<Item = Instance>>(instances: I) -> Layout {
        instances.into_iter().collect::<Vec<_>>().into()
    }
}

impl From<Layout> for Vec<Instance> {
    fn from(layout: Layout) -> Vec<Instance> {
        layout.0
    }
}

impl MigTable {
    /// The profile of this name, `MIG` before it or not.
    pub fn profile(&self, name: &str) -> Option<u8> {
        let name = name.strip_prefix("MIG ").unwrap_or(name);
        self.profiles.iter().position(|profile| profile.name == name).map(|index| index as u8)
    }

    /// Whether a device can be cut like this.
    pub fn is_legal(&self, layout: &Layout) -> Result<(), IllegalLayout> {
        self.check_places(layout)?;
        self.check_counts(layout)
    }

    /// Where one more of a profile may begin, beside what is there.
    ///
    /// The layout is taken to be legal.
    pub fn free_starts(&self, layout: &Layout, profile: u8) -> impl Iterator<Item = u8> + use<> {
        let wanted =
            self.profiles.get(usize::from(profile)).filter(|wanted| self.may_have_more(layout, wanted));
        let taken = self.instances(layout).fold(0, |taken, (start, each)| taken | each.span(start));
        let free = move |wanted: &'static Profile| {
            wanted.starts.iter().copied().filter(move |start| wanted.span(*start) & taken == 0)
        };
        wanted.into_iter().flat_map(free)
    }

    /// Where one more of a profile spoils least: where most, weighed by its memory, can still be placed afterwards.
    /// The lowest of several that are equally good.
    pub fn best_start(&self, layout: &Layout, profile: u8) -> Option<u8> {
        let after = |start| self.possibilities(&layout.with(Instance { start, profile }));
        self.free_starts(layout, profile).max_by_key(|start| (after(*start), Reverse(*start)))
    }

    /// The smallest plain profile, by compute and then by memory, that gives at least so much of both.
    pub fn smallest_profile(&self, memory_mib: u64, compute_milli: u32) -> Option<u8> {
        let enough = |index: &u8| {
            let profile = &self.profiles[usize::from(*index)];
            profile.is_plain()
                && profile.memory_mib >= memory_mib
                && self.compute_milli(*index) >= compute_milli
        };
        let size = |index: &u8| {
            let profile = &self.profiles[usize::from(*index)];
            (profile.compute_slices, profile.memory_slices, *index)
        };
        (0..self.profiles.len() as u8).filter(enough).min_by_key(size)
    }

    /// What share of the device a profile computes with, in thousandths of what its largest profile has.
    ///
    /// By multiprocessors, as slices are not equally rich: `1g.35gb` of an H200 has more than half as many again as
    /// `1g.18gb`. Rounded up, so that who asks for a seventh gets a seventh. Nothing for a profile that is not there.
    pub fn compute_milli(&self, profile: u8) -> u32 {
        let (own, all) = self.multiprocessors(profile);
        (own * 1_000).div_ceil(all)
    }

    /// Thousandths of the device that an instance of a profile is counted as. Rounded down, so that the instances of a
    /// device are never counted as more than the device.
    pub fn held_milli(&self, profile: u8) -> u32 {
        let (own, all) = self.multiprocessors(profile);
        own * 1_000 / all
    }

    /// The multiprocessors of a profile, none for one that is not there, and of the largest profile.
    fn multiprocessors(&self, profile: u8) -> (u32, u32) {
        let own = self.profiles.get(usize::from(profile)).map_or(0, |profile| profile.multiprocessors);
        let all = self.profiles.iter().map(|profile| profile.multiprocessors).max().unwrap_or(0);
        (u32::from(own), u32::from(all.max(1)))
    }

    /// Every legal layout to which nothing can be added, in order.
    pub fn layouts(&self) -> Vec<Layout> {
        let mut found = Vec::new();
        self.extend(&Layout::default(), &mut |layout| {
            if self.is_full(layout) {
                found.push(layout.clone());
            }
        });
        found.sort_unstable();
        found
    }

    /// What is kept with as many more of each profile as are wanted; where several ways are legal, the one that
    /// leaves most possibilities, the lowest of several. Nothing where no way is.
    pub fn layout_for(&self, keep: &Layout, wanted: &[(u8, u32)]) -> Option<Layout> {
        self.is_legal(keep).ok()?;
        let count = wanted.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
        if count > u64::from(self.memory_slices) {
            return None;
        }
        let more: Vec<u8> =
            wanted.iter().flat_map(|(profile, count)| (0..*count).map(|_| *profile)).collect();
        let mut best: Option<(u32, Reverse<Layout>)> = None;
        self.place_all(keep, None, &more, &mut |layout| {
            let found = (self.possibilities(&layout), Reverse(layout));
            best = best.take().max(Some(found));
        });
        best.map(|(_, Reverse(layout))| layout)
    }

    fn check_places(&self, layout: &Layout) -> Result<(), IllegalLayout> {
        let mut before: Option<(u32, &'static str)> = None;
        for Instance { profile, start } in layout.instances() {
            let known = self.profiles.get(usize::from(*profile));
            let known = known.ok_or(IllegalLayout::UnknownProfile { profile: *profile })?;
            if !known.starts.contains(start) {
                return Err(IllegalLayout::StartNotAllowed { profile: known.name, start: *start });
            }
            // They lie in order, and apart so far: only the one before can be in the way.
            let end = u32::from(*start) + u32::from(known.memory_slices);
            match before {
                Some((reach, first)) if u32::from(*start) < reach => {
                    return Err(IllegalLayout::Overlap { first, second: known.name });
                }
                _ => before = Some((end, known.name)),
            }
        }
        Ok(())
    }

    fn check_counts(&self, layout: &Layout) -> Result<(), IllegalLayout> {
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

    /// Whether the counts allow one more, wherever it lies.
    fn may_have_more(&self, layout: &Layout, wanted: &Profile) -> bool {
        let media_taken = || self.instances(layout).any(|(_, each)| each.has_media_extensions());
        self.count(layout, wanted) < usize::from(wanted.instances_max)
            && self.compute_wanted(layout) + u32::from(wanted.compute_slices)
                <= u32::from(self.compute_slices)
            && !(wanted.has_media_extensions() && media_taken())
    }

    fn instances<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (u8, &'static Profile)> + 'a {
        let known = |each: &Instance| Some((each.start, self.profiles.get(usize::from(each.profile))?));
        layout.instances().iter().filter_map(known)
    }

    fn count(&self, layout: &Layout, profile: &Profile) -> usize {
        self.instances(layout).filter(|(_, each)| each.name == profile.name).count()
    }

    fn compute_wanted(&self, layout: &Layout) -> u32 {
        self.instances(layout).map(|(_, each)| u32::from(each.compute_slices)).sum()
    }

    /// In how many places something plain could still begin, each weighed by the memory it would take.
    fn possibilities(&self, layout: &Layout) -> u32 {
        let plain = (0..).zip(self.profiles).filter(|(_, profile)| profile.is_plain());
        let weighed = plain.map(|(index, profile)| {
            u32::from(profile.memory_slices) * self.free_starts(layout, index).count() as u32
        });
        weighed.sum()
    }

    fn is_full(&self, layout: &Layout) -> bool {
        (0..self.profiles.len() as u8).all(|profile| self.free_starts(layout, profile).next().is_none())
    }

    /// Every legal layout that begins like this one, each once: instances are added behind the last.
    fn extend(&self, layout: &Layout, seen: &mut impl FnMut(&Layout)) {
        seen(layout);
        for profile in 0..self.profiles.len() as u8 {
            for start in self.free_starts(layout, profile) {
                let instance = Instance { start, profile };
                if layout.instances().last().is_none_or(|last| *last < instance) {
                    self.extend(&layout.with(instance), seen);
                }
            }
        }
    }

    /// Every way to place some more. Equals follow each other and are placed in order, so no way is seen twice.
    fn place_all(&self, layout: &Layout, last: Option<Instance>, more: &[u8], seen: &mut impl FnMut(Layout)) {
        let Some((profile, rest)) = more.split_first() else { return seen(layout.clone()) };
        let from = last.filter(|last| last.profile == *profile).map_or(0, |last| last.start);
        for start in self.free_starts(layout, *profile).filter(|start| *start >= from) {
            let instance = Instance { start, profile: *profile };
            self.place_all(&layout.with(instance), Some(instance), rest, seen);
        }
    }
}

#[cfg(test)]
mod tests;
