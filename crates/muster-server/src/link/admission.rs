//! Which agents a server accepts, and what it does with their frames. Pure: leadership, state and time are inputs, so that
//! the gRPC service and the simulator make the same decisions.
//!
//! A node name in a message is only ever compared with the certificate, and the state says which enrolment of a node is the
//! current one. Every frame is judged by the present state: a line that was opened may belong to a node that was removed since, or to a
//! server that no longer leads.

use muster_core::{Command, NodeId, Refusal, State};
use muster_protocol::agent::{Orders, Report};
use muster_store::LeaderEpoch;
use muster_wire::v1::{self, GoodbyeReason, agent_frame, server_frame};
use muster_wire::{LINK_PROTOCOL, is_compatible};
use tracing::warn;

use super::peer::PeerError;
use super::report_limits::{REPORT_BYTES_MAX, limit_report};
use super::switchboard::{ConnectedAgent, goodbye, goodbye_frame};
use crate::identity;
use crate::readings::reporting_node;

pub(super) const NOT_ENROLLED: &str = "this node is not enrolled: it was removed from the cluster, or joined again; `muster node token` prints a new join URL";

/// What a server knows when it judges an agent.
pub struct LinkView<'a> {
    /// The term of this server, if it leads for certain: its lease is fresh. A server that was paused does not know yet that
    /// another one leads.
    pub leading: Option<LeaderEpoch>,
    pub state: &'a State,
    /// Addresses of the link on all servers of the cluster.
    pub servers: &'a [String],
}

/// The answer to a hello.
#[derive(Debug, PartialEq)]
pub enum Admission {
    Accepted {
        node: NodeId,
        greeting: v1::ServerHello,
    },
    /// The connection is closed after these frames.
    Refused(Vec<v1::ServerFrame>),
    /// The agent renews its certificate and connects again.
    CertificateExpired,
}

/// Why a call of an agent is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkRefusal {
    /// Another server may lead.
    NotLeader,
    /// The request itself is wrong.
    Invalid(String),
    Refused(Refusal),
    NotEnrolled,
}

/// The agent at the other end of a line.
#[derive(Debug, Clone, Copy)]
pub struct LinePeer<'a> {
    pub node: &'a str,
    pub enrolment: &'a str,
    /// False once the line was closed for another one, or because the node was removed.
    pub is_open: bool,
}

/// What a frame of an agent means.
#[derive(Debug, PartialEq)]
pub enum LineInput {
    /// Take over the report, and only then acknowledge its sequence number.
    Report {
        sequence: u64,
        report: Box<Report>,
    },
    /// Acknowledge the number of a report that this release cannot read.
    UnreadableReport {
        sequence: u64,
    },
    LogChunk(v1::LogChunk),
    /// A part of the conversation with a program inside a job.
    Exec(v1::ExecFrame),
    /// A kind of frame of a later release.
    Unknown,
}

/// A frame of an agent, read without a look at the state: a long report does not keep the engine waiting.
pub struct ParsedFrame(Result<LineInput, v1::Goodbye>);

impl ParsedFrame {
    /// Reads a frame on the line of this node.
    pub fn read(node: &str, frame: v1::AgentFrame) -> ParsedFrame {
        ParsedFrame(match frame.body {
            Some(agent_frame::Body::Report(report)) => read_report(node, &report),
            Some(agent_frame::Body::LogChunk(chunk)) => Ok(LineInput::LogChunk(chunk)),
            Some(agent_frame::Body::Exec(frame)) => Ok(LineInput::Exec(frame)),
            Some(agent_frame::Body::Hello(_)) => Err(broken("an agent sent a second hello")),
            None => Ok(LineInput::Unknown),
        })
    }
}

