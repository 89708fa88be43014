//! Placement: the node and devices of each task of a gang, proposed in step 7.

use std::collections::BTreeMap;

use crate::ids::NodeId;
use crate::objects::job::PlacedTask;
use crate::objects::score::Score;
use crate::planner::request::{KindMatch, Request};
use crate::resources::{DeviceAssignment, ResourceVec, placed_tasks};

/// The node and devices of each task of a gang, by rank.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub tasks: Vec<PlacedTask>,
    /// `None` if nodes were not compared.
    pub score: Option<Box<Score>>,
}

impl Placement {
    /// The whole gang on one node, with an assignment for each task.
    pub fn on_one_node(
        request: &Request,
        node: &NodeId,
        found: &KindMatch,
        assignments: &[DeviceAssignment],
    ) -> Placement {
        Placement { tasks: placed_tasks(&request.shape, (node, &found.kind), assignments), score: None }
    }

    /// The resources that the gang takes, by node.
    pub fn taken(&self, request: &Request) -> BTreeMap<NodeId, ResourceVec> {
        let mut nodes: BTreeMap<NodeId, ResourceVec> = BTreeMap::new();
        for task in &self.tasks {
            let sum = nodes.entry(task.node.clone()).or_default();
            let each = &request.shape.groups[task.group as usize].1;
            let (cpus, memory_mib) = (u64::from(each.cpus), each.memory_mib);
            let host = ResourceVec { cpus, memory_mib, ..ResourceVec::default() };
            *sum = sum.plus(host).plus(ResourceVec::devices_of(task));
        }
        nodes
    }
}
