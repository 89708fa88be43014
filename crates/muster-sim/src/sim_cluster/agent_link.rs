//! The agents' side of the link: the session of production, driven as `muster-link` drives it.

use std::collections::BTreeSet;

use muster_agent::clock::ClockReading;
use muster_agent::reconciler::Reconciler;
use muster_link::link::OUTGOING_FRAMES_MAX;
use muster_link::renewal::RenewalTimer;
use muster_link::session::{Session, SessionInput, SessionOutput};
use muster_protocol::agent::{Orders, Registration, Report};
use muster_wire::v1;
use prost::Message;

use super::laws::BrokenLaw;
use super::machine::AgentMachine;
use super::paused::Pausable;
use super::transport::{EndCause, Parcel, Side, SimConnection};
use super::{HEARTBEAT_INTERVAL_MS, SimCluster, SimEvent};

/// Reports of one agent that are not about an attempt or a GPU: registration and heartbeat.
const OTHER_REPORTS: usize = 2;

/// A running agent.
pub struct AgentProcess {
    pub reconciler: Reconciler<AgentMachine>,
    pub link: AgentLink,
    /// Messages of the link for the thread of the agent.
    inbox: Vec<AgentInput>,
    /// The attempts that it has reported, for the bound of the outbox.
    reported_attempts: BTreeSet<(String, u32)>,
}

/// The thread of the link.
pub struct AgentLink {
    pub session: Session,
    /// The connection that the session asked for.
    pub connection: Option<u64>,
    pub renewal: RenewalTimer,
    /// All reports were acknowledged since the end of all faults.
    pub has_drained: bool,
}

/// A message of the link for the thread of the agent.
pub enum AgentInput {
    Orders(Box<Orders>),
    HeartbeatEcho(i64),
}

