//! Phase cut: idle devices that should be partitioned otherwise, because jobs wait that find no instance, or no whole
//! device, as things are.
//!
//! A proposal needs demand that has lasted: the job waits longer than a moment, nobody holds anything of the device, no
//! place in the future is on its node, and it was not cut lately. So devices are not cut back and forth with every job
//! that comes and goes, and never under one that runs.

use crate::capacity::Free;
use crate::ids::{GpuId, JobId, NodeId};
use crate::job::Resources;
use crate::mig::{Layout, MigTable};
use crate::node::Node;
use crate::partition::{MigInstance, table_of};
use crate::plan::admit;
use crate::plan::draft::Draft;
use crate::plan::order::Turn;
use crate::queue::{Bucket, waiting_since};
use crate::settings::Repartition;
use crate::share::PARTITIONED_GPUS_MAX;
use crate::{model, node::GpuFacts};
use serde::{Deserialize, Serialize};

/// Most devices that one round proposes to cut.
const CUTS_MAX: usize = 16;

/// A device that should be partitioned otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Which.
    pub gpu: GpuId,
    /// Into instances of these profiles; none to make it whole again.
    pub profiles: Vec<String>,
    /// For the first of those who wait for it.
    pub job: JobId,
}

/// Propose to cut idle devices for those who wait.
pub(super) fn propose(draft: &mut Draft) {
    if draft.state.settings.repartition == Repartition::Off {
        return;
    }
    let blocked = std::mem::take(&mut draft.blocked);
    let wants: Vec<Vec<Want>> = blocked.iter().map(|turn| wants(draft, turn)).collect();
    let mut wants: Vec<Want> = wants.into_iter().flatten().collect();
    draft.blocked = blocked;
    if wants.is_empty() {
        return;
    }
    let idle: Vec<Idle> = draft.capacity.nodes().flat_map(|(node, _)| idle_on(draft, node)).collect();
    let mut cuts = Vec::new();
    for idle in &idle {
        if cuts.len() < CUTS_MAX
            && let Some(cut) = idle.cut_for(&mut wants, &|want| may_have(draft, want, idle))
        {
            cuts.push(cut);
        }
    }
    // Only simulated devices can be cut at once; for the others it stays a proposal.
    let may_be_done = |cut: &&Cut| {
        let simulated = draft.state.nodes.get(&cut.gpu.node).is_some_and(|node| node.facts.simulated);
        simulated && draft.state.settings.repartition == Repartition::Apply
    };
    draft.plan.cuts = cuts.iter().filter(may_be_done).cloned().collect();
    draft.cuts = cuts;
}

/// Whether someone could have a device if it were cut: their node, their pool, and the limits of their tenant allow it.
fn may_have(draft: &Draft, want: &Want, idle: &Idle) -> bool {
    let shape = &want.bucket.shape;
    let Some(filed) = draft.capacity.filed(&idle.gpu.node) else { return false };
    let more = |model: &str| match model::matches(model, &idle.facts.model) {
        true => want.each.demand().gpu_milli,
        false => 0,
    };
    filed.kind.admits(shape)
        && filed.kind.gives_out(idle.gpu.index, shape.pool.as_deref())
        && draft.models.over(&want.bucket.tenant, more).is_none()
}

/// Someone who waits for an instance, or for whole devices on one node.
struct Want<'a> {
    job: JobId,
    bucket: &'a Bucket,
    each: &'a Resources,
    /// Whole devices that it wants on one node; none if it wants an instance.
    whole: u32,
    /// The node on which devices are made whole for it, and how many it still lacks there.
    node: Option<(NodeId, u32)>,
}

/// What the jobs of a bucket want, each by itself, if it is for want of room that they wait.
fn wants<'a>(draft: &mut Draft<'a>, turn: &Turn<'a>) -> Vec<Want<'a>> {
    let [(1, each)] = &turn.bucket.shape.groups[..] else { return Vec::new() };
    let ask = draft.ask(turn.bucket);
    if !admit::blockers(draft, (turn.bucket, turn.word), &ask).is_empty() {
        return Vec::new();
    }
    let lasts = |job: &JobId| {
        let since = draft.state.jobs.get(job).and_then(waiting_since);
        since.is_some_and(|since| draft.now.since(since) >= draft.state.settings.repartition_after_ms)
    };
    let jobs = draft.state.queue.bucket(turn.bucket).into_iter().flatten().map(|(_, job)| *job);
    let jobs = jobs.filter(|job| *job >= turn.job).filter(lasts).take(CUTS_MAX * 8);
    let bucket = turn.bucket;
    jobs.map(|job| Want { job, bucket, each, whole: each.whole_gpus(), node: None })
        .filter(|_| each.gpus > 0)
        .collect()
}

/// A device of which nothing is held or kept for anyone.
struct Idle<'a> {
    gpu: GpuId,
    facts: &'a GpuFacts,
    table: &'static MigTable,
    /// What it is partitioned into.
    instances: &'a [MigInstance],
    /// What is free on its node.
    free: Free,
    /// Devices of its node that are whole and free, or could be made so.
    around: u32,
    /// For whom space is kept on its node.
    kept_for: Vec<JobId>,
}

