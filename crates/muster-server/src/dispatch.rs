//! Step 9, dispatch: send each node its orders.
//!
//! Orders are computed from the state each time, so nothing is lost when the server restarts. They are sent when they
//! change, and again when a heartbeat shows that the agent follows older ones, so a lost message is a delay. Nothing is
//! decided here: a node that disagrees sends a report, and the engine decides.

mod orders_size;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use muster_agent::Agent;
use muster_core::gpu::gpu_share::{Share, ShareMode};
use muster_core::objects::job::{Attempt, Job, Mount, NodeReport, PlacedTask, StopCause};
use muster_core::objects::node::{Node, NodeFacts, NodeStatus, Sight};
use muster_core::objects::policy::rules::{Fact, Pool};
use muster_core::{Event, JobId, NodeId, State};
use muster_protocol::agent::{
    AttemptOrder, DeviceDirective, GangHost, HeartbeatEcho, Orders, OrdersStamp, PoolOrder, Report, RunMount, RunSpec,
    StopOrder, TaskOrder, TaskShare,
};
use muster_store::LeaderEpoch;
use tracing::debug;

use self::orders_size::{OpenAttempt, PROGRAM_BYTES_MAX, attempts_that_fit, no_program};
use crate::cluster::Cluster;
use crate::engine_loop::{JournalUpdate, Subscriber};
use crate::secrets::{SecretVault, wanted_secrets};

/// Everything the dispatch thread needs.
pub struct Dispatch {
    pub inputs: Receiver<DispatchInput>,
    pub cluster: Cluster,
    pub agents: Vec<Box<dyn Agent>>,
    pub secrets: Arc<SecretVault>,
    /// Nodes that were not sent all secrets of the attempts that they launch: they are tried again at their next heartbeat.
    pub lacking_secrets: BTreeSet<NodeId>,
}

impl Dispatch {
    /// Dispatch until the engine has ended, then shut the agents down.
    pub fn run(mut self) {
        let mut tracker = OrderTracker::default();
        while let Ok(input) = self.inputs.recv() {
            if matches!(input, DispatchInput::EngineEnded) {
                break;
            }
            for echo in tracker.echoes(&input, self.cluster.lease_renewed_at()) {
                self.acknowledge_heartbeat(echo);
            }
            if let DispatchInput::Journal(JournalUpdate::LeadershipLost) = &input {
                self.lacking_secrets.clear(); // Another leader sends them.
            }
            let mut nodes = tracker.nodes_to_send_orders(&input);
            if let DispatchInput::Heartbeat { node, .. } = &input
                && self.lacking_secrets.contains(node)
            {
                nodes.insert(node.clone());
            }
            for node in nodes {
                self.send_orders(&node, tracker.leader_epoch);
            }
        }
        for agent in &mut self.agents {
            agent.shutdown();
        }
    }

    fn acknowledge_heartbeat(&mut self, echo: HeartbeatEcho) {
        if let Some(agent) = self.agent_of(&echo.node) {
            agent.acknowledge_heartbeat(echo);
        }
    }

    fn agent_of(&mut self, node: &str) -> Option<&mut Box<dyn Agent>> {
        self.agents.iter_mut().find(|agent| agent.serves(node))
    }

    fn send_orders(&mut self, node: &NodeId, leader_epoch: LeaderEpoch) {
        let read = |state: &State| (orders(state, node, leader_epoch), wanted_secrets(state, node));
        let (mut orders, mut wanted) = self.cluster.read(read);
        // Those of attempts that the orders leave out would only keep others waiting.
        wanted.retain(|secrets| orders.attempts.iter().any(|attempt| secrets.is_of(attempt)));
        let (secrets, are_left) = self.secrets.secrets_to_send(&wanted);
        orders.secrets = secrets;
        match are_left {
            true => self.lacking_secrets.insert(node.clone()),
            false => self.lacking_secrets.remove(node),
        };
        match self.agent_of(node.as_str()) {
            Some(agent) => agent.deliver_orders(orders),
            None => debug!(%node, "no agent of this process serves this node"),
        }
    }
}

