//! One server: the production code of engine, planner, dispatch and hearing, woken one after the other instead of on
//! threads of their own.

use std::sync::Arc;

use muster_core::settings::Settings;
use muster_core::{Actor, Answer, Command, NodeId, State};
use muster_protocol::agent::{Orders, Report};
use muster_server::agents::Hearing;
use muster_server::clock::Clock;
use muster_server::cluster::{Ask, Batch, Declined};
use muster_server::dispatch::{Route, orders};
use muster_server::engine::Turn;
use muster_server::lead::{LEASE, Lead};
use muster_server::planner::Proposer;
use muster_server::reign::Feed;
use muster_server::savepoint;
use muster_store::memory::Connection;
use muster_store::{Journal, Leadership, Savepoints, StoreError};
use tokio::sync::oneshot;

use super::clock::MachineClock;

type Reply = oneshot::Receiver<Result<Answer, Declined>>;

/// A server process that lives. What dies with it is all of this; what is durable lies in the database.
pub struct Server {
    name: String,
    clock: Arc<dyn Clock>,
    database: Connection,
    lead: Option<Lead>,
    inbox: Vec<Ask>,
    /// What users asked, by the number of their letter.
    asked: Vec<(u64, Reply)>,
    to_planner: Vec<Feed>,
    to_dispatch: Vec<Feed>,
    proposer: Proposer,
    /// The plan that was handed in and is not settled.
    proposed: Option<Reply>,
    route: Route,
    hearing: Hearing,
}

/// What became of a turn of the engine.
pub enum Turned {
    /// Nothing durable happened.
    Nothing,
    /// This server leads from now on.
    Leads(Option<Arc<Batch>>),
    /// These events are durable.
    Wrote(Arc<Batch>),
}

impl Server {
    /// A process that has just started.
    pub fn new(name: &str, clock: &MachineClock, database: Connection) -> Server {
        Server {
            name: name.to_string(),
            clock: Arc::new(clock.clone()),
            database,
            lead: None,
            inbox: Vec::new(),
            asked: Vec::new(),
            to_planner: Vec::new(),
            to_dispatch: Vec::new(),
            proposer: Proposer::default(),
            proposed: None,
            route: Route::default(),
            hearing: Hearing::default(),
        }
    }

    /// What it holds to be true, while it leads.
    pub fn state(&self) -> Option<&State> {
        self.lead.as_ref().map(Lead::state)
    }

    /// The engine's thread: try to lead, or take a turn. An error is one after which the process would have to end.
    pub fn engine(&mut self, settings: &Settings) -> Result<Turned, StoreError> {
        let turned = match self.lead {
            Some(_) => self.turn(),
            None => self.try_to_lead(settings),
        };
        match turned {
            Err(fault) if fault.heals_by_reload() => {
                self.step_back();
                Ok(Turned::Nothing)
            }
            turned => turned,
        }
    }

    fn turn(&mut self) -> Result<Turned, StoreError> {
        let Some(lead) = &mut self.lead else { return Ok(Turned::Nothing) };
        lead.keep(&mut self.database)?;
        let turn = lead.turn(&mut self.database, std::mem::take(&mut self.inbox))?;
        Ok(self.publish(turn).map_or(Turned::Nothing, Turned::Wrote))
    }

    fn try_to_lead(&mut self, settings: &Settings) -> Result<Turned, StoreError> {
        self.decline_all("this server does not lead");
        let since = self.clock.elapsed();
        match self.database.lead(&self.name, LEASE.as_millis() as i64)? {
            Leadership::Standby { .. } => Ok(Turned::Nothing),
            Leadership::Leading { epoch, .. } => {
                let savepoints = self.database.clone();
                let mut lead = Lead::begin(&mut self.database, &savepoints, &self.clock, epoch, since)?;
                self.tell(&Feed::Reset { state: Box::new(lead.state().clone()), epoch });
                let turn = lead.first_turn(&mut self.database, settings)?;
                self.lead = Some(lead);
                Ok(Turned::Leads(self.publish(turn)))
            }
        }
    }

