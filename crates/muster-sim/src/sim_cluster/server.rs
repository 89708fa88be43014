//! One server: the production code of engine, planner, dispatch and hearing, woken one after the other instead of on
//! threads of their own.

use std::sync::Arc;

use muster_core::objects::settings::Settings;
use muster_core::{Actor, Answer, Command, NodeId, State};
use muster_protocol::agent::{Orders, Report};
use muster_server::agents::HeartbeatMonitor;
use muster_server::clock::Clock;
use muster_server::cluster::{CommandRequest, Batch, CommandError};
use muster_server::dispatch::{OrderTracker, orders};
use muster_server::engine::ProcessedRequests;
use muster_server::leader_term::{LEADER_LEASE, LeaderTerm};
use muster_server::planner::Proposer;
use muster_server::engine_loop::JournalUpdate;
use muster_server::savepoint;
use muster_store::memory::MemoryConnection;
use muster_store::{Journal, Leadership, Savepoints, StoreError};
use tokio::sync::oneshot;

use super::clock::MachineClock;

type ReplyReceiver = oneshot::Receiver<Result<Answer, CommandError>>;

/// A server process that lives. What dies with it is all of this; what is durable lies in the database.
pub struct ServerProcess {
    name: String,
    clock: Arc<dyn Clock>,
    database: MemoryConnection,
    lead: Option<LeaderTerm>,
    inbox: Vec<CommandRequest>,
    /// What users asked, by the number of their letter.
    open_requests: Vec<(u64, ReplyReceiver)>,
    to_planner: Vec<JournalUpdate>,
    to_dispatch: Vec<JournalUpdate>,
    proposer: Proposer,
    /// The plan that was handed in and is not settled.
    open_proposal: Option<ReplyReceiver>,
    route: OrderTracker,
    heartbeat_monitor: HeartbeatMonitor,
}

/// What became of a turn of the engine.
pub enum EngineStep {
    /// Nothing durable happened.
    Nothing,
    /// This server leads from now on.
    BecameLeader(Option<Arc<Batch>>),
    /// These events are durable.
    Persisted(Arc<Batch>),
}

