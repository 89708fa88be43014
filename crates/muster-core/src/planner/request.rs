//! Request of a gang (step 7): its shape, the kinds of nodes that could hold it, and their eligible devices.
//!
//! Model names are compared once per kind here, so that checking a node compares integers only.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::estimate::fragmentation::FragmentationModel;
use crate::facts::verdict::Reason;
use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::objects::job::Resources;
use crate::objects::shape::Shape;
use crate::resources::{DeviceAssignment, Eligible, Kind, ResourceIndex, ResourceVec, fit};
use crate::state::usage::model_limits::{ModelLimitExcess, ModelLimitUsage};

/// GPU capacity that quotas leave to a gang; `u64::MAX` without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaLeft {
    pub gpu_milli: u64,
    pub gpu_memory_mib: u64,
}

impl QuotaLeft {
    pub const UNLIMITED: QuotaLeft = QuotaLeft { gpu_milli: u64::MAX, gpu_memory_mib: u64::MAX };
}

/// A shape, matched against the kinds of nodes.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub shape: Arc<Shape>,
    /// The least quota that the gang takes from its tenant. A MIG instance larger than needed takes more.
    pub demand: Demand,
    /// The least demand of one task, by task group.
    least_demands: Vec<Demand>,
    /// The kinds that could hold the gang when empty, or a part of it if the gang may span nodes; in the order of the
    /// resource index.
    pub matches: Vec<KindMatch>,
    /// True if all nodes together could hold the gang when empty.
    pub feasible: bool,
    /// Limits per GPU model, if they exclude every kind.
    pub model_limits: Vec<Reason>,
    /// True if some task may get a MIG instance, which counts against the quota as a whole.
    pub may_hold_instances: bool,
}

/// A kind of node that could hold the gang or a part of it.
#[derive(Debug, Clone)]
pub(crate) struct KindMatch {
    pub kind: Arc<Kind>,
    /// True if a single node could hold the whole gang.
    pub holds_gang: bool,
    pub fragmentation: Arc<FragmentationModel>,
    /// Eligible devices and MIG instances, by task group.
    pub eligible: Vec<Eligible>,
    /// Devices eligible for some task group, as bits.
    pub useful: u64,
    /// Devices eligible as a whole for some task group, as bits.
    useful_whole: u64,
}

impl Request {
    pub fn new(capacity: &ResourceIndex, shape: &Arc<Shape>) -> Request {
        let kinds = capacity.kinds().filter(|(kind, _)| {
            let holds_a_task = |(_, each): &(u32, Resources)| kind.could_hold_tasks(shape, each) > 0;
            kind.could_hold(shape) || (shape.may_span() && shape.groups.iter().any(holds_a_task))
        });
        let matches: Vec<KindMatch> = kinds.map(|(kind, _)| KindMatch::new(capacity, kind, shape)).collect();
        let may_hold_instances = matches.iter().flat_map(|found| &found.eligible).any(Eligible::has_instances);
        Request {
            shape: shape.clone(),
            demand: capacity.least_demand(shape.groups.iter().map(|(count, each)| (*count, each))),
            least_demands: shape.groups.iter().map(|(_, each)| capacity.least_demand_of(each)).collect(),
            matches,
            feasible: capacity.could_ever_hold(shape),
            model_limits: Vec::new(),
            may_hold_instances,
        }
    }

    /// The kinds of which a single node could hold the whole gang.
    pub fn single_node_matches(&self) -> impl Iterator<Item = &KindMatch> {
        self.matches.iter().filter(|found| found.holds_gang)
    }

    /// True if the gang may span several nodes.
    pub fn may_span(&self) -> bool {
        self.shape.may_span()
    }

