//! Usage by tenant: what each tenant holds and runs, together with its descendants.

use std::collections::BTreeMap;

use crate::accounting::tenant::Tenant;
use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::state::State;

/// The tree of tenants with their usage. Parents come before their children.
#[derive(Debug, Default)]
pub(crate) struct TenantUsage {
    nodes: Vec<TenantNode>,
    index: BTreeMap<TenantId, usize>,
}

#[derive(Debug)]
struct TenantNode {
    parent: Option<usize>,
    /// Running attempts, claims and evictions in progress.
    held: Demand,
    /// Running attempts only.
    running: Demand,
}

impl TenantUsage {
    /// Usage in the state. O(tenants × depth).
    pub fn of(state: &State) -> TenantUsage {
        let mut children: BTreeMap<Option<&TenantId>, Vec<&Tenant>> = BTreeMap::new();
        for tenant in state.tenants.values() {
            children.entry(tenant.config.parent.as_ref()).or_default().push(tenant);
        }
        let mut usage = TenantUsage::default();
        usage.add_children(&children, None);
        for tenant in state.tenants.values() {
            usage.hold(&tenant.id, tenant.held);
            usage.run(&tenant.id, tenant.held);
        }
        usage
    }

    fn add_children(
        &mut self,
        children: &BTreeMap<Option<&TenantId>, Vec<&Tenant>>,
        parent: Option<(&TenantId, usize)>,
    ) {
        for tenant in children.get(&parent.map(|(id, _)| id)).into_iter().flatten() {
            let node = self.nodes.len();
            let parent = parent.map(|(_, node)| node);
            self.nodes.push(TenantNode { parent, held: Demand::default(), running: Demand::default() });
            self.index.insert(tenant.id.clone(), node);
            self.add_children(children, Some((&tenant.id, node)));
        }
    }

    /// What a tenant holds, or would hold after the plan so far.
    pub fn held(&self, tenant: &TenantId) -> Demand {
        self.node_of(tenant).map(|node| self.nodes[node].held).unwrap_or_default()
    }

    /// What a tenant runs, or would run after the plan so far.
    pub fn running(&self, tenant: &TenantId) -> Demand {
        self.node_of(tenant).map(|node| self.nodes[node].running).unwrap_or_default()
    }

    /// Count a demand as held by a tenant and its ancestors.
    pub fn hold(&mut self, tenant: &TenantId, demand: Demand) {
        self.update_lineage(tenant, |node| node.held = node.held.plus(demand));
    }

    /// Count a demand as running for a tenant and its ancestors.
    pub fn run(&mut self, tenant: &TenantId, demand: Demand) {
        self.update_lineage(tenant, |node| node.running = node.running.plus(demand));
    }

    fn update_lineage(&mut self, tenant: &TenantId, update: impl Fn(&mut TenantNode)) {
        let mut next = self.node_of(tenant);
        while let Some(node) = next {
            update(&mut self.nodes[node]);
            next = self.nodes[node].parent;
        }
    }

    /// Every tenant with its position in the tree, in order of name.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, usize)> {
        self.index.iter().map(|(tenant, node)| (tenant, *node))
    }

    /// The position of a tenant in the tree.
    pub fn node_of(&self, tenant: &TenantId) -> Option<usize> {
        self.index.get(tenant).copied()
    }

    pub fn parent_of(&self, node: usize) -> Option<usize> {
        self.nodes[node].parent
    }

    pub fn held_at(&self, node: usize) -> Demand {
        self.nodes[node].held
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }
}
