//! Step 7, phase repartition: new MIG layouts of idle GPUs, for waiting jobs that find no instance or no whole GPU in
//! the current layouts.
//!
//! A proposal needs lasting demand and an idle GPU: the job has waited for `repartition_after_ms`, no part of the GPU
//! is held, no other job has a reservation on its node, and its layout is older than `repartition_cooldown_ms`. So
//! layouts do not change back and forth with every job, and never under a running one.

use crate::facts::plan::Repartitioning;
use crate::gpu::device::{GpuFacts, MigInstance};
use crate::gpu::gpu_share::PARTITIONED_GPUS_MAX;
use crate::gpu::mig::{MigLayout, MigTable};
use crate::gpu::model;
use crate::gpu::partition::table_of;
use crate::ids::{GpuId, JobId, NodeId};
use crate::objects::job::Resources;
use crate::objects::node::Node;
use crate::objects::settings::Repartition;
use crate::planner::admit;
use crate::planner::draft::Draft;
use crate::planner::order::QueueHead;
use crate::queue::{Bucket, waiting_since};
use crate::resources::ResourceVec;

/// Most repartitionings that one round proposes.
const REPARTITIONINGS_MAX: usize = 16;

/// Propose repartitionings of idle GPUs for blocked jobs.
pub(crate) fn propose(draft: &mut Draft) {
    if draft.state.settings.repartition == Repartition::Off {
        return;
    }
    let blocked = std::mem::take(&mut draft.output.blocked);
    let unmet: Vec<Vec<PartitionDemand>> = blocked.iter().map(|head| demands(draft, head)).collect();
    let mut unmet: Vec<PartitionDemand> = unmet.into_iter().flatten().collect();
    draft.output.blocked = blocked;
    if unmet.is_empty() {
        return;
    }
    let idle: Vec<IdleGpu> = draft.space.resources.nodes().flat_map(|(node, _)| idle_on(draft, node)).collect();
    let mut proposals = Vec::new();
    for idle in &idle {
        if proposals.len() < REPARTITIONINGS_MAX
            && let Some(proposal) = idle.repartitioning_for(&mut unmet, &|demand| may_have(draft, demand, idle))
        {
            proposals.push(proposal);
        }
    }
    // Only simulated GPUs are repartitioned at once; for other GPUs the new layout stays a proposal.
    let is_applied = |proposal: &&Repartitioning| {
        let simulated = draft.state.nodes.get(&proposal.gpu.node).is_some_and(|node| node.facts.simulated);
        simulated && draft.state.settings.repartition == Repartition::Apply
    };
    draft.output.plan.repartitionings = proposals.iter().filter(is_applied).cloned().collect();
    draft.output.repartitionings = proposals;
}

/// True if the node constraints, the pool and the tenant limits of the job let it use the GPU in a new layout.
fn may_have(draft: &Draft, demand: &PartitionDemand, idle: &IdleGpu) -> bool {
    let shape = &demand.bucket.shape;
    let Some(entry) = draft.space.resources.entry(&idle.gpu.node) else { return false };
    let more = |model: &str| match model::matches(model, &idle.facts.model) {
        true => demand.each.demand().gpu_milli,
        false => 0,
    };
    entry.kind.admits(shape)
        && entry.kind.is_allocatable(idle.gpu.index, shape.pool.as_deref())
        && draft.shares.usage.models.over(&demand.bucket.tenant, more).is_none()
}

/// The demand of a waiting job: a MIG instance, or whole GPUs on one node.
struct PartitionDemand<'a> {
    job: JobId,
    bucket: &'a Bucket,
    each: &'a Resources,
    /// Whole GPUs that the job needs on one node; 0 if it needs an instance.
    whole: u32,
    /// The node on which GPUs are made whole for the job, and how many the job still lacks there.
    node: Option<(NodeId, u32)>,
}