/// What dispatch reacts to.
#[derive(Clone)]
pub enum DispatchInput {
    Journal(JournalUpdate),
    /// The heartbeat of an agent, with the orders that the agent follows.
    Heartbeat {
        node: NodeId,
        following: Option<OrdersStamp>,
        sent_at_boot_ms: i64,
        /// By the monotonic clock of this server.
        received_at: Duration,
    },
    /// The engine has ended, so no update follows.
    EngineEnded,
}

impl DispatchInput {
    /// `None` for reports other than heartbeats, and for an invalid node name.
    pub fn of_report(report: &Report, received_at: Duration) -> Option<DispatchInput> {
        let Report::Heartbeat { node, following, sent_at_boot_ms } = report else { return None };
        let (following, sent_at_boot_ms) = (*following, *sent_at_boot_ms);
        Some(DispatchInput::Heartbeat { node: node.parse().ok()?, following, sent_at_boot_ms, received_at })
    }
}

/// The subscriber that passes the journal on to dispatch, and ends dispatch when the engine drops it: the agents hold
/// senders of the same channel, so the channel does not close by itself.
pub fn journal_subscriber(inputs: Sender<DispatchInput>) -> Subscriber {
    let feed = JournalFeed(inputs);
    Box::new(move |update| feed.send(DispatchInput::Journal(update)))
}

struct JournalFeed(Sender<DispatchInput>);

impl JournalFeed {
    fn send(&self, input: DispatchInput) {
        // A failed send means that the dispatch thread has ended.
        drop(self.0.send(input));
    }
}

impl Drop for JournalFeed {
    fn drop(&mut self) {
        self.send(DispatchInput::EngineEnded);
    }
}

/// Finds the nodes that must be sent their orders: because events have changed them, or because the agent follows older
/// ones. Servers and the simulator use it.
#[derive(Default)]
pub struct OrderTracker {
    /// Of the current leader term; of the last one while this server does not lead.
    pub leader_epoch: LeaderEpoch,
    is_leading: bool,
    /// Generation at which the orders of a node last changed.
    changed_at: BTreeMap<NodeId, u64>,
    /// Generation at which the sight of a node last changed, or the first one of the term.
    sight_changed_at: BTreeMap<NodeId, u64>,
    /// Nodes that are not seen. The silence of such a node may prove its attempts dead in a command that is not decided
    /// yet; the command that makes the node seen follows that one.
    unseen: BTreeSet<NodeId>,
    /// Heartbeats that are not acknowledged yet: the oldest one of each node and the newest. With a slow database a renewal
    /// takes longer than a heartbeat interval; the newest heartbeat alone would never be confirmed.
    unacknowledged: BTreeMap<NodeId, Vec<ReceivedHeartbeat>>,
    /// The renewal of the lease up to which heartbeats are acknowledged.
    acknowledged_at: Duration,
    /// Nodes of each active attempt; the event of its end does not name them.
    attempt_nodes: BTreeMap<JobId, BTreeSet<NodeId>>,
}

/// A heartbeat that is acknowledged once the leader lease was renewed after its receipt.
struct ReceivedHeartbeat {
    following: Option<OrdersStamp>,
    sent_at_boot_ms: i64,
    received_at: Duration,
}

impl OrderTracker {
    /// The nodes to which orders must be sent now.
    pub fn nodes_to_send_orders(&mut self, input: &DispatchInput) -> BTreeSet<NodeId> {
        match input {
            DispatchInput::Journal(update) => self.nodes_with_changed_orders(update),
            DispatchInput::Heartbeat { node, following, .. } if self.lacks_orders(node, *following) => {
                BTreeSet::from([node.clone()])
            }
            DispatchInput::Heartbeat { .. } | DispatchInput::EngineEnded => BTreeSet::new(),
        }
    }