    /// The task groups, the most demanding first: their tasks are the hardest to place.
    pub fn groups_by_size(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.shape.groups.len()).collect();
        groups.sort_by_key(|group| {
            let each = &self.shape.groups[*group].1;
            (Reverse((each.gpus, each.cpus, each.memory_mib)), *group)
        });
        groups
    }

    /// Whole GPUs of the least demanding task. A node with fewer free GPUs holds no task of the gang.
    pub fn least_gpus(&self) -> u32 {
        self.shape.groups.iter().map(|(_, each)| each.whole_gpus()).min().unwrap_or_default()
    }

    /// The number of tasks of a group that fit into the free resources of a node.
    pub fn tasks_that_fit(&self, found: &KindMatch, group: usize, free: ResourceVec) -> u32 {
        found.eligible[group].tasks_that_fit(&self.shape.groups[group].1, free)
    }

    /// The request without the kinds of nodes on which the gang would exceed a limit of its tenant per GPU model.
    ///
    /// On a node with several models the gang counts as if it used the limited model. A gang that may span nodes counts
    /// as if it used nodes of this kind only. Both are simple and never exceed the limit.
    pub fn within_model_limits(&self, models: &ModelLimitUsage, tenant: &TenantId) -> Request {
        let most = |found: &KindMatch, model: &str| {
            let of_model = found.kind.devices_of(found.useful, model);
            let all = self.most_milli(found);
            if self.may_span() && of_model > 0 { all } else { all.min(of_model * 1_000) }
        };
        let over = |found: &KindMatch| models.over(tenant, |model| most(found, model));
        let (excluded, matches): (Vec<KindMatch>, Vec<KindMatch>) =
            self.matches.iter().cloned().partition(|found| over(found).is_some());
        let none_left = matches.is_empty();
        let mut model_limits: Vec<Reason> =
            excluded.iter().filter(|_| none_left).filter_map(over).map(Reason::from).collect();
        model_limits.dedup();
        Request { matches, model_limits, ..self.clone() }
    }

    /// The most that the gang can hold on nodes of a kind, in thousandths of GPUs.
    fn most_milli(&self, found: &KindMatch) -> u64 {
        let groups = self.shape.groups.iter().zip(&self.least_demands).zip(&found.eligible);
        let most = |(((count, _), least), eligible): ((&(u32, Resources), &Demand), &Eligible)| {
            u64::from(*count) * least.gpu_milli.max(eligible.largest_instance_milli(&found.kind))
        };
        groups.map(most).sum()
    }

    /// The request without the MIG instances that could exceed a quota of the tenant or user, or a limit per GPU model.
    ///
    /// The quota left beyond the least demand of the gang is divided evenly among the tasks that share GPUs, whichever
    /// instances they get. This is simple and never exceeds the limit.
    pub fn with_instances_within(&self, left: QuotaLeft, models: &ModelLimitUsage, tenant: &TenantId) -> Request {
        let sharing = self.shape.groups.iter().filter(|(_, each)| each.is_shared());
        let sharing = sharing.map(|(count, _)| u64::from(*count)).sum::<u64>().max(1);
        let more = |left: u64, least: u64| left.saturating_sub(least) / sharing;
        let gpu_milli = more(left.gpu_milli, self.demand.gpu_milli);
        let gpu_memory_mib = more(left.gpu_memory_mib, self.demand.gpu_memory_mib);
        let of_model = |model: &str| more(models.left_milli(tenant, model), self.demand.gpu_milli);
        let restrict = |found: &KindMatch| {
            let of_group = |(eligible, least): (&Eligible, &Demand)| {
                eligible.with_instances(&found.kind, |gpu, one| {
                    let milli = gpu_milli.min(of_model(&gpu.model));
                    u64::from(one.held_milli) <= least.gpu_milli.saturating_add(milli)
                        && one.memory_mib <= least.gpu_memory_mib.saturating_add(gpu_memory_mib)
                })
            };
            let eligible = found.eligible.iter().zip(&self.least_demands).map(of_group).collect();
            KindMatch { eligible, ..found.clone() }
        };
        Request { matches: self.matches.iter().map(restrict).collect(), ..self.clone() }
    }

    /// GPUs of the gang, whole or shared.
    pub fn gpus(&self) -> u32 {
        self.shape.gpus()
    }

    /// Whole GPUs of the gang.
    pub fn whole_gpus(&self) -> u32 {
        self.shape.whole_gpus()
    }

    /// The match for a kind; `None` if the kind can hold no part of the gang. Kinds are shared by all nodes of a
    /// resource index and its clones, so pointers are compared.
    pub fn match_for(&self, kind: &Arc<Kind>) -> Option<&KindMatch> {
        self.matches.iter().find(|found| Arc::ptr_eq(&found.kind, kind))
    }

    /// True if the gang fits into the free resources of one node.
    pub fn fits(&self, found: &KindMatch, free: ResourceVec) -> bool {
        // Tasks of one group have the same eligible devices, so counting is enough.
        match &self.shape.groups[..] {
            [(count, each)] => found.eligible[0].tasks_that_fit(each, free) >= *count,
            _ => self.assign(found, free).is_some(),
        }
    }

    /// A necessary condition of [`Request::fits`]: enough cores, memory and whole GPUs in total.
    pub fn has_enough(&self, found: &KindMatch, free: ResourceVec) -> bool {
        free.cpus >= self.demand.cpus
            && free.memory_mib >= self.demand.memory_mib
            && (free.gpus & found.useful_whole).count_ones() >= self.whole_gpus()
    }

    /// A device assignment for every task in the free resources of one node.
    pub fn assign(&self, found: &KindMatch, free: ResourceVec) -> Option<Vec<DeviceAssignment>> {
        if !self.has_enough(found, free) {
            return None;
        }
        fit(&self.shape, &found.eligible, free)
    }
}

impl KindMatch {
    fn new(capacity: &ResourceIndex, kind: &Arc<Kind>, shape: &Shape) -> KindMatch {
        let eligible: Vec<Eligible> = shape.groups.iter().map(|(_, each)| kind.eligible(shape, each)).collect();
        let with_gpus = || shape.groups.iter().zip(&eligible).filter(|((_, each), _)| each.gpus > 0);
        let useful = with_gpus().fold(0, |all, (_, eligible)| all | eligible.devices());
        let useful_whole = with_gpus().fold(0, |all, (_, eligible)| all | eligible.gpus);
        KindMatch {
            kind: kind.clone(),
            holds_gang: kind.could_hold(shape),
            fragmentation: capacity.fragmentation_of(kind),
            useful,
            useful_whole,
            eligible,
        }
    }
}

impl From<ModelLimitExcess<'_>> for Reason {
    fn from(excess: ModelLimitExcess<'_>) -> Reason {
        Reason::QuotaModel {
            tenant: excess.tenant.clone(),
            model: excess.model.to_string(),
            wanted: excess.wanted,
            limit: excess.limit,
        }
    }
}