/// The demands of the jobs of a bucket, one per job; none if anything but capacity blocks the bucket.
fn demands<'a>(draft: &mut Draft<'a>, head: &QueueHead<'a>) -> Vec<PartitionDemand<'a>> {
    let [(1, each)] = &head.bucket.shape.groups[..] else { return Vec::new() };
    let request = draft.request(head.bucket);
    if !admit::blockers(draft, head.bucket, head.policy, &request).is_empty() {
        return Vec::new();
    }
    let has_waited = |job: &JobId| {
        let since = draft.state.jobs.get(job).and_then(waiting_since);
        since.is_some_and(|since| draft.now.since(since) >= draft.state.settings.repartition_after_ms)
    };
    let jobs = draft.state.queue.bucket(head.bucket).into_iter().flatten().map(|(_, job)| *job);
    let jobs = jobs.filter(|job| *job >= head.job).filter(has_waited).take(REPARTITIONINGS_MAX * 8);
    let bucket = head.bucket;
    jobs.map(|job| PartitionDemand { job, bucket, each, whole: each.whole_gpus(), node: None })
        .filter(|_| each.gpus > 0)
        .collect()
}

/// A GPU of which no part is held or earmarked.
struct IdleGpu<'a> {
    gpu: GpuId,
    facts: &'a GpuFacts,
    table: &'static MigTable,
    /// Its MIG instances; empty if it is not partitioned.
    instances: &'a [MigInstance],
    /// Free resources of its node.
    free: ResourceVec,
    /// GPUs of its node that are whole and free, or could be made so.
    whole_or_idle: u32,
    /// Jobs with a reservation on its node.
    reserved_for: Vec<JobId>,
}

fn idle_on<'a>(draft: &Draft<'a>, id: &NodeId) -> Vec<IdleGpu<'a>> {
    let open = draft.space.resources.entry(id).filter(|entry| entry.open);
    let (Some(entry), Some(node)) = (open, draft.state.nodes.get(id)) else { return Vec::new() };
    // A reservation does not exclude its own job. `None`: the node is booked by a window.
    let Some(kept_for) = draft.reservations.jobs_on(id) else { return Vec::new() };
    let devices = (0u8..).zip(&node.facts.gpus).take(PARTITIONED_GPUS_MAX as usize);
    let idle: Vec<(u8, &GpuFacts)> =
        devices.filter(|(index, _)| is_idle(draft, node, entry.free, entry.kind.empty(), *index)).collect();
    let partitioned = idle.iter().filter(|(index, _)| !node.instances(*index).is_empty()).count() as u32;
    let around = entry.free.gpus.count_ones() + partitioned;
    let idle_gpu = |(index, facts): (u8, &'a GpuFacts)| {
        let gpu = GpuId { node: id.clone(), index };
        let (instances, free) = (node.instances(index), entry.free);
        let kept_for = kept_for.clone();
        Some(IdleGpu {
            gpu,
            facts,
            table: table_of(facts)?,
            instances,
            free,
            whole_or_idle: around,
            reserved_for: kept_for,
        })
    };
    idle.into_iter().filter_map(idle_gpu).collect()
}

fn is_idle(draft: &Draft, node: &Node, free: ResourceVec, empty: ResourceVec, index: u8) -> bool {
    let on_device = |space: ResourceVec| space.without_host().on_devices(1 << index);
    let untouched = on_device(free) == on_device(empty) && node.gpu_usable(usize::from(index));
    let since = node.partitions.get(&index).map(|partition| partition.since);
    let cooled_down = since.is_none_or(|since| draft.now.since(since) >= draft.state.settings.repartition_cooldown_ms);
    untouched && cooled_down
}