    /// The replies to heartbeats that are due. A heartbeat is answered once the lease has been renewed after its receipt:
    /// that proves that this server was the leader then, whatever pauses or clocks do. Another leader would not know of
    /// the heartbeat, and would count the silence of its node.
    pub fn echoes(&mut self, input: &DispatchInput, lease_renewed_at: Duration) -> Vec<HeartbeatEcho> {
        let echoes = self.confirmed_echoes(lease_renewed_at);
        if let DispatchInput::Heartbeat { node, following, sent_at_boot_ms, received_at } = input
            && self.is_leading
        {
            let (following, sent_at_boot_ms, received_at) = (*following, *sent_at_boot_ms, *received_at);
            let waiting = self.unacknowledged.entry(node.clone()).or_default();
            waiting.truncate(1);
            waiting.push(ReceivedHeartbeat { following, sent_at_boot_ms, received_at });
        }
        echoes
    }

    fn confirmed_echoes(&mut self, lease_renewed_at: Duration) -> Vec<HeartbeatEcho> {
        if std::mem::replace(&mut self.acknowledged_at, lease_renewed_at) == lease_renewed_at {
            return Vec::new();
        }
        let mut confirmed = Vec::new();
        for (node, waiting) in &mut self.unacknowledged {
            let count = waiting.iter().take_while(|heartbeat| heartbeat.received_at <= lease_renewed_at).count();
            confirmed.extend(waiting.drain(..count).next_back().map(|newest| (node.clone(), newest)));
        }
        self.unacknowledged.retain(|_, waiting| !waiting.is_empty());
        confirmed
            .retain(|(node, heartbeat)| !self.unseen.contains(node) && self.follows_since_silence(node, heartbeat));
        let echo = |(node, heartbeat): (NodeId, ReceivedHeartbeat)| HeartbeatEcho {
            node: node.to_string(),
            sent_at_boot_ms: heartbeat.sent_at_boot_ms,
        };
        confirmed.into_iter().map(echo).collect()
    }

    /// False for a node that follows orders from before its last silence: they may name an attempt that has ended by its
    /// self-fence since, and a renewal would let the node start it.
    fn follows_since_silence(&self, node: &NodeId, heartbeat: &ReceivedHeartbeat) -> bool {
        let since = self.sight_changed_at.get(node);
        let is_current = |stamp: OrdersStamp, since: u64| self.is_of_this_term(stamp) && stamp.generation >= since;
        since.zip(heartbeat.following).is_some_and(|(since, stamp)| is_current(stamp, *since))
    }

    /// True if the agent of a known node follows orders of another epoch, or from before the last change of its orders.
    fn lacks_orders(&self, node: &NodeId, following: Option<OrdersStamp>) -> bool {
        let is_current = |changed_at: u64| {
            following.is_some_and(|stamp| self.is_of_this_term(stamp) && stamp.generation >= changed_at)
        };
        self.is_leading && self.changed_at.get(node).is_some_and(|changed_at| !is_current(*changed_at))
    }

    fn is_of_this_term(&self, stamp: OrdersStamp) -> bool {
        stamp.is_of_term(self.leader_epoch.epoch, self.leader_epoch.nonce)
    }

    /// Follow the journal, and return the nodes whose orders have changed.
    fn nodes_with_changed_orders(&mut self, update: &JournalUpdate) -> BTreeSet<NodeId> {
        match update {
            JournalUpdate::Reset { state, term } => {
                (self.leader_epoch, self.is_leading) = (*term, true);
                self.unacknowledged.clear();
                let active = state.jobs.values().filter_map(|job| Some((job.id, job.attempt()?.nodes())));
                self.attempt_nodes = active.collect();
                self.changed_at = state.nodes.keys().map(|node| (node.clone(), state.seq)).collect();
                self.sight_changed_at = self.changed_at.clone();
                let unseen = state.nodes.values().filter(|node| node.state.sight.status != Sight::Seen);
                self.unseen = unseen.map(|node| node.id.clone()).collect();
                self.changed_at.keys().cloned().collect()
            }
            JournalUpdate::Batch(batch) => {
                let mut changed = BTreeSet::new();
                for entry in &batch.entries {
                    if let Event::NodeRegistered { node, .. } | Event::NodeSightChanged { node, .. } = &entry.event {
                        self.sight_changed_at.insert(node.clone(), entry.seq);
                    }
                    self.note_sight(&entry.event);
                    for node in self.nodes_affected_by(&entry.event) {
                        self.changed_at.insert(node.clone(), entry.seq);
                        changed.insert(node);
                    }
                }
                changed
            }
            JournalUpdate::LeadershipLost => {
                self.is_leading = false;
                self.unacknowledged.clear();
                BTreeSet::new()
            }
        }
    }

