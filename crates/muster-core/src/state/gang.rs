//! Gangs: the port of the master, held from placement until the leases of the attempt end, and the bound on the time
//! between the start of the first node and that of the last one.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::event::Event;
use crate::facts::plan::Rejection;
use crate::ids::NodeId;
use crate::objects::job::{Attempt, Job, JobSpec, PlacedTask, StopCause};
use crate::objects::node::Sight;
use crate::state::State;
use crate::state::decision::Decision;
use crate::time::Timestamp;

/// The master ports that live attempts hold, by the node of rank 0.
pub(super) type HeldPorts = BTreeMap<NodeId, BTreeSet<u16>>;

impl State {
    /// The port that a gang gets if it is placed now: the lowest one of the configured range that no live attempt with the
    /// same master holds, and none in `taken`.
    pub(super) fn master_port_for(
        &self,
        spec: &JobSpec,
        tasks: &[PlacedTask],
        taken: &HeldPorts,
    ) -> Result<Option<u16>, Rejection> {
        let Some(master) = tasks.first().map(|task| &task.node).filter(|_| spec.is_gang()) else { return Ok(None) };
        let is_held = |ports: &HeldPorts, port: u16| ports.get(master).is_some_and(|held| held.contains(&port));
        let is_free = |port: &u16| !is_held(&self.master_ports, *port) && !is_held(taken, *port);
        self.settings.master_ports.ports().find(is_free).map(Some).ok_or(Rejection::NoMasterPort)
    }

    /// How many more gangs may have their master on a node.
    pub(crate) fn master_ports_left(&self, node: &NodeId) -> usize {
        let range = self.settings.master_ports;
        let held = self.master_ports.get(node).into_iter().flatten().filter(|port| range.contains(**port));
        range.len().saturating_sub(held.count())
    }

    /// The nodes on which no further gang may have its master.
    pub(crate) fn nodes_without_master_ports(&self) -> BTreeSet<NodeId> {
        let masters = self.master_ports.keys();
        masters.filter(|node| self.master_ports_left(node) == 0).cloned().collect()
    }

    /// The start bound of an attempt that is placed now; `None` if it needs none.
    pub(super) fn start_bound_of(&self, tasks: &[PlacedTask]) -> Option<i64> {
        let spans_nodes = tasks.iter().any(|task| task.node != tasks[0].node);
        Some(self.settings.gang_start_timeout_ms).filter(|bound_ms| spans_nodes && *bound_ms > 0)
    }

    /// Stop the gangs of which some node has not started in time.
    pub(super) fn decide_late_gangs(&self, led_ms: i64, now: Timestamp) -> Decision {
        let led_since = now.plus(-led_ms.max(0));
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        let due = due.filter_map(|(_, id)| self.jobs.get(id));
        Decision::done(due.filter_map(|job| self.stop_late_gang(job, led_since, now)).collect())
    }

    /// A node that nobody hears is judged by its silence instead, and has the whole time again once it is heard.
    fn stop_late_gang(&self, job: &Job, led_since: Timestamp, now: Timestamp) -> Option<Event> {
        let attempt = job.attempt().filter(|attempt| attempt.start_deadline().is_some())?;
        let bound_ms = attempt.start_bound_ms?;
        let is_late = |node: &NodeId| {
            let sight = self.nodes.get(node).map(|node| &node.state.sight);
            let is_overdue = |since: Timestamp| since.max(led_since).plus(bound_ms) <= now;
            sight.is_some_and(|sight| sight.status == Sight::Seen && is_overdue(sight.since))
        };
        let nodes: Vec<NodeId> = attempt.unreported_nodes().into_iter().filter(is_late).collect();
        (!nodes.is_empty()).then(|| self.stop(job, attempt, StopCause::LateStart { nodes, bound_ms }, now))
    }
}

/// Adds the port of an attempt.
pub(super) fn hold_port(ports: &mut HeldPorts, attempt: &Attempt) {
    if let Some((master, port)) = attempt.master_and_port() {
        ports.entry(master.clone()).or_default().insert(port);
    }
}

/// Removes the port of an attempt whose leases end.
pub(super) fn release_port(ports: &mut HeldPorts, attempt: &Attempt) {
    let Some((master, port)) = attempt.master_and_port() else { return };
    if let Some(held) = ports.get_mut(master) {
        held.remove(&port);
        if held.is_empty() {
            ports.remove(master);
        }
    }
}
