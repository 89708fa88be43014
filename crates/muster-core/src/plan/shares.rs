//! Fair shares: how much of the cluster everyone should have, how much they have, and the factor between.
//!
//! Tenants with work divide the cluster by weight, level by level down the tree. What one has is the mean of two
//! figures: the dominant share of what it holds now (the largest of its parts of all GPUs, cores, memory and watts), and
//! the GPUs it held of late. The load of a tenant is what it has over what it should have; the loads of all levels
//! on which someone else has work too are averaged, so that a team is judged beside its siblings and its department
//! beside others. Inside a tenant those who have jobs divide its share evenly; beside other tenants that is an
//! eighth of the load, so it decides among them and hardly beyond.
//!
//! The factor is 1 / (1 + load): 1 for who has nothing, one half for who has just their share. It is 1 for everyone
//! where nobody competes.
//!
//! All are integers. Within a round what is held only grows, so factors only fall.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::budget::BudgetUse;
use crate::guarantee::{Cover, anyone_is_guaranteed, guarantor};
use crate::ids::TenantId;
use crate::job::Demand;
use crate::model_guarantee::ModelBooks;
use crate::queue::Shape;
use crate::state::State;
use crate::tenant::Tenant;
use crate::time::Timestamp;

/// The whole, in millionths.
const WHOLE: u64 = 1_000_000;
/// Millionths in a thousandth.
const MICRO_PER_MILLI: u64 = 1_000;
/// One, in thousandths.
const ONE: u64 = 1_000;
/// One part in so many of the load is the member's own, where tenants compete too.
const MEMBER_PART: u64 = 8;
/// Beyond this, more makes no difference; keeps sums far from overflow.
const LOAD_MAX: u64 = 1_000_000_000;

/// How someone stands against their fair share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairShare {
    /// From 1,000 for who has nothing, over 500 for who has just their share, towards 0.
    pub factor_milli: u32,
    /// What part of the cluster the tenant should have, among all that have work, in thousandths.
    pub share_milli: u32,
    /// What part it has, now and of late, in thousandths.
    pub used_milli: u32,
}

/// How every tenant stands, whoever works for it.
pub fn fair_shares(state: &State, now: Timestamp) -> BTreeMap<TenantId, FairShare> {
    let shares = Shares::of(state, now, None);
    let stand = |place: usize| shares.standing(place, shares.load_of_tenants(place));
    shares.places.iter().map(|(tenant, place)| (tenant.clone(), stand(*place))).collect()
}

/// Someone whose job is not in the state.
pub(super) struct Guest<'a> {
    pub tenant: &'a TenantId,
    pub user: &'a str,
}

/// Everyone's shares, as they would be if the plan so far came true.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// What the whole cluster has.
    total: Demand,
    branches: Vec<Branch>,
    places: BTreeMap<TenantId, usize>,
    fair_share_max: u64,
    /// Whether any tenant has a guarantee or limits damage: who may go depends on who goes then.
    guarantees: bool,
    /// GPUs of models that someone is guaranteed; empty unless they are asked for.
    pub models: ModelBooks,
    /// What budgets are checked against.
    pub budgets: BudgetUse,
}

/// A tenant with all below it.
#[derive(Debug)]
struct Branch {
    above: Option<usize>,
    /// Whether a sibling has work too.
    contested: bool,
    /// In millionths of the cluster.
    entitled: u64,
    held: Demand,
    /// The part of it that is not only waited for.
    runs: Demand,
    recent_micro_gpus: u64,
    members: Members,
}

/// Those who work for a tenant itself.
#[derive(Debug, Default)]
struct Members {
    /// How many have jobs.
    busy: u64,
    /// GPUs held, and millionths of GPUs held of late, by name.
    by_name: BTreeMap<String, (u64, u64)>,
}

impl Shares {
    /// As it is in the state. O(tenants × depth + members). A guest counts as having work.
    pub fn of(state: &State, now: Timestamp, guest: Option<&Guest<'_>>) -> Shares {
        let fair_share_max = u64::from(state.settings.fair_share_max);
        let guarantees = anyone_is_guaranteed(state) || state.anyone_limits_damage();
        let budgets = BudgetUse::of(state, now);
        let mut shares =
            Shares { total: total(state), fair_share_max, guarantees, budgets, ..Shares::default() };
        let mut below: BTreeMap<Option<&TenantId>, Vec<&Tenant>> = BTreeMap::new();
        for tenant in state.tenants.values() {
            below.entry(tenant.config.parent.as_ref()).or_default().push(tenant);
        }
        let busy = state.tenants.values().filter(|tenant| tenant.live_jobs > 0).map(|tenant| &tenant.id);
        let busy = busy.chain(guest.map(|guest| guest.tenant));
        let working = busy.flat_map(|id| state.lineage(id)).map(|tenant| &tenant.id).collect();
        let tree = Tree { state, now, guest, below, working };
        shares.add_level(&tree, None, WHOLE);
        shares
    }

