//! How long nodes are silent, and what follows: suspect, unreachable, and attempts whose self-fence is proven.
//!
//! Silence is measured by the monotonic clock of the leader, from the receipt of the last report in its own term. A node
//! counts its self-fence deadline from the sending of the last heartbeat that a leader acknowledged, which is earlier:
//! what the node was promised ends before the leader believes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::objects::node::{Node, Sight};
use muster_core::{Command, JobId, NodeId, State};

use crate::config::SilenceConfig;

/// Heartbeats in a row that a suspect node has not sent.
const MISSED_HEARTBEATS: u32 = 3;
/// Heartbeats in a row that an unreachable node has not sent, at least.
const LOST_HEARTBEATS: u32 = 10;

/// When a silent node is suspect and when it is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceTimeouts {
    pub suspect_after: Duration,
    pub suspect_margin: Duration,
    pub unreachable_after: Duration,
    /// Pace of the heartbeats of nodes that did not tell theirs.
    pub heartbeat_interval: Duration,
}

impl Default for SilenceTimeouts {
    fn default() -> SilenceTimeouts {
        SilenceTimeouts {
            suspect_after: Duration::from_secs(5),
            suspect_margin: Duration::from_secs(2),
            unreachable_after: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(1),
        }
    }
}

impl SilenceTimeouts {
    pub fn new(config: &SilenceConfig, heartbeat_ms: i64) -> SilenceTimeouts {
        let duration = |ms: i64| Duration::from_millis(ms.max(1).unsigned_abs());
        SilenceTimeouts {
            suspect_after: duration(config.suspect_after_ms),
            suspect_margin: duration(config.suspect_margin_ms),
            unreachable_after: duration(config.unreachable_after_ms),
            heartbeat_interval: duration(heartbeat_ms),
        }
    }

    /// The pace of a node, from its registration.
    fn interval_of(&self, node: &Node) -> Duration {
        let told = node.facts.heartbeat_interval_ms.map(|ms| Duration::from_millis(ms.unsigned_abs()));
        told.unwrap_or(self.heartbeat_interval)
    }

    fn suspect_after(&self, node: &Node) -> Duration {
        self.suspect_after.max(self.interval_of(node) * MISSED_HEARTBEATS + self.suspect_margin)
    }

    /// Never before the node is suspect.
    fn unreachable_after(&self, node: &Node) -> Duration {
        let unreachable_after = self.unreachable_after.max(self.interval_of(node) * LOST_HEARTBEATS);
        unreachable_after.max(self.suspect_after(node))
    }

    /// The next sight of a node after this silence; `None` if it stays. A node is suspect before it is unreachable: after
    /// a pause of the server itself, reports that wait to be read come first.
    fn sight_after(&self, node: &Node, silent: Duration) -> Option<Sight> {
        match node.state.sight.status {
            Sight::Seen if silent >= self.suspect_after(node) => Some(Sight::Suspect),
            Sight::Suspect if silent >= self.unreachable_after(node) => Some(Sight::Unreachable),
            _ => None,
        }
    }
}

/// The last report of each node in the current leader term.
#[derive(Default)]
pub struct SilenceMonitor {
    timeouts: SilenceTimeouts,
    epoch: Option<u64>,
    last_report: BTreeMap<NodeId, Duration>,
    /// Lost nodes whose silence in this term is recorded.
    recorded: BTreeSet<NodeId>,
}

impl SilenceMonitor {
    pub fn new(timeouts: SilenceTimeouts) -> SilenceMonitor {
        SilenceMonitor { timeouts, ..SilenceMonitor::default() }
    }

    pub fn record_report(&mut self, node: &NodeId, elapsed: Duration) {
        self.last_report.insert(node.clone(), elapsed);
    }

    /// This server does not lead: its own gap must not count as silence of the nodes, and a node may have been
    /// acknowledged by another leader.
    pub fn reset(&mut self) {
        self.epoch = None;
        self.last_report.clear();
        self.recorded.clear();
    }

    /// The commands for nodes that have been silent for too long. A new term starts all silences at zero.
    pub fn commands(&mut self, state: &State, epoch: u64, elapsed: Duration) -> Vec<Command> {
        if self.epoch != Some(epoch) {
            self.reset();
            self.epoch = Some(epoch);
        }
        self.last_report.retain(|node, _| state.nodes.contains_key(node));
        let mut commands = Vec::new();
        for node in state.nodes.values().filter(|node| !node.declared) {
            let last_report = *self.last_report.entry(node.id.clone()).or_insert(elapsed);
            commands.extend(self.command_for(state, node, elapsed.saturating_sub(last_report)));
        }
        commands
    }

