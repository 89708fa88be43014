//! The servers' side of the link: admission and switchboard of production, driven as `service.rs` of the server drives them.

use muster_protocol::agent::Report;
use muster_server::link::admission::{Admission, LineInput, LinePeer};
use muster_server::link::switchboard::{NextFrames, goodbye_frame};
use muster_wire::v1::{self, agent_frame, server_frame};
use prost::Message;

use super::SimCluster;
use super::laws::BrokenLaw;
use super::transport::{EndCause, Parcel, ServerEnd, Side};

/// Time for the first frame of a connection, and for a frame to an agent that does not read.
const HELLO_TIMEOUT_MS: i64 = 5_000;
const SEND_TIMEOUT_MS: i64 = 30_000;
/// A line holds one frame of each kind: greeting, acknowledgement, echo and orders.
const LINE_FRAMES_MAX: usize = 4;
/// Reports on the way that no server has acknowledged, with the hello and the end.
const TO_SERVER_FRAMES_MAX: usize = 66;

impl SimCluster<'_> {
    /// A server process ends; the kernel closes its connections.
    pub(super) fn end_server(&mut self, server: usize) {
        self.servers[server].process = None;
        let ended: Vec<u64> = self.connections_of(server).collect();
        for connection in ended {
            self.close_server_end(connection, EndCause::Closed);
        }
    }

    fn connections_of(&self, server: usize) -> impl Iterator<Item = u64> {
        let start = self.servers[server].start;
        let of_server = self.connections.iter().filter(move |(_, connection)| {
            connection.server == server
                && connection.server_start == start
                && connection.server_end != ServerEnd::Closed
        });
        of_server.map(|(number, _)| *number)
    }

    /// The server leaves a connection, and the agent reads its end after the frames before it.
    pub(super) fn close_server_end(&mut self, connection: u64, cause: EndCause) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        let (server, start, end) = (known.server, known.server_start, known.server_end);
        known.server_end = ServerEnd::Closed;
        let node = self.node_names[known.node].clone();
        if let (ServerEnd::Line { number }, true) = (end, self.servers[server].start == start)
            && let Some(process) = &mut self.servers[server].process
        {
            process.switchboard.close(&node, number);
        }
        if end != ServerEnd::Closed {
            self.send_parcel(connection, Side::Agent, Parcel::End(cause));
        }
    }

    pub(super) fn receive_agent_frame(&mut self, server: usize, connection: u64) -> Result<(), BrokenLaw> {
        let in_flight = self.connections.get(&connection).map_or(0, |known| known.in_flight(Side::Server));
        if in_flight > TO_SERVER_FRAMES_MAX {
            return Err(format!("{in_flight} frames are on the way to a server"));
        }
        let Some(parcel) = self.receive_parcel(connection, Side::Server) else { return Ok(()) };
        let Some(known) = self.connections.get(&connection) else { return Ok(()) };
        let is_alive = self.servers[server].process.is_some() && known.server_start == self.servers[server].start;
        match (parcel, known.server_end) {
            (Parcel::End(_), _) => self.close_server_end(connection, EndCause::Closed),
            // The kernel answers for a connection that the server has left.
            (Parcel::Frame(_), end) if !is_alive || end == ServerEnd::Closed => {
                self.send_parcel(connection, Side::Agent, Parcel::End(EndCause::Closed));
            }
            (Parcel::Frame(bytes), end) => {
                let frame = v1::AgentFrame::decode(&bytes[..]).map_err(|error| format!("unreadable frame: {error}"))?;
                match end {
                    ServerEnd::Line { number } => self.take_frame(server, connection, number, frame)?,
                    _ => self.admit(server, connection, frame)?,
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, server: usize, connection: u64, frame: v1::AgentFrame) -> Result<(), BrokenLaw> {
        let Some(agent_frame::Body::Hello(hello)) = frame.body else {
            return Err("the first frame of an agent is no hello".to_string());
        };
        let now_ms = self.servers[server].clock.wall_ms();
        let Some(known) = self.connections.get_mut(&connection) else { return Ok(()) };
        let Some(process) = &mut self.servers[server].process else { return Ok(()) };
        let certificate = known.certificate.clone();
        let check = |node: &str, enrolment: &str| certificate.check(node, enrolment, now_ms);
        match process.view(|view| view.admit(&hello, check)) {
            Admission::Accepted { greeting, .. } => {
                let opened = match process.switchboard.open(&hello, greeting) {
                    Ok(opened) => opened,
                    Err(goodbye) => {
                        self.send_frame(connection, Side::Agent, &goodbye_frame(goodbye));
                        self.close_server_end(connection, EndCause::Closed);
                        return Ok(());
                    }
                };
                known.server_end = ServerEnd::Line { number: opened.number };
                known.has_been_accepted = true;
                let node = known.node;
                self.laws.check_admission(node, &hello)?;
                self.check_newest_connection(server, node, connection)?;
                self.pump_server(server)?;
            }
            Admission::Refused(last_frames) => {
                for frame in last_frames {
                    self.send_frame(connection, Side::Agent, &frame);
                }
                self.close_server_end(connection, EndCause::Closed);
            }
            Admission::CertificateExpired => self.close_server_end(connection, EndCause::CertificateExpired),
        }
        Ok(())
    }

    /// A connection that an agent has given up must not close its newer one.
    fn check_newest_connection(&self, server: usize, node: usize, connection: u64) -> Result<(), BrokenLaw> {
        let current = self.current_connection(node).filter(|current| *current > connection);
        let current = current.and_then(|current| self.connections.get(&current));
        match current.filter(|current| current.server == server && current.has_been_accepted) {
            Some(_) => Err(format!("an older connection of machine {node} replaces its current one")),
            None => Ok(()),
        }
    }

    fn take_frame(
        &mut self,
        server: usize,
        connection: u64,
        number: u64,
        frame: v1::AgentFrame,
    ) -> Result<(), BrokenLaw> {
        let Some(known) = self.connections.get_mut(&connection) else { return Ok(()) };
        let Some(process) = &mut self.servers[server].process else { return Ok(()) };
        let (node, boot) = (self.node_names[known.node].clone(), self.nodes[known.node].host.boot());
        let enrolment = known.certificate.enrolment().to_string();
        let is_open = process.switchboard.is_open(&node, number);
        let peer = LinePeer { node: &node, enrolment: &enrolment, is_open };
        match process.view(|view| view.read_frame(peer, frame)) {
            Ok(LineInput::Report { sequence, report }) => {
                if let Report::Heartbeat { sent_at_boot_ms, .. } = &*report {
                    self.laws.note_heartbeat(known.node, boot, *sent_at_boot_ms);
                }
                // A server that does not lead drops it.
                if process.state().is_some() {
                    known.taken_over = known.taken_over.max(sequence);
                }
                process.receive_report(*report);
                process.switchboard.note_received(&node, number, sequence);
                self.wake_thread(server, "dispatch", 1, 100);
                self.wake_thread(server, "engine", 1, 30);
            }
            Ok(LineInput::UnreadableReport { .. }) => return Err("a server cannot read a report".to_string()),
            Ok(LineInput::LogChunk(_) | LineInput::Exec(_) | LineInput::Unknown) => {}
            Err(goodbye) => process.switchboard.dismiss(&node, number, goodbye),
        }
        self.pump_connection(connection)
    }

    /// Closes the lines of a server that may not stay open, and connections without a hello or with an agent that does not
    /// read.
    pub(super) fn check_connections(&mut self, server: usize) -> Result<(), BrokenLaw> {
        if let Some(process) = &mut self.servers[server].process {
            process.check_connections();
        }
        let now = self.now();
        let overdue = self.connections_of(server).filter(|number| {
            let known = &self.connections[number];
            let is_silent = known.server_end == ServerEnd::AwaitsHello && known.opened_ms + HELLO_TIMEOUT_MS < now;
            is_silent || known.blocked_since_ms.is_some_and(|since_ms| since_ms + SEND_TIMEOUT_MS < now)
        });
        for connection in overdue.collect::<Vec<_>>() {
            self.close_server_end(connection, EndCause::Closed);
        }
        self.forget_ended_connections();
        self.pump_server(server)?;
        self.wake_thread(server, "link", 250, 900);
        Ok(())
    }

    /// Sends what waits in the switchboard of a server.
    pub(super) fn pump_server(&mut self, server: usize) -> Result<(), BrokenLaw> {
        let open: Vec<u64> = self.connections_of(server).collect();
        open.into_iter().try_for_each(|connection| self.pump_connection(connection))
    }

    pub(super) fn pump_connection(&mut self, connection: u64) -> Result<(), BrokenLaw> {
        let now = self.now();
        while let Some(known) = self.connections.get_mut(&connection) {
            let ServerEnd::Line { number } = known.server_end else { return Ok(()) };
            let (node, host) = (&self.node_names[known.node], &mut self.servers[known.server]);
            let Some(process) = host.process.as_mut().filter(|_| host.start == known.server_start) else {
                return Ok(());
            };
            if !known.has_room_to_agent() {
                known.blocked_since_ms.get_or_insert(now);
                return Ok(());
            }
            known.blocked_since_ms = None;
            let (frames, is_last) = match process.switchboard.next_frames(node, number) {
                NextFrames::Frames(frames) if frames.is_empty() => return Ok(()),
                NextFrames::Frames(frames) => (frames, false),
                NextFrames::Last(frames) => (frames, true),
            };
            if frames.len() > LINE_FRAMES_MAX {
                return Err(format!("{} frames wait on one line", frames.len()));
            }
            for frame in &frames {
                if let Some(server_frame::Body::Received(received)) = &frame.body
                    && received.sequence > known.taken_over
                {
                    let taken_over = known.taken_over;
                    return Err(format!(
                        "{node} is told that report {} arrived, not only {taken_over}",
                        received.sequence
                    ));
                }
            }
            for frame in frames {
                self.send_frame(connection, Side::Agent, &frame);
            }
            if is_last {
                self.close_server_end(connection, EndCause::Closed);
            }
        }
        Ok(())
    }
}
