//! Step 4, decide: the commands about the state of a node on its two axes, service and sight; and what a lost node means
//! for its attempts.

use crate::facts::command::Actor;
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::{JobId, NodeId};
use crate::objects::job::{Exit, Job, OnNodeLost, PlacedTask, SelfFence};
use crate::objects::node::{Axis, Node, NodeStatus, Service, Sight};
use crate::state::State;
use crate::state::decision::Decision;
use crate::state::report::PartEnd;
use crate::time::{SECOND, Timestamp};

/// A silence that differs by less from the recorded one is the same: the engine's clock and the monotonic clock that
/// measures silence are read at different moments.
const SILENCE_TOLERANCE_MS: i64 = 2 * SECOND;

/// How the reason of a drain by the health program begins.
const HEALTH_DRAIN: &str = "health program failed: ";

/// The measured silence of a node.
pub(super) struct Silence<'a> {
    pub ms: i64,
    /// Attempts that existed when it was measured and whose self-fence it proves.
    pub fenced: &'a [(JobId, u32)],
}

/// A change of sight.
pub(super) struct SightChange<'a> {
    pub node: &'a NodeId,
    pub sight: Sight,
    pub silent_since: Option<Timestamp>,
    pub by: String,
    pub why: String,
}

impl SightChange<'_> {
    pub fn event(self, at: Timestamp) -> Event {
        let SightChange { node, sight, silent_since, by, why } = self;
        Event::NodeSightChanged { node: node.clone(), sight, silent_since, by, why, at }
    }
}

impl State {
    /// The self-fence of an attempt that is placed now. All its nodes have the same deadline: that of the slowest pace.
    pub(super) fn self_fence_of(&self, job: &Job, tasks: &[PlacedTask]) -> Option<SelfFence> {
        let pace = |task: &PlacedTask| self.nodes.get(&task.node)?.facts.heartbeat_interval_ms;
        let slowest_ms = tasks.iter().filter_map(pace).max().unwrap_or_default();
        SelfFence::of(&self.settings, slowest_ms).filter(|_| job.spec.on_node_lost == OnNodeLost::Requeue)
    }

    pub(super) fn decide_node_state(
        &self,
        by: &Actor,
        id: &NodeId,
        status: NodeStatus,
        why: &str,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        match status.axis() {
            Axis::Service(service) => self.decide_service(by, id, service, why, now),
            Axis::Sight(sight) => self.decide_declared_sight(by, id, sight, why, now),
        }
    }

    fn decide_service(
        &self,
        by: &Actor,
        id: &NodeId,
        service: Service,
        why: &str,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let Node { state, drain, .. } = self.node(id)?;
        let mut events = Vec::new();
        if (state.service.status, state.service.why.as_str(), drain.is_some()) != (service, why, false) {
            let (node, by, why) = (id.clone(), by.name.clone(), why.to_string());
            events.push(Event::NodeServiceChanged { node, service, by, why, drain: None, at: now });
        }
        if service == Service::Ready && state.sight.status == Sight::Fenced {
            // The next heartbeat of its agent makes it `Seen`. Until then nothing may be placed on it.
            let (by, why) = (by.name.clone(), "the fence was lifted".to_string());
            let lifted = SightChange { node: id, sight: Sight::Unreachable, silent_since: state.silent_since, by, why };
            events.push(lifted.event(now));
        }
        Ok(Decision::done(events))
    }

    /// The drain of a node by the system. What an operator set, or an earlier fault, stays.
    pub(super) fn drained(&self, id: &NodeId, why: String, now: Timestamp) -> Option<Event> {
        let is_ready = self.nodes.get(id)?.state.service.status == Service::Ready;
        let (node, service, by) = (id.clone(), Service::Draining, Actor::system().name);
        is_ready.then_some(Event::NodeServiceChanged { node, service, by, why, drain: None, at: now })
    }

    /// The health program of a node has run. A failure drains the node. A success returns it only if the settings say so,
    /// and only from this very drain.
    pub(super) fn decide_health(
        &self,
        id: &NodeId,
        failure: Option<&str>,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let node = self.node(id)?;
        let mut events = Vec::new();
        if node.health_failure.as_ref().map(|known| known.why.as_str()) != failure {
            let failure = failure.map(str::to_string);
            events.push(Event::NodeHealthChanged { node: id.clone(), failure, at: now });
        }
        match failure {
            // Also one that an operator has returned: the node gets no jobs while its program fails.
            Some(why) => events.extend(self.drained(id, format!("{HEALTH_DRAIN}{why}"), now)),
            None if self.settings.health_resumes && is_drained_by_health(node) => {
                let (by, why) = (Actor::system().name, "health program succeeded".to_string());
                let (node, service) = (id.clone(), Service::Ready);
                events.push(Event::NodeServiceChanged { node, service, by, why, drain: None, at: now });
            }
            _ => {}
        }
        Ok(Decision::done(events))
    }

