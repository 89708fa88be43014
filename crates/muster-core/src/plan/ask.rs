//! A shape made ready for many comparisons: which kinds of nodes could hold it, and which of their devices
//! would do. Model names are compared once per kind here, so that looking at a node is integer work.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::capacity::{Capacity, Eligible, Free, Kind, Seat, fit};
use crate::ids::TenantId;
use crate::job::{Demand, Resources};
use crate::models::{ModelUse, Over};
use crate::queue::Shape;
use crate::verdict::Reason;
use crate::waste::Prospect;

/// What quotas leave to a gang; the largest numbers where nothing is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuotaLeft {
    pub gpu_milli: u64,
    pub gpu_memory_mib: u64,
}

impl QuotaLeft {
    pub const UNLIMITED: QuotaLeft = QuotaLeft { gpu_milli: u64::MAX, gpu_memory_mib: u64::MAX };
}

/// What a shape asks for, worked out.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub shape: Arc<Shape>,
    /// The least that the gang takes from its tenant's quota. On an instance larger than it needs it takes more.
    pub demand: Demand,
    /// The least that a task of each group takes.
    least: Vec<Demand>,
    /// The kinds that could hold it when empty, or a part of it if it may sit on several nodes; in the order of
    /// the capacity.
    pub matches: Vec<Match>,
    /// Whether all nodes together, each empty, could hold it.
    pub feasible: bool,
    /// Limits per model that leave no kind at all.
    pub model_limits: Vec<Reason>,
    /// Whether some of its tasks may get a MIG instance, which counts against the quota as a whole.
    pub may_hold_instances: bool,
}

/// A kind of node that could hold the shape or a part of it.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub kind: Arc<Kind>,
    /// Whether a single node could hold the whole gang.
    pub whole: bool,
    /// What is expected to become of what is free on its nodes.
    pub prospect: Arc<Prospect>,
    /// What would do for each group of tasks.
    pub eligible: Vec<Eligible>,
    /// Devices that would do for some group, as bits.
    pub useful: u64,
    /// Devices that would do as a whole for some group, as bits.
    useful_whole: u64,
}

impl Ask {
    pub fn new(capacity: &Capacity, shape: &Arc<Shape>) -> Ask {
        let kinds = capacity.kinds().filter(|(kind, _)| {
            let holds_a_task = |(_, each): &(u32, Resources)| kind.could_hold_tasks(shape, each) > 0;
            kind.could_hold(shape) || (shape.may_span() && shape.groups.iter().any(holds_a_task))
        });
        let matches: Vec<Match> = kinds.map(|(kind, _)| Match::new(capacity, kind, shape)).collect();
        let may_hold_instances =
            matches.iter().flat_map(|found| &found.eligible).any(Eligible::has_instances);
        Ask {
            shape: shape.clone(),
            demand: capacity.least_demand(shape.groups.iter().map(|(count, each)| (*count, each))),
            least: shape.groups.iter().map(|(_, each)| capacity.least_demand_of(each)).collect(),
            matches,
            feasible: capacity.could_ever_hold(shape),
            model_limits: Vec::new(),
            may_hold_instances,
        }
    }

    /// The kinds of which a single node could hold the whole gang.
    pub fn wholes(&self) -> impl Iterator<Item = &Match> {
        self.matches.iter().filter(|found| found.whole)
    }

    /// Whether it may sit on several nodes.
    pub fn may_span(&self) -> bool {
        self.shape.may_span()
    }

