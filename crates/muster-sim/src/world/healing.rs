//! The end of a story: all misfortune is over, and operators put everything back in order until all have ended.

use muster_core::job::Phase;
use muster_core::node::{GpuWord, Node, NodeWord};
use muster_core::tenant::{Quota, TenantConfig};
use muster_core::{Command, State};
use muster_store::memory::Fault;

use super::{Coming, World};

impl World<'_> {
    /// All misfortune is over; from now on everything works, and everyone may go on.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.weather.until = 0;
        self.cuts.clear();
        for server in 0..self.servers.len() {
            self.servers[server].connection.fail(Fault::None);
            self.servers[server].paused_until = 0;
            self.servers[server].clock.repair();
            self.start_server(server);
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].host.fail_writes(0);
            self.nodes[node].agent_paused_until = 0;
            self.nodes[node].frozen_until = 0;
            self.nodes[node].clock.repair();
            self.start_node(node);
        }
        let waiting: Vec<_> = self.waits.keys().copied().collect();
        waiting.into_iter().for_each(|who| self.goes_on(who));
        self.tidy();
    }

    /// Operators put everything back in order, again and again until all have ended.
    pub(super) fn tidy(&mut self) {
        for command in orderly(self.laws.state()) {
            self.ask(command);
        }
        let doubtful = self.laws.state().nodes.values().flat_map(|node| {
            let health = (0u8..).zip(&node.gpu_health).filter(|(_, health)| health.word != GpuWord::Healthy);
            health.map(|(gpu, _)| (node.id.clone(), gpu))
        });
        for (node, gpu) in doubtful.collect::<Vec<_>>() {
            if let Some(node) = self.names.iter().position(|name| name == node.as_str()) {
                self.read_gpu(node, gpu, 40, 0);
            }
        }
        self.after(5_000, 5_000, Coming::Tidy);
    }
}

/// What operators do so that every job can run.
fn orderly(state: &State) -> Vec<Command> {
    let held = state.jobs.values().filter(|job| matches!(job.phase, Phase::Held { .. }));
    let release = held.map(|job| Command::ReleaseJob { job: job.id });
    let away = |node: &&Node| matches!(node.state.word, NodeWord::Draining | NodeWord::Hold);
    let resume = state.nodes.values().filter(away).map(|node| Command::SetNodeState {
        node: node.id.clone(),
        word: NodeWord::Ready,
        why: "all is well".to_string(),
    });
    let limited = state.tenants.values().filter(|tenant| tenant.config.maximum != Quota::default());
    let lift = limited.map(|tenant| Command::ChangeTenant {
        id: tenant.id.clone(),
        config: Box::new(TenantConfig { maximum: Quota::default(), ..tenant.config.clone() }),
    });
    release.chain(resume).chain(lift).collect()
}
