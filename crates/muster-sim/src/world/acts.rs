//! What people and misfortune do to the cluster, act by act.

use muster_core::Command;
use muster_core::node::NodeWord;
use muster_core::settings::{Objective, Settings};
use muster_protocol::agent::Report;
use muster_store::memory::Fault;

use super::network::Weather;
use super::{Coming, ToServer, World};
use crate::random::Random;
use crate::story::Act;

impl World<'_> {
    pub(super) fn act(&mut self, index: usize) {
        let act = self.story.acts[index].1.clone();
        if self.is_healed && act.is_misfortune() {
            return;
        }
        let (now, servers, nodes) = (self.now(), self.servers.len(), self.nodes.len());
        match act {
            Act::CrashServer(server, ms) => {
                self.servers[server % servers].process = None;
                self.at(now + ms, Coming::ServerIsBack(server % servers));
            }
            Act::PauseServer(server, ms) => self.servers[server % servers].paused_until = now + ms,
            Act::FreezeServer(server, ms) => {
                self.servers[server % servers].paused_until = now + ms;
                self.servers[server % servers].clock.stand_still(now + ms);
            }
            Act::CrashAgent(node, ms) => {
                self.nodes[node % nodes].agent = None;
                self.at(now + ms, Coming::AgentIsBack(node % nodes));
            }
            Act::PauseAgent(node, ms) => self.nodes[node % nodes].agent_paused_until = now + ms,
            Act::PauseShim(node, number, ms) => self.nodes[node % nodes].host.pause_a_shim(number, ms),
            Act::FreezeNode(node, ms) => {
                self.nodes[node % nodes].frozen_until = now + ms;
                self.nodes[node % nodes].clock.stand_still(now + ms);
            }
            Act::CrashNode(node, ms) => {
                let place = &mut self.nodes[node % nodes];
                (place.agent, place.is_on) = (None, false);
                place.host.power_cut();
                self.at(now + ms, Coming::NodeIsBack(node % nodes));
            }
            Act::LoseDisk(node, ms) => {
                let place = &mut self.nodes[node % nodes];
                (place.agent, place.is_on) = (None, false);
                place.host.power_cut();
                place.host.lose_disk();
                self.laws.disk_is_lost(node % nodes, &self.names[node % nodes]);
                self.at(now + ms, Coming::NodeIsBack(node % nodes));
            }
            Act::KillShim(node) => self.nodes[node % nodes].host.kill_a_shim(),
            Act::FailDisk(node, writes) => self.nodes[node % nodes].host.fail_writes(writes),
            Act::LoseDatabase(server, ms) => {
                self.servers[server % servers].connection.fail(Fault::Away);
                self.at(now + ms, Coming::DatabaseIsBack(server % servers));
            }
            Act::SilenceDatabase(server) => self.servers[server % servers].connection.fail(Fault::Silent),
            Act::TearDatabase(server) => self.servers[server % servers].connection.fail(Fault::Torn),
            Act::Partition(server, node, ms) => {
                self.cuts.insert((server % servers, node % nodes), now + ms);
            }
            Act::Weather(ms, per_mille, delay_ms_max) => {
                self.weather = Weather { until: now + ms, per_mille, delay_ms_max };
            }
            Act::SetServerClock(server, off_ms) => self.servers[server % servers].clock.set_off(off_ms),
            Act::SetNodeClock(node, off_ms) => self.nodes[node % nodes].clock.set_off(off_ms),
            Act::PaceServerClock(server, pace) => self.servers[server % servers].clock.set_pace(pace),
            Act::PaceNodeClock(node, pace) => self.nodes[node % nodes].clock.set_pace(pace),
            Act::GpuReading(node, gpu, celsius, errors) => self.read_gpu(node % nodes, gpu, celsius, errors),
            Act::GpuFault(node, gpu, errors) => {
                let gpu = gpu % self.story.nodes[node % nodes] as u8;
                self.nodes[node % nodes].host.gpu_fails(gpu);
                self.read_gpu(node % nodes, gpu, 60, errors);
            }
            Act::Configure(number) => {
                self.settings = settings_of(number, &self.settings);
                let settings = Box::new(self.settings.clone());
                self.ask(Command::Configure { settings });
            }
            Act::Drain(node) => self.set_node(node % nodes, NodeWord::Draining),
            Act::Resume(node) => self.set_node(node % nodes, NodeWord::Ready),
            deed => {
                for letter in self.users.act(&deed, self.laws.state()) {
                    self.write(letter);
                }
            }
        }
    }

    pub(super) fn ask(&mut self, command: Command) {
        let letter = self.users.operator(command);
        self.write(letter);
    }

    pub(super) fn set_node(&mut self, node: usize, word: NodeWord) {
        if let Ok(node) = self.names[node].parse() {
            self.ask(Command::SetNodeState { node, word, why: "an operator".to_string() });
        }
    }

    pub(super) fn read_gpu(&mut self, node: usize, gpu: u8, celsius: i32, errors: u32) {
        let report = Report::GpuReading {
            node: self.names[node].clone(),
            gpu: gpu % self.story.nodes[node] as u8,
            temperature_c: Some(celsius),
            errors,
            last_error: String::new(),
        };
        for server in 0..self.servers.len() {
            let message = ToServer::Report(Box::new(report.clone()));
            self.send(Some((server, node)), Coming::ToServer(server, message));
        }
    }
}

fn settings_of(number: u64, before: &Settings) -> Settings {
    let mut random = Random(number);
    Settings {
        objective: if random.happens(500) { Objective::Fast } else { Objective::Fair },
        preemption: random.happens(700),
        defragment: random.happens(500),
        reservations: random.below(4) as u32,
        ..before.clone()
    }
}
