//! The session of an agent: which server it talks to, and what it sends and believes.
//!
//! Pure: network, clock and randomness are inputs, so that the driver (`link.rs`) and a simulator run the same code. A
//! session looks for the leader among the known servers, one connection at a time, with growing pauses. It sends
//! unacknowledged reports again on each connection, and closes a connection on which nothing arrives: a connection that
//! is half open looks alive to the kernel for minutes.

use std::collections::VecDeque;

use muster_protocol::agent::{HeartbeatEcho, Orders, Report};
use muster_wire::v1::{self, agent_frame, server_frame};
use muster_wire::{LINK_PROTOCOL, join_url};

use crate::outbox::Outbox;

/// Pause before the first repetition of a failed attempt to connect; it doubles with each failure.
const BACKOFF_MS_MIN: i64 = 200;
const BACKOFF_MS_MAX: i64 = 1_500;
/// Pause after a refusal that only a person can resolve.
const REFUSED_BACKOFF_MS: i64 = 30_000;
/// Time for connecting and for the greeting.
const CONNECT_TIMEOUT_MS: i64 = 3_000;
/// Frames of the server are due with each heartbeat; after three intervals and this margin the connection is closed.
const SILENCE_MARGIN_MS: i64 = 2_000;
/// Heartbeats whose echo is accepted. The server echoes the newest one that it has received.
const ECHOED_HEARTBEATS_MAX: usize = 64;
/// Servers that a session remembers.
const SERVERS_MAX: usize = 16;

/// Constant for the lifetime of a session.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    pub node: String,
    pub enrolment: String,
    pub incarnation: String,
    pub agent_version: String,
    pub heartbeat_interval_ms: i64,
    /// Seed of the jitter of pauses, so that the agents of a cluster do not return all at once.
    pub jitter_seed: u64,
}

/// What happens to a session.
#[derive(Debug)]
pub enum SessionInput {
    /// Time has passed, or the session begins.
    Tick,
    /// The connection that the session asked for is open.
    Connected,
    /// The connection that the session asked for failed, or an open one ended.
    Disconnected {
        why: String,
    },
    Frame(Box<v1::ServerFrame>),
    /// A report of the agent.
    Report(Box<Report>),
    /// A piece of a log that the server asked for.
    LogChunk(v1::LogChunk),
}

/// What a session wants done, in this order.
#[derive(Debug, PartialEq)]
pub enum SessionOutput {
    /// Connect to a server, `HOST:PORT`.
    Connect {
        server: String,
    },
    /// Close the connection, or give up connecting. No `Disconnected` is expected for it.
    Disconnect,
    Send(Box<v1::AgentFrame>),
    DeliverOrders(Box<Orders>),
    AcknowledgeHeartbeat(HeartbeatEcho),
    ReadLog(v1::LogRead),
    /// A part of the conversation with a program inside an attempt.
    Exec(v1::ExecFrame),
    /// The servers of the cluster have changed; they are worth remembering.
    RememberServers(Vec<String>),
    /// A change that a person should know.
    Notify(SessionNotice),
}

/// A change of a session that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionNotice {
    Connected {
        server: String,
    },
    /// The former connection ended, or the first attempt failed.
    Lost {
        why: String,
    },
    /// The server refuses this agent; a person has to act.
    Refused {
        why: String,
    },
}

#[derive(Debug, PartialEq)]
enum Connection {
    Waiting {
        until_ms: i64,
    },
    Connecting {
        since_ms: i64,
    },
    /// The hello was sent.
    Greeting {
        since_ms: i64,
    },
    Open {
        last_frame_ms: i64,
    },
}

/// The session of one agent.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    servers: VecDeque<String>,
    connection: Connection,
    /// Connections on which this session has sent a hello.
    connections: u64,
    /// Attempts to connect since a server last acknowledged a report.
    failures: u32,
    /// A notice about the lost connection was given.
    has_notified_loss: bool,
    random: u64,
    /// The boot clock of the last heartbeats, the newest last.
    heartbeats_boot_ms: VecDeque<i64>,
    outbox: Outbox,
}

impl Session {
    /// A session that connects at its first tick. `servers` must not be empty.
    pub fn new(config: SessionConfig, servers: Vec<String>) -> Session {
        Session {
            random: config.jitter_seed | 1,
            config,
            servers: servers.into(),
            connection: Connection::Waiting { until_ms: i64::MIN },
            connections: 0,
            failures: 0,
            has_notified_loss: false,
            heartbeats_boot_ms: VecDeque::new(),
            outbox: Outbox::default(),
        }
    }

