//! Enrolment: operators make join tokens, machines use them, agents renew their certificates.

use muster_core::{Command, NodeId};
use muster_link::session::SessionConfig;
use muster_server::identity::{TokenNumbers, mint_join_token_of};
use muster_server::link::admission::LinkRefusal;
use muster_server::link::peer::PeerError;
use muster_wire::v1;

use super::certificate::SimCertificate;
use super::clock::MachineClock;
use super::transport::Side;
use super::{HEARTBEAT_INTERVAL_MS, SimCluster, SimEvent, SimNode};
use crate::random::Random;

const RENEW_AFTER_MS: i64 = 10_000;
const CALL_TIMEOUT_MS: i64 = 10_000;

/// The files of an identity on the disk of a node.
#[derive(Debug, Clone)]
pub struct NodeIdentity {
    pub enrolment: String,
    pub servers: Vec<String>,
    pub certificate: SimCertificate,
}

/// How far an operator has come with letting a machine join.
#[derive(Debug, Clone, Default)]
pub enum JoinProgress {
    /// There is no token for it.
    #[default]
    Idle,
    /// The token was requested of a server.
    TokenRequested { request: u64, secret: String },
    /// The machine tries to enrol.
    Enrolling { call: u64 },
}

/// A call of an agent, which tries the servers until the leader answers.
#[derive(Debug, Clone)]
pub struct Call {
    node: usize,
    /// Start of the agent, or of the machine before there is one.
    caller_start: u64,
    /// Of the server in the list of the node.
    position: usize,
    request: CallRequest,
}

#[derive(Debug, Clone)]
enum CallRequest {
    Enrol(v1::EnrolRequest),
    Renew(v1::RenewRequest),
}

/// The answer of a server to a call.
#[derive(Debug, Clone)]
pub enum CallAnswer {
    /// Another server may lead.
    Unavailable,
    Refused,
    Certificate(Box<SimCertificate>),
}