    /// An operator declares what is known about a node: above all, that nothing runs on it any more.
    fn decide_declared_sight(
        &self,
        by: &Actor,
        id: &NodeId,
        sight: Sight,
        why: &str,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let state = &self.node(id)?.state;
        if (state.sight.status, state.sight.why.as_str()) == (sight, why) {
            return Ok(Decision::done(Vec::new()));
        }
        let (by, why) = (by.name.clone(), why.to_string());
        let silent_since = state.silent_since.or((sight != Sight::Seen).then_some(now));
        let mut events = vec![SightChange { node: id, sight, silent_since, by, why }.event(now)];
        match sight {
            Sight::Fenced => self.end_parts(id, |_| true, &format!("node `{id}` was fenced"), now, &mut events),
            Sight::Unreachable => self.end_unsafe_parts(id, now, &mut events),
            Sight::Seen | Sight::Suspect => {}
        }
        self.settle_ends(&mut events, now);
        Ok(Decision::done(events))
    }

    /// The leader measured the silence of a node, or heard it again.
    pub(super) fn decide_node_sight(
        &self,
        id: &NodeId,
        sight: Sight,
        silence: &Silence,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        self.node(id)?;
        if sight == Sight::Seen {
            return Ok(Decision::done(self.node_seen(id, "its agent reports again", now).into_iter().collect()));
        }
        let mut events = Vec::new();
        let is_fenced = |job: &Job| self.is_fence_proven(job, silence);
        let why = format!("node `{id}` was silent for {} s, longer than its self-fence deadline", silence.ms / SECOND);
        self.end_parts(id, is_fenced, &why, now, &mut events);
        let is_empty = self.attempts_on(id).filter(|job| has_open_part(job, id)).all(is_fenced);
        let sight = if is_empty && !events.is_empty() { Sight::Fenced } else { sight };
        events.extend(self.silent_node(id, sight, silence.ms, now));
        if sight == Sight::Unreachable {
            self.end_unsafe_parts(id, now, &mut events);
        }
        self.settle_ends(&mut events, now);
        Ok(Decision::done(events))
    }

    fn is_fence_proven(&self, job: &Job, silence: &Silence) -> bool {
        let attempt = job.attempt().filter(|attempt| silence.fenced.contains(&(job.id, attempt.number)));
        let fence = attempt.and_then(|attempt| attempt.self_fence);
        fence.is_some_and(|fence| fence.proven_after_ms <= silence.ms)
    }

    /// The change of a node's sight after a silence; `None` if it is known. A node that was declared dead stays so.
    fn silent_node(&self, id: &NodeId, sight: Sight, silent_ms: i64, now: Timestamp) -> Option<Event> {
        let state = &self.nodes.get(id)?.state;
        let silent_since = now.plus(-silent_ms.max(0));
        let is_later = |known: Timestamp| silent_since > known.plus(SILENCE_TOLERANCE_MS);
        let restarted = state.silent_since.is_none_or(is_later);
        let is_known = state.sight.status > sight || (state.sight.status == sight && !restarted);
        let why = match sight {
            Sight::Fenced => "the self-fence deadlines of all its attempts have passed".to_string(),
            _ => format!("no report from its agent for {} s", silent_ms / SECOND),
        };
        let by = Actor::system().name;
        (!is_known).then(|| SightChange { node: id, sight, silent_since: Some(silent_since), by, why }.event(now))
    }

    pub(super) fn node_registered_again(&self, id: &NodeId, now: Timestamp) -> Option<Event> {
        self.node_seen(id, "its agent registered again", now)
    }

    /// A node that was silent or fenced is heard again. Its service stays as operators set it.
    fn node_seen(&self, id: &NodeId, why: &str, now: Timestamp) -> Option<Event> {
        let known = self.nodes.get(id)?.state.sight.status;
        let (by, why) = (Actor::system().name, why.to_string());
        (known != Sight::Seen)
            .then(|| SightChange { node: id, sight: Sight::Seen, silent_since: None, by, why }.event(now))
    }

    /// End the parts of attempts whose jobs accept that two copies of them may run.
    fn end_unsafe_parts(&self, id: &NodeId, now: Timestamp, events: &mut Vec<Event>) {
        let is_unsafe = |job: &Job| job.spec.on_node_lost == OnNodeLost::RequeueUnsafe;
        self.end_parts(id, is_unsafe, &format!("node `{id}` is unreachable"), now, events);
    }

    /// End the chosen parts of attempts on a node. When their processes ended is unknown.
    pub(super) fn end_parts(
        &self,
        id: &NodeId,
        is_chosen: impl Fn(&Job) -> bool,
        why: &str,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        for job in self.attempts_on(id).filter(|job| has_open_part(job, id) && is_chosen(job)) {
            let exit = Exit::Unknown { why: why.to_string() };
            let end = PartEnd { exit: &exit, stopped: false, ended_at: None, prolog_failed: false };
            self.end_part(job, id, &end, now, events);
        }
    }
}

fn is_drained_by_health(node: &Node) -> bool {
    let service = &node.state.service;
    service.status == Service::Draining && service.by == Actor::system().name && service.why.starts_with(HEALTH_DRAIN)
}

pub(super) fn has_open_part(job: &Job, node: &NodeId) -> bool {
    job.attempt().is_some_and(|attempt| attempt.has_open_part(node))
}
