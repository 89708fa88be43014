//! The product without a server around it: a state that decides, and its own planner.
//!
//! The clock stands still: what is measured with this does not depend on it.

use muster_core::facts::command::{Actor, Answer, Command};
use muster_core::objects::job::PlacedTask;
use muster_core::objects::node::NodeFacts;
use muster_core::objects::tenant::TenantConfig;
use muster_core::planner::plan;
use muster_core::{JobId, JobSpec, NodeId, Settings, State, TenantId, Timestamp};

use super::synthetic;

const NOW: Timestamp = Timestamp(0);

/// A cluster of one tenant, which may have everything.
pub struct InMemoryScheduler {
    state: State,
}

impl InMemoryScheduler {
    /// Without nodes.
    pub fn new(settings: Settings) -> InMemoryScheduler {
        let mut product = InMemoryScheduler { state: State::default() };
        product.apply_command(&Command::CreateTenant {
            id: tenant(),
            config: Box::new(TenantConfig::unlimited("bench")),
        });
        product.apply_command(&Command::Configure { settings: Box::new(settings) });
        product
    }

    /// One more node. Among equals the one registered under the lowest rank wins.
    pub fn register(&mut self, rank: usize, facts: NodeFacts) {
        self.apply_command(&Command::RegisterNode { node: node_name(rank), facts: Box::new(facts) });
    }

    /// A job comes; nothing if it is refused.
    pub fn submit(&mut self, spec: JobSpec) -> Option<JobId> {
        match self.apply_command(&Command::SubmitJob(synthetic::submission(spec)))? {
            Answer::Job(job) => Some(job),
            _ => None,
        }
    }

    /// Draw up a round and make it true.
    pub fn plan_and_adopt(&mut self) {
        let plan = Box::new(plan(&self.state, NOW).plan);
        self.apply_command(&Command::AdoptPlan { plan, epoch: 1 });
    }

    /// The first task of a job that has its place, and the rank of its node.
    pub fn first_task(&self, job: JobId) -> Option<(usize, &PlacedTask)> {
        let task = self.state.jobs.get(&job)?.attempt()?.tasks.first()?;
        let rank = task.node.as_str().strip_prefix('n')?.parse().ok()?;
        Some((rank, task))
    }

    /// A job that waits goes away.
    pub fn cancel(&mut self, job: JobId) {
        self.apply_command(&Command::CancelJob { job });
    }

    /// A job that has its place ends.
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
