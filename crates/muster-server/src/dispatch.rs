//! Step 9, dispatch: tell each node what it owes.
//!
//! Orders are computed from the state each time, so nothing is lost when the server restarts. Nothing is
//! decided here: a node that disagrees reports, and the engine decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;

use muster_agent::Agent;
use muster_core::job::{Attempt, Job, Part, PlacedTask, StopCause};
use muster_core::node::{NodeFacts, NodeWord};
use muster_core::rules::{Fact, Pool};
use muster_core::share::{Share, ShareMode};
use muster_core::{Event, JobId, NodeId, State};
use muster_protocol::agent::{Order, Orders, PoolOrder, Run, Stop, TaskOrder, TaskShare, Wish};
use tracing::debug;

use crate::cluster::Cluster;
use crate::reign::Feed;

/// Everything the dispatch thread needs.
pub struct Dispatch {
    /// News of the journal.
    pub feed: Receiver<Feed>,
    /// Where the state is read.
    pub cluster: Cluster,
    /// Who carries the orders out.
    pub agents: Vec<Box<dyn Agent>>,
}

impl Dispatch {
    /// Dispatch until the engine is gone, then let the agents go.
    pub fn run(mut self) {
        let mut route = Route::default();
        while let Ok(news) = self.feed.recv() {
            let touched = route.follow(&news);
            for node in touched {
                self.send(&node, route.epoch);
            }
        }
        for agent in &mut self.agents {
            agent.shutdown();
        }
    }

    fn send(&mut self, node: &NodeId, epoch: u64) {
        let agent =
            self.agents.iter_mut().find(|agent| agent.nodes().iter().any(|name| name == node.as_str()));
        let Some(agent) = agent else {
            debug!(%node, "no agent here serves this node");
            return;
        };
        agent.obey(self.cluster.read(|state| orders(state, node, epoch)));
    }
}

/// Which nodes a batch concerns.
#[derive(Default)]
pub struct Route {
    /// Under which leadership orders are given.
    pub epoch: u64,
    /// Where each attempt under way has its parts; an end no longer says.
    parts: BTreeMap<JobId, BTreeSet<NodeId>>,
    /// All nodes: pools are theirs.
    nodes: BTreeSet<NodeId>,
}

impl Route {
    /// Follow the journal: the nodes whose orders have changed.
    pub fn follow(&mut self, news: &Feed) -> BTreeSet<NodeId> {
        match news {
            Feed::Reset { state, epoch } => {
                self.epoch = *epoch;
                let active = state.jobs.values().filter_map(|job| Some((job.id, job.attempt()?.nodes())));
                self.parts = active.collect();
                self.nodes = state.nodes.keys().cloned().collect();
                self.nodes.clone()
            }
            Feed::Batch(batch) => batch.events().flat_map(|event| self.touched(event)).collect(),
            Feed::Pause => BTreeSet::new(),
        }
    }

    /// The nodes whose orders an event changes.
    fn touched(&mut self, event: &Event) -> BTreeSet<NodeId> {
        match event {
            Event::JobPlaced { job, tasks, .. } => {
                let nodes: BTreeSet<NodeId> = tasks.iter().map(|task| task.node.clone()).collect();
                self.parts.insert(*job, nodes.clone());
                nodes
            }
            Event::AttemptStarted { job, .. }
            | Event::AttemptStopping { job, .. }
            | Event::CheckpointSaved { job, grace_ms: Some(_), .. }
            | Event::PartEnded { job, .. } => self.parts.get(job).cloned().unwrap_or_default(),
            Event::AttemptEnded { job, .. } => self.parts.remove(job).unwrap_or_default(),
            Event::PolicyApplied { .. } => self.nodes.clone(),
            Event::NodeRemoved { node, .. } => {
                self.nodes.remove(node);
                BTreeSet::new()
            }
            // Its agent may have begun anew, and then it knows of nothing.
            Event::NodeRegistered { node, .. } => {
                self.nodes.insert(node.clone());
                BTreeSet::from([node.clone()])
            }
            Event::NodeStateChanged { node, word: NodeWord::Ready, .. } => BTreeSet::from([node.clone()]),
            _ => BTreeSet::new(),
        }
    }
}

/// The full list of what a node owes.
pub fn orders(state: &State, node: &NodeId, epoch: u64) -> Orders {
    let open = state.attempts_on(node).filter_map(|job| Some((job, job.attempt()?)));
    let open = open.filter(|(_, attempt)| !matches!(attempt.parts.get(node), Some(Part::Ended { .. })));
    let agent = state.nodes.get(node).map(|node| node.facts.incarnation.clone());
    Orders {
        node: node.to_string(),
        incarnation: agent.unwrap_or_default(),
        epoch,
        generation: state.seq,
        attempts: open.map(|(job, attempt)| order(state, job, attempt, node)).collect(),
        pools: pools(state, node),
    }
}