    /// Takes an input at a monotonic time and returns what to do.
    pub fn handle(&mut self, now_ms: i64, input: SessionInput) -> Vec<SessionOutput> {
        let mut outputs = Vec::new();
        match input {
            SessionInput::Tick => {}
            SessionInput::Connected => self.greet(now_ms, &mut outputs),
            SessionInput::Disconnected { why } => self.lose(now_ms, why, &mut outputs),
            SessionInput::Frame(frame) => self.take_frame(now_ms, *frame, &mut outputs),
            SessionInput::Report(report) => self.add_report(*report),
            SessionInput::LogChunk(chunk) if self.is_open() => {
                outputs.push(send(agent_frame::Body::LogChunk(chunk)));
            }
            SessionInput::LogChunk(_) => {} // The server that asked is gone.
        }
        self.check_timeouts(now_ms, &mut outputs);
        self.send_reports(&mut outputs);
        outputs
    }

    /// An output could not be performed, for example because the server reads too slowly: the connection ends.
    pub fn break_connection(&mut self, now_ms: i64, why: String) -> Vec<SessionOutput> {
        let mut outputs = vec![SessionOutput::Disconnect];
        outputs.extend(self.handle(now_ms, SessionInput::Disconnected { why }));
        outputs
    }

    /// When the next tick is due.
    pub fn next_due_ms(&self) -> i64 {
        match self.connection {
            Connection::Waiting { until_ms } => until_ms,
            Connection::Connecting { since_ms } | Connection::Greeting { since_ms } => since_ms + CONNECT_TIMEOUT_MS,
            Connection::Open { last_frame_ms } => last_frame_ms + self.silence_max_ms(),
        }
    }

    /// Reports that no server has acknowledged. At most a few for each attempt and GPU of the node.
    pub fn unacknowledged_reports(&self) -> usize {
        self.outbox.len()
    }

    fn is_open(&self) -> bool {
        matches!(self.connection, Connection::Open { .. })
    }

    fn silence_max_ms(&self) -> i64 {
        3 * self.config.heartbeat_interval_ms + SILENCE_MARGIN_MS
    }

    fn check_timeouts(&mut self, now_ms: i64, outputs: &mut Vec<SessionOutput>) {
        if now_ms < self.next_due_ms() {
            return;
        }
        let why = match self.connection {
            Connection::Waiting { .. } => return self.connect(now_ms, outputs),
            Connection::Connecting { .. } => "the server did not answer in time",
            Connection::Greeting { .. } => "the server did not greet in time",
            Connection::Open { .. } => "the server fell silent",
        };
        outputs.push(SessionOutput::Disconnect);
        self.lose(now_ms, why.to_string(), outputs);
    }

    fn connect(&mut self, now_ms: i64, outputs: &mut Vec<SessionOutput>) {
        let Some(server) = self.servers.front().cloned() else { return };
        self.connection = Connection::Connecting { since_ms: now_ms };
        outputs.push(SessionOutput::Connect { server });
    }

    fn greet(&mut self, now_ms: i64, outputs: &mut Vec<SessionOutput>) {
        if !matches!(self.connection, Connection::Connecting { .. }) {
            return; // It was given up meanwhile.
        }
        self.connection = Connection::Greeting { since_ms: now_ms };
        self.connections += 1;
        outputs.push(send(agent_frame::Body::Hello(v1::AgentHello {
            protocol: LINK_PROTOCOL,
            agent_version: self.config.agent_version.clone(),
            node: self.config.node.clone(),
            enrolment: self.config.enrolment.clone(),
            incarnation: self.config.incarnation.clone(),
            connection: self.connections,
        })));
    }

    /// The connection is gone: try the next server after a pause.
    fn lose(&mut self, now_ms: i64, why: String, outputs: &mut Vec<SessionOutput>) {
        if matches!(self.connection, Connection::Waiting { .. }) {
            return;
        }
        self.servers.rotate_left(1);
        self.failures = self.failures.saturating_add(1);
        self.wait(now_ms, self.backoff_ms());
        if !std::mem::replace(&mut self.has_notified_loss, true) {
            outputs.push(SessionOutput::Notify(SessionNotice::Lost { why }));
        }
    }

    fn wait(&mut self, now_ms: i64, pause_ms: i64) {
        let jitter_ms = (self.next_random() % (pause_ms.unsigned_abs() / 2 + 1)).cast_signed();
        self.connection = Connection::Waiting { until_ms: now_ms + pause_ms / 2 + jitter_ms };
    }

    /// The other servers are tried after a short pause each, then all of them again after pauses that grow.
    fn backoff_ms(&self) -> i64 {
        let rounds = self.failures / (self.servers.len().max(1) as u32);
        BACKOFF_MS_MIN.saturating_mul(1 << rounds.min(16)).min(BACKOFF_MS_MAX)
    }

