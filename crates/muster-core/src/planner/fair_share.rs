//! Fair share (DRF; step 7, phase order): the entitlement and usage of each tenant, and the priority factor from both.
//!
//! Tenants with jobs divide the cluster by weight, level by level down the tree. The usage of a tenant is the mean of
//! two figures: its dominant share (DRF: the largest of its shares of all GPUs, cores, memory and watts that it holds
//! now) and its decayed GPU usage. The load of a tenant is its usage over its entitlement. Loads are averaged over all
//! levels on which a sibling has jobs too, so that a team is compared with its siblings and its department with other
//! departments. Members with jobs divide the entitlement of their tenant evenly. Where other tenants compete, the load
//! of the member is an eighth of the total: it decides among the members of a tenant and hardly among tenants.
//!
//! The factor is 1 / (1 + load): 1 without usage, one half for usage equal to the entitlement. It is 1 for every tenant
//! while no tenant or member competes.
//!
//! All values are integers. Within a round held resources only grow, so factors only fall.

use std::collections::{BTreeMap, BTreeSet};

use crate::accounting::tenant::Tenant;
use crate::facts::verdict::FairShare;
use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::objects::job::PlacedTask;
use crate::state::State;
use crate::state::usage::tenants::TenantUsage;
use crate::state::usage::{Consumer, Usage};
use crate::time::Timestamp;

/// The whole, in millionths.
const WHOLE: u64 = 1_000_000;
/// Millionths in a thousandth.
const MICRO_PER_MILLI: u64 = 1_000;
/// One, in thousandths.
const ONE: u64 = 1_000;
/// One part in this many of the load is the member's own, if tenants compete too.
const MEMBER_LOAD_DIVISOR: u64 = 8;
/// The cap of a load: a higher one does not change the factor, and sums stay far from overflow.
const LOAD_MAX: u64 = 1_000_000_000;

/// The fair share of every tenant, without the loads of its members.
pub fn fair_shares(state: &State, now: Timestamp) -> BTreeMap<TenantId, FairShare> {
    let usage = TenantUsage::of(state);
    let tree = FairShareTree::of(state, now, &usage, None);
    let share = |node: usize| tree.share_at(&usage, node, tree.load_of_tenants(&usage, node));
    usage.tenants().map(|(tenant, node)| (tenant.clone(), share(node))).collect()
}

/// The fair share of a member of a tenant, and the priority penalty of the member's jobs.
pub(crate) fn member_share(state: &State, now: Timestamp, tenant: &TenantId, user: &str) -> (Option<FairShare>, u32) {
    let usage = TenantUsage::of(state);
    let tree = FairShareTree::of(state, now, &usage, None);
    (tree.fair_share(&usage, tenant, user), tree.penalty(&usage, tenant, user))
}

/// The owner of a job that is not in the state.
pub(crate) struct HypotheticalJob<'a> {
    pub tenant: &'a TenantId,
    pub user: &'a str,
}

/// Usage and fair shares of all tenants in a planning round.
pub(crate) struct TenantShares<'a> {
    pub usage: Usage<'a>,
    tree: FairShareTree,
}

impl<'a> TenantShares<'a> {
    /// The shares in the state. The owner of a hypothetical job counts as having jobs.
    pub fn of(state: &'a State, now: Timestamp, hypothetical: Option<&HypotheticalJob<'_>>) -> TenantShares<'a> {
        let usage = Usage::of(state, now);
        let tree = FairShareTree::of(state, now, &usage.tenants, hypothetical);
        TenantShares { usage, tree }
    }

    /// Count a gang as held, running or not.
    pub fn hold(&mut self, consumer: Consumer, demand: Demand, tasks: &[PlacedTask]) {
        self.usage.hold(consumer, demand, tasks);
        self.tree.hold(&self.usage.tenants, consumer, demand);
    }

    /// The current priority penalty of a member's jobs.
    pub fn penalty(&self, tenant: &TenantId, user: &str) -> u32 {
        self.tree.penalty(&self.usage.tenants, tenant, user)
    }
}

/// The entitlement and decayed usage of every tenant. Current usage is in [`TenantUsage`], at the same node indexes.
#[derive(Debug, Default)]
struct FairShareTree {
    /// The resources of the whole cluster.
    total: Demand,
    nodes: Vec<ShareNode>,
    fair_share_max: u64,
}

/// A tenant with all its descendants.
#[derive(Debug, Default)]
struct ShareNode {
    /// A sibling has jobs too.
    contested: bool,
    /// In millionths of the cluster.
    entitled: u64,
    recent_micro_gpus: u64,
    members: Members,
}

/// The members of a tenant, without those of its descendants.
#[derive(Debug, Default)]
struct Members {
    /// Number of members with jobs.
    busy: u64,
    /// Thousandths of GPUs held, and decayed usage in millionths of GPUs, by user name.
    by_name: BTreeMap<String, (u64, u64)>,
}

