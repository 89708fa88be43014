//! One server process: the production code of engine, planner, dispatch and heartbeat monitor, woken one after the
//! other instead of on threads of their own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_core::objects::settings::Settings;
use muster_core::{Actor, Answer, Command, NodeId, State};
use muster_protocol::agent::{Orders, Report};
use muster_server::agents::HeartbeatMonitor;
use muster_server::clock::Clock;
use muster_server::cluster::{Batch, CommandError, CommandRequest};
use muster_server::dispatch::{DispatchInput, OrderTracker, orders};
use muster_server::engine::ProcessedRequests;
use muster_server::engine_loop::JournalUpdate;
use muster_server::leader_term::{LEADER_LEASE, LeaderTerm, is_lease_fresh};
use muster_server::link::admission::LinkView;
use muster_server::link::switchboard::Switchboard;
use muster_server::planner::Proposer;
use muster_server::savepoint;
use muster_server::silence::SilenceTimeouts;
use muster_store::memory::MemoryConnection;
use muster_store::{Journal, LeaderEpoch, Leadership, Savepoints, StoreError};
use tokio::sync::oneshot;

use super::certificate::SimCertificate;
use super::clock::MachineClock;
use super::enrolment::CallAnswer;

type ReplyReceiver = oneshot::Receiver<Result<Answer, CommandError>>;

/// The memory of a running server process, lost in a crash. Durable data is in the database.
pub struct ServerProcess {
    name: String,
    clock: Arc<dyn Clock>,
    database: MemoryConnection,
    leader_term: Option<LeaderTerm>,
    inbox: Vec<CommandRequest>,
    /// The unanswered client requests, by number.
    open_requests: Vec<(u64, ReplyReceiver)>,
    to_planner: Vec<JournalUpdate>,
    to_dispatch: Vec<DispatchInput>,
    proposer: Proposer,
    /// The reply of a submitted plan that the engine has not decided.
    open_proposal: Option<ReplyReceiver>,
    order_tracker: OrderTracker,
    heartbeat_monitor: HeartbeatMonitor,
    /// The lines of connected agents.
    pub switchboard: Switchboard,
    state_without_term: State,
    /// Addresses of the link on all servers.
    addresses: Vec<String>,
    /// The enrolments that the engine has not decided.
    open_enrolments: Vec<(u64, SimCertificate, ReplyReceiver)>,
}

fn link_view<'a>(
    term: Option<&'a LeaderTerm>,
    clock: &dyn Clock,
    without_term: &'a State,
    servers: &'a [String],
) -> LinkView<'a> {
    let is_fresh = |term: &&LeaderTerm| is_lease_fresh(clock.elapsed().saturating_sub(term.lease_renewed_at()));
    let leading = term.filter(is_fresh).map(LeaderTerm::leader_epoch);
    LinkView { leading, state: term.map_or(without_term, LeaderTerm::state), servers }
}

/// The result of one step of the engine.
pub enum EngineStep {
    /// Nothing was persisted.
    Nothing,
    /// The server became leader; the batch contains the events of its initial commands.
    BecameLeader(Option<Arc<Batch>>),
    /// The events of the batch are durable.
    Persisted(Arc<Batch>),
}

impl ServerProcess {
    pub fn new(name: &str, clock: &MachineClock, database: MemoryConnection, addresses: Vec<String>) -> ServerProcess {
        ServerProcess {
            name: name.to_string(),
            clock: Arc::new(clock.clone()),
            database,
            leader_term: None,
            inbox: Vec::new(),
            open_requests: Vec::new(),
            to_planner: Vec::new(),
            to_dispatch: Vec::new(),
            proposer: Proposer::default(),
            open_proposal: None,
            order_tracker: OrderTracker::default(),
            // Short, so that proven self-fences and not the unreachable time decide.
            heartbeat_monitor: HeartbeatMonitor::new(SilenceTimeouts {
                unreachable_after: Duration::from_secs(8),
                ..SilenceTimeouts::default()
            }),
            switchboard: Switchboard::default(),
            state_without_term: State::empty(),
            addresses,
            open_enrolments: Vec::new(),
        }
    }

