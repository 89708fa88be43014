//! When the power program runs without an operator: to fence unreachable nodes, and to reboot nodes whose agent does not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::objects::job::{Job, OnNodeLost};
use muster_core::objects::node::{Node, PowerAction, Sight};
use muster_core::{JobId, NodeId, State};

use super::PowerTarget;

/// The pause after a failure, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Programs that run at the same time.
const RUNNING_MAX: usize = 16;
/// How long an agent that is seen may take to reboot its node.
const AGENT_REBOOT_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a node may be silent while it reboots: servers with much memory take minutes to start.
const SILENT_REBOOT_TIMEOUT: Duration = Duration::from_secs(1_200);

/// A run of the power program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerTask {
    pub action: PowerAction,
    pub node: NodeId,
    pub target: PowerTarget,
    /// The attempts on the node at the start.
    pub attempts: Vec<(JobId, u32)>,
}

type TaskKey = (NodeId, PowerAction);

/// Decides when the program runs. It reads no clock and runs nothing.
#[derive(Debug, Default)]
pub struct PowerSchedule {
    /// Unreachable nodes are fenced.
    fences: bool,
    running: BTreeSet<TaskKey>,
    failures: BTreeMap<TaskKey, (u32, Duration)>,
    /// Since when a reboot has been due, with the sight of its node then.
    reboots: BTreeMap<NodeId, (Sight, Duration)>,
}

impl PowerSchedule {
    pub fn new(fences: bool) -> PowerSchedule {
        PowerSchedule { fences, ..PowerSchedule::default() }
    }

    /// The runs that are due. They count as running until [`PowerSchedule::finished`].
    pub fn due(&mut self, state: &State, elapsed: Duration) -> Vec<PowerTask> {
        let mut wanted: Vec<TaskKey> = Vec::new();
        let fenced = state.nodes.values().filter(|node| self.fences && is_to_be_fenced(state, node));
        wanted.extend(fenced.map(|node| (node.id.clone(), PowerAction::Fence)));
        wanted.extend(self.overdue_reboots(state, elapsed).into_iter().map(|node| (node, PowerAction::Reboot)));
        self.failures.retain(|key, _| wanted.contains(key) || self.running.contains(key));
        let free = RUNNING_MAX.saturating_sub(self.running.len());
        let is_due = |key: &TaskKey| {
            let pauses = self.failures.get(key).is_some_and(|(_, until)| elapsed < *until);
            !pauses && !self.running.contains(key)
        };
        let due: Vec<TaskKey> = wanted.into_iter().filter(is_due).take(free).collect();
        self.running.extend(due.iter().cloned());
        due.into_iter().filter_map(|(node, action)| task(state, &node, action)).collect()
    }

    /// A run has ended. It is repeated after a pause while the state still wants it.
    pub fn finished(&mut self, task: &PowerTask, is_confirmed: bool, elapsed: Duration) {
        let key = (task.node.clone(), task.action);
        self.running.remove(&key);
        let times = if is_confirmed { 0 } else { self.failures.get(&key).map_or(0, |(times, _)| *times) + 1 };
        let pause = (FIRST_PAUSE * (1 << times.saturating_sub(1).min(16))).min(LONGEST_PAUSE);
        self.failures.insert(key, (times, elapsed + pause));
    }

    /// Nodes that were to reboot and are seen in the same boot long after, or do not return.
    fn overdue_reboots(&mut self, state: &State, elapsed: Duration) -> Vec<NodeId> {
        let due = |node: &&Node| node.due_reboot().is_some_and(|reboot| !reboot.confirmed);
        let due: BTreeMap<NodeId, Sight> =
            state.nodes.values().filter(due).map(|node| (node.id.clone(), sight_of(node))).collect();
        self.reboots.retain(|node, (sight, _)| due.get(node) == Some(sight));
        let mut overdue = Vec::new();
        for (node, sight) in due {
            let (_, since) = *self.reboots.entry(node.clone()).or_insert((sight, elapsed));
            let timeout = if sight == Sight::Seen { AGENT_REBOOT_TIMEOUT } else { SILENT_REBOOT_TIMEOUT };
            if elapsed.saturating_sub(since) >= timeout {
                overdue.push(node);
            }
        }
        overdue
    }
}

/// A suspect node is one that has just been seen, or is about to be unreachable.
fn sight_of(node: &Node) -> Sight {
    match node.state.sight.status {
        Sight::Seen => Sight::Seen,
        Sight::Suspect | Sight::Unreachable | Sight::Fenced => Sight::Unreachable,
    }
}

/// True for an unreachable node that still holds an attempt whose job may start elsewhere once it is fenced.
fn is_to_be_fenced(state: &State, node: &Node) -> bool {
    let waits = |job: &Job| {
        let is_open = job.attempt().is_some_and(|attempt| attempt.has_open_part(&node.id));
        is_open && job.spec.on_node_lost == OnNodeLost::Requeue
    };
    node.state.sight.status == Sight::Unreachable && state.attempts_on(&node.id).any(waits)
}