    /// The same with what is held of models that someone is guaranteed; without it nobody is within such a guarantee.
    pub fn with_models(self, state: &State) -> Shares {
        Shares { models: ModelBooks::of(state), ..self }
    }

    /// Add the tenants below one, and all below them; they divide `whole` by weight.
    fn add_level(&mut self, tree: &Tree, above: Option<(&TenantId, usize)>, whole: u64) {
        let Some(tenants) = tree.below.get(&above.map(|(id, _)| id)) else { return };
        let working = || tenants.iter().filter(|one| tree.working.contains(&one.id));
        let (weights, count) = (working().map(|one| weight(one)).sum::<u64>(), working().count());
        for tenant in tenants {
            let works = tree.working.contains(&tenant.id);
            let entitled = if works { whole * weight(tenant) / weights.max(1) } else { 0 };
            let place = self.branches.len();
            let mut branch = tree.branch(tenant, above.map(|(_, place)| place), entitled);
            branch.contested = count > usize::from(works);
            let (held, recent) = (branch.held, branch.recent_micro_gpus);
            self.branches.push(branch);
            self.places.insert(tenant.id.clone(), place);
            self.add_level(tree, Some((&tenant.id, place)), entitled);
            // Those below have added themselves to this branch; now it adds itself to those above.
            self.count_above(place, (held, held), recent);
        }
    }

    fn count_above(&mut self, place: usize, (held, runs): (Demand, Demand), recent_micro_gpus: u64) {
        let mut above = self.branches[place].above;
        while let Some(place) = above {
            let branch = &mut self.branches[place];
            branch.held = branch.held.plus(held);
            branch.runs = branch.runs.plus(runs);
            branch.recent_micro_gpus += recent_micro_gpus;
            above = branch.above;
        }
    }

    /// What a tenant would hold, with all below it.
    pub fn held(&self, tenant: &TenantId) -> Demand {
        self.places.get(tenant).map(|place| self.branches[*place].held).unwrap_or_default()
    }

    /// Whether any tenant has a guarantee.
    pub fn has_guarantees(&self) -> bool {
        self.guarantees
    }

    /// The guarantees that jobs of a shape stay within.
    pub fn cover<'a>(&self, state: &'a State, tenant: &TenantId, shape: &Shape) -> Cover<'a> {
        if !self.guarantees {
            return Cover::default();
        }
        let demand = state.capacity.least_demand(shape.groups.iter().map(|(count, each)| (*count, each)));
        Cover {
            amounts: guarantor(state, tenant, demand, |tenant| self.held(tenant)),
            models: self.models.guarantors(state, tenant, shape),
        }
    }

    /// What a tenant would run, with all below it.
    pub fn runs(&self, tenant: &TenantId) -> Demand {
        self.places.get(tenant).map(|place| self.branches[*place].runs).unwrap_or_default()
    }

    /// Count what a job takes that starts.
    pub fn start(&mut self, tenant: &TenantId, demand: Demand) {
        let Some(place) = self.places.get(tenant).copied() else { return };
        self.count_above(place, (Demand::default(), demand), 0);
        self.branches[place].runs = self.branches[place].runs.plus(demand);
    }

    /// Count what a job takes, or will take of space that is set aside for it.
    pub fn take(&mut self, tenant: &TenantId, user: &str, demand: Demand) {
        let Some(place) = self.places.get(tenant).copied() else { return };
        self.count_above(place, (demand, Demand::default()), 0);
        let branch = &mut self.branches[place];
        branch.held = branch.held.plus(demand);
        let member = branch.members.by_name.entry(user.to_string()).or_default();
        member.0 += demand.gpu_milli;
    }

    /// Priority that is taken from a member's jobs now.
    pub fn penalty(&self, tenant: &TenantId, user: &str) -> u32 {
        let load = self.places.get(tenant).and_then(|place| self.load(*place, user));
        (self.fair_share_max * (ONE - factor(load)) / ONE) as u32
    }

    /// How a member stands; nothing for a tenant that does not exist.
    pub fn fair_share(&self, tenant: &TenantId, user: &str) -> Option<FairShare> {
        let place = self.places.get(tenant).copied()?;
        Some(self.standing(place, self.load(place, user)))
    }

    fn standing(&self, place: usize, load: Option<u64>) -> FairShare {
        let branch = &self.branches[place];
        FairShare {
            factor_milli: factor(load) as u32,
            share_milli: (branch.entitled / 1_000) as u32,
            used_milli: (self.used(branch) / 1_000) as u32,
        }
    }

    /// What a member has over what they should have; nothing where nobody competes.
    fn load(&self, place: usize, user: &str) -> Option<u64> {
        match (self.load_of_tenants(place), self.load_of_member(&self.branches[place], user)) {
            (Some(all), Some(own)) => Some((all * (MEMBER_PART - 1) + own) / MEMBER_PART),
            (all, own) => all.or(own),
        }
    }

    /// The mean over all levels on which someone competes.
    fn load_of_tenants(&self, place: usize) -> Option<u64> {
        let (mut sum, mut levels, mut next) = (0, 0, Some(place));
        while let Some(place) = next {
            let branch = &self.branches[place];
            if branch.contested {
                sum += load(self.used(branch), branch.entitled);
                levels += 1;
            }
            next = branch.above;
        }
        (levels > 0).then(|| sum / levels)
    }

    /// Against an even part of the tenant's share, if others have jobs there too.
    fn load_of_member(&self, branch: &Branch, user: &str) -> Option<u64> {
        let (held, recent) = branch.members.by_name.get(user).copied().unwrap_or_default();
        let used =
            ratio(held, self.total.gpu_milli).midpoint(ratio(recent, self.total.gpu_milli * MICRO_PER_MILLI));
        let busy = branch.members.busy;
        (busy > 1).then(|| load(used, branch.entitled / busy))
    }

    /// What a branch has, in millionths of the cluster.
    fn used(&self, branch: &Branch) -> u64 {
        let (held, total) = (branch.held, self.total);
        let now = ratio(held.gpu_milli, total.gpu_milli).max(ratio(held.cpus, total.cpus));
        let now = now.max(ratio(held.memory_mib, total.memory_mib));
        let now = now.max(ratio(held.milliwatts, total.milliwatts));
        let of_late = ratio(branch.recent_micro_gpus, total.gpu_milli * MICRO_PER_MILLI);
        now.midpoint(of_late)
    }
}