    fn note_sight(&mut self, event: &Event) {
        match event {
            Event::NodeSightChanged { node, sight: Sight::Seen, .. } | Event::NodeRemoved { node, .. } => {
                self.unseen.remove(node);
            }
            Event::NodeSightChanged { node, .. } => drop(self.unseen.insert(node.clone())),
            _ => {}
        }
    }

    fn nodes_affected_by(&mut self, event: &Event) -> BTreeSet<NodeId> {
        match event {
            Event::JobPlaced { job, tasks, .. } => {
                let nodes: BTreeSet<NodeId> = tasks.iter().map(|task| task.node.clone()).collect();
                self.attempt_nodes.insert(*job, nodes.clone());
                nodes
            }
            Event::AttemptStarted { job, .. }
            | Event::AttemptStopping { job, .. }
            | Event::AttemptSignalled { job, .. }
            | Event::CheckpointSaved { job, grace_ms: Some(_), .. }
            | Event::NodePartEnded { job, .. } => self.attempt_nodes.get(job).cloned().unwrap_or_default(),
            Event::AttemptEnded { job, .. } => self.attempt_nodes.remove(job).unwrap_or_default(),
            // A policy changes the pools in the orders of every node.
            Event::PolicyApplied { .. } => self.changed_at.keys().cloned().collect(),
            Event::NodeRemoved { node, .. } => {
                self.changed_at.remove(node);
                self.sight_changed_at.remove(node);
                BTreeSet::new()
            }
            // Its agent may have restarted, and then it has no orders.
            Event::NodeRegistered { node, .. } => BTreeSet::from([node.clone()]),
            Event::NodeStateChanged { node, status: NodeStatus::Ready, .. }
            | Event::NodeServiceChanged { node, .. }
            | Event::NodeSightChanged { node, sight: Sight::Seen, .. } => BTreeSet::from([node.clone()]),
            _ => BTreeSet::new(),
        }
    }
}

/// The full orders of a node: every attempt that it must run or stop, as far as they fit into a message.
pub fn orders(state: &State, node: &NodeId, leader_epoch: LeaderEpoch) -> Orders {
    orders_up_to(state, node, leader_epoch, PROGRAM_BYTES_MAX)
}

fn orders_up_to(state: &State, node: &NodeId, leader_epoch: LeaderEpoch, program_bytes_max: usize) -> Orders {
    let open = state.attempts_on(node).filter_map(|job| Some((job, job.attempt()?)));
    let open = open.filter(|(_, attempt)| !matches!(attempt.reports.get(node), Some(NodeReport::Ended { .. })));
    let named = attempts_that_fit(open, node, program_bytes_max);
    let incarnation = registered_incarnation(state, node).map(str::to_string);
    Orders {
        node: node.to_string(),
        incarnation: incarnation.unwrap_or_default(),
        epoch: leader_epoch.epoch,
        nonce: leader_epoch.nonce,
        generation: state.seq,
        attempts: named.iter().map(|open| attempt_order(state, open, node)).collect(),
        pools: pool_orders(state, node),
        reboot_from: state.nodes.get(node).and_then(Node::due_reboot).map(|reboot| reboot.boot_id.clone()),
        secrets: Vec::new(), // They are not in the state.
    }
}

/// The incarnation of the agent that the orders of a node are for; `None` until an agent of the current enrolment has
/// registered, because a former installation of the node may still run and would follow them.
fn registered_incarnation<'a>(state: &'a State, node: &NodeId) -> Option<&'a str> {
    let known = state.nodes.get(node)?.facts.incarnation.as_str();
    let former = state.enrolments.get(node).and_then(|enrolment| enrolment.former_incarnation.as_deref());
    (former != Some(known)).then_some(known)
}

