//! The law of gang starts: no gang runs in part for longer than its bound, unless nobody hears the missing nodes. Kept from
//! the journal alone.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::objects::job::StopCause;
use muster_core::objects::node::Sight;
use muster_core::{Event, JobId, NodeId, Timestamp};
use muster_store::Entry;

/// A leader that is paused for less than its lease lasts stays the leader, and it looks for late gangs every second.
const SLACK_MS: i64 = 20_000;

/// The gangs that have not started as a whole.
#[derive(Default)]
pub struct GangStarts {
    gangs: BTreeMap<JobId, StartingGang>,
    /// Since when the nodes that are heard are heard.
    heard_since: BTreeMap<NodeId, Timestamp>,
    epoch: u64,
    epoch_began_at: Timestamp,
}

struct StartingGang {
    bound_ms: i64,
    missing: BTreeSet<NodeId>,
    first_started_at: Option<Timestamp>,
}

impl GangStarts {
    /// Checks the gangs before an entry, and takes the entry over.
    pub fn check_entry(&mut self, entry: &Entry) -> Result<(), String> {
        if self.epoch != entry.epoch {
            (self.epoch, self.epoch_began_at) = (entry.epoch, entry.at);
        }
        if let Event::AttemptStopping { job, cause: StopCause::LateStart { nodes, .. }, .. } = &entry.event {
            self.check_stop(*job, nodes, entry.at)?;
        }
        let overdue = self.gangs.iter().find_map(|(job, gang)| Some((job, self.overdue_node(gang, entry.at)?)));
        if let Some((job, node)) = overdue {
            return Err(format!("{job} runs in part, and {node} is missing for too long at {:?}", entry.at));
        }
        self.take_over(&entry.event);
        Ok(())
    }

    fn overdue_node<'a>(&self, gang: &'a StartingGang, now: Timestamp) -> Option<&'a NodeId> {
        let is_overdue = |node: &&NodeId| {
            let since = self.waited_since(gang, node).map(|since| since.max(self.epoch_began_at));
            since.is_some_and(|since| now.since(since) > gang.bound_ms + SLACK_MS)
        };
        gang.missing.iter().find(is_overdue)
    }

    /// `None` if no node of the gang has started, or nobody hears this one.
    fn waited_since(&self, gang: &StartingGang, node: &NodeId) -> Option<Timestamp> {
        Some(gang.first_started_at?.max(*self.heard_since.get(node)?))
    }

    fn check_stop(&self, job: JobId, nodes: &[NodeId], now: Timestamp) -> Result<(), String> {
        let Some(gang) = self.gangs.get(&job) else { return Err(format!("{job} is stopped as late, and is whole")) };
        let is_late = |node: &NodeId| {
            let since = self.waited_since(gang, node).filter(|_| gang.missing.contains(node));
            since.is_some_and(|since| now.since(since) >= gang.bound_ms)
        };
        match !nodes.is_empty() && nodes.iter().all(is_late) {
            true => Ok(()),
            false => Err(format!("{job} is stopped because of {nodes:?}, and they are not late")),
        }
    }

    fn take_over(&mut self, event: &Event) {
        match event {
            Event::JobPlaced { job, tasks, start_bound_ms: Some(bound_ms), .. } => {
                let missing = tasks.iter().map(|task| task.node.clone()).collect();
                self.gangs.insert(*job, StartingGang { bound_ms: *bound_ms, missing, first_started_at: None });
            }
            Event::AttemptStarted { job, node, at, .. } => {
                if let Some(gang) = self.gangs.get_mut(job) {
                    gang.first_started_at.get_or_insert(*at);
                }
                self.found(*job, node);
            }
            Event::NodePartEnded { job, node, .. } => self.found(*job, node),
            Event::AttemptStopping { job, .. } | Event::AttemptEnded { job, .. } => drop(self.gangs.remove(job)),
            Event::NodeRegistered { node, at, .. } => drop(self.heard_since.entry(node.clone()).or_insert(*at)),
            Event::NodeSightChanged { node, sight: Sight::Seen, at, .. } => {
                self.heard_since.insert(node.clone(), *at);
            }
            Event::NodeSightChanged { node, .. } | Event::NodeRemoved { node, .. } => {
                self.heard_since.remove(node);
            }
            _ => {}
        }
    }

    fn found(&mut self, job: JobId, node: &NodeId) {
        if let Some(gang) = self.gangs.get_mut(&job) {
            gang.missing.remove(node);
        }
    }
}