impl FairShareTree {
    /// O(tenants × depth + members).
    fn of(
        state: &State,
        now: Timestamp,
        usage: &TenantUsage,
        hypothetical: Option<&HypotheticalJob<'_>>,
    ) -> FairShareTree {
        let mut nodes: Vec<ShareNode> = std::iter::repeat_with(ShareNode::default).take(usage.len()).collect();
        let entitlements = Entitlements::of(state, usage, hypothetical);
        for (tenant, node) in state.tenants.values().filter_map(|tenant| Some((tenant, usage.node_of(&tenant.id)?))) {
            let half_life_ms = tenant.half_life_ms(state.settings.usage_half_life_ms);
            let recent = tenant.decayed_usage.micro_gpus(tenant.held.gpu_milli, now, half_life_ms);
            nodes[node].contested = entitlements.is_contested(tenant, usage);
            nodes[node].members = Members::of(tenant, now, half_life_ms, hypothetical);
            let mut next = Some(node);
            while let Some(node) = next {
                nodes[node].recent_micro_gpus += recent;
                next = usage.parent_of(node);
            }
        }
        for (node, entitled) in nodes.iter_mut().zip(entitlements.by_node) {
            node.entitled = entitled;
        }
        FairShareTree { total: total(state), nodes, fair_share_max: u64::from(state.settings.fair_share_max) }
    }

    fn hold(&mut self, usage: &TenantUsage, consumer: Consumer, demand: Demand) {
        let Some(node) = usage.node_of(consumer.tenant) else { return };
        let members = &mut self.nodes[node].members.by_name;
        match members.get_mut(consumer.user) {
            Some(member) => member.0 += demand.gpu_milli,
            None => drop(members.insert(consumer.user.to_string(), (demand.gpu_milli, 0))),
        }
    }

    fn penalty(&self, usage: &TenantUsage, tenant: &TenantId, user: &str) -> u32 {
        let load = usage.node_of(tenant).and_then(|node| self.load(usage, node, user));
        (self.fair_share_max * (ONE - factor(load)) / ONE) as u32
    }

    /// `None` for a tenant that does not exist.
    fn fair_share(&self, usage: &TenantUsage, tenant: &TenantId, user: &str) -> Option<FairShare> {
        let node = usage.node_of(tenant)?;
        Some(self.share_at(usage, node, self.load(usage, node, user)))
    }

    fn share_at(&self, usage: &TenantUsage, node: usize, load: Option<u64>) -> FairShare {
        FairShare {
            factor_milli: factor(load) as u32,
            share_milli: (self.nodes[node].entitled / 1_000) as u32,
            used_milli: (self.used(usage, node) / 1_000) as u32,
        }
    }

    /// A member's usage over its entitlement. `None` where no other tenant or member competes.
    fn load(&self, usage: &TenantUsage, node: usize, user: &str) -> Option<u64> {
        match (self.load_of_tenants(usage, node), self.load_of_member(&self.nodes[node], user)) {
            (Some(all), Some(own)) => Some((all * (MEMBER_LOAD_DIVISOR - 1) + own) / MEMBER_LOAD_DIVISOR),
            (all, own) => all.or(own),
        }
    }

    /// The mean load over all levels of the tree on which a sibling competes.
    fn load_of_tenants(&self, usage: &TenantUsage, node: usize) -> Option<u64> {
        let (mut sum, mut levels, mut next) = (0, 0, Some(node));
        while let Some(node) = next {
            if self.nodes[node].contested {
                sum += load(self.used(usage, node), self.nodes[node].entitled);
                levels += 1;
            }
            next = usage.parent_of(node);
        }
        (levels > 0).then(|| sum / levels)
    }

    /// The load of a member against an equal part of the tenant's entitlement; `None` if no other member has jobs.
    fn load_of_member(&self, tenant: &ShareNode, user: &str) -> Option<u64> {
        let (held, recent) = tenant.members.by_name.get(user).copied().unwrap_or_default();
        let used = ratio(held, self.total.gpu_milli).midpoint(ratio(recent, self.total.gpu_milli * MICRO_PER_MILLI));
        let busy = tenant.members.busy;
        (busy > 1).then(|| load(used, tenant.entitled / busy))
    }

    /// The usage of a tenant with its descendants, in millionths of the cluster.
    fn used(&self, usage: &TenantUsage, node: usize) -> u64 {
        let (held, total) = (usage.held_at(node), self.total);
        let now = ratio(held.gpu_milli, total.gpu_milli).max(ratio(held.cpus, total.cpus));
        let now = now.max(ratio(held.memory_mib, total.memory_mib));
        let now = now.max(ratio(held.milliwatts, total.milliwatts));
        let recent = ratio(self.nodes[node].recent_micro_gpus, total.gpu_milli * MICRO_PER_MILLI);
        now.midpoint(recent)
    }
}

