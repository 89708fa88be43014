//! Applies the actions of a fault schedule to the simulated cluster.

use muster_core::Command;
use muster_core::objects::node::NodeStatus;
use muster_core::objects::settings::{Objective, Settings};
use muster_protocol::agent::Report;
use muster_store::memory::SimulatedFault;

use super::network::NetworkConditions;
use super::{ServerMessage, SimCluster, SimEvent};
use crate::fault_schedule::ScheduledAction;
use crate::random::Random;

impl SimCluster<'_> {
    pub(super) fn apply_action(&mut self, index: usize) {
        let action = self.schedule.actions[index].1.clone();
        if self.is_healed && action.is_fault() {
            return;
        }
        let (now, servers, nodes) = (self.now(), self.servers.len(), self.nodes.len());
        match action {
            ScheduledAction::CrashServer(server, ms) => {
                self.servers[server % servers].process = None;
                self.schedule_at(now + ms, SimEvent::RestartServer(server % servers));
            }
            ScheduledAction::PauseServer(server, ms) => self.servers[server % servers].paused_until_ms = now + ms,
            ScheduledAction::FreezeServer(server, ms) => {
                self.servers[server % servers].paused_until_ms = now + ms;
                self.servers[server % servers].clock.freeze_until(now + ms);
            }
            ScheduledAction::CrashAgent(node, ms) => {
                self.nodes[node % nodes].agent = None;
                self.schedule_at(now + ms, SimEvent::RestartAgent(node % nodes));
            }
            ScheduledAction::PauseAgent(node, ms) => self.nodes[node % nodes].agent_paused_until_ms = now + ms,
            ScheduledAction::PauseShim(node, number, ms) => self.nodes[node % nodes].host.pause_any_shim(number, ms),
            ScheduledAction::FreezeNode(node, ms) => {
                self.nodes[node % nodes].frozen_until_ms = now + ms;
                self.nodes[node % nodes].clock.freeze_until(now + ms);
            }
            ScheduledAction::CrashNode(node, ms) => {
                let sim_node = &mut self.nodes[node % nodes];
                (sim_node.agent, sim_node.is_powered_on) = (None, false);
                sim_node.host.power_cut();
                self.schedule_at(now + ms, SimEvent::BootNode(node % nodes));
            }
            ScheduledAction::LoseDisk(node, ms) => {
                let sim_node = &mut self.nodes[node % nodes];
                (sim_node.agent, sim_node.is_powered_on) = (None, false);
                sim_node.host.power_cut();
                sim_node.host.lose_disk();
                self.laws.forget_unreported_launches(node % nodes, &self.node_names[node % nodes]);
                self.schedule_at(now + ms, SimEvent::BootNode(node % nodes));
            }
            ScheduledAction::KillShim(node) => self.nodes[node % nodes].host.kill_any_shim(),
            ScheduledAction::FailDiskWrites(node, writes) => self.nodes[node % nodes].host.fail_writes(writes),
            ScheduledAction::DisconnectDatabase(server, ms) => {
                self.servers[server % servers].connection.inject_fault(SimulatedFault::Unreachable);
                self.schedule_at(now + ms, SimEvent::ReconnectDatabase(server % servers));
            }
            ScheduledAction::LoseDatabaseReply(server) => {
                self.servers[server % servers].connection.inject_fault(SimulatedFault::ReplyLost)
            }
            ScheduledAction::TearDatabaseWrite(server) => {
                self.servers[server % servers].connection.inject_fault(SimulatedFault::TornWrite)
            }
            ScheduledAction::PartitionNetwork(server, node, ms) => {
                self.partitions.insert((server % servers, node % nodes), now + ms);
            }
            ScheduledAction::DegradeNetwork(ms, loss_per_mille, delay_ms_max) => {
                self.network = NetworkConditions { until_ms: now + ms, loss_per_mille, delay_ms_max };
            }
            ScheduledAction::SetServerClock(server, offset_ms) => {
                self.servers[server % servers].clock.set_wall_offset_ms(offset_ms)
            }
            ScheduledAction::SetNodeClock(node, offset_ms) => {
                self.nodes[node % nodes].clock.set_wall_offset_ms(offset_ms)
            }
            ScheduledAction::SkewServerClock(server, rate_per_mille) => {
                self.servers[server % servers].clock.set_rate_per_mille(rate_per_mille)
            }
            ScheduledAction::SkewNodeClock(node, rate_per_mille) => {
                self.nodes[node % nodes].clock.set_rate_per_mille(rate_per_mille)
            }
            ScheduledAction::ReportGpuReading(node, gpu, temperature_c, errors) => {
                self.send_gpu_reading(node % nodes, gpu, temperature_c, errors)
            }
            ScheduledAction::FailGpu(node, gpu, errors) => {
                let gpu = gpu % self.schedule.node_gpus[node % nodes] as u8;
                self.nodes[node % nodes].host.fail_gpu(gpu);
                self.send_gpu_reading(node % nodes, gpu, 60, errors);
            }
            ScheduledAction::Configure(number) => {
                self.settings = random_settings(number, &self.settings);
                let settings = Box::new(self.settings.clone());
                self.send_operator_command(Command::Configure { settings });
            }
            ScheduledAction::Drain(node) => self.set_node_state(node % nodes, NodeStatus::Draining),
            ScheduledAction::Resume(node) => self.set_node_state(node % nodes, NodeStatus::Ready),
            request_action => {
                for request in self.clients.requests_of_action(&request_action, self.laws.expected_state()) {
                    self.send_request(request);
                }
            }
        }
    }

    pub(super) fn send_operator_command(&mut self, command: Command) {
        let request = self.clients.add_operator_request(command);
        self.send_request(request);
    }

    pub(super) fn set_node_state(&mut self, node: usize, status: NodeStatus) {
        if let Ok(node) = self.node_names[node].parse() {
            self.send_operator_command(Command::SetNodeState { node, status, why: "an operator".to_string() });
        }
    }

    pub(super) fn send_gpu_reading(&mut self, node: usize, gpu: u8, temperature_c: i32, errors: u32) {
        let report = Report::GpuReading {
            node: self.node_names[node].clone(),
            gpu: gpu % self.schedule.node_gpus[node] as u8,
            temperature_c: Some(temperature_c),
            errors,
            last_error: String::new(),
        };
        for server in 0..self.servers.len() {
            let message = ServerMessage::Report(Box::new(report.clone()));
            self.send_message(Some((server, node)), SimEvent::ToServer(server, message));
        }
    }
}

fn random_settings(number: u64, before: &Settings) -> Settings {
    let mut random = Random(number);
    Settings {
        objective: if random.chance_per_mille(500) { Objective::Fast } else { Objective::Fair },
        preemption: random.chance_per_mille(700),
        defragment: random.chance_per_mille(500),
        reservations: random.below(4) as u32,
        ..before.clone()
    }
}