    /// Xorshift: the jitter needs no better randomness.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn take_frame(&mut self, now_ms: i64, frame: v1::ServerFrame, outputs: &mut Vec<SessionOutput>) {
        match &mut self.connection {
            Connection::Open { last_frame_ms } => *last_frame_ms = now_ms,
            Connection::Greeting { .. } => {}
            Connection::Waiting { .. } | Connection::Connecting { .. } => return,
        }
        match frame.body {
            Some(server_frame::Body::Hello(hello)) => self.take_hello(now_ms, hello, outputs),
            Some(server_frame::Body::Goodbye(goodbye)) => self.take_goodbye(now_ms, goodbye, outputs),
            Some(_) if !self.is_open() => {
                self.break_off(now_ms, "the server sent a frame before its greeting", outputs)
            }
            Some(server_frame::Body::Orders(json)) => match muster_json::from_str(&json) {
                Ok(orders) => outputs.push(SessionOutput::DeliverOrders(Box::new(orders))),
                Err(_) => self.break_off(now_ms, "the server sent orders that this agent cannot read", outputs),
            },
            Some(server_frame::Body::Received(received)) => {
                // A greeting alone is no success: the first report may end the connection again.
                (self.failures, self.has_notified_loss) = (0, false);
                self.outbox.acknowledge(received.sequence);
            }
            Some(server_frame::Body::HeartbeatEcho(echo)) => self.take_echo(echo.sent_at_boot_ms, outputs),
            Some(server_frame::Body::LogRead(read)) => outputs.push(SessionOutput::ReadLog(read)),
            Some(server_frame::Body::Exec(frame)) => outputs.push(SessionOutput::Exec(frame)),
            None => {} // A kind of frame of a later release.
        }
    }

    fn take_hello(&mut self, now_ms: i64, hello: v1::ServerHello, outputs: &mut Vec<SessionOutput>) {
        self.connection = Connection::Open { last_frame_ms: now_ms };
        self.outbox.send_again();
        let server = self.servers.front().cloned().unwrap_or_default();
        outputs.push(SessionOutput::Notify(SessionNotice::Connected { server }));
        self.learn_servers(&hello.servers, outputs);
    }

    /// Passes on the echo of a heartbeat of this agent. After a new installation the echo may be that of a heartbeat of the
    /// old one, which has another boot clock: it would keep self-fences from firing in time.
    fn take_echo(&mut self, sent_at_boot_ms: i64, outputs: &mut Vec<SessionOutput>) {
        if self.heartbeats_boot_ms.contains(&sent_at_boot_ms) {
            let node = self.config.node.clone();
            outputs.push(SessionOutput::AcknowledgeHeartbeat(HeartbeatEcho { node, sent_at_boot_ms }));
        }
    }

    fn add_report(&mut self, report: Report) {
        match &report {
            Report::Heartbeat { sent_at_boot_ms, .. } => {
                self.heartbeats_boot_ms.push_back(*sent_at_boot_ms);
                if self.heartbeats_boot_ms.len() > ECHOED_HEARTBEATS_MAX {
                    self.heartbeats_boot_ms.pop_front();
                }
            }
            // An agent that continues as a new incarnation says so in its next hello.
            Report::Registered(registration) => self.config.incarnation.clone_from(&registration.incarnation),
            _ => {}
        }
        self.outbox.add(report);
    }

    fn take_goodbye(&mut self, now_ms: i64, goodbye: v1::Goodbye, outputs: &mut Vec<SessionOutput>) {
        outputs.push(SessionOutput::Disconnect);
        self.learn_servers(&goodbye.servers, outputs);
        let is_refused = matches!(
            goodbye.reason(),
            v1::GoodbyeReason::NotEnrolled | v1::GoodbyeReason::WrongVersion | v1::GoodbyeReason::Replaced
        );
        self.has_notified_loss |= is_refused; // The refusal is the better notice.
        self.lose(now_ms, goodbye.message.clone(), outputs);
        if is_refused {
            self.wait(now_ms, REFUSED_BACKOFF_MS);
            outputs.push(SessionOutput::Notify(SessionNotice::Refused { why: goodbye.message }));
        }
    }

    fn break_off(&mut self, now_ms: i64, why: &str, outputs: &mut Vec<SessionOutput>) {
        outputs.push(SessionOutput::Disconnect);
        self.lose(now_ms, why.to_string(), outputs);
    }

    /// Adds servers that this session does not know. Known ones stay: a server may know only a part of the cluster.
    fn learn_servers(&mut self, servers: &[String], outputs: &mut Vec<SessionOutput>) {
        let known = self.servers.len();
        for server in servers.iter().filter_map(|server| join_url::with_port(server)) {
            if self.servers.len() < SERVERS_MAX && !self.servers.contains(&server) {
                self.servers.push_back(server);
            }
        }
        if self.servers.len() > known {
            outputs.push(SessionOutput::RememberServers(self.servers.iter().cloned().collect()));
        }
    }

    fn send_reports(&mut self, outputs: &mut Vec<SessionOutput>) {
        if !self.is_open() {
            return;
        }
        while let Some((sequence, report)) = self.outbox.next_to_send() {
            let json = muster_json::to_string(report);
            outputs.push(send(agent_frame::Body::Report(v1::Report { sequence, json })));
        }
    }
}

fn send(body: agent_frame::Body) -> SessionOutput {
    SessionOutput::Send(Box::new(v1::AgentFrame { body: Some(body) }))
}

#[cfg(test)]
mod tests;