impl Members {
    fn of(tenant: &Tenant, now: Timestamp, half_life_ms: i64, hypothetical: Option<&HypotheticalJob<'_>>) -> Members {
        let has_jobs = |name: &str| tenant.members.get(name).is_some_and(|member| member.live_jobs > 0);
        let hypothetical = hypothetical.filter(|job| job.tenant == &tenant.id && !has_jobs(job.user));
        let busy = tenant.members.values().filter(|member| member.live_jobs > 0).count();
        let by_name = tenant.members.iter().map(|(name, member)| {
            let recent = member.decayed_usage.micro_gpus(member.held.gpu_milli, now, half_life_ms);
            (name.clone(), (member.held.gpu_milli, recent))
        });
        Members { busy: busy as u64 + u64::from(hypothetical.is_some()), by_name: by_name.collect() }
    }
}

/// The entitlement of each tenant: siblings with jobs divide the entitlement of their parent by weight.
struct Entitlements<'a> {
    /// Tenants with jobs, and their ancestors.
    working: BTreeSet<&'a TenantId>,
    /// Sum of the weights and number of the working children, by parent.
    siblings: BTreeMap<Option<usize>, (u64, usize)>,
    /// In millionths of the cluster, by node index.
    by_node: Vec<u64>,
}

impl<'a> Entitlements<'a> {
    fn of(state: &'a State, usage: &TenantUsage, hypothetical: Option<&HypotheticalJob<'_>>) -> Entitlements<'a> {
        let busy = state.tenants.values().filter(|tenant| tenant.live_jobs > 0).map(|tenant| &tenant.id);
        let busy: Vec<&TenantId> = busy.chain(hypothetical.map(|job| job.tenant)).collect();
        let working: BTreeSet<&TenantId> =
            busy.into_iter().flat_map(|id| state.lineage(id)).map(|tenant| &tenant.id).collect();
        let mut siblings: BTreeMap<Option<usize>, (u64, usize)> = BTreeMap::new();
        let mut tenants: Vec<(usize, &Tenant)> = Vec::new();
        for tenant in state.tenants.values() {
            let Some(node) = usage.node_of(&tenant.id) else { continue };
            tenants.push((node, tenant));
            if working.contains(&tenant.id) {
                let (weights, count) = siblings.entry(usage.parent_of(node)).or_default();
                *weights += weight(tenant);
                *count += 1;
            }
        }
        // Parents come before their children, so the entitlement of a parent is known.
        tenants.sort_unstable_by_key(|(node, _)| *node);
        let mut by_node = vec![0; usage.len()];
        for (node, tenant) in tenants.into_iter().filter(|(_, tenant)| working.contains(&tenant.id)) {
            let parent = usage.parent_of(node);
            let whole = parent.map_or(WHOLE, |parent| by_node[parent]);
            let weights = siblings.get(&parent).map_or(0, |(weights, _)| *weights);
            by_node[node] = whole * weight(tenant) / weights.max(1);
        }
        Entitlements { working, siblings, by_node }
    }

    /// True if a sibling of the tenant has jobs.
    fn is_contested(&self, tenant: &Tenant, usage: &TenantUsage) -> bool {
        let parent = usage.node_of(&tenant.id).and_then(|node| usage.parent_of(node));
        let working = self.siblings.get(&parent).map_or(0, |(_, count)| *count);
        working > usize::from(self.working.contains(&tenant.id))
    }
}

fn weight(tenant: &Tenant) -> u64 {
    u64::from(tenant.config.weight)
}

/// The resources of all registered nodes, in any state. O(kinds).
fn total(state: &State) -> Demand {
    let power = Demand { milliwatts: state.resources.milliwatts(), ..Demand::default() };
    state.resources.kinds().fold(power, |sum, (kind, nodes)| {
        let nodes = nodes as u64;
        sum.plus(Demand {
            gpu_milli: kind.gpus.len() as u64 * nodes * 1_000,
            cpus: u64::from(kind.cpus) * nodes,
            memory_mib: kind.memory_mib * nodes,
            ..Demand::default()
        })
    })
}

/// A part of a whole, in millionths; 0 of 0 is 0.
fn ratio(part: u64, whole: u64) -> u64 {
    let millionths = u128::from(part) * u128::from(WHOLE) / u128::from(whole.max(1));
    u64::try_from(millionths).unwrap_or(u64::MAX)
}

/// 1 / (1 + load), in thousandths.
fn factor(load: Option<u64>) -> u64 {
    ONE * ONE / (ONE + load.unwrap_or(0))
}

/// Usage over entitlement, in thousandths.
fn load(used: u64, entitled: u64) -> u64 {
    (used.saturating_mul(ONE) / entitled.max(1)).min(LOAD_MAX)
}