impl IdleGpu<'_> {
    /// The repartitioning of this GPU that meets the first suitable demand. Demands that it meets are removed.
    fn repartitioning_for(
        &self,
        demands: &mut Vec<PartitionDemand>,
        may_have: &dyn Fn(&PartitionDemand) -> bool,
    ) -> Option<Repartitioning> {
        let first = demands.iter().position(|demand| self.suits(demand) && may_have(demand))?;
        let job = demands[first].job;
        if demands[first].whole > 0 {
            self.count_on(demands, first);
            return Some(Repartitioning { gpu: self.gpu.clone(), profiles: Vec::new(), job });
        }
        let name = |profile: &u8| self.table.profiles[usize::from(*profile)].name.to_string();
        let profiles: Vec<String> = self.profiles_for(demands, may_have).iter().map(name).collect();
        let mut current: Vec<&String> = self.instances.iter().map(|one| &one.profile).collect();
        current.sort_unstable_by_key(|name| self.table.profile(name));
        let changed = !current.into_iter().eq(&profiles);
        changed.then(|| Repartitioning { gpu: self.gpu.clone(), profiles, job })
    }

    /// Count this GPU as made whole for a demand. All GPUs of a demand are on one node.
    fn count_on(&self, demands: &mut Vec<PartitionDemand>, first: usize) {
        let demand = &mut demands[first];
        let lacks = demand.whole.saturating_sub(self.free.gpus.count_ones());
        let left = demand.node.as_ref().map_or(lacks, |(_, left)| *left).saturating_sub(1);
        demand.node = Some((self.gpu.node.clone(), left));
        if left == 0 {
            demands.remove(first);
        }
    }

    fn has_requested_model(&self, each: &Resources) -> bool {
        each.gpu_models.is_empty()
            || each.gpu_models.iter().any(|requested| model::matches(requested, &self.facts.model))
    }

    fn suits(&self, demand: &PartitionDemand) -> bool {
        let fits_host = u64::from(demand.each.cpus) <= self.free.cpus && demand.each.memory_mib <= self.free.memory_mib;
        let reserved = self.reserved_for.iter().any(|job| *job != demand.job);
        match demand.whole {
            _ if !fits_host || reserved => false,
            0 => self.profile_for(demand).is_some(),
            whole => {
                let memory = self.facts.memory_mib >= demand.each.gpu_memory_mib;
                let same_node = demand.node.as_ref().is_none_or(|(node, _)| *node == self.gpu.node);
                same_node
                    && !self.instances.is_empty()
                    && self.has_requested_model(demand.each)
                    && memory
                    && self.whole_or_idle >= whole
            }
        }
    }

    fn profile_for(&self, demand: &PartitionDemand) -> Option<u8> {
        let each = demand.each;
        let shared = demand.whole == 0 && self.has_requested_model(each);
        let profile = || self.table.smallest_profile(each.gpu_memory_mib, each.gpu_compute_milli);
        if shared { profile() } else { None }
    }

    /// Profiles for as many demands as fit, in the order of the demands, which are removed. More profiles fill the GPU.
    fn profiles_for(&self, demands: &mut Vec<PartitionDemand>, may_have: &dyn Fn(&PartitionDemand) -> bool) -> Vec<u8> {
        let mut chosen: Vec<u8> = Vec::new();
        let fits = |chosen: &[u8], more: u8| {
            let all: Vec<(u8, u32)> = chosen.iter().copied().chain([more]).map(|profile| (profile, 1)).collect();
            self.table.layout_for(&MigLayout::default(), &all).is_some()
        };
        demands.retain(|demand| {
            let profile = self.profile_for(demand).filter(|profile| fits(&chosen, *profile) && may_have(demand));
            chosen.extend(profile);
            profile.is_none()
        });
        // The remainder gets the requested profiles again, the largest first, then plain profiles, the smallest first.
        let mut fill: Vec<u8> = chosen.clone();
        fill.sort_unstable_by(|a, b| b.cmp(a));
        fill.dedup();
        fill.extend((0..).zip(self.table.profiles).filter(|(_, one)| one.is_plain()).map(|(index, _)| index));
        while let Some(more) = fill.iter().copied().find(|profile| fits(&chosen, *profile)) {
            chosen.push(more);
        }
        chosen.sort_unstable();
        chosen
    }
}