    /// Judges agents with what this server knows now.
    pub fn view<T>(&self, judge: impl FnOnce(&LinkView<'_>) -> T) -> T {
        judge(&link_view(self.leader_term.as_ref(), &*self.clock, &self.state_without_term, &self.addresses))
    }

    /// Closes the lines that may not stay open.
    pub fn check_connections(&mut self) {
        let view = link_view(self.leader_term.as_ref(), &*self.clock, &self.state_without_term, &self.addresses);
        self.switchboard.close_refused(|agent| view.check_connected(agent));
    }

    /// Queues the enrolment of a node.
    pub fn receive_enrolment(&mut self, call: u64, command: Command, certificate: SimCertificate) {
        let answer = self.enqueue_command(command);
        self.open_enrolments.push((call, certificate, answer));
    }

    /// Takes the answers to enrolments that are ready to be sent.
    pub fn take_enrolments(&mut self) -> Vec<(u64, CallAnswer)> {
        let mut ready = Vec::new();
        self.open_enrolments.retain_mut(|(call, certificate, reply)| match reply.try_recv() {
            Ok(Ok(_)) => {
                ready.push((*call, CallAnswer::Certificate(Box::new(certificate.clone()))));
                false
            }
            Ok(Err(CommandError::Refused(_))) => {
                ready.push((*call, CallAnswer::Refused));
                false
            }
            Ok(Err(CommandError::Unavailable { .. })) | Err(oneshot::error::TryRecvError::Closed) => {
                ready.push((*call, CallAnswer::Unavailable));
                false
            }
            Err(oneshot::error::TryRecvError::Empty) => true,
        });
        ready
    }

    /// The state, while the server leads.
    pub fn state(&self) -> Option<&State> {
        self.leader_term.as_ref().map(LeaderTerm::state)
    }

    /// The engine thread: acquires leadership, or processes the queued requests. After an error the process would
    /// exit.
    pub fn run_engine(&mut self, settings: &Settings) -> Result<EngineStep, StoreError> {
        let result = match self.leader_term {
            Some(_) => self.run_turn(),
            None => self.try_to_lead(settings),
        };
        match result {
            Err(fault) if fault.is_recoverable_by_reload() => {
                self.step_down();
                Ok(EngineStep::Nothing)
            }
            result => result,
        }
    }

    fn run_turn(&mut self) -> Result<EngineStep, StoreError> {
        let Some(leader_term) = &mut self.leader_term else { return Ok(EngineStep::Nothing) };
        leader_term.renew_lease_if_due(&mut self.database)?;
        let processed = leader_term.process_requests(&mut self.database, std::mem::take(&mut self.inbox))?;
        Ok(self.publish(processed).map_or(EngineStep::Nothing, EngineStep::Persisted))
    }

    fn try_to_lead(&mut self, settings: &Settings) -> Result<EngineStep, StoreError> {
        self.decline_all("this server does not lead");
        let since = self.clock.elapsed();
        match self.database.acquire_leadership(&self.name, LEADER_LEASE.as_millis() as i64)? {
            Leadership::Standby { .. } => Ok(EngineStep::Nothing),
            Leadership::Leading { epoch, nonce } => {
                let term = LeaderEpoch { epoch, nonce };
                let savepoints = self.database.clone();
                let mut leader_term = LeaderTerm::recover(&mut self.database, &savepoints, &self.clock, term, since)?;
                self.feed_planner_and_dispatch(&JournalUpdate::Reset {
                    state: Box::new(leader_term.state().clone()),
                    term,
                });
                let processed = leader_term.apply_initial_commands(&mut self.database, settings, None)?;
                self.leader_term = Some(leader_term);
                Ok(EngineStep::BecameLeader(self.publish(processed)))
            }
        }
    }

    fn publish(&mut self, processed: ProcessedRequests) -> Option<Arc<Batch>> {
        if let Some(batch) = &processed.batch {
            self.feed_planner_and_dispatch(&JournalUpdate::Batch(batch.clone()));
        }
        processed.replies.send();
        processed.batch
    }

    fn step_down(&mut self) {
        self.leader_term = None;
        self.feed_planner_and_dispatch(&JournalUpdate::LeadershipLost);
        self.decline_all("this server has stepped down");
    }

    fn decline_all(&mut self, why: &str) {
        for request in self.inbox.drain(..) {
            let _ = request.reply.send(Err(CommandError::Unavailable { why: why.to_string() }));
        }
    }

    fn feed_planner_and_dispatch(&mut self, update: &JournalUpdate) {
        self.to_planner.push(update.clone());
        self.to_dispatch.push(DispatchInput::Journal(update.clone()));
    }

    /// The planner thread: one round, unless the last proposal is undecided.
    pub fn run_planner(&mut self) {
        for update in self.to_planner.drain(..) {
            self.proposer.follow(update);
        }
        if let Some(reply) = &mut self.open_proposal
            && matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        {
            return;
        }
        self.open_proposal = None;
        let Some(proposal) = self.proposer.round(&*self.clock) else { return };
        if let Some(wait_notes) = proposal.wait_notes {
            self.enqueue_command(wait_notes);
        }
        self.open_proposal = proposal.adopt_plan.map(|adopt| self.enqueue_command(adopt));
    }

    /// The dispatch thread: echoes of heartbeats, orders that have changed, and orders that an agent has not received.
    pub fn run_dispatch(&mut self) {
        let mut nodes = BTreeSet::new();
        let lease_renewed_at = self.leader_term.as_ref().map(LeaderTerm::lease_renewed_at).unwrap_or_default();
        for input in std::mem::take(&mut self.to_dispatch) {
            for echo in self.order_tracker.echoes(&input, lease_renewed_at) {
                self.switchboard.acknowledge_heartbeat(&echo.node, echo.sent_at_boot_ms);
            }
            nodes.extend(self.order_tracker.nodes_to_send_orders(&input));
        }
        for orders in nodes.iter().filter_map(|node| self.orders(node)).collect::<Vec<_>>() {
            self.switchboard.deliver_orders(orders);
        }
    }

    /// The orders of a node, if this server leads and knows the node.
    pub fn orders(&self, node: &NodeId) -> Option<Orders> {
        let leader_term =
            self.leader_term.as_ref().filter(|leader_term| leader_term.state().nodes.contains_key(node))?;
        Some(orders(leader_term.state(), node, leader_term.leader_epoch()))
    }

    /// Turns the report of an agent into a command.
    pub fn receive_report(&mut self, report: Report) {
        self.to_dispatch.extend(DispatchInput::of_report(&report, self.clock.elapsed()));
        let Some(leader_term) = &self.leader_term else { return };
        if let Some(command) = self.heartbeat_monitor.command_for_report(leader_term.state(), report, &*self.clock) {
            self.enqueue_command(command);
        }
    }

    /// The heartbeat thread: commands for nodes without heartbeats.
    pub fn check_heartbeats(&mut self) {
        let commands = match &self.leader_term {
            Some(term) => self.heartbeat_monitor.commands_for_silent_nodes(term.state(), term.epoch(), &*self.clock),
            None => {
                self.heartbeat_monitor.reset();
                Vec::new()
            }
        };
        for command in commands {
            self.enqueue_command(command);
        }
    }

    /// The planner thread writes a savepoint.
    pub fn write_savepoint(&self) {
        if let Some(state) = self.proposer.state() {
            // A failure only makes the next start slower.
            let _ = self.database.save(state.seq, &savepoint::write(state));
        }
    }

    /// Queues a client request.
    pub fn receive_request(&mut self, request: u64, by: Actor, command: Command) {
        let (reply, answer) = oneshot::channel();
        self.inbox.push(CommandRequest { by, command, reply });
        self.open_requests.push((request, answer));
    }

    /// Takes the answers that are ready to be sent.
    pub fn take_answers(&mut self) -> Vec<(u64, Result<Answer, CommandError>)> {
        let mut ready = Vec::new();
        self.open_requests.retain_mut(|(request, reply)| match reply.try_recv() {
            Ok(answer) => {
                ready.push((*request, answer));
                false
            }
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(oneshot::error::TryRecvError::Closed) => false,
        });
        ready
    }

    fn enqueue_command(&mut self, command: Command) -> ReplyReceiver {
        let (reply, answer) = oneshot::channel();
        self.inbox.push(CommandRequest { by: Actor::system(), command, reply });
        answer
    }
}
