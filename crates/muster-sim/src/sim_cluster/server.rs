//! One server process: the production code of engine, planner, dispatch and heartbeat monitor, woken one after the
//! other instead of on threads of their own.

use std::sync::Arc;

use muster_core::objects::settings::Settings;
use muster_core::{Actor, Answer, Command, NodeId, State};
use muster_protocol::agent::{Orders, Report};
use muster_server::agents::HeartbeatMonitor;
use muster_server::clock::Clock;
use muster_server::cluster::{Batch, CommandError, CommandRequest};
use muster_server::dispatch::{OrderTracker, orders};
use muster_server::engine::ProcessedRequests;
use muster_server::engine_loop::JournalUpdate;
use muster_server::leader_term::{LEADER_LEASE, LeaderTerm};
use muster_server::planner::Proposer;
use muster_server::savepoint;
use muster_store::memory::MemoryConnection;
use muster_store::{Journal, Leadership, Savepoints, StoreError};
use tokio::sync::oneshot;

use super::clock::MachineClock;

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
    to_dispatch: Vec<JournalUpdate>,
    proposer: Proposer,
    /// The reply of a submitted plan that the engine has not decided.
    open_proposal: Option<ReplyReceiver>,
    route: OrderTracker,
    heartbeat_monitor: HeartbeatMonitor,
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
    pub fn new(name: &str, clock: &MachineClock, database: MemoryConnection) -> ServerProcess {
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
            route: OrderTracker::default(),
            heartbeat_monitor: HeartbeatMonitor::default(),
        }
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
            Leadership::Leading { epoch, .. } => {
                let savepoints = self.database.clone();
                let mut leader_term = LeaderTerm::recover(&mut self.database, &savepoints, &self.clock, epoch, since)?;
                self.feed_planner_and_dispatch(&JournalUpdate::Reset {
                    state: Box::new(leader_term.state().clone()),
                    epoch,
                });
                let processed = leader_term.apply_initial_commands(&mut self.database, settings)?;
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
        self.to_dispatch.push(update.clone());
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

    /// The dispatch thread: the orders of the nodes whose orders have changed.
    pub fn run_dispatch(&mut self) -> Vec<(NodeId, Orders)> {
        let update: Vec<JournalUpdate> = self.to_dispatch.drain(..).collect();
        let changed_nodes: std::collections::BTreeSet<NodeId> =
            update.iter().flat_map(|update| self.route.nodes_with_changed_orders(update)).collect();
        changed_nodes.into_iter().filter_map(|node| Some((node.clone(), self.orders(&node)?))).collect()
    }

    /// The orders of a node, if this server leads and knows the node.
    pub fn orders(&self, node: &NodeId) -> Option<Orders> {
        let leader_term =
            self.leader_term.as_ref().filter(|leader_term| leader_term.state().nodes.contains_key(node))?;
        Some(orders(leader_term.state(), node, leader_term.epoch()))
    }

    /// Turns the report of an agent into a command.
    pub fn receive_report(&mut self, report: Report) {
        let Some(leader_term) = &self.leader_term else { return };
        if let Some(command) = self.heartbeat_monitor.command_for_report(leader_term.state(), report, &*self.clock) {
            self.enqueue_command(command);
        }
    }

    /// The heartbeat thread: commands for nodes without heartbeats.
    pub fn check_heartbeats(&mut self) {
        let commands = match &self.leader_term {
            Some(leader_term) => self.heartbeat_monitor.commands_for_silent_nodes(leader_term.state(), &*self.clock),
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
