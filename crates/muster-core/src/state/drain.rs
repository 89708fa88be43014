//! Step 4, decide: drains with a deadline, and reboots of nodes that become empty.

use crate::facts::command::Actor;
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::NodeId;
use crate::objects::job::StopCause;
use crate::objects::node::{Drain, Node, Reboot, Service};
use crate::state::State;
use crate::state::decision::Decision;
use crate::time::{DAY, Timestamp};

/// A longer deadline is a typing error.
const DEADLINE_MS_MAX: i64 = 366 * DAY;

/// What an operator orders with a drain.
pub(super) struct DrainRequest<'a> {
    pub why: &'a str,
    pub deadline_ms: Option<i64>,
    pub reboot: bool,
}

impl State {
    pub(super) fn decide_drain(
        &self,
        by: &Actor,
        id: &NodeId,
        request: &DrainRequest,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let node = self.node(id)?;
        if request.deadline_ms.is_some_and(|ms| !(0..=DEADLINE_MS_MAX).contains(&ms)) {
            let problem = "must be between 0 s and 366 days from now".to_string();
            return Err(Refusal::Invalid { field: "deadline", problem });
        }
        let reboot = if request.reboot { Some(reboot_of(node)?) } else { None };
        let deadline = request.deadline_ms.map(|ms| now.plus(ms));
        let drain = (deadline.is_some() || reboot.is_some()).then(|| Box::new(Drain { deadline, reboot }));
        let service = &node.state.service;
        let known = (service.status, service.why.as_str(), &node.drain);
        let mut events = Vec::new();
        if known != (Service::Draining, request.why, &drain) {
            let (node, by, why) = (id.clone(), by.name.clone(), request.why.to_string());
            events.push(Event::NodeServiceChanged { node, service: Service::Draining, by, why, drain, at: now });
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            let cause = StopCause::Requeued { by: by.name.clone(), why: format!("node `{id}` is drained") };
            self.stop_all_on(id, &cause, now, &mut events);
        }
        Ok(Decision::done(events))
    }

    /// Stop what still runs on nodes whose drain has reached its deadline.
    pub(super) fn stop_at_drain_deadlines(&self, now: Timestamp, events: &mut Vec<Event>) {
        for node in self.nodes.values() {
            let deadline = node.drain.as_ref().and_then(|drain| drain.deadline);
            if deadline.is_some_and(|deadline| deadline <= now) {
                let why = format!("the drain of node `{}` reached its deadline", node.id);
                let cause = StopCause::Requeued { by: node.state.service.by.clone(), why };
                self.stop_all_on(&node.id, &cause, now, events);
            }
        }
    }

    /// Stop the attempts on a node that nothing stops yet. A gang is stopped once, also if several of its nodes drain.
    fn stop_all_on(&self, id: &NodeId, cause: &StopCause, now: Timestamp, events: &mut Vec<Event>) {
        for job in self.attempts_on(id) {
            let Some(attempt) = job.attempt().filter(|attempt| attempt.stopping.is_none()) else { continue };
            let is_stopped =
                |event: &Event| matches!(event, Event::AttemptStopping { job: known, .. } if *known == job.id);
            if !events.iter().any(is_stopped) {
                events.push(self.stop(job, attempt, cause.clone(), now));
            }
        }
    }

    /// The return to service of a node that was to reboot, and whose agent registers after another boot.
    pub(super) fn node_rebooted(&self, id: &NodeId, boot_id: &str, now: Timestamp) -> Option<Event> {
        let node = self.nodes.get(id)?;
        let reboot = node.drain.as_ref()?.reboot.as_ref()?;
        let why = match node.state.service.why.as_str() {
            "" => "rebooted".to_string(),
            why => format!("rebooted: {why}"),
        };
        let (node, service, by) = (id.clone(), reboot.then, Actor::system().name);
        let is_rebooted = !boot_id.is_empty() && boot_id != reboot.boot_id;
        is_rebooted.then_some(Event::NodeServiceChanged { node, service, by, why, drain: None, at: now })
    }
}

/// The reboot of a node, which ends the boot that its agent has reported.
fn reboot_of(node: &Node) -> Result<Reboot, Refusal> {
    let boot_id = node.facts.boot_id.clone();
    if boot_id.is_empty() || node.declared {
        return Err(Refusal::NoBootId { node: node.id.clone() });
    }
    let ordered = node.drain.as_ref().and_then(|drain| drain.reboot.as_ref());
    let then = ordered.map_or(node.state.service.status, |reboot| reboot.then);
    Ok(Reboot { boot_id, then, confirmed: false })
}