fn idle_on<'a>(draft: &Draft<'a>, id: &NodeId) -> Vec<Idle<'a>> {
    let open = draft.capacity.filed(id).filter(|filed| filed.open);
    let (Some(filed), Some(node)) = (open, draft.state.nodes.get(id)) else { return Vec::new() };
    // What is kept on a node for one is no obstacle for the same one.
    let Some(kept_for) = draft.reservations.jobs_on(id) else { return Vec::new() };
    let devices = (0u8..).zip(&node.facts.gpus).take(PARTITIONED_GPUS_MAX as usize);
    let idle: Vec<(u8, &GpuFacts)> =
        devices.filter(|(index, _)| is_idle(draft, node, filed.free, filed.kind.empty(), *index)).collect();
    let cut = idle.iter().filter(|(index, _)| !node.instances(*index).is_empty()).count() as u32;
    let around = filed.free.gpus.count_ones() + cut;
    let known = |(index, facts): (u8, &'a GpuFacts)| {
        let gpu = GpuId { node: id.clone(), index };
        let (instances, free) = (node.instances(index), filed.free);
        let kept_for = kept_for.clone();
        Some(Idle { gpu, facts, table: table_of(facts)?, instances, free, around, kept_for })
    };
    idle.into_iter().filter_map(known).collect()
}

fn is_idle(draft: &Draft, node: &Node, free: Free, empty: Free, index: u8) -> bool {
    let here = |space: Free| space.without_host().on_devices(1 << index);
    let untouched = here(free) == here(empty) && node.gpu_usable(usize::from(index));
    let since = node.partitions.get(&index).map(|partition| partition.since);
    let cool =
        since.is_none_or(|since| draft.now.since(since) >= draft.state.settings.repartition_cooldown_ms);
    untouched && cool
}

impl Idle<'_> {
    /// How this device should be cut, and for whom; who is served wants nothing more.
    fn cut_for(&self, wants: &mut Vec<Want>, may_have: &dyn Fn(&Want) -> bool) -> Option<Cut> {
        let first = wants.iter().position(|want| self.would_do_for(want) && may_have(want))?;
        let job = wants[first].job;
        if wants[first].whole > 0 {
            self.count_on(wants, first);
            return Some(Cut { gpu: self.gpu.clone(), profiles: Vec::new(), job });
        }
        let name = |profile: &u8| self.table.profiles[usize::from(*profile)].name.to_string();
        let profiles: Vec<String> = self.profiles_for(wants, may_have).iter().map(name).collect();
        let mut now: Vec<&String> = self.instances.iter().map(|one| &one.profile).collect();
        now.sort_unstable_by_key(|name| self.table.profile(name));
        let news = !now.into_iter().eq(&profiles);
        news.then(|| Cut { gpu: self.gpu.clone(), profiles, job })
    }

    /// This device is made whole for someone; all that they need are on one node.
    fn count_on(&self, wants: &mut Vec<Want>, first: usize) {
        let want = &mut wants[first];
        let lacks = want.whole.saturating_sub(self.free.gpus.count_ones());
        let left = want.node.as_ref().map_or(lacks, |(_, left)| *left).saturating_sub(1);
        want.node = Some((self.gpu.node.clone(), left));
        if left == 0 {
            wants.remove(first);
        }
    }

    fn is_of(&self, each: &Resources) -> bool {
        each.gpu_models.is_empty()
            || each.gpu_models.iter().any(|wish| model::matches(wish, &self.facts.model))
    }

    fn would_do_for(&self, want: &Want) -> bool {
        let host =
            u64::from(want.each.cpus) <= self.free.cpus && want.each.memory_mib <= self.free.memory_mib;
        let kept = self.kept_for.iter().any(|job| *job != want.job);
        match want.whole {
            _ if !host || kept => false,
            0 => self.profile_for(want).is_some(),
            whole => {
                let memory = self.facts.memory_mib >= want.each.gpu_memory_mib;
                let there = want.node.as_ref().is_none_or(|(node, _)| *node == self.gpu.node);
                there && !self.instances.is_empty() && self.is_of(want.each) && memory && self.around >= whole
            }
        }
    }

    fn profile_for(&self, want: &Want) -> Option<u8> {
        let each = want.each;
        let shared = want.whole == 0 && self.is_of(each);
        let profile = || self.table.smallest_profile(each.gpu_memory_mib, each.gpu_compute_milli);
        if shared { profile() } else { None }
    }

    /// As many instances as fit, in the order of those who want them.
    fn profiles_for(&self, wants: &mut Vec<Want>, may_have: &dyn Fn(&Want) -> bool) -> Vec<u8> {
        let mut chosen: Vec<u8> = Vec::new();
        let fits = |chosen: &[u8], more: u8| {
            let all: Vec<(u8, u32)> =
                chosen.iter().copied().chain([more]).map(|profile| (profile, 1)).collect();
            self.table.layout_for(&Layout::default(), &all).is_some()
        };
        wants.retain(|want| {
            let profile = self.profile_for(want).filter(|profile| fits(&chosen, *profile) && may_have(want));
            chosen.extend(profile);
            profile.is_none()
        });
        // What is left over is cut like what is wanted, the largest first, and then as small as possible.
        let mut like: Vec<u8> = chosen.clone();
        like.sort_unstable_by(|a, b| b.cmp(a));
        like.dedup();
        like.extend((0..).zip(self.table.profiles).filter(|(_, one)| one.is_plain()).map(|(index, _)| index));
        while let Some(more) = like.iter().copied().find(|profile| fits(&chosen, *profile)) {
            chosen.push(more);
        }
        chosen.sort_unstable();
        chosen
    }
}