impl SimCluster<'_> {
    pub(super) fn start_agent(&mut self, node: usize) {
        let sim_node = &self.nodes[node];
        let Some(identity) = sim_node.identity.clone() else { return };
        if !sim_node.is_powered_on || sim_node.agent.is_some() {
            return;
        }
        let sim_node = &mut self.nodes[node];
        sim_node.agent_starts += 1;
        sim_node.agent_paused_until_ms = 0;
        self.deferred_events.remove(&Pausable::Agent(node));
        let sim_node = &self.nodes[node];
        let machine = sim_node.host.for_agent(sim_node.agent_starts);
        let incarnation = format!("{}-{}-{node}", sim_node.registration.node, sim_node.agent_starts);
        let registration = Registration { incarnation: incarnation.clone(), ..sim_node.registration.clone() };
        let now_ms = sim_node.clock.monotonic_ms();
        let session = Session::new(self.session_config(node, &incarnation), identity.servers);
        let link = AgentLink { session, connection: None, renewal: RenewalTimer::new(now_ms), has_drained: false };
        self.nodes[node].agent = Some(AgentProcess {
            reconciler: Reconciler::new(registration, HEARTBEAT_INTERVAL_MS, machine),
            link,
            inbox: Vec::new(),
            reported_attempts: BTreeSet::new(),
        });
        self.nodes[node].agent_wakes_at_ms = self.time.ms();
        self.nodes[node].link_wakes_at_ms = i64::MIN;
        self.schedule_at(self.now(), SimEvent::Agent(node));
        self.wake_link(node);
    }

    /// The process of the agent ends; the kernel closes its connection.
    pub(super) fn end_agent(&mut self, node: usize) {
        self.close_agent_end(node);
        self.nodes[node].agent = None;
    }

    /// The machine loses power: nobody closes the connections.
    pub(super) fn cut_power(&mut self, node: usize) {
        self.nodes[node].agent = None;
        self.nodes[node].is_powered_on = false;
        self.nodes[node].host.power_cut();
        self.break_silently(|connection| connection.node == node);
    }

    pub(super) fn current_connection(&self, node: usize) -> Option<u64> {
        self.nodes[node].agent.as_ref()?.link.connection
    }

    fn close_agent_end(&mut self, node: usize) {
        let connection = self.nodes[node].agent.as_mut().and_then(|agent| agent.link.connection.take());
        if let Some(connection) = connection {
            self.send_parcel(connection, Side::Server, Parcel::End(EndCause::Closed));
        }
    }

    // ---- the agent's thread

    pub(super) fn run_agent(&mut self, node: usize) -> Result<(), BrokenLaw> {
        let sim_node = &mut self.nodes[node];
        let Some(agent) = &mut sim_node.agent else { return Ok(()) };
        let wall_ms = sim_node.clock.wall_ms();
        let now = ClockReading { wall_ms, monotonic_ms: sim_node.clock.monotonic_ms() };
        let mut reports = Vec::new();
        let mut wakes_ms = i64::MAX;
        let inputs: Vec<_> = agent.inbox.drain(..).map(Some).collect();
        for input in if inputs.is_empty() { vec![None] } else { inputs } {
            let orders = match input {
                Some(AgentInput::Orders(orders)) => Some(*orders),
                Some(AgentInput::HeartbeatEcho(sent_at_boot_ms)) => {
                    agent.reconciler.acknowledge_heartbeat(sent_at_boot_ms);
                    None
                }
                None => None,
            };
            wakes_ms = agent.reconciler.reconcile(now, orders, &mut |report| reports.push(report));
        }
        // An agent oversleeps a little, and its thread limits the sleep to one second.
        let sleep_ms = (wakes_ms.saturating_sub(wall_ms)).clamp(1, 1_000) + self.random.between(0, 900);
        let sleep_ms = self.nodes[node].clock.true_duration_ms(sleep_ms);
        self.nodes[node].agent_wakes_at_ms = self.now() + sleep_ms;
        self.schedule_at(self.now() + sleep_ms, SimEvent::Agent(node));
        reports.into_iter().try_for_each(|report| self.report(node, report))
    }

    /// An event of the machine, or of the link, wakes the thread of the agent.
    pub(super) fn wake_agent(&mut self, node: usize) {
        let at = self.now() + self.random.between(0, 5);
        if self.nodes[node].agent.is_some() && self.nodes[node].agent_wakes_at_ms > at {
            self.nodes[node].agent_wakes_at_ms = at;
            self.schedule_at(at, SimEvent::Agent(node));
        }
    }

    pub(super) fn report(&mut self, node: usize, report: Report) -> Result<(), BrokenLaw> {
        self.laws.check_followed_orders(node, self.nodes[node].agent_starts, &report)?;
        if let (Report::Started { job, attempt, .. } | Report::Ended { job, attempt, .. }, Some(agent)) =
            (&report, &mut self.nodes[node].agent)
        {
            agent.reported_attempts.insert((job.clone(), *attempt));
        }
        self.drive_session(node, SessionInput::Report(Box::new(report)))?;
        self.check_outbox(node)
    }

    /// However long the servers are away, the session keeps a few reports for each attempt and GPU.
    fn check_outbox(&self, node: usize) -> Result<(), BrokenLaw> {
        let Some(agent) = &self.nodes[node].agent else { return Ok(()) };
        let attempts = agent.reported_attempts.len();
        let max = OTHER_REPORTS + self.nodes[node].registration.gpus.len() + 2 * attempts;
        match agent.link.session.unacknowledged_reports() {
            kept if kept > max => {
                Err(format!("the outbox of node {node} holds {kept} reports about {attempts} attempts"))
            }
            _ => Ok(()),
        }
    }

    // ---- the link's thread

    /// The session or the certificate has something to do.
    pub(super) fn run_link(&mut self, node: usize) -> Result<(), BrokenLaw> {
        let now_ms = self.nodes[node].clock.monotonic_ms();
        if let Some(agent) = &mut self.nodes[node].agent
            && agent.link.renewal.due_ms().is_some_and(|due_ms| due_ms <= now_ms)
        {
            agent.link.renewal.begin();
            self.call_to_renew(node);
        }
        self.drive_session(node, SessionInput::Tick)
    }

    pub(super) fn wake_link(&mut self, node: usize) {
        let Some(agent) = &self.nodes[node].agent else { return };
        let due_ms = agent.link.session.next_due_ms().min(agent.link.renewal.due_ms().unwrap_or(i64::MAX));
        let sleep_ms = due_ms.saturating_sub(self.nodes[node].clock.monotonic_ms()).clamp(0, 3_600_000);
        let at = self.now() + self.nodes[node].clock.true_duration_ms(sleep_ms) + self.random.between(0, 10);
        let known = self.nodes[node].link_wakes_at_ms;
        if known > self.time.ms() && known <= at {
            return;
        }
        self.nodes[node].link_wakes_at_ms = at;
        self.schedule_at(at, SimEvent::Link(node));
    }

    fn drive_session(&mut self, node: usize, input: SessionInput) -> Result<(), BrokenLaw> {
        let now_ms = self.nodes[node].clock.monotonic_ms();
        let Some(agent) = &mut self.nodes[node].agent else { return Ok(()) };
        let mut outputs = agent.link.session.handle(now_ms, input);
        while let Some(why) = self.perform_all(node, outputs)? {
            let Some(agent) = &mut self.nodes[node].agent else { return Ok(()) };
            outputs = agent.link.session.break_connection(now_ms, why);
        }
        if let Some(agent) = &mut self.nodes[node].agent {
            agent.link.has_drained |= self.is_healed && agent.link.session.unacknowledged_reports() == 0;
        }
        self.wake_link(node);
        Ok(())
    }

    fn perform_all(&mut self, node: usize, outputs: Vec<SessionOutput>) -> Result<Option<String>, BrokenLaw> {
        let mut failure = None;
        for output in outputs {
            failure = failure.or(self.perform(node, output)?);
        }
        Ok(failure)
    }

    /// `Some` if the connection must end.
    fn perform(&mut self, node: usize, output: SessionOutput) -> Result<Option<String>, BrokenLaw> {
        match output {
            SessionOutput::Connect { server } => self.connect(node, &server),
            SessionOutput::Disconnect => self.close_agent_end(node),
            SessionOutput::Send(frame) => {
                let connection = self.current_connection(node).filter(|number| self.connections.contains_key(number));
                let Some(connection) = connection else { return Ok(None) };
                if self.connections[&connection].in_flight(Side::Server) >= OUTGOING_FRAMES_MAX {
                    return Ok(Some("the server reads too slowly".to_string()));
                }
                self.send_frame(connection, Side::Server, &*frame);
            }
            SessionOutput::DeliverOrders(orders) => self.tell_agent(node, AgentInput::Orders(orders)),
            SessionOutput::AcknowledgeHeartbeat(echo) => {
                self.laws.check_echo(node, self.nodes[node].host.boot(), echo.sent_at_boot_ms)?;
                self.tell_agent(node, AgentInput::HeartbeatEcho(echo.sent_at_boot_ms));
            }
            SessionOutput::RememberServers(servers) => {
                if let Some(identity) = &mut self.nodes[node].identity {
                    identity.servers = servers;
                }
            }
            SessionOutput::Notify(notice) => self.trace_line(|| format!("        n{node} {notice:?}")),
            SessionOutput::ReadLog(_) | SessionOutput::Exec(_) => {}
        }
        Ok(None)
    }

    pub(super) fn tell_agent(&mut self, node: usize, input: AgentInput) {
        if let Some(agent) = &mut self.nodes[node].agent {
            agent.inbox.push(input);
        }
        self.wake_agent(node);
    }

    fn connect(&mut self, node: usize, address: &str) {
        self.close_agent_end(node);
        self.connections_opened += 1;
        let connection = self.connections_opened;
        if let Some(agent) = &mut self.nodes[node].agent {
            agent.link.connection = Some(connection);
        }
        match self.servers.iter().position(|host| host.address == address) {
            // Of another cluster: the handshake fails.
            None => self.schedule_after(1, 100, SimEvent::AgentSeesEnd(node, connection)),
            Some(server) if self.is_path_cut(node, server, Side::Server) => {}
            Some(server) if self.servers[server].process.is_none() => {
                self.schedule_after(1, 30, SimEvent::AgentSeesEnd(node, connection));
            }
            Some(server) => self.schedule_after(1, 40, SimEvent::ConnectArrives(server, node, connection)),
        }
    }

    /// A server accepts a connection, unless the agent has given up.
    pub(super) fn accept(&mut self, server: usize, node: usize, connection: u64) {
        if self.current_connection(node) != Some(connection) || self.is_path_cut(node, server, Side::Agent) {
            return;
        }
        let Some(identity) = &self.nodes[node].identity else { return };
        let now = self.now();
        let (start, certificate) = (self.servers[server].start, identity.certificate.clone());
        if self.servers[server].process.is_none() {
            return self.schedule_after(1, 30, SimEvent::AgentSeesEnd(node, connection));
        }
        self.connections.insert(connection, SimConnection::new(node, (server, start), certificate, now));
        self.schedule_after(1, 40, SimEvent::Connected(node, connection));
    }

    pub(super) fn see_connected(&mut self, node: usize, connection: u64) -> Result<(), BrokenLaw> {
        match self.current_connection(node) == Some(connection) {
            true => self.drive_session(node, SessionInput::Connected),
            false => Ok(()),
        }
    }

    pub(super) fn see_end(&mut self, node: usize, connection: u64, cause: EndCause) -> Result<(), BrokenLaw> {
        let now_ms = self.nodes[node].clock.monotonic_ms();
        let agent = self.nodes[node].agent.as_mut();
        let Some(agent) = agent.filter(|agent| agent.link.connection == Some(connection)) else { return Ok(()) };
        agent.link.connection = None;
        if cause == EndCause::CertificateExpired {
            agent.link.renewal.hurry(now_ms);
        }
        self.drive_session(node, SessionInput::Disconnected { why: format!("{cause:?}") })
    }

    pub(super) fn receive_frame(&mut self, node: usize, connection: u64) -> Result<(), BrokenLaw> {
        let Some(parcel) = self.receive_parcel(connection, Side::Agent) else { return Ok(()) };
        self.pump_connection(connection)?;
        if self.current_connection(node) != Some(connection) {
            // The kernel answers for a connection that the agent has left.
            if matches!(parcel, Parcel::Frame(_)) && self.nodes[node].is_powered_on {
                self.send_parcel(connection, Side::Server, Parcel::End(EndCause::Closed));
            }
            return Ok(());
        }
        match parcel {
            Parcel::End(cause) => self.see_end(node, connection, cause),
            Parcel::Frame(bytes) => {
                let frame =
                    v1::ServerFrame::decode(&bytes[..]).map_err(|error| format!("unreadable frame: {error}"))?;
                self.trace_line(|| format!("        n{node} receives {frame:?}"));
                self.drive_session(node, SessionInput::Frame(Box::new(frame)))
            }
        }
    }
}