/// The tenants while their shares are worked out.
struct Tree<'a> {
    state: &'a State,
    now: Timestamp,
    guest: Option<&'a Guest<'a>>,
    below: BTreeMap<Option<&'a TenantId>, Vec<&'a Tenant>>,
    /// Tenants that have jobs, and all above them.
    working: BTreeSet<&'a TenantId>,
}

impl Tree<'_> {
    /// How many of its members have jobs.
    fn busy(&self, tenant: &Tenant) -> u64 {
        let has_jobs = |name: &str| tenant.members.get(name).is_some_and(|member| member.live_jobs > 0);
        let guest = self.guest.filter(|guest| guest.tenant == &tenant.id && !has_jobs(guest.user));
        let busy = tenant.members.values().filter(|member| member.live_jobs > 0).count();
        busy as u64 + u64::from(guest.is_some())
    }

    fn branch(&self, tenant: &Tenant, above: Option<usize>, entitled: u64) -> Branch {
        let half_life_ms = tenant.half_life_ms(self.state.settings.usage_half_life_ms);
        let members: BTreeMap<String, (u64, u64)> = tenant
            .members
            .iter()
            .map(|(name, member)| {
                let recent = member.recent.micro_gpus(member.held.gpu_milli, self.now, half_life_ms);
                (name.clone(), (member.held.gpu_milli, recent))
            })
            .collect();
        Branch {
            above,
            contested: false,
            entitled,
            held: tenant.held,
            runs: tenant.held,
            recent_micro_gpus: tenant.recent.micro_gpus(tenant.held.gpu_milli, self.now, half_life_ms),
            members: Members { busy: self.busy(tenant), by_name: members },
        }
    }
}

fn weight(tenant: &Tenant) -> u64 {
    u64::from(tenant.config.weight)
}

/// What all registered nodes have together, in whatever state they are. O(kinds).
fn total(state: &State) -> Demand {
    let power = Demand { milliwatts: state.capacity.milliwatts(), ..Demand::default() };
    state.capacity.kinds().fold(power, |sum, (kind, nodes)| {
        let nodes = nodes as u64;
        sum.plus(Demand {
            gpu_milli: kind.gpus.len() as u64 * nodes * 1_000,
            cpus: u64::from(kind.cpus) * nodes,
            memory_mib: kind.memory_mib * nodes,
            ..Demand::default()
        })
    })
}

/// A part of a whole, in millionths. Nothing of nothing is nothing.
fn ratio(part: u64, whole: u64) -> u64 {
    let millionths = u128::from(part) * u128::from(WHOLE) / u128::from(whole.max(1));
    u64::try_from(millionths).unwrap_or(u64::MAX)
}

/// One over one plus the load, in thousandths.
fn factor(load: Option<u64>) -> u64 {
    ONE * ONE / (ONE + load.unwrap_or(0))
}

/// What someone has over what they should have, in thousandths.
fn load(used: u64, entitled: u64) -> u64 {
    (used.saturating_mul(ONE) / entitled.max(1)).min(LOAD_MAX)
}
