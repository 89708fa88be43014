//! Caches of a planning round (step 7): results of earlier queue heads. Within a round free space only shrinks, so a
//! negative result stays valid.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::estimate::expected_end::ExpectedEnd;
use crate::objects::shape::Shape;
use crate::planner::draft::candidates::{Candidates, PreemptionReach};
use crate::planner::draft::preemption_options::EvictionOptions;
use crate::planner::request::Request;

/// Results that hold for every job of one shape, unless limits of its tenant decide which devices the job may use.
#[derive(Default)]
pub(crate) struct Caches {
    pub requests: BTreeMap<Arc<Shape>, Arc<Request>>,
    /// Shapes that found no placement, with the least constrained expected end for which that was so.
    pub no_fit: BTreeMap<Arc<Shape>, ExpectedEnd>,
    /// Running jobs by node, built when the first job may preempt.
    pub candidates: Option<Candidates>,
    pub eviction_options: BTreeMap<Arc<Shape>, EvictionOptions>,
    /// Shapes for which no eviction on several nodes was found, with the reach of the preemptor.
    pub no_multi_node_eviction: BTreeMap<Arc<Shape>, PreemptionReach>,
    /// Number of searches over all nodes for victims.
    pub eviction_searches: usize,
}
