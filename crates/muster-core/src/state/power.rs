//! Step 4, decide: the use of the power program, and what its result proves.

use crate::facts::command::Actor;
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::{JobId, NodeId};
use crate::objects::job::Job;
use crate::objects::node::{PowerAction, Sight};
use crate::state::State;
use crate::state::decision::Decision;
use crate::state::node_state::{SightChange, has_open_part};
use crate::time::Timestamp;

/// The result of a run of the power program.
pub(super) struct PowerReport<'a> {
    pub action: PowerAction,
    pub failure: Option<&'a str>,
    /// Attempts that existed when it started.
    pub attempts: &'a [(JobId, u32)],
}

impl State {
    /// The program may run. A fence is meant for a node with jobs; other actions would end them by accident.
    pub(super) fn decide_control_power(
        &self,
        id: &NodeId,
        action: PowerAction,
        force: bool,
    ) -> Result<Decision, Refusal> {
        let jobs = self.node(id)?.jobs.len();
        if jobs > 0 && action.ends_jobs() && action != PowerAction::Fence && !force {
            return Err(Refusal::NodeBusy { node: id.clone(), jobs });
        }
        Ok(Decision::done(Vec::new()))
    }

    pub(super) fn decide_power_report(
        &self,
        id: &NodeId,
        report: &PowerReport,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let node = self.node(id)?;
        let PowerReport { action, failure, attempts } = *report;
        let mut events = Vec::new();
        let recovered = node.power_failure.as_ref().is_some_and(|known| known.action == action);
        if failure.is_some() || recovered || action == PowerAction::Reboot {
            let failure = failure.map(str::to_string);
            events.push(Event::NodePowerReported { node: id.clone(), action, failure, at: now });
        }
        if action == PowerAction::Fence && failure.is_none() {
            self.fence_by_program(id, attempts, now, &mut events);
        }
        Ok(Decision::done(events))
    }

    /// The program has confirmed that nothing of these attempts runs any more. An attempt that was placed after its start
    /// is not proven dead.
    fn fence_by_program(&self, id: &NodeId, attempts: &[(JobId, u32)], now: Timestamp, events: &mut Vec<Event>) {
        let is_ended = |job: &Job| job.attempt().is_some_and(|attempt| attempts.contains(&(job.id, attempt.number)));
        let why = "the power program confirmed the fence".to_string();
        self.end_parts(id, is_ended, &format!("node `{id}` was fenced: {why}"), now, events);
        let is_empty = self.attempts_on(id).filter(|job| has_open_part(job, id)).all(is_ended);
        let Some(state) = self.nodes.get(id).map(|node| &node.state) else { return };
        if is_empty && state.sight.status == Sight::Unreachable {
            let (sight, silent_since, by) = (Sight::Fenced, state.silent_since, Actor::system().name);
            events.push(SightChange { node: id, sight, silent_since, by, why }.event(now));
        }
        self.settle_ends(events, now);
    }
}