/// The pools with GPUs of a node.
fn pool_orders(state: &State, node: &NodeId) -> Vec<PoolOrder> {
    let devices = state.nodes.get(node).map(|node| &node.pools[..]).unwrap_or_default();
    let rules = state.policies.rules().into_iter().flat_map(|rules| rules.pools.values());
    let of_pool = |pool: &Pool| {
        let gpus = (0..).zip(devices).filter(|(_, pools)| pools.contains_key(&pool.name));
        let gpus: Vec<u8> = gpus.map(|(gpu, _)| gpu).collect();
        (!gpus.is_empty()).then(|| PoolOrder {
            name: pool.name.clone(),
            gpus,
            power_policy: pool.power_policy.as_str().to_string(),
            max_temp_milli_c: pool.max_temp_milli_c,
            health_threshold_milli: pool.health_threshold_milli,
            tuning: pool.opt_strategies.iter().map(|one| device_directive(one.kind.as_str(), &one.fields)).collect(),
            health_checks: pool
                .health_checks
                .iter()
                .map(|check| device_directive(&check.name, &check.fields))
                .collect(),
        })
    };
    rules.filter_map(of_pool).collect()
}

fn device_directive(name: &str, fields: &BTreeMap<String, Fact>) -> DeviceDirective {
    let fields = fields.iter().map(|(field, fact)| (field.clone(), fact.to_string())).collect();
    DeviceDirective { name: name.to_string(), fields }
}

fn attempt_order(state: &State, open: &OpenAttempt<'_>, node: &NodeId) -> AttemptOrder {
    let (job, attempt) = (open.job, open.attempt);
    let nodes = nodes_by_rank(&attempt.tasks);
    let facts = state.nodes.get(node).map(|node| &node.facts);
    let is_reported = attempt.reports.get(node).is_some();
    let adopt_only = !is_reported && is_of_former_enrolment(state, attempt, node);
    AttemptOrder {
        job: job.id.to_string(),
        attempt: attempt.number,
        placed_at_ms: attempt.placed_at.0,
        started: is_reported || adopt_only,
        adopt_only,
        tasks: tasks_on((node, facts), job, &attempt.tasks),
        gang_size: attempt.tasks.len() as u32,
        node_rank: nodes.iter().position(|other| *other == node).unwrap_or_default() as u32,
        master_address: nodes.first().map(|first| node_address(state, first)).unwrap_or_default(),
        master_port: attempt.master_port,
        hosts: nodes.iter().map(|node| gang_host(state, attempt, node)).collect(),
        nodes: nodes.into_iter().map(NodeId::to_string).collect(),
        run: if open.fits { run_order(job) } else { no_program() },
        name: job.spec.name.clone(),
        tenant: job.spec.tenant.to_string(),
        user: job.spec.user.clone(),
        annotations: job.spec.annotations.clone(),
        gpu_milliwatts_max: attempt.gpu_milliwatts_max,
        self_fence_ms: attempt.self_fence.map(|fence| fence.after_ms),
        signal: job.spec.early_signal.filter(|_| attempt.signalled_at.is_some()).map(|early| early.signal),
        stop: attempt.stopping.as_ref().map(|stopping| StopOrder {
            since_ms: stopping.since.0,
            grace_ms: stopping.grace_ms,
            why: stop_reason(&stopping.cause),
        }),
    }
}

/// The nodes of a gang in the order of their lowest ranks: the tasks of an attempt are sorted by rank.
fn nodes_by_rank(tasks: &[PlacedTask]) -> Vec<&NodeId> {
    let mut known = BTreeSet::new();
    tasks.iter().map(|task| &task.node).filter(|node| known.insert(*node)).collect()
}

/// The tasks on one node. All tasks of the gang are visited, because the rank within a group counts over all nodes.
fn tasks_on((node, facts): (&NodeId, Option<&NodeFacts>), job: &Job, tasks: &[PlacedTask]) -> Vec<TaskOrder> {
    let mut group_sizes = vec![0; job.spec.tasks.len()];
    let mut orders = Vec::new();
    for task in tasks {
        let group = &job.spec.tasks[task.group as usize];
        let group_size = &mut group_sizes[task.group as usize];
        if task.node == *node {
            orders.push(TaskOrder {
                rank: task.rank,
                group: group.name.clone(),
                group_rank: *group_size,
                gpus: task.gpus.clone(),
                share: task.share.as_deref().map(task_share),
                numa_nodes: numa_nodes(facts, &task.gpus).unwrap_or_default(),
                cpus: group.each.cpus,
                memory_mib: group.each.memory_mib,
            });
        }
        *group_size += 1;
    }
    orders
}

