//! The product without a server around it: a state that decides, and its own planner.
//!
//! The clock stands still: what is measured with this does not depend on it.

use muster_core::command::{Actor, Answer, Command};
use muster_core::job::PlacedTask;
use muster_core::node::NodeFacts;
use muster_core::plan::plan;
use muster_core::tenant::TenantConfig;
use muster_core::{JobId, JobSpec, NodeId, Settings, State, TenantId, Timestamp};

use super::synthetic;

const NOW: Timestamp = Timestamp(0);

/// A cluster of one tenant, which may have everything.
pub struct Product {
    state: State,
}

impl Product {
    /// Without nodes.
    pub fn new(settings: Settings) -> Product {
        let mut product = Product { state: State::default() };
        product.tell(&Command::CreateTenant {
            id: tenant(),
            config: Box::new(TenantConfig::unlimited("bench")),
        });
        product.tell(&Command::Configure { settings: Box::new(settings) });
        product
    }

    /// One more node. Among equals the one registered under the lowest rank wins.
    pub fn register(&mut self, rank: usize, facts: NodeFacts) {
        self.tell(&Command::RegisterNode { node: name(rank), facts: Box::new(facts) });
    }

    /// A job comes; nothing if it is refused.
    pub fn submit(&mut self, spec: JobSpec) -> Option<JobId> {
        match self.tell(&Command::SubmitJob(synthetic::submission(spec)))? {
            Answer::Job(job) => Some(job),
            _ => None,
        }
    }

    /// Draw up a round and make it true.
    pub fn round(&mut self) {
        let plan = Box::new(plan(&self.state, NOW).plan);
        self.tell(&Command::AdoptPlan { plan, epoch: 1 });
    }

    /// The first task of a job that has its place, and the rank of its node.
    pub fn task(&self, job: JobId) -> Option<(usize, &PlacedTask)> {
        let task = self.state.jobs.get(&job)?.attempt()?.tasks.first()?;
        let rank = task.node.as_str().strip_prefix('n')?.parse().ok()?;
        Some((rank, task))
    }

    /// A job that waits goes away.
    pub fn cancel(&mut self, job: JobId) {
        self.tell(&Command::CancelJob { job });
    }

    /// A job that has its place ends.
    pub fn end(&mut self, job: JobId) {
        synthetic::end(&mut self.state, job, NOW);
    }

    fn tell(&mut self, command: &Command) -> Option<Answer> {
        let decision = self.state.decide(&Actor::system(), command, NOW).ok()?;
        decision.events.iter().for_each(|event| self.state.apply(event));
        Some(decision.answer)
    }
}

fn tenant() -> TenantId {
    synthetic::tenant_name(0).parse().unwrap_or_else(|_| unreachable!("a plain name"))
}

fn name(rank: usize) -> NodeId {
    format!("n{rank:06}").parse().unwrap_or_else(|_| unreachable!("a plain name"))
}