fn read_report(node: &str, report: &v1::Report) -> Result<LineInput, v1::Goodbye> {
    let sequence = report.sequence;
    if report.json.len() > REPORT_BYTES_MAX {
        warn!(node, bytes = report.json.len(), bytes_max = REPORT_BYTES_MAX, "ignored a report that is too large");
        return Ok(LineInput::UnreadableReport { sequence });
    }
    let Ok(mut parsed) = muster_json::from_str::<Report>(&report.json) else {
        warn!(node, "ignored a report that this server cannot read; its agent may be newer");
        return Ok(LineInput::UnreadableReport { sequence });
    };
    if reporting_node(&parsed) != node {
        return Err(broken("an agent reported about another node"));
    }
    limit_report(&mut parsed).map_err(|problem| broken(&problem))?;
    Ok(LineInput::Report { sequence, report: Box::new(parsed) })
}

fn broken(why: &str) -> v1::Goodbye {
    goodbye(GoodbyeReason::ProtocolError, why)
}

impl LinkView<'_> {
    /// Accepts an agent or says why not. `check_certificate` checks that the certificate of the peer is that of a node and
    /// enrolment, and valid.
    pub fn admit(
        &self,
        hello: &v1::AgentHello,
        check_certificate: impl FnOnce(&str, &str) -> Result<(), PeerError>,
    ) -> Admission {
        if !is_compatible(hello.protocol) {
            return refused(goodbye(GoodbyeReason::WrongVersion, &wrong_version(hello)));
        }
        if self.leading.is_none() {
            return refused(self.not_leader());
        }
        let not_enrolled = goodbye(GoodbyeReason::NotEnrolled, NOT_ENROLLED);
        let Ok(node) = hello.node.parse::<NodeId>() else { return refused(not_enrolled) };
        let is_enrolled = self.state.is_enrolled(&node, &hello.enrolment);
        match check_certificate(&hello.node, &hello.enrolment) {
            Ok(()) if is_enrolled => Admission::Accepted { node, greeting: self.greeting() },
            Err(PeerError::Expired) if is_enrolled => Admission::CertificateExpired,
            // Also with an expired certificate, because nobody renews it.
            Ok(()) | Err(PeerError::Expired) => {
                let greeting = v1::ServerFrame { body: Some(server_frame::Body::Hello(self.greeting())) };
                let revoked = self.revoked(&hello.node, &hello.incarnation);
                Admission::Refused([vec![greeting], revoked].concat())
            }
            Err(PeerError::Other(why)) => {
                warn!(node = hello.node, why, "an agent showed the certificate of another node");
                refused(not_enrolled)
            }
        }
    }

    /// What a frame on an accepted line means. An error ends the connection, and nothing of the frame counts.
    pub fn read_frame(&self, peer: LinePeer<'_>, frame: v1::AgentFrame) -> Result<LineInput, v1::Goodbye> {
        self.judge_frame(peer, ParsedFrame::read(peer.node, frame))
    }

    /// [`LinkView::read_frame`] of a frame that was read before.
    pub fn judge_frame(&self, peer: LinePeer<'_>, frame: ParsedFrame) -> Result<LineInput, v1::Goodbye> {
        // Also while an agent does not read that its line was closed: its reports count no longer.
        if !peer.is_open {
            return Err(goodbye(GoodbyeReason::NotEnrolled, NOT_ENROLLED));
        }
        self.check_line(peer.node, peer.enrolment)?;
        frame.0
    }

    /// Whether a line may stay open: this server leads, and the enrolment is the current one. A server that does not lead
    /// must not acknowledge reports, because nobody would take them over.
    pub fn check_line(&self, node: &str, enrolment: &str) -> Result<(), v1::Goodbye> {
        if self.leading.is_none() {
            return Err(self.not_leader());
        }
        let node = node.parse::<NodeId>();
        match node.is_ok_and(|node| self.state.is_enrolled(&node, enrolment)) {
            true => Ok(()),
            false => Err(goodbye(GoodbyeReason::NotEnrolled, NOT_ENROLLED)),
        }
    }

    /// [`LinkView::check_line`] for all lines, a few times a second. An error contains the last frames of the line.
    pub fn check_connected(&self, agent: ConnectedAgent<'_>) -> Result<(), Vec<v1::ServerFrame>> {
        let Err(goodbye) = self.check_line(agent.node, agent.enrolment) else { return Ok(()) };
        match goodbye.reason() {
            GoodbyeReason::NotEnrolled => Err(self.revoked(agent.node, agent.incarnation)),
            _ => Err(vec![goodbye_frame(goodbye)]),
        }
    }

    /// The last frames for the agent of an enrolment that is no longer the current one. Orders without attempts come first:
    /// what the agent still runs belongs to nobody, or to a newer installation of the node. The agent follows them only if no
    /// newer orders have reached it, so a replaced leader ends nothing.
    fn revoked(&self, node: &str, incarnation: &str) -> Vec<v1::ServerFrame> {
        let orders = muster_json::to_string(&self.no_orders(node, incarnation));
        let orders = v1::ServerFrame { body: Some(server_frame::Body::Orders(orders)) };
        vec![orders, goodbye_frame(goodbye(GoodbyeReason::NotEnrolled, NOT_ENROLLED))]
    }

    /// The command that enrols a node, if its token may be used as far as this server knows. The command decides.
    pub fn check_enrolment(&self, request: &v1::EnrolRequest) -> Result<Command, LinkRefusal> {
        let node = self.node_of_call(&request.node)?;
        match identity::verify_join_token(&request.join_token, self.state) {
            Some(token) => Ok(Command::EnrolNode { node, token }),
            None => {
                warn!("an agent tried to join with a join token that is not valid");
                Err(LinkRefusal::Refused(Refusal::JoinTokenUnusable { id: String::new() }))
            }
        }
    }

    /// Whether an agent gets a new certificate. `check_name` checks that the former one, which may have expired, is that of
    /// a node and enrolment.
    pub fn check_renewal(
        &self,
        request: &v1::RenewRequest,
        check_name: impl FnOnce(&str, &str) -> Result<(), PeerError>,
    ) -> Result<NodeId, LinkRefusal> {
        let node = self.node_of_call(&request.node)?;
        let is_own = check_name(&request.node, &request.enrolment).is_ok();
        match is_own && self.state.is_enrolled(&node, &request.enrolment) {
            true => Ok(node),
            false => Err(LinkRefusal::NotEnrolled),
        }
    }

    /// The node that a call names, on the leader.
    fn node_of_call(&self, node: &str) -> Result<NodeId, LinkRefusal> {
        match self.leading {
            Some(_) => node.parse().map_err(|error| LinkRefusal::Invalid(format!("{error}"))),
            None => Err(LinkRefusal::NotLeader),
        }
    }

    pub fn not_leader(&self) -> v1::Goodbye {
        let goodbye = goodbye(GoodbyeReason::NotLeader, "this server does not lead");
        v1::Goodbye { servers: self.servers.to_vec(), ..goodbye }
    }

    fn greeting(&self) -> v1::ServerHello {
        v1::ServerHello {
            protocol: LINK_PROTOCOL,
            server_version: env!("CARGO_PKG_VERSION").to_string(),
            servers: self.servers.to_vec(),
            epoch: self.leading.unwrap_or_default().epoch,
        }
    }

    fn no_orders(&self, node: &str, incarnation: &str) -> Orders {
        Orders {
            node: node.to_string(),
            incarnation: incarnation.to_string(),
            epoch: self.leading.unwrap_or_default().epoch,
            nonce: self.leading.unwrap_or_default().nonce,
            generation: self.state.seq,
            attempts: Vec::new(),
            pools: Vec::new(),
            reboot_from: None,
            secrets: Vec::new(),
        }
    }
}

fn refused(goodbye: v1::Goodbye) -> Admission {
    Admission::Refused(vec![goodbye_frame(goodbye)])
}

fn wrong_version(hello: &v1::AgentHello) -> String {
    format!(
        "this agent ({}, link protocol {}) and the server ({}, link protocol {LINK_PROTOCOL}) are more than one release \
         apart; upgrade the older one",
        hello.agent_version,
        hello.protocol,
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests;