    fn command_for(&mut self, state: &State, node: &Node, silent: Duration) -> Option<Command> {
        let sight = node.state.sight.status;
        let fenced = if sight == Sight::Unreachable { proven_dead(state, node, silent) } else { Vec::new() };
        let next = self.timeouts.sight_after(node, silent);
        let is_unrecorded = sight == Sight::Unreachable && silent >= self.timeouts.suspect_after(node);
        let is_news = next.is_some() || !fenced.is_empty() || (is_unrecorded && self.recorded.insert(node.id.clone()));
        let silent_ms = i64::try_from(silent.as_millis()).unwrap_or(i64::MAX);
        let sight = next.unwrap_or(sight);
        is_news.then(|| Command::SetNodeSight { node: node.id.clone(), sight, silent_ms, fenced })
    }
}

/// The attempts on a silent node that its self-fence has ended. They are named, because an attempt that is placed before
/// the command is decided is not proven dead by this silence.
fn proven_dead(state: &State, node: &Node, silent: Duration) -> Vec<(JobId, u32)> {
    let attempts = state.attempts_on(&node.id).filter_map(|job| Some((job.id, job.attempt()?)));
    let is_dead = |proven_after_ms: i64| silent >= Duration::from_millis(proven_after_ms.unsigned_abs());
    let dead = attempts.filter(|(_, attempt)| {
        attempt.has_open_part(&node.id) && attempt.self_fence.is_some_and(|fence| is_dead(fence.proven_after_ms))
    });
    dead.map(|(job, attempt)| (job, attempt.number)).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::objects::job::OnNodeLost;
    use muster_core::objects::node::NodeFacts;
    use muster_core::objects::tenant::TenantConfig;
    use muster_core::{Actor, Timestamp};
    use muster_testing::{job, node, submission};

    use super::*;

    fn state_with_two_jobs() -> State {
        state_with_two_jobs_at_pace(None)
    }

    /// Two jobs on one node: the first fences itself, the second waits.
    fn state_with_two_jobs_at_pace(heartbeat_interval_ms: Option<i64>) -> State {
        let mut state = State::empty();
        let facts = Box::new(NodeFacts { heartbeat_interval_ms, ..node().gpus(3).cpus(8).build() });
        execute(&mut state, Command::RegisterNode { node: n1(), facts });
        let config = Box::new(TenantConfig::unlimited("red"));
        execute(&mut state, Command::CreateTenant { id: "red".parse().unwrap(), config });
        for rule in [OnNodeLost::Requeue, OnNodeLost::Wait] {
            let spec = job().tenant("red").command("x").on_node_lost(rule);
            execute(&mut state, Command::SubmitJob(submission(spec)));
        }
        let plan = Box::new(muster_core::planner::plan(&state, Timestamp(1)).plan);
        execute(&mut state, Command::AdoptPlan { plan, epoch: 1 });
        assert_eq!(state.attempts_on(&n1()).count(), 2);
        state
    }

    fn n1() -> NodeId {
        "n1".parse().unwrap()
    }

    fn execute(state: &mut State, command: Command) {
        let decision = state.decide(&Actor::system(), &command, Timestamp(1)).unwrap();
        decision.events.iter().for_each(|event| state.apply(event));
    }

    /// Executes the commands of this second, and describes them.
    fn commands_at(monitor: &mut SilenceMonitor, state: &mut State, epoch: u64, second: u64) -> Vec<String> {
        let commands = monitor.commands(state, epoch, Duration::from_secs(second));
        let describe = |command: &Command| match command {
            Command::SetNodeSight { sight, silent_ms, fenced, .. } => {
                format!("{} after {silent_ms} ms, {} fenced", sight.as_str(), fenced.len())
            }
            other => panic!("{other:?}"),
        };
        let described = commands.iter().map(describe).collect();
        commands.into_iter().for_each(|command| execute(state, command));
        described
    }

    #[test]
    fn a_silent_node_is_suspect_then_unreachable_and_its_attempts_are_fenced_when_proven() {
        let (mut monitor, mut state) = (SilenceMonitor::default(), state_with_two_jobs());
        let mut all = Vec::new();
        for second in 100..=500 {
            let commands = commands_at(&mut monitor, &mut state, 1, second);
            all.extend(commands.into_iter().map(|command| (second - 100, command)));
        }
        let expected = [
            (5, "Suspect after 5000 ms, 0 fenced"),
            (30, "Unreachable after 30000 ms, 0 fenced"),
            (31, "Unreachable after 31000 ms, 0 fenced"), // The first record of this term.
            (339, "Unreachable after 339000 ms, 1 fenced"),
        ];
        assert_eq!(all, expected.map(|(second, command)| (second, command.to_string())));
        let left: Vec<JobId> = state.attempts_on(&n1()).map(|job| job.id).collect();
        assert_eq!(left, [JobId::single(2)], "the job that waits keeps its attempt");
    }

    /// A node may have been acknowledged by the former leader until its term ended.
    #[test]
    fn a_new_term_counts_silence_from_its_own_start() {
        let (mut monitor, mut state) = (SilenceMonitor::default(), state_with_two_jobs());
        for second in 0..=330 {
            commands_at(&mut monitor, &mut state, 1, second);
        }
        for second in 331..331 + 339 {
            let commands = commands_at(&mut monitor, &mut state, 2, second);
            assert!(commands.iter().all(|command| command.ends_with("0 fenced")), "{second}: {commands:?}");
        }
        let commands = commands_at(&mut monitor, &mut state, 2, 331 + 339);
        assert_eq!(commands, ["Unreachable after 339000 ms, 1 fenced"]);
    }

    #[test]
    fn a_report_ends_the_silence_and_the_settings_count() {
        let timeouts = SilenceTimeouts { heartbeat_interval: Duration::from_secs(10), ..SilenceTimeouts::default() };
        let (mut monitor, mut state) = (SilenceMonitor::new(timeouts), state_with_two_jobs());
        let mut seconds = Vec::new();
        for second in 0..200 {
            if second == 20 {
                monitor.record_report(&n1(), Duration::from_secs(second));
            }
            let commands = commands_at(&mut monitor, &mut state, 1, second);
            seconds.extend(commands.iter().map(|_| second));
        }
        assert_eq!(seconds, [52, 120, 121], "three intervals and 2 s, ten intervals, from the report");
    }

    #[test]
    fn each_node_is_judged_by_the_pace_that_its_registration_told() {
        let (mut monitor, mut state) = (SilenceMonitor::default(), state_with_two_jobs_at_pace(Some(10_000)));
        let (fast, pace) = ("fast".parse::<NodeId>().unwrap(), Some(1_000));
        let facts = Box::new(NodeFacts { heartbeat_interval_ms: pace, ..node().build() });
        execute(&mut state, Command::RegisterNode { node: fast.clone(), facts });
        let mut changes = Vec::new();
        for second in 0..=420 {
            for command in monitor.commands(&state, 1, Duration::from_secs(second)) {
                if let Command::SetNodeSight { node, sight, fenced, .. } = &command {
                    changes.push((second, node.to_string(), sight.as_str(), fenced.len()));
                }
                execute(&mut state, command);
            }
        }
        let of = |name: &str| -> Vec<(u64, &str, usize)> {
            let own = changes.iter().filter(|(_, node, ..)| node == name);
            own.map(|(second, _, sight, fenced)| (*second, *sight, *fenced)).collect()
        };
        assert_eq!(of("fast"), [(5, "Suspect", 0), (30, "Unreachable", 0), (31, "Unreachable", 0)]);
        // Three intervals and 2 s; ten intervals; and the proof of the self-fence of 5 minutes, as without a pace.
        let slow = [(32, "Suspect", 0), (100, "Unreachable", 0), (101, "Unreachable", 0), (339, "Unreachable", 1)];
        assert_eq!(of("n1"), slow);
    }

    /// Ten of its intervals are less than three and this margin.
    #[test]
    fn a_node_is_never_unreachable_before_it_is_suspect() {
        let timeouts = SilenceTimeouts { suspect_margin: Duration::from_secs(90), ..SilenceTimeouts::default() };
        let (mut monitor, mut state) = (SilenceMonitor::new(timeouts), state_with_two_jobs_at_pace(Some(2_000)));
        let mut seconds = Vec::new();
        for second in (0..200).step_by(2) {
            let commands = commands_at(&mut monitor, &mut state, 1, second);
            seconds.extend(commands.into_iter().map(|command| format!("{second}: {command}")));
        }
        assert_eq!(seconds[0], "96: Suspect after 96000 ms, 0 fenced");
        assert_eq!(seconds[1], "98: Unreachable after 98000 ms, 0 fenced");
    }

    /// The deadline is recorded with the attempt: ten intervals, and the proof counts from there.
    #[test]
    fn a_node_with_rare_heartbeats_has_a_later_self_fence() {
        let state = state_with_two_jobs_at_pace(Some(60_000));
        let fence = state.jobs[&JobId::single(1)].attempt().unwrap().self_fence.unwrap();
        assert_eq!((fence.after_ms, fence.proven_after_ms), (600_000, 600_000 + 6_000 + 1 + 30_000 + 5_000));
    }

    /// The command names the attempts of the moment of the measurement.
    #[test]
    fn an_attempt_that_was_placed_after_the_measurement_is_not_fenced() {
        let mut state = state_with_two_jobs();
        let attempts = state.attempts_on(&n1()).filter_map(|job| Some((job.id, job.attempt()?.number))).collect();
        let job = job().tenant("red").command("x").on_node_lost(OnNodeLost::Requeue);
        execute(&mut state, Command::SubmitJob(submission(job)));
        let plan = Box::new(muster_core::planner::plan(&state, Timestamp(1)).plan);
        execute(&mut state, Command::AdoptPlan { plan, epoch: 1 });
        assert_eq!(state.attempts_on(&n1()).count(), 3);
        let (sight, silent_ms) = (Sight::Unreachable, 3_600_000);
        execute(&mut state, Command::SetNodeSight { node: n1(), sight, silent_ms, fenced: attempts });
        let left: Vec<JobId> = state.attempts_on(&n1()).map(|job| job.id).collect();
        assert_eq!(left, [JobId::single(2), JobId::single(3)]);
    }
}