fn task(state: &State, node: &NodeId, action: PowerAction) -> Option<PowerTask> {
    let attempts = state.attempts_on(node).filter_map(|job| Some((job.id, job.attempt()?.number))).collect();
    let target = PowerTarget::of(state.nodes.get(node)?);
    Some(PowerTask { action, node: node.clone(), target, attempts })
}

#[cfg(test)]
mod tests {
    use muster_core::facts::command::TaskReport;
    use muster_core::objects::job::Exit;
    use muster_core::objects::tenant::TenantConfig;
    use muster_core::{Actor, Command, Timestamp};
    use muster_testing::{job, node, submission};

    use super::*;

    fn n1() -> NodeId {
        "n1".parse().unwrap()
    }

    fn execute(state: &mut State, command: Command) {
        let decision = state.decide(&Actor::system(), &command, Timestamp(1)).unwrap();
        decision.events.iter().for_each(|event| state.apply(event));
    }

    fn set_sight(state: &mut State, sight: Sight) {
        let fenced = Vec::new();
        execute(state, Command::SetNodeSight { node: n1(), sight, silent_ms: 40_000, fenced });
    }

    /// A node with one running job.
    fn state(on_node_lost: OnNodeLost) -> State {
        let mut state = State::empty();
        let mut facts = node().gpus(1).cpus(8).build();
        facts.boot_id = "one".to_string();
        execute(&mut state, Command::RegisterNode { node: n1(), facts: Box::new(facts) });
        let config = Box::new(TenantConfig::unlimited("red"));
        execute(&mut state, Command::CreateTenant { id: "red".parse().unwrap(), config });
        let spec = job().tenant("red").command("x").on_node_lost(on_node_lost);
        execute(&mut state, Command::SubmitJob(submission(spec)));
        let plan = Box::new(muster_core::planner::plan(&state, Timestamp(1)).plan);
        execute(&mut state, Command::AdoptPlan { plan, epoch: 1 });
        state
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn actions(tasks: &[PowerTask]) -> Vec<PowerAction> {
        tasks.iter().map(|task| task.action).collect()
    }

    #[test]
    fn an_unreachable_node_with_jobs_to_requeue_is_fenced_once_at_a_time_and_again_after_a_failure() {
        let mut state = state(OnNodeLost::Requeue);
        let mut schedule = PowerSchedule::new(true);
        set_sight(&mut state, Sight::Suspect);
        assert!(schedule.due(&state, at(0)).is_empty(), "a suspect node may only be slow");
        set_sight(&mut state, Sight::Unreachable);
        let due = schedule.due(&state, at(1));
        assert_eq!((actions(&due), due[0].attempts.len()), (vec![PowerAction::Fence], 1));
        assert!(schedule.due(&state, at(2)).is_empty(), "it runs already");
        schedule.finished(&due[0], false, at(10));
        assert!(schedule.due(&state, at(24)).is_empty(), "a pause of 15 s");
        assert_eq!(schedule.due(&state, at(25)).len(), 1);
        schedule.finished(&due[0], false, at(30));
        assert!(schedule.due(&state, at(59)).is_empty(), "a pause of 30 s");
        assert_eq!(schedule.due(&state, at(60)).len(), 1);
    }

    #[test]
    fn other_nodes_are_not_fenced() {
        let mut waiting = state(OnNodeLost::Wait);
        set_sight(&mut waiting, Sight::Unreachable);
        assert!(PowerSchedule::new(true).due(&waiting, at(1)).is_empty(), "its job waits for the node");
        let mut requeued = state(OnNodeLost::Requeue);
        assert!(PowerSchedule::new(true).due(&requeued, at(1)).is_empty(), "it is seen");
        set_sight(&mut requeued, Sight::Unreachable);
        assert!(PowerSchedule::new(false).due(&requeued, at(1)).is_empty(), "the setting is off");
    }

    #[test]
    fn a_reboot_is_left_to_the_agent_first() {
        let mut state = state(OnNodeLost::Wait);
        let reboot = Command::DrainNode { node: n1(), why: String::new(), deadline_ms: None, reboot: true };
        execute(&mut state, reboot);
        let mut schedule = PowerSchedule::new(false);
        assert!(schedule.due(&state, at(0)).is_empty() && schedule.due(&state, at(9_000)).is_empty(), "a job runs");
        let (job, attempt) =
            state.attempts_on(&n1()).map(|job| (job.id, job.attempt().unwrap().number)).next().unwrap();
        let exit = Exit::Code { code: 0 };
        let report = TaskReport::Ended { exit, stopped: false, ended_ms_ago: None };
        execute(&mut state, Command::ReportTask { node: n1(), job, attempt, report });
        assert!(schedule.due(&state, at(9_001)).is_empty() && schedule.due(&state, at(9_300)).is_empty());
        set_sight(&mut state, Sight::Suspect);
        assert!(
            schedule.due(&state, at(9_301)).is_empty() && schedule.due(&state, at(10_500)).is_empty(),
            "it reboots"
        );
        assert_eq!(actions(&schedule.due(&state, at(10_501))), [PowerAction::Reboot], "it does not return");
    }
}