impl ServerProcess {
    /// A process that has just started.
    pub fn new(name: &str, clock: &MachineClock, database: MemoryConnection) -> ServerProcess {
        ServerProcess {
            name: name.to_string(),
            clock: Arc::new(clock.clone()),
            database,
            lead: None,
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

    /// What it holds to be true, while it leads.
    pub fn state(&self) -> Option<&State> {
        self.lead.as_ref().map(LeaderTerm::state)
    }

    /// The engine's thread: try to lead, or take a turn. An error is one after which the process would have to end.
    pub fn run_engine(&mut self, settings: &Settings) -> Result<EngineStep, StoreError> {
        let turned = match self.lead {
            Some(_) => self.run_turn(),
            None => self.try_to_lead(settings),
        };
        match turned {
            Err(fault) if fault.is_recoverable_by_reload() => {
                self.step_down();
                Ok(EngineStep::Nothing)
            }
            turned => turned,
        }
    }

    fn run_turn(&mut self) -> Result<EngineStep, StoreError> {
        let Some(lead) = &mut self.lead else { return Ok(EngineStep::Nothing) };
        lead.renew_lease_if_due(&mut self.database)?;
        let turn = lead.process_requests(&mut self.database, std::mem::take(&mut self.inbox))?;
        Ok(self.publish(turn).map_or(EngineStep::Nothing, EngineStep::Persisted))
    }

    fn try_to_lead(&mut self, settings: &Settings) -> Result<EngineStep, StoreError> {
        self.decline_all("this server does not lead");
        let since = self.clock.elapsed();
        match self.database.acquire_leadership(&self.name, LEADER_LEASE.as_millis() as i64)? {
            Leadership::Standby { .. } => Ok(EngineStep::Nothing),
            Leadership::Leading { epoch, .. } => {
                let savepoints = self.database.clone();
                let mut lead = LeaderTerm::recover(&mut self.database, &savepoints, &self.clock, epoch, since)?;
                self.feed_planner_and_dispatch(&JournalUpdate::Reset { state: Box::new(lead.state().clone()), epoch });
                let turn = lead.apply_initial_commands(&mut self.database, settings)?;
                self.lead = Some(lead);
                Ok(EngineStep::BecameLeader(self.publish(turn)))
            }
        }
    }

    fn publish(&mut self, turn: ProcessedRequests) -> Option<Arc<Batch>> {
        if let Some(batch) = &turn.batch {
            self.feed_planner_and_dispatch(&JournalUpdate::Batch(batch.clone()));
        }
        turn.replies.send();
        turn.batch
    }

    fn step_down(&mut self) {
        self.lead = None;
        self.feed_planner_and_dispatch(&JournalUpdate::LeadershipLost);
        self.decline_all("this server has stepped back");
    }

    fn decline_all(&mut self, why: &str) {
        for ask in self.inbox.drain(..) {
            let _ = ask.reply.send(Err(CommandError::Unavailable { why: why.to_string() }));
        }
    }

    fn feed_planner_and_dispatch(&mut self, news: &JournalUpdate) {
        self.to_planner.push(news.clone());
        self.to_dispatch.push(news.clone());
    }

    /// The planner's thread: one round, unless the last proposal is still on its way.
    pub fn run_planner(&mut self) {
        for news in self.to_planner.drain(..) {
            self.proposer.follow(news);
        }
        if let Some(proposed) = &mut self.open_proposal
            && matches!(proposed.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        {
            return;
        }
        self.open_proposal = None;
        let Some(proposal) = self.proposer.round(&*self.clock) else { return };
        if let Some(notes) = proposal.wait_notes {
            self.enqueue_command(notes);
        }
        self.open_proposal = proposal.adopt_plan.map(|adopt| self.enqueue_command(adopt));
    }

    /// The dispatch thread: what has changed for which nodes.
    pub fn run_dispatch(&mut self) -> Vec<(NodeId, Orders)> {
        let news: Vec<JournalUpdate> = self.to_dispatch.drain(..).collect();
        let touched: std::collections::BTreeSet<NodeId> =
            news.iter().flat_map(|news| self.route.nodes_with_changed_orders(news)).collect();
        touched.into_iter().filter_map(|node| Some((node.clone(), self.orders(&node)?))).collect()
    }

    /// What a node owes, if this server leads and knows it.
    pub fn orders(&self, node: &NodeId) -> Option<Orders> {
        let lead = self.lead.as_ref().filter(|lead| lead.state().nodes.contains_key(node))?;
        Some(orders(lead.state(), node, lead.epoch()))
    }

    /// An agent says something.
    pub fn receive_report(&mut self, report: Report) {
        let Some(lead) = &self.lead else { return };
        if let Some(command) = self.heartbeat_monitor.command_for_report(lead.state(), report, &*self.clock) {
            self.enqueue_command(command);
        }
    }

    /// The silence thread.
    pub fn check_heartbeats(&mut self) {
        let commands = match &self.lead {
            Some(lead) => self.heartbeat_monitor.commands_for_silent_nodes(lead.state(), &*self.clock),
            None => {
                self.heartbeat_monitor.reset();
                Vec::new()
            }
        };
        for command in commands {
            self.enqueue_command(command);
        }
    }

    /// The planner saves the state now and then.
    pub fn write_savepoint(&self) {
        if let Some(state) = self.proposer.state() {
            // What fails here costs time at the next start and nothing else.
            let _ = self.database.save(state.seq, &savepoint::write(state));
        }
    }

    /// A user's letter arrives.
    pub fn receive_request(&mut self, letter: u64, by: Actor, command: Command) {
        let (reply, answer) = oneshot::channel();
        self.inbox.push(CommandRequest { by, command, reply });
        self.open_requests.push((letter, answer));
    }

    /// Answers that are ready to be sent.
    pub fn take_answers(&mut self) -> Vec<(u64, Result<Answer, CommandError>)> {
        let mut ready = Vec::new();
        self.open_requests.retain_mut(|(letter, reply)| match reply.try_recv() {
            Ok(answer) => {
                ready.push((*letter, answer));
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
