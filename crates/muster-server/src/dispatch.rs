//! Step 9, dispatch: send each node its orders.
//!
//! Orders are computed from the state each time, so nothing is lost when the server restarts. Nothing is decided here: a
//! node that disagrees sends a report, and the engine decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;

use muster_agent::Agent;
use muster_core::gpu::gpu_share::{Share, ShareMode};
use muster_core::objects::job::{Attempt, Job, NodeReport, PlacedTask, StopCause};
use muster_core::objects::node::{NodeFacts, NodeStatus};
use muster_core::objects::policy::rules::{Fact, Pool};
use muster_core::{Event, JobId, NodeId, State};
use muster_protocol::agent::{
    AttemptOrder, DeviceDirective, Orders, PoolOrder, RunSpec, StopOrder, TaskOrder, TaskShare,
};
use tracing::debug;

use crate::cluster::Cluster;
use crate::engine_loop::JournalUpdate;

/// Everything the dispatch thread needs.
pub struct Dispatch {
    pub feed: Receiver<JournalUpdate>,
    pub cluster: Cluster,
    pub agents: Vec<Box<dyn Agent>>,
}

impl Dispatch {
    /// Dispatch until the engine has ended, then shut the agents down.
    pub fn run(mut self) {
        let mut tracker = OrderTracker::default();
        while let Ok(update) = self.feed.recv() {
            for node in tracker.nodes_with_changed_orders(&update) {
                self.send_orders(&node, tracker.epoch);
            }
        }
        for agent in &mut self.agents {
            agent.shutdown();
        }
    }

    fn send_orders(&mut self, node: &NodeId, epoch: u64) {
        let agent = self.agents.iter_mut().find(|agent| agent.nodes().iter().any(|name| name == node.as_str()));
        let Some(agent) = agent else {
            debug!(%node, "no agent of this process serves this node");
            return;
        };
        agent.deliver_orders(self.cluster.read(|state| orders(state, node, epoch)));
    }
}

/// Finds the nodes whose orders a batch of events changes.
#[derive(Default)]
pub struct OrderTracker {
    pub epoch: u64,
    /// Nodes of each active attempt; the event of its end does not name them.
    attempt_nodes: BTreeMap<JobId, BTreeSet<NodeId>>,
    /// A policy change affects the orders of all nodes: their pools.
    all_nodes: BTreeSet<NodeId>,
}

impl OrderTracker {
    /// Follow the journal, and return the nodes whose orders have changed.
    pub fn nodes_with_changed_orders(&mut self, update: &JournalUpdate) -> BTreeSet<NodeId> {
        match update {
            JournalUpdate::Reset { state, epoch } => {
                self.epoch = *epoch;
                let active = state.jobs.values().filter_map(|job| Some((job.id, job.attempt()?.nodes())));
                self.attempt_nodes = active.collect();
                self.all_nodes = state.nodes.keys().cloned().collect();
                self.all_nodes.clone()
            }
            JournalUpdate::Batch(batch) => batch.events().flat_map(|event| self.nodes_affected_by(event)).collect(),
            JournalUpdate::LeadershipLost => BTreeSet::new(),
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
            | Event::CheckpointSaved { job, grace_ms: Some(_), .. }
            | Event::NodePartEnded { job, .. } => self.attempt_nodes.get(job).cloned().unwrap_or_default(),
            Event::AttemptEnded { job, .. } => self.attempt_nodes.remove(job).unwrap_or_default(),
            Event::PolicyApplied { .. } => self.all_nodes.clone(),
            Event::NodeRemoved { node, .. } => {
                self.all_nodes.remove(node);
                BTreeSet::new()
            }
            // Its agent may have restarted, and then it has no orders.
            Event::NodeRegistered { node, .. } => {
                self.all_nodes.insert(node.clone());
                BTreeSet::from([node.clone()])
            }
            Event::NodeStateChanged { node, status: NodeStatus::Ready, .. } => BTreeSet::from([node.clone()]),
            _ => BTreeSet::new(),
        }
    }
}

/// The full orders of a node: every attempt that it must run or stop.
pub fn orders(state: &State, node: &NodeId, epoch: u64) -> Orders {
    let open = state.attempts_on(node).filter_map(|job| Some((job, job.attempt()?)));
    let open = open.filter(|(_, attempt)| !matches!(attempt.reports.get(node), Some(NodeReport::Ended { .. })));
    let incarnation = state.nodes.get(node).map(|node| node.facts.incarnation.clone());
    Orders {
        node: node.to_string(),
        incarnation: incarnation.unwrap_or_default(),
        epoch,
        generation: state.seq,
        attempts: open.map(|(job, attempt)| attempt_order(state, job, attempt, node)).collect(),
        pools: pool_orders(state, node),
    }
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
            tuning: pool.opt_strategies.iter().map(|one| device_directive(one.kind.word(), &one.fields)).collect(),
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

fn attempt_order(state: &State, job: &Job, attempt: &Attempt, node: &NodeId) -> AttemptOrder {
    let nodes = nodes_by_rank(&attempt.tasks);
    let facts = state.nodes.get(node).map(|node| &node.facts);
    AttemptOrder {
        job: job.id.to_string(),
        attempt: attempt.number,
        placed_at_ms: attempt.placed_at.0,
        started: attempt.reports.get(node).is_some(),
        tasks: tasks_on((node, facts), job, &attempt.tasks),
        gang_size: attempt.tasks.len() as u32,
        node_rank: nodes.iter().position(|other| *other == node).unwrap_or_default() as u32,
        master_address: nodes.first().map(|first| node_address(state, first)).unwrap_or_default(),
        nodes: nodes.into_iter().map(NodeId::to_string).collect(),
        run: run_order(job),
        name: job.spec.name.clone(),
        tenant: job.spec.tenant.to_string(),
        user: job.spec.user.clone(),
        annotations: job.spec.annotations.clone(),
        gpu_milliwatts_max: attempt.gpu_milliwatts_max,
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

/// The network address of a node: the registered address, else the host name, else the node's name.
fn node_address(state: &State, node: &NodeId) -> String {
    let facts = state.nodes.get(node).map(|node| &node.facts);
    let registered = facts.into_iter().flat_map(|facts| [&facts.address, &facts.hostname]);
    registered.into_iter().find(|text| !text.is_empty()).cloned().unwrap_or_else(|| node.to_string())
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
    }
}

/// Why an attempt must stop, for the job's log.
fn stop_reason(cause: &StopCause) -> String {
    match cause {
        StopCause::Cancelled { by, why } => with_reason(format!("cancelled by {by}"), why),
        StopCause::TimeLimit => "its time limit passed".to_string(),
        StopCause::Preempted { by } => format!("preempted by {by}"),
        StopCause::Requeued { by, why } => with_reason(format!("requeued by {by}"), why),
        StopCause::Held { by, why } => with_reason(format!("held by {by}"), why),
        StopCause::GangFailed => "another part of the gang failed".to_string(),
    }
}

fn with_reason(what: String, why: &str) -> String {
    if why.is_empty() { what } else { format!("{what}: {why}") }
}

#[cfg(test)]
mod tests;
