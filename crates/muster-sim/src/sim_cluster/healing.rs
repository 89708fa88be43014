//! The end of a schedule: all faults are removed, and operators restore the cluster until every job has ended.

use muster_core::gpu::device::GpuStatus;
use muster_core::objects::job::Phase;
use muster_core::objects::node::{Node, NodeStatus, Service};
use muster_core::objects::tenant::{Quota, TenantConfig};
use muster_core::{Command, State};
use muster_store::memory::SimulatedFault;

use super::laws::BrokenLaw;
use super::{SimCluster, SimEvent};

impl SimCluster<'_> {
    /// Removes all faults and resumes all components.
    pub(super) fn heal(&mut self) -> Result<(), BrokenLaw> {
        self.is_healed = true;
        self.network.until_ms = 0;
        self.partitions.clear();
        self.cuts.clear();
        self.stalled_readers.clear();
        for server in 0..self.servers.len() {
            self.servers[server].connection.inject_fault(SimulatedFault::None);
            self.servers[server].paused_until_ms = 0;
            self.servers[server].clock.reset();
            self.start_server(server);
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].host.fail_writes(0);
            self.nodes[node].agent_paused_until_ms = 0;
            self.nodes[node].frozen_until_ms = 0;
            self.nodes[node].clock.reset();
            self.start_node(node);
        }
        let paused: Vec<_> = self.deferred_events.keys().copied().collect();
        paused.into_iter().for_each(|component| self.resume(component));
        self.clean_up()
    }

    /// Sends the operator commands that restore the cluster; repeats until the cluster is at rest.
    pub(super) fn clean_up(&mut self) -> Result<(), BrokenLaw> {
        for command in recovery_commands(self.laws.expected_state()) {
            self.send_operator_command(command);
        }
        let unhealthy = self.laws.expected_state().nodes.values().flat_map(|node| {
            let health = (0u8..).zip(&node.gpu_health).filter(|(_, health)| health.status != GpuStatus::Healthy);
            health.map(|(gpu, _)| (node.id.clone(), gpu))
        });
        for (node, gpu) in unhealthy.collect::<Vec<_>>() {
            if let Some(node) = self.node_names.iter().position(|name| name == node.as_str()) {
                self.send_gpu_reading(self.machine_of(node), gpu, 40, 0)?;
            }
        }
        self.schedule_after(5_000, 5_000, SimEvent::CleanUp);
        Ok(())
    }
}

/// The operator commands after which every job can run.
fn recovery_commands(state: &State) -> Vec<Command> {
    let held_jobs = state.jobs.values().filter(|job| matches!(job.phase, Phase::Held { .. }));
    let release = held_jobs.map(|job| Command::ReleaseJob { job: job.id });
    let is_out_of_service = |node: &&Node| node.state.service.status != Service::Ready;
    let resume = state.nodes.values().filter(is_out_of_service).map(|node| Command::SetNodeState {
        node: node.id.clone(),
        status: NodeStatus::Ready,
        why: "recovered".to_string(),
    });
    let limited_tenants = state.tenants.values().filter(|tenant| tenant.config.maximum != Quota::default());
    let lift_quota = limited_tenants.map(|tenant| Command::ChangeTenant {
        id: tenant.id.clone(),
        config: Box::new(TenantConfig { maximum: Quota::default(), ..tenant.config.clone() }),
    });
    release.chain(resume).chain(lift_quota).collect()
}