/// The pools that have devices on a node.
fn pools(state: &State, node: &NodeId) -> Vec<PoolOrder> {
    let devices = state.nodes.get(node).map(|node| &node.pools[..]).unwrap_or_default();
    let rules = state.policies.rules().into_iter().flat_map(|rules| rules.pools.values());
    let of_pool = |pool: &Pool| {
        let gpus = (0..).zip(devices).filter(|(_, pools)| pools.contains_key(&pool.name));
        let gpus: Vec<u8> = gpus.map(|(gpu, _)| gpu).collect();
        (!gpus.is_empty()).then(|| PoolOrder {
            name: pool.name.clone(),
            gpus,
            power_policy: pool.power_policy.word().to_string(),
            max_temp_milli_c: pool.max_temp_milli_c,
            health_threshold_milli: pool.health_threshold_milli,
            tuning: pool.opt_strategies.iter().map(|one| wish(one.kind.word(), &one.fields)).collect(),
            checks: pool.health_checks.iter().map(|check| wish(&check.name, &check.fields)).collect(),
        })
    };
    rules.filter_map(of_pool).collect()
}

fn wish(name: &str, fields: &BTreeMap<String, Fact>) -> Wish {
    let fields = fields.iter().map(|(field, fact)| (field.clone(), fact.to_string())).collect();
    Wish { name: name.to_string(), fields }
}

fn order(state: &State, job: &Job, attempt: &Attempt, node: &NodeId) -> Order {
    let nodes = nodes_by_rank(&attempt.tasks);
    let facts = state.nodes.get(node).map(|node| &node.facts);
    Order {
        job: job.id.to_string(),
        attempt: attempt.number,
        placed_at_ms: attempt.placed_at.0,
        started: attempt.parts.get(node).is_some(),
        tasks: tasks_on((node, facts), job, &attempt.tasks),
        gang_size: attempt.tasks.len() as u32,
        node_rank: nodes.iter().position(|other| *other == node).unwrap_or_default() as u32,
        master_address: nodes.first().map(|first| address(state, first)).unwrap_or_default(),
        nodes: nodes.into_iter().map(NodeId::to_string).collect(),
        run: run(job),
        name: job.spec.name.clone(),
        tenant: job.spec.tenant.to_string(),
        user: job.spec.user.clone(),
        annotations: job.spec.annotations.clone(),
        gpu_milliwatts_max: attempt.gpu_milliwatts_max,
        stop: attempt.stopping.as_ref().map(|stopping| Stop {
            since_ms: stopping.since.0,
            grace_ms: stopping.grace_ms,
            why: why(&stopping.cause),
        }),
    }
}

/// Each node once, where its first task comes: a gang is adopted rank by rank, and so its tasks stand.
fn nodes_by_rank(tasks: &[PlacedTask]) -> Vec<&NodeId> {
    let mut known = BTreeSet::new();
    tasks.iter().map(|task| &task.node).filter(|node| known.insert(*node)).collect()
}

/// The tasks of one node. All are walked, because the ranks inside a group count over all nodes.
fn tasks_on((node, facts): (&NodeId, Option<&NodeFacts>), job: &Job, tasks: &[PlacedTask]) -> Vec<TaskOrder> {
    let mut group_sizes = vec![0; job.spec.tasks.len()];
    let mut here = Vec::new();
    for task in tasks {
        let group = &job.spec.tasks[task.group as usize];
        let group_size = &mut group_sizes[task.group as usize];
        if task.node == *node {
            here.push(TaskOrder {
                rank: task.rank,
                group: group.name.clone(),
                group_rank: *group_size,
                gpus: task.gpus.clone(),
                share: task.share.as_deref().map(share),
                numa_nodes: numa_nodes(facts, &task.gpus).unwrap_or_default(),
                cpus: group.each.cpus,
                memory_mib: group.each.memory_mib,
            });
        }
        *group_size += 1;
    }
    here
}

/// The NUMA nodes that GPUs hang on, if that is known of all of them: cores that are near to some would be far from others.
fn numa_nodes(facts: Option<&NodeFacts>, gpus: &[u8]) -> Option<Vec<u32>> {
    let numa = |gpu: &u8| facts?.gpus.get(usize::from(*gpu))?.numa_node;
    let known: BTreeSet<u32> = gpus.iter().map(numa).collect::<Option<_>>()?;
    Some(known.into_iter().collect())
}

fn share(share: &Share) -> TaskShare {
    let (profile, start) = match &share.mode {
        ShareMode::Mig { profile, start } => (Some(profile.clone()), Some(*start)),
        ShareMode::Mps | ShareMode::TimeSlice => (None, None),
    };
    TaskShare {
        mode: share.mode.word().to_string(),
        compute_milli: share.compute_milli,
        memory_mib: share.memory_mib,
        profile,
        start,
    }
}

/// Where a node can be reached: its address if it has said one, else its host name, else the name it has here.
fn address(state: &State, node: &NodeId) -> String {
    let facts = state.nodes.get(node).map(|node| &node.facts);
    let said = facts.into_iter().flat_map(|facts| [&facts.address, &facts.hostname]);
    said.into_iter().find(|said| !said.is_empty()).cloned().unwrap_or_else(|| node.to_string())
}

fn run(job: &Job) -> Run {
    let run = &job.spec.run;
    let mut env = run.env.clone();
    if let Some(index) = job.id.index {
        env.insert("MUSTER_ARRAY_INDEX".to_string(), index.to_string());
    }
    if let Some(checkpoint) = &job.spec.checkpoint {
        env.insert("MUSTER_CHECKPOINT_DIR".to_string(), checkpoint.path.clone());
    }
    Run {
        image: run.image.clone(),
        script: run.script.clone(),
        command: run.command.clone(),
        args: run.args.clone(),
        env,
        directory: run.directory.clone(),
    }
}

/// Why an attempt must stop, for the log of the job.
fn why(cause: &StopCause) -> String {
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