    fn publish(&mut self, turn: Turn) -> Option<Arc<Batch>> {
        if let Some(batch) = &turn.batch {
            self.tell(&Feed::Batch(batch.clone()));
        }
        turn.replies.send();
        turn.batch
    }

    fn step_back(&mut self) {
        self.lead = None;
        self.tell(&Feed::Pause);
        self.decline_all("this server has stepped back");
    }

    fn decline_all(&mut self, why: &str) {
        for ask in self.inbox.drain(..) {
            let _ = ask.reply.send(Err(Declined::Unavailable { why: why.to_string() }));
        }
    }

    fn tell(&mut self, news: &Feed) {
        self.to_planner.push(news.clone());
        self.to_dispatch.push(news.clone());
    }

    /// The planner's thread: one round, unless the last proposal is still on its way.
    pub fn planner(&mut self) {
        for news in self.to_planner.drain(..) {
            self.proposer.follow(news);
        }
        if let Some(proposed) = &mut self.proposed
            && matches!(proposed.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        {
            return;
        }
        self.proposed = None;
        let Some(proposal) = self.proposer.round(&*self.clock) else { return };
        if let Some(notes) = proposal.notes {
            self.ask(notes);
        }
        self.proposed = proposal.adopt.map(|adopt| self.ask(adopt));
    }

    /// The dispatch thread: what has changed for which nodes.
    pub fn dispatch(&mut self) -> Vec<(NodeId, Orders)> {
        let news: Vec<Feed> = self.to_dispatch.drain(..).collect();
        let touched: std::collections::BTreeSet<NodeId> =
            news.iter().flat_map(|news| self.route.follow(news)).collect();
        touched.into_iter().filter_map(|node| Some((node.clone(), self.orders(&node)?))).collect()
    }

    /// What a node owes, if this server leads and knows it.
    pub fn orders(&self, node: &NodeId) -> Option<Orders> {
        let lead = self.lead.as_ref().filter(|lead| lead.state().nodes.contains_key(node))?;
        Some(orders(lead.state(), node, lead.epoch()))
    }

    /// An agent says something.
    pub fn hear(&mut self, report: Report) {
        let Some(lead) = &self.lead else { return };
        if let Some(command) = self.hearing.hear(lead.state(), report, &*self.clock) {
            self.ask(command);
        }
    }

    /// The silence thread.
    pub fn silence(&mut self) {
        let commands = match &self.lead {
            Some(lead) => self.hearing.silence(lead.state(), &*self.clock),
            None => {
                self.hearing.forget();
                Vec::new()
            }
        };
        for command in commands {
            self.ask(command);
        }
    }

    /// The planner saves the state now and then.
    pub fn save(&self) {
        if let Some(state) = self.proposer.state() {
            // What fails here costs time at the next start and nothing else.
            let _ = self.database.save(state.seq, &savepoint::write(state));
        }
    }

    /// A user's letter arrives.
    pub fn receive(&mut self, letter: u64, by: Actor, command: Command) {
        let (reply, answer) = oneshot::channel();
        self.inbox.push(Ask { by, command, reply });
        self.asked.push((letter, answer));
    }

    /// Answers that are ready to be sent.
    pub fn answers(&mut self) -> Vec<(u64, Result<Answer, Declined>)> {
        let mut ready = Vec::new();
        self.asked.retain_mut(|(letter, reply)| match reply.try_recv() {
            Ok(answer) => {
                ready.push((*letter, answer));
                false
            }
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(oneshot::error::TryRecvError::Closed) => false,
        });
        ready
    }

    fn ask(&mut self, command: Command) -> Reply {
        let (reply, answer) = oneshot::channel();
        self.inbox.push(Ask { by: Actor::system(), command, reply });
        answer
    }
}
