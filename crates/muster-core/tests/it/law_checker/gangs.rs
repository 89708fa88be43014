//! Laws of gangs: their master ports, and the bound on their start.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::objects::job::PlacedTask;
use muster_core::objects::node::Sight;
use muster_core::{JobId, NodeId, State, Timestamp};

/// The live gangs, from the events alone.
#[derive(Default)]
pub struct Gangs(BTreeMap<JobId, Gang>);

struct Gang {
    master: NodeId,
    port: u16,
    start_bound_ms: Option<i64>,
    missing: BTreeSet<NodeId>,
    first_started_at: Option<Timestamp>,
}

impl Gangs {
    /// A gang gets the lowest free port of its master; only a gang on several nodes has a start bound.
    pub fn check_placement(
        &mut self,
        before: &State,
        id: JobId,
        tasks: &[PlacedTask],
        (port, start_bound_ms): (Option<u16>, Option<i64>),
    ) {
        let tasks_most: u32 = before.jobs[&id].spec.tasks.iter().map(|group| group.count_most()).sum();
        assert_eq!(port.is_some(), tasks_most > 1, "{id}: a gang, and only a gang, has a port");
        let missing: BTreeSet<NodeId> = tasks.iter().map(|task| task.node.clone()).collect();
        let expected_ms = Some(before.settings.gang_start_timeout_ms).filter(|_| missing.len() > 1);
        assert_eq!(start_bound_ms, expected_ms, "{id} has another start bound");
        let (Some(port), master) = (port, tasks[0].node.clone()) else { return };
        let held: BTreeSet<u16> = self.0.values().filter(|gang| gang.master == master).map(|gang| gang.port).collect();
        let range = before.settings.master_ports;
        let lowest = (range.first..=range.last).find(|port| !held.contains(port));
        assert_eq!(Some(port), lowest, "{id} has not the lowest free port of {master}");
        self.0.insert(id, Gang { master, port, start_bound_ms, missing, first_started_at: None });
    }

    pub fn start(&mut self, id: JobId, node: &NodeId, at: Timestamp) {
        if let Some(gang) = self.0.get_mut(&id) {
            gang.missing.remove(node);
            gang.first_started_at.get_or_insert(at);
        }
    }

    /// Exactly the nodes are late that are heard, and were for as long as the bound.
    pub fn check_late(&self, before: &State, id: JobId, nodes: &[NodeId], at: Timestamp) {
        let gang = &self.0[&id];
        let bound_ms = gang.start_bound_ms.expect("a bound");
        assert!(gang.first_started_at.is_some_and(|first| at.since(first) >= bound_ms), "{id} was stopped too early");
        assert!(!nodes.is_empty() && nodes.iter().all(|node| gang.missing.contains(node)), "{id}: {nodes:?} started");
        for node in nodes {
            let sight = &before.nodes[node].state.sight;
            assert!(sight.status == Sight::Seen && at.since(sight.since) >= bound_ms, "{node} was not heard");
        }
    }

    pub fn end(&mut self, id: JobId) {
        self.0.remove(&id);
    }
}
