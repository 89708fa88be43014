//! The scheduler without a server: state and planner of `muster-core` in memory, at a fixed time.
//!
//! The benchmarks compare the planner with published policies through it. Time does not pass, because placement does
//! not depend on it.

use muster_core::facts::command::{Actor, Answer, Command};
use muster_core::objects::job::PlacedTask;
use muster_core::objects::node::NodeFacts;
use muster_core::objects::tenant::TenantConfig;
use muster_core::planner::plan;
use muster_core::{JobId, JobSpec, NodeId, Settings, State, TenantId, Timestamp};

use crate::synthetic;

const NOW: Timestamp = Timestamp(0);

/// A cluster with one tenant that has no quota.
pub struct InMemoryScheduler {
    state: State,
}

impl InMemoryScheduler {
    /// A cluster without nodes.
    pub fn new(settings: Settings) -> InMemoryScheduler {
        let mut scheduler = InMemoryScheduler { state: State::default() };
        scheduler
            .apply_command(&Command::CreateTenant { id: tenant(), config: Box::new(TenantConfig::unlimited("bench")) });
        scheduler.apply_command(&Command::Configure { settings: Box::new(settings) });
        scheduler
    }

    /// Register a node. Of nodes with equal score the planner takes the lowest rank.
    pub fn register(&mut self, rank: usize, facts: NodeFacts) {
        self.apply_command(&Command::RegisterNode { node: node_name(rank), facts: Box::new(facts) });
    }

    /// Submit a job; `None` if it is refused.
    pub fn submit(&mut self, spec: JobSpec) -> Option<JobId> {
        match self.apply_command(&Command::SubmitJob(synthetic::submission(spec)))? {
            Answer::Job(job) => Some(job),
            _ => None,
        }
    }

    /// Plan one round and adopt the plan.
    pub fn plan_and_adopt(&mut self) {
        let plan = Box::new(plan(&self.state, NOW).plan);
        self.apply_command(&Command::AdoptPlan { plan, epoch: 1 });
    }

    /// The rank of the node and the first task of a placed job; `None` while the job waits.
    pub fn first_task(&self, job: JobId) -> Option<(usize, &PlacedTask)> {
        let task = self.state.jobs.get(&job)?.attempt()?.tasks.first()?;
        let rank = task.node.as_str().strip_prefix('n')?.parse().ok()?;
        Some((rank, task))
    }

    /// Cancel a waiting job.
    pub fn cancel(&mut self, job: JobId) {
        self.apply_command(&Command::CancelJob { job });
    }

    /// Report a placed job as ended.
    pub fn end(&mut self, job: JobId) {
        synthetic::end_job(&mut self.state, job, NOW);
    }

    fn apply_command(&mut self, command: &Command) -> Option<Answer> {
        let decision = self.state.decide(&Actor::system(), command, NOW).ok()?;
        decision.events.iter().for_each(|event| self.state.apply(event));
        Some(decision.answer)
    }
}

fn tenant() -> TenantId {
    synthetic::tenant_name(0).parse().unwrap_or_else(|_| unreachable!("a plain name"))
}

fn node_name(rank: usize) -> NodeId {
    format!("n{rank:06}").parse().unwrap_or_else(|_| unreachable!("a plain name"))
}