impl SimCluster<'_> {
    /// What an operator does about one machine, every few seconds: lets it join, also again after it was removed or has
    /// lost its disk.
    pub(super) fn attend_node(&mut self, node: usize) {
        if self.is_retired(node) {
            return;
        }
        self.schedule_after(700, 3_000, SimEvent::AttendNode(node));
        let is_member = self.nodes[node].identity.is_some() && !self.is_revoked(node);
        if !is_member || self.nodes[node].is_joining_again {
            self.continue_joining(node);
        }
    }

    fn continue_joining(&mut self, node: usize) {
        match self.nodes[node].join.clone() {
            JoinProgress::Idle => self.request_join_token(node),
            JoinProgress::TokenRequested { request, secret } => match self.clients.was_accepted(request) {
                Some(true) if self.nodes[node].is_powered_on => {
                    self.nodes[node].last_secret = secret.clone();
                    let name = self.node_names[node].clone();
                    let call = self.call_to_enrol(node, name, secret);
                    self.nodes[node].join = JoinProgress::Enrolling { call };
                }
                Some(false) => self.nodes[node].join = JoinProgress::Idle,
                Some(true) | None => {}
            },
            JoinProgress::Enrolling { call } if !self.calls.contains_key(&call) => {
                self.nodes[node].join = JoinProgress::Idle;
            }
            JoinProgress::Enrolling { .. } => {}
        }
    }

    /// Most tokens are for this node; a token for any node cannot take the name of a node that has joined.
    fn request_join_token(&mut self, node: usize) {
        let mut number = || self.random.next_u64();
        let mut numbers = TokenNumbers { id: [0; 5], secret: [0; 32] };
        numbers.id.copy_from_slice(&number().to_le_bytes()[..5]);
        numbers.secret[..8].copy_from_slice(&number().to_le_bytes());
        let for_node = self.random.chance_per_mille(800).then(|| self.node_names[node].parse().ok()).flatten();
        let valid_ms = *self.random.choose(&[3_000, 60_000, 900_000, 900_000]);
        let now = self.laws.latest_time();
        let (token, secret) = mint_join_token_of(&numbers, for_node, "an operator", now, valid_ms);
        let request = self.clients.add_operator_request(Command::AddJoinToken { token: Box::new(token) });
        self.nodes[node].join = JoinProgress::TokenRequested { request, secret: secret.reveal().to_string() };
        self.send_request(request);
    }

    /// A machine, perhaps another one, uses the last token of a node: again, or before its owner.
    pub(super) fn reuse_token(&mut self, node: usize, number: u64) {
        let name = match number % 3 {
            0 => "intruder".to_string(),
            1 => self.node_names[node].clone(),
            _ => self.node_names[number as usize % self.schedule.node_gpus.len()].clone(),
        };
        let secret = match &self.nodes[node].join {
            JoinProgress::TokenRequested { secret, .. } => secret.clone(),
            _ => self.nodes[node].last_secret.clone(),
        };
        let call = self.call_to_enrol(node, name, secret);
        self.stray_calls.insert(call);
    }

    fn call_to_enrol(&mut self, node: usize, name: String, secret: String) -> u64 {
        let request = v1::EnrolRequest { join_token: secret, node: name, public_key: Vec::new() };
        self.begin_call(node, self.nodes[node].host.boot(), CallRequest::Enrol(request))
    }

    pub(super) fn call_to_renew(&mut self, node: usize) {
        let Some(identity) = &self.nodes[node].identity else { return };
        let (name, enrolment) = (self.node_names[node].clone(), identity.enrolment.clone());
        let request = v1::RenewRequest { node: name, enrolment, public_key: Vec::new() };
        self.begin_call(node, self.nodes[node].agent_starts, CallRequest::Renew(request));
    }

    fn begin_call(&mut self, node: usize, caller_start: u64, request: CallRequest) -> u64 {
        self.calls_made += 1;
        let call = self.calls_made;
        self.calls.insert(call, Call { node, caller_start, position: 0, request });
        self.send_call(call);
        call
    }

    /// Sends a call to its next server; without one it has failed.
    fn send_call(&mut self, call: u64) {
        let Some(known) = self.calls.get(&call).cloned() else { return };
        let servers = self.servers_of(known.node);
        let Some(address) = servers.get(known.position) else { return self.end_call(call, CallAnswer::Unavailable) };
        let server = self.servers.iter().position(|host| host.address == *address);
        let timeout = SimEvent::CallTimesOut(call, known.position);
        match server {
            Some(server) if !self.is_path_cut(known.node, server, Side::Server) => {
                self.schedule_after(1, 40, SimEvent::CallArrives(server, call));
                self.schedule_at(self.now() + CALL_TIMEOUT_MS, timeout);
            }
            Some(_) => self.schedule_at(self.now() + CALL_TIMEOUT_MS, timeout),
            // Of another cluster: the handshake fails.
            None => self.schedule_after(1, 100, timeout),
        }
    }

    pub(super) fn time_out_call(&mut self, call: u64, position: usize) {
        if let Some(known) = self.calls.get_mut(&call).filter(|known| known.position == position) {
            known.position += 1;
            self.send_call(call);
        }
    }

    /// The leader judges the call of an agent.
    pub(super) fn receive_call(&mut self, server: usize, call: u64) {
        let Some(known) = self.calls.get(&call).cloned() else { return };
        let certificate = self.nodes[known.node].identity.as_ref().map(|identity| identity.certificate.clone());
        let wall_ms = self.servers[server].clock.wall_ms();
        let Some(process) = &mut self.servers[server].process else {
            return self.schedule_after(1, 40, SimEvent::CallAnswered(call, CallAnswer::Unavailable));
        };
        let judged = match &known.request {
            CallRequest::Enrol(request) => match process.view(|view| view.check_enrolment(request)) {
                Ok(Command::EnrolNode { node, token }) => {
                    let certificate = SimCertificate::issue(node.as_str(), &token, wall_ms);
                    process.receive_enrolment(call, Command::EnrolNode { node, token }, certificate);
                    return self.wake_thread(server, "engine", 1, 30);
                }
                Ok(_) | Err(LinkRefusal::NotLeader) => Err(LinkRefusal::NotLeader),
                Err(refusal) => Err(refusal),
            },
            CallRequest::Renew(request) => {
                let certificate = certificate.filter(|certificate| certificate.is_renewable(wall_ms));
                let check_name = |node: &str, enrolment: &str| match &certificate {
                    Some(certificate) => certificate.check_name(node, enrolment),
                    None => Err(PeerError::Other("no certificate".to_string())),
                };
                let judged = process.view(|view| view.check_renewal(request, check_name));
                judged.map(|node| SimCertificate::issue(node.as_str(), &request.enrolment, wall_ms))
            }
        };
        let answer = match judged {
            Ok(certificate) => CallAnswer::Certificate(Box::new(certificate)),
            Err(LinkRefusal::NotLeader) => CallAnswer::Unavailable,
            Err(_) => CallAnswer::Refused,
        };
        self.answer_call(server, call, answer);
    }

    pub(super) fn answer_call(&mut self, server: usize, call: u64, answer: CallAnswer) {
        let Some(known) = self.calls.get(&call) else { return };
        let is_degraded = self.network.until_ms > self.now();
        let is_lost = is_degraded && self.random.chance_per_mille(self.network.loss_per_mille);
        if !is_lost && !self.is_path_cut(known.node, server, Side::Agent) {
            self.schedule_after(1, 40, SimEvent::CallAnswered(call, answer));
        }
    }

    pub(super) fn receive_call_answer(&mut self, call: u64, answer: CallAnswer) {
        match answer {
            CallAnswer::Unavailable => {
                if let Some(known) = self.calls.get_mut(&call) {
                    known.position += 1;
                    self.send_call(call);
                }
            }
            answer => self.end_call(call, answer),
        }
    }

    fn end_call(&mut self, call: u64, answer: CallAnswer) {
        let Some(known) = self.calls.remove(&call) else { return };
        let node = known.node;
        match (known.request, answer) {
            (CallRequest::Enrol(_), _) if self.stray_calls.remove(&call) => {}
            (CallRequest::Enrol(_), CallAnswer::Certificate(certificate))
                if self.nodes[node].is_powered_on && self.nodes[node].host.boot() == known.caller_start =>
            {
                self.store_identity(node, *certificate)
            }
            (CallRequest::Enrol(_), _) => {}
            (CallRequest::Renew(_), answer) => self.end_renewal(node, known.caller_start, answer),
        }
    }

    /// The machine has joined: its agent starts, or starts again.
    fn store_identity(&mut self, node: usize, certificate: SimCertificate) {
        let servers = self.servers_of(node);
        let enrolment = certificate.enrolment().to_string();
        self.end_agent(node);
        self.nodes[node].identity = Some(NodeIdentity { enrolment, servers, certificate });
        self.nodes[node].join = JoinProgress::Idle;
        self.nodes[node].is_joining_again = false;
        self.start_agent(node);
    }

    fn end_renewal(&mut self, node: usize, agent_start: u64, answer: CallAnswer) {
        let now_ms = self.nodes[node].clock.monotonic_ms();
        if self.nodes[node].agent_starts != agent_start {
            return;
        }
        let renewed = match answer {
            CallAnswer::Certificate(certificate) => Some(*certificate),
            CallAnswer::Unavailable | CallAnswer::Refused => None,
        };
        if let Some(agent) = &mut self.nodes[node].agent {
            agent.link.renewal.end(now_ms, renewed.as_ref().map(|_| RENEW_AFTER_MS));
        }
        if let (Some(certificate), Some(identity)) = (renewed, &mut self.nodes[node].identity) {
            identity.certificate = certificate;
        }
        self.wake_link(node);
    }

    /// The servers that a node knows: those of its join URL, one of them of another cluster, and those it was told of.
    fn servers_of(&self, node: usize) -> Vec<String> {
        if let Some(identity) = &self.nodes[node].identity {
            return identity.servers.clone();
        }
        let mut random = Random(self.schedule.seed ^ node as u64);
        let mut servers: Vec<String> = self.servers.iter().map(|host| host.address.clone()).collect();
        if random.chance_per_mille(200) {
            servers.insert(random.below(servers.len() as u64 + 1) as usize, "other-cluster:50052".to_string());
        }
        let first = random.below(servers.len() as u64) as usize;
        servers.rotate_left(first);
        servers
    }

    pub(super) fn session_config(&mut self, node: usize, incarnation: &str) -> SessionConfig {
        SessionConfig {
            node: self.node_names[node].clone(),
            enrolment: self.nodes[node].identity.as_ref().map(|known| known.enrolment.clone()).unwrap_or_default(),
            incarnation: incarnation.to_string(),
            agent_version: "simulated".to_string(),
            heartbeat_interval_ms: HEARTBEAT_INTERVAL_MS,
            jitter_seed: self.random.next_u64(),
        }
    }

    /// True if the identity on the disk of a node is not the one that the cluster knows.
    pub(super) fn is_revoked(&self, node: usize) -> bool {
        let name = self.node_names[node].parse::<NodeId>();
        let is_known =
            |enrolment: &str| name.as_ref().is_ok_and(|name| self.laws.expected_state().is_enrolled(name, enrolment));
        self.nodes[node].identity.as_ref().is_some_and(|identity| !is_known(&identity.enrolment))
    }

    /// An operator runs the agent of a node with a new join URL, while its jobs run.
    pub(super) fn join_again(&mut self, node: usize) {
        self.nodes[node].is_joining_again = true;
    }

    /// Another machine takes over the name of a node, with a new join token. The former one keeps running.
    pub(super) fn replace_machine(&mut self, node: usize) {
        let former = self.machine_of(node);
        if self.nodes.len() >= 2 * self.schedule.node_gpus.len() || self.nodes[former].identity.is_none() {
            return;
        }
        self.calls.retain(|_, call| call.node != former);
        self.laws.note_replaced(former);
        let seed = self.random.next_u64();
        let clock = MachineClock::of_uptime(&self.time, self.random.between(0, 200_000));
        self.nodes.push(SimNode::new(self.nodes[former].registration.clone(), seed, clock));
        self.node_names.push(self.node_names[former].clone());
        self.attend_node(self.nodes.len() - 1);
    }

    /// An operator removes a node, which succeeds only without jobs.
    pub(super) fn remove_node(&mut self, node: usize) {
        if let Ok(node) = self.node_names[node].parse() {
            self.send_operator_command(Command::RemoveNode { node });
        }
    }

    /// True for a machine whose name another one has taken over.
    pub(super) fn is_retired(&self, node: usize) -> bool {
        self.machine_of(node) != node
    }

    /// The newest machine with the name of a node.
    pub(super) fn machine_of(&self, node: usize) -> usize {
        let name = &self.node_names[node];
        self.node_names.iter().rposition(|other| other == name).unwrap_or(node)
    }
}
