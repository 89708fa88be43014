//! The connections between agents and servers: frames arrive in order or not at all, and the two sides learn of the end of a
//! connection at different times, or never.
//!
//! Frames travel in their encoding. A partition delays them, as TCP sends lost packets again; a broken connection loses the
//! frame that is on its way, and those behind it.

use std::collections::VecDeque;

use prost::Message;

use super::certificate::SimCertificate;
use super::{SimCluster, SimEvent};

/// Frames on the way to an agent beside those that wait in the switchboard: the channel of the writer and the buffers of the
/// network.
const TO_AGENT_FRAMES_MAX: usize = 8;
/// A packet that is lost is sent again after this long.
const RESEND_MS_MAX: i64 = 1_500;

/// The part of a connection that a side has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Agent,
    Server,
}

/// What travels on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parcel {
    Frame(Vec<u8>),
    End(EndCause),
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    Closed,
    /// The server wants a newer certificate.
    CertificateExpired,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Pipe {
    parcels: VecDeque<Parcel>,
    last_arrival_ms: i64,
}

/// The server's end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerEnd {
    AwaitsHello,
    Line { number: u64 },
    Closed,
}

/// A connection of an agent to a server, from its acceptance.
#[derive(Debug)]
pub struct SimConnection {
    pub node: usize,
    pub server: usize,
    /// The start of the server process that accepted it.
    pub server_start: u64,
    /// As the agent showed it in the handshake.
    pub certificate: SimCertificate,
    pub server_end: ServerEnd,
    pub opened_ms: i64,
    /// The server has opened a line for it.
    pub has_been_accepted: bool,
    /// The highest sequence number of the reports that the server has taken over from it.
    pub taken_over: u64,
    /// Since when the agent has not read although frames wait.
    pub blocked_since_ms: Option<i64>,
    pipes: [Pipe; 2],
    /// Nothing that is sent from now on arrives.
    is_broken: bool,
}

impl SimConnection {
    pub fn new(node: usize, server: (usize, u64), certificate: SimCertificate, opened_ms: i64) -> SimConnection {
        SimConnection {
            node,
            server: server.0,
            server_start: server.1,
            certificate,
            opened_ms,
            has_been_accepted: false,
            server_end: ServerEnd::AwaitsHello,
            taken_over: 0,
            blocked_since_ms: None,
            pipes: Default::default(),
            is_broken: false,
        }
    }

    fn pipe(&mut self, to: Side) -> &mut Pipe {
        &mut self.pipes[usize::from(to == Side::Server)]
    }

    /// Frames on the way to a side.
    pub fn in_flight(&self, to: Side) -> usize {
        self.pipes[usize::from(to == Side::Server)].parcels.len()
    }

    pub fn has_room_to_agent(&self) -> bool {
        self.in_flight(Side::Agent) < TO_AGENT_FRAMES_MAX
    }
}

/// How the two sides of a broken connection notice.
#[derive(Debug, Clone, Copy)]
struct Notice {
    agent_ms: Option<i64>,
    server_ms: Option<i64>,
}

impl SimCluster<'_> {
    pub(super) fn send_frame(&mut self, connection: u64, to: Side, frame: &impl Message) {
        self.send_parcel(connection, to, Parcel::Frame(frame.encode_to_vec()));
    }

    pub(super) fn send_parcel(&mut self, connection: u64, to: Side, parcel: Parcel) {
        let is_degraded = self.network.until_ms > self.now();
        let mut delay_ms = self.random.between(1, if is_degraded { self.network.delay_ms_max } else { 20 });
        if is_degraded && self.random.chance_per_mille(self.network.loss_per_mille) {
            delay_ms += self.random.between(200, RESEND_MS_MAX);
        }
        let now = self.now();
        let Some(known) = self.connections.get_mut(&connection).filter(|known| !known.is_broken) else { return };
        let (node, server) = (known.node, known.server);
        let pipe = known.pipe(to);
        let arrival_ms = pipe.last_arrival_ms.max(now + delay_ms);
        pipe.last_arrival_ms = arrival_ms;
        pipe.parcels.push_back(parcel);
        self.schedule_arrival(arrival_ms, to, (node, server), connection);
    }

    fn schedule_arrival(&mut self, at: i64, to: Side, (node, server): (usize, usize), connection: u64) {
        let event = match to {
            Side::Agent => SimEvent::FrameToAgent(node, connection),
            Side::Server => SimEvent::FrameToServer(server, connection),
        };
        self.schedule_at(at, event);
    }

    /// True if nothing gets from one side to the other now.
    pub(super) fn is_path_cut(&self, node: usize, server: usize, to: Side) -> bool {
        let is_until = |until: Option<&i64>| until.is_some_and(|until| *until > self.now());
        is_until(self.partitions.get(&(server, node)))
            || is_until(self.cuts.get(&(server, node, to == Side::Server)))
            || is_until(self.stalled_readers.get(&(node, to == Side::Server)))
    }

    /// The next parcel on the way to a side, unless the path is cut: then it arrives later.
    pub(super) fn receive_parcel(&mut self, connection: u64, to: Side) -> Option<Parcel> {
        let known = self.connections.get(&connection)?;
        let path = (known.node, known.server);
        if self.is_path_cut(path.0, path.1, to) {
            let at = self.now() + self.random.between(50, RESEND_MS_MAX);
            self.schedule_arrival(at, to, path, connection);
            return None;
        }
        self.connections.get_mut(&connection)?.pipe(to).parcels.pop_front()
    }

    /// The network loses the connection of a node: a part of the parcels on the way arrives, and each side notices soon,
    /// late or never.
    pub(super) fn break_connection(&mut self, node: usize, number: u64) {
        let Some(connection) = self.current_connection(node) else { return };
        let mut random = crate::random::Random(number);
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.is_broken = true;
        for pipe in &mut known.pipes {
            let kept = random.below(pipe.parcels.len() as u64 + 1) as usize;
            pipe.parcels.truncate(kept);
        }
        let server = known.server;
        let after = |random: &mut crate::random::Random| match random.below(3) {
            0 => Some(random.between(1, 60)),
            1 => Some(random.between(1_000, 15_000)),
            _ => None,
        };
        let notice = Notice { agent_ms: after(&mut random), server_ms: after(&mut random) };
        if let Some(ms) = notice.agent_ms {
            self.schedule_at(self.now() + ms, SimEvent::AgentSeesEnd(node, connection));
        }
        if let Some(ms) = notice.server_ms {
            self.schedule_at(self.now() + ms, SimEvent::ServerSeesEnd(server, connection));
        }
    }

    /// Power cuts and lost machines: the other side is not told.
    pub(super) fn break_silently(&mut self, is_of: impl Fn(&SimConnection) -> bool) {
        for connection in self.connections.values_mut().filter(|connection| is_of(connection)) {
            connection.is_broken = true;
            connection.pipes.iter_mut().for_each(|pipe| pipe.parcels.clear());
        }
    }

    /// Forgets connections that both sides have left.
    pub(super) fn forget_ended_connections(&mut self) {
        let nodes = &self.nodes;
        let servers = &self.servers;
        self.connections.retain(|number, connection| {
            let agent = nodes[connection.node].agent.as_ref().and_then(|agent| agent.link.connection);
            let is_server_up = servers[connection.server].start == connection.server_start;
            let is_served = is_server_up && connection.server_end != ServerEnd::Closed;
            agent == Some(*number) || is_served || connection.pipes.iter().any(|pipe| !pipe.parcels.is_empty())
        });
    }
}