    /// The groups of tasks, the most demanding first: they are the hardest to seat.
    pub fn groups_by_size(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.shape.groups.len()).collect();
        groups.sort_by_key(|group| {
            let each = &self.shape.groups[*group].1;
            (Reverse((each.gpus, each.cpus, each.memory_mib)), *group)
        });
        groups
    }

    /// What the least demanding task needs for itself: where fewer are free nobody of the gang sits.
    pub fn least_gpus(&self) -> u32 {
        self.shape.groups.iter().map(|(_, each)| each.whole_gpus()).min().unwrap_or_default()
    }

    /// How many tasks of a group fit into what is free.
    pub fn tasks_that_fit(&self, found: &Match, group: usize, free: Free) -> u32 {
        found.eligible[group].tasks_that_fit(&self.shape.groups[group].1, free)
    }

    /// The same without the kinds of nodes on which the gang would pass a limit of its tenant per model.
    ///
    /// On a node with several models the gang is counted as if it took the limited one, and across nodes as if it
    /// sat on nodes of this kind only: simple, and never above the limit.
    pub fn within(&self, models: &ModelUse, tenant: &TenantId) -> Ask {
        let most = |found: &Match, model: &str| {
            let here = found.kind.devices_of(found.useful, model);
            let all = self.most_milli(found);
            if self.may_span() && here > 0 { all } else { all.min(here * 1_000) }
        };
        let over = |found: &Match| models.over(tenant, |model| most(found, model));
        let (out, matches): (Vec<Match>, Vec<Match>) =
            self.matches.iter().cloned().partition(|found| over(found).is_some());
        let none_left = matches.is_empty();
        let mut model_limits: Vec<Reason> =
            out.iter().filter(|_| none_left).filter_map(over).map(Reason::from).collect();
        model_limits.dedup();
        Ask { matches, model_limits, ..self.clone() }
    }

    /// The most that the gang holds on nodes of a kind, in thousandths of GPUs.
    fn most_milli(&self, found: &Match) -> u64 {
        let groups = self.shape.groups.iter().zip(&self.least).zip(&found.eligible);
        let most = |(((count, _), least), eligible): ((&(u32, Resources), &Demand), &Eligible)| {
            u64::from(*count) * least.gpu_milli.max(eligible.largest_instance_milli(&found.kind))
        };
        groups.map(most).sum()
    }

    /// The same without the instances with which it could pass a quota of its tenant or user, or a limit per model.
    ///
    /// What the quota leaves beyond the least that the gang takes is shared out evenly among the tasks that share GPUs,
    /// whichever instances they get: simple, and never above the limit.
    pub fn with_instances_within(&self, left: QuotaLeft, models: &ModelUse, tenant: &TenantId) -> Ask {
        let sharing = self.shape.groups.iter().filter(|(_, each)| each.is_shared());
        let sharing = sharing.map(|(count, _)| u64::from(*count)).sum::<u64>().max(1);
        let more = |left: u64, least: u64| left.saturating_sub(least) / sharing;
        let gpu_milli = more(left.gpu_milli, self.demand.gpu_milli);
        let gpu_memory_mib = more(left.gpu_memory_mib, self.demand.gpu_memory_mib);
        let of_model = |model: &str| more(models.left_milli(tenant, model), self.demand.gpu_milli);
        let restrict = |found: &Match| {
            let of_group = |(eligible, least): (&Eligible, &Demand)| {
                eligible.with_instances(&found.kind, |gpu, one| {
                    let milli = gpu_milli.min(of_model(&gpu.model));
                    u64::from(one.held_milli) <= least.gpu_milli.saturating_add(milli)
                        && one.memory_mib <= least.gpu_memory_mib.saturating_add(gpu_memory_mib)
                })
            };
            let eligible = found.eligible.iter().zip(&self.least).map(of_group).collect();
            Match { eligible, ..found.clone() }
        };
        Ask { matches: self.matches.iter().map(restrict).collect(), ..self.clone() }
    }

    /// GPUs of the gang, whole or shared.
    pub fn gpus(&self) -> u32 {
        self.shape.gpus()
    }

    /// Devices that the gang needs for itself.
    pub fn whole_gpus(&self) -> u32 {
        self.shape.whole_gpus()
    }

    /// The match for a kind, if it could hold the shape or a part of it. Kinds are shared by all nodes of the capacity and its
    /// clones, so the address tells them apart.
    pub fn on(&self, kind: &Arc<Kind>) -> Option<&Match> {
        self.matches.iter().find(|found| Arc::ptr_eq(&found.kind, kind))
    }

    /// Whether the gang fits into what is free.
    pub fn fits(&self, found: &Match, free: Free) -> bool {
        // Tasks of one group want the same devices, so counting is enough.
        match &self.shape.groups[..] {
            [(count, each)] => found.eligible[0].tasks_that_fit(each, free) >= *count,
            _ => self.fit(found, free).is_some(),
        }
    }

    pub fn has_enough(&self, found: &Match, free: Free) -> bool {
        free.cpus >= self.demand.cpus
            && free.memory_mib >= self.demand.memory_mib
            && (free.gpus & found.useful_whole).count_ones() >= self.whole_gpus()
    }

    /// A seat for every task in what is free on one node.
    pub fn fit(&self, found: &Match, free: Free) -> Option<Vec<Seat>> {
        if !self.has_enough(found, free) {
            return None;
        }
        fit(&self.shape, &found.eligible, free)
    }
}

impl Match {
    fn new(capacity: &Capacity, kind: &Arc<Kind>, shape: &Shape) -> Match {
        let eligible: Vec<Eligible> =
            shape.groups.iter().map(|(_, each)| kind.eligible(shape, each)).collect();
        let asked = || shape.groups.iter().zip(&eligible).filter(|((_, each), _)| each.gpus > 0);
        let useful = asked().fold(0, |all, (_, eligible)| all | eligible.devices());
        let useful_whole = asked().fold(0, |all, (_, eligible)| all | eligible.gpus);
        let (whole, prospect) = (kind.could_hold(shape), capacity.prospect(kind));
        Match { kind: kind.clone(), whole, prospect, useful, useful_whole, eligible }
    }
}

impl From<Over<'_>> for Reason {
    fn from(over: Over<'_>) -> Reason {
        Reason::QuotaModel {
            tenant: over.tenant.clone(),
            model: over.model.to_string(),
            wanted: over.wanted,
            limit: over.limit,
        }
    }
}