/// The NUMA nodes of GPUs; `None` unless known for all of them: cores near one GPU may be far from another.
fn numa_nodes(facts: Option<&NodeFacts>, gpus: &[u8]) -> Option<Vec<u32>> {
    let numa = |gpu: &u8| facts?.gpus.get(usize::from(*gpu))?.numa_node;
    let known: BTreeSet<u32> = gpus.iter().map(numa).collect::<Option<_>>()?;
    Some(known.into_iter().collect())
}

fn task_share(share: &Share) -> TaskShare {
    let (profile, start) = match &share.mode {
        ShareMode::Mig { profile, start } => (Some(profile.clone()), Some(*start)),
        ShareMode::Mps | ShareMode::TimeSlice => (None, None),
    };
    TaskShare {
        mode: share.mode.as_str().to_string(),
        compute_milli: share.compute_milli,
        memory_mib: share.memory_mib,
        profile,
        start,
    }
}

/// True if a former installation of the node may have launched the attempt without a report. The current one adopts what
/// runs on its disk, and launches nothing: the former one may be another machine.
fn is_of_former_enrolment(state: &State, attempt: &Attempt, node: &NodeId) -> bool {
    state.enrolments.get(node).is_some_and(|current| current.at > attempt.placed_at)
}

/// The network address of a node: the registered address, else the host name, else the node's name.
fn node_address(state: &State, node: &NodeId) -> String {
    let facts = state.nodes.get(node).map(|node| &node.facts);
    let registered = facts.into_iter().flat_map(|facts| [&facts.address, &facts.hostname]);
    registered.into_iter().find(|text| !text.is_empty()).cloned().unwrap_or_else(|| node.to_string())
}

fn gang_host(state: &State, attempt: &Attempt, node: &NodeId) -> GangHost {
    let tasks = attempt.tasks.iter().filter(|task| task.node == *node).count() as u32;
    GangHost { address: node_address(state, node), tasks }
}

fn run_order(job: &Job) -> RunSpec {
    let run = &job.spec.run;
    let mut env = run.env.clone();
    if let Some(index) = job.id.index {
        env.insert("MUSTER_ARRAY_INDEX".to_string(), index.to_string());
    }
    if let Some(checkpoint) = &job.spec.checkpoint {
        env.insert("MUSTER_CHECKPOINT_DIR".to_string(), checkpoint.path.clone());
    }
    RunSpec {
        image: run.image.clone(),
        script: run.script.clone(),
        command: run.command.clone(),
        args: run.args.clone(),
        env,
        directory: run.directory.clone(),
        mounts: run.mounts.iter().map(run_mount).collect(),
        secrets: run.secrets.iter().map(|used| used.file.clone()).collect(),
    }
}

fn run_mount(mount: &Mount) -> RunMount {
    RunMount { source: mount.source.clone(), target: mount.target.clone(), read_only: mount.read_only }
}

/// Why an attempt must stop, for the job's log.
fn stop_reason(cause: &StopCause) -> String {
    match cause {
        StopCause::Cancelled { by, why } => with_reason(format!("cancelled by {by}"), why),
        StopCause::TimeLimit => "its time limit passed".to_string(),
        StopCause::Preempted { by } => format!("preempted by {by}"),
        StopCause::Requeued { by, why } => with_reason(format!("requeued by {by}"), why),
        StopCause::Held { by, why } => with_reason(format!("held by {by}"), why),
        StopCause::LateStart { .. } => cause.late_start_text(),
        StopCause::GangFailed => "another part of the gang failed".to_string(),
    }
}

fn with_reason(what: String, why: &str) -> String {
    if why.is_empty() { what } else { format!("{what}: {why}") }
}

#[cfg(test)]
mod tests;
