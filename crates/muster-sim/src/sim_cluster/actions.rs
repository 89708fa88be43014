//! Applies the actions of a fault schedule to the simulated cluster.

use muster_core::Command;
use muster_core::objects::node::NodeStatus;
use muster_core::objects::settings::{Objective, Settings};
use muster_protocol::agent::Report;
use muster_store::memory::SimulatedFault;

use super::enrolment::JoinProgress;
use super::laws::BrokenLaw;
use super::network::NetworkConditions;
use super::{SimCluster, SimEvent};
use crate::fault_schedule::ScheduledAction;
use crate::random::Random;

impl SimCluster<'_> {
    pub(super) fn apply_action(&mut self, index: usize) -> Result<(), BrokenLaw> {
        let action = self.schedule.actions[index].1.clone();
        if self.is_healed && action.is_fault() {
            return Ok(());
        }
        let (now, servers) = (self.now(), self.servers.len());
        let node_count = self.schedule.node_gpus.len();
        let machine = |cluster: &Self, node: usize| cluster.machine_of(node % node_count);
        match action {
            ScheduledAction::CrashServer(server, ms) => {
                self.end_server(server % servers);
                self.schedule_at(now + ms, SimEvent::RestartServer(server % servers));
            }
            ScheduledAction::PauseServer(server, ms) => self.servers[server % servers].paused_until_ms = now + ms,
            ScheduledAction::FreezeServer(server, ms) => {
                self.servers[server % servers].paused_until_ms = now + ms;
                self.servers[server % servers].clock.freeze_until(now + ms);
            }
            ScheduledAction::CrashAgent(node, ms) => {
                let node = machine(self, node);
                self.end_agent(node);
                self.schedule_at(now + ms, SimEvent::RestartAgent(node));
            }
            ScheduledAction::PauseAgent(node, ms) => {
                let node = machine(self, node);
                self.nodes[node].agent_paused_until_ms = now + ms;
            }
            ScheduledAction::PauseShim(node, number, ms) => {
                self.nodes[machine(self, node)].host.pause_any_shim(number, ms);
            }
            ScheduledAction::FreezeNode(node, ms) => {
                let node = machine(self, node);
                self.nodes[node].frozen_until_ms = now + ms;
                self.nodes[node].clock.freeze_until(now + ms);
            }
            ScheduledAction::CrashNode(node, ms) => {
                let node = machine(self, node);
                self.cut_power(node);
                self.schedule_at(now + ms, SimEvent::BootNode(node));
            }
            ScheduledAction::LoseDisk(node, ms) => {
                let node = machine(self, node);
                self.lose_disk(node);
                self.schedule_at(now + ms, SimEvent::BootNode(node));
            }
            ScheduledAction::KillShim(node) => self.nodes[machine(self, node)].host.kill_any_shim(),
            ScheduledAction::FailDiskWrites(node, writes) => {
                self.nodes[machine(self, node)].host.fail_writes(writes);
            }
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
                let node = machine(self, node);
                self.partitions.insert((server % servers, node), now + ms);
            }
            ScheduledAction::CutOneWay(server, node, to_server, ms) => {
                let node = machine(self, node);
                self.cuts.insert((server % servers, node, to_server), now + ms);
            }
            ScheduledAction::IsolateNode(node, ms) => {
                let node = machine(self, node);
                self.partitions.extend((0..servers).map(|server| ((server, node), now + ms)));
            }
            ScheduledAction::DegradeNetwork(ms, loss_per_mille, delay_ms_max) => {
                self.network = NetworkConditions { until_ms: now + ms, loss_per_mille, delay_ms_max };
            }
            ScheduledAction::SetServerClock(server, offset_ms) => {
                self.servers[server % servers].clock.set_wall_offset_ms(offset_ms)
            }
            ScheduledAction::SetNodeClock(node, offset_ms) => {
                self.nodes[machine(self, node)].clock.set_wall_offset_ms(offset_ms)
            }
            ScheduledAction::SkewServerClock(server, rate_per_mille) => {
                self.servers[server % servers].clock.set_rate_per_mille(rate_per_mille)
            }
            ScheduledAction::SkewNodeClock(node, rate_per_mille) => {
                self.nodes[machine(self, node)].clock.set_rate_per_mille(rate_per_mille)
            }
            ScheduledAction::ReportGpuReading(node, gpu, temperature_c, errors) => {
                return self.send_gpu_reading(machine(self, node), gpu, temperature_c, errors);
            }
            ScheduledAction::FailGpu(node, gpu, errors) => {
                let gpu = gpu % self.schedule.node_gpus[node % node_count] as u8;
                let node = machine(self, node);
                self.nodes[node].host.fail_gpu(gpu);
                return self.send_gpu_reading(node, gpu, 60, errors);
            }
            ScheduledAction::Configure(number) => {
                self.settings = random_settings(number, &self.settings);
                let settings = Box::new(self.settings.clone());
                self.send_operator_command(Command::Configure { settings });
            }
            ScheduledAction::Drain(node) => self.set_node_state(node % node_count, NodeStatus::Draining),
            ScheduledAction::Resume(node) => self.set_node_state(node % node_count, NodeStatus::Ready),
            ScheduledAction::BreakConnection(node, number) => self.break_connection(machine(self, node), number),
            ScheduledAction::StallReader(node, is_server, ms) => {
                let node = machine(self, node);
                self.stalled_readers.insert((node, is_server), now + ms);
            }
            ScheduledAction::ReuseJoinToken(node, number) => self.reuse_token(machine(self, node), number),
            ScheduledAction::JoinAgain(node) => self.join_again(machine(self, node)),
            ScheduledAction::RemoveNode(node) => self.remove_node(machine(self, node)),
            ScheduledAction::ReplaceMachine(node) => self.replace_machine(node % node_count),
            request_action => {
                for request in self.clients.requests_of_action(&request_action, self.laws.expected_state()) {
                    self.send_request(request);
                }
            }
        }
        Ok(())
    }

    pub(super) fn lose_disk(&mut self, node: usize) {
        self.cut_power(node);
        self.nodes[node].host.lose_disk();
        self.nodes[node].identity = None;
        self.nodes[node].join = JoinProgress::Idle;
        self.laws.forget_unreported_launches(node, &self.node_names[node]);
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

    pub(super) fn send_gpu_reading(
        &mut self,
        node: usize,
        gpu: u8,
        temperature_c: i32,
        errors: u32,
    ) -> Result<(), BrokenLaw> {
        let report = Report::GpuReading {
            node: self.node_names[node].clone(),
            gpu: gpu % self.nodes[node].registration.gpus.len() as u8,
            temperature_c: Some(temperature_c),
            errors,
            last_error: String::new(),
        };
        self.report(node, report)
    }
}

fn random_settings(number: u64, before: &Settings) -> Settings {
    let mut random = Random(number);
    // Shorter and longer than that of the attempts that run.
    let self_fence_ms = *Random(!number).choose(&[12_000, 20_000, 40_000]);
    Settings {
        self_fence_ms: if before.self_fence_ms == 0 { 0 } else { self_fence_ms },
        objective: if random.chance_per_mille(500) { Objective::Fast } else { Objective::Fair },
        preemption: random.chance_per_mille(700),
        defragment: random.chance_per_mille(500),
        reservations: random.below(4) as u32,
        ..before.clone()
    }
}
