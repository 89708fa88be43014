//! Inbound adapter: the gRPC service of the agent link.
//!
//! Moves frames between connections, the switchboard and the report receiver. `admission.rs` judges them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn;
use muster_core::{Actor, Command, NodeId, Refusal};
use muster_wire::v1::agent_link_server::{AgentLink, AgentLinkServer};
use muster_wire::v1::{self, agent_frame};
use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

use super::admission::{Admission, LineInput, LinePeer, LinkRefusal, LinkView, NOT_ENROLLED, ParsedFrame};
use super::call_limits::limit_call;
use super::certificates::LinkCertificates;
use super::connections::{LinkConnections, OpenLine};
use super::peer;
use super::report_limits::ReportRate;
use super::switchboard::{NextFrames, goodbye_frame};
use crate::agents::ReportReceiver;
use crate::cluster::{Cluster, CommandError, ServerRole};
use crate::tls::PeerCertificate;

/// Time for the first frame of a connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames that wait for a slow reader beside those of the switchboard.
const OUTGOING_FRAMES_MAX: usize = 4;
/// A registration with many GPUs, or a piece of a log.
const FRAME_BYTES_MAX: usize = 8 << 20;
/// Time for a frame to an agent that reads slowly, and for the last one.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often connections are checked against the state: leadership and enrolments.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The service, shared by all connections.
#[derive(Clone)]
pub struct LinkService(Arc<LinkServiceInner>);

pub struct LinkServiceInner {
    pub cluster: Cluster,
    pub certificates: LinkCertificates,
    pub connections: Arc<LinkConnections>,
    pub receiver: Arc<ReportReceiver>,
    /// Addresses of the link on all servers of the cluster.
    pub servers: Vec<String>,
}

/// The routes of the link.
pub fn router(inner: LinkServiceInner) -> (LinkService, Router) {
    let service = LinkService(Arc::new(inner));
    let server = AgentLinkServer::new(service.clone()).max_decoding_message_size(FRAME_BYTES_MAX);
    let router = tonic::service::Routes::new(server).prepare().into_axum_router();
    (service, router.layer(from_fn(limit_call)))
}

type FrameStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::ServerFrame, Status>> + Send>>;

#[tonic::async_trait]
impl AgentLink for LinkService {
    type ConnectStream = FrameStream;

    async fn enrol(&self, request: Request<v1::EnrolRequest>) -> Result<Response<v1::EnrolResponse>, Status> {
        let request = request.into_inner();
        let enrol = self.view(|view| view.check_enrolment(&request)).map_err(|refusal| status_of(&refusal))?;
        let Command::EnrolNode { node, token } = enrol.clone() else {
            return Err(Status::internal("an enrolment is a command to enrol"));
        };
        // Before the token is used up.
        let certificate = self.issue(&node, &token, &request.public_key)?;
        self.0.cluster.execute(Actor::system(), enrol).await.map_err(|error| enrolment_error(&error))?;
        info!(%node, token, "a node has joined");
        Ok(Response::new(v1::EnrolResponse { enrolment: token, certificate: Some(certificate) }))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewResponse>, Status> {
        let certificate = peer_certificate(&request)?;
        let request = request.into_inner();
        let check_name = |node: &str, enrolment: &str| peer::check_name(&certificate, node, enrolment);
        let node = self.view(|view| view.check_renewal(&request, check_name)).map_err(|refusal| status_of(&refusal))?;
        let certificate = self.issue(&node, &request.enrolment, &request.public_key)?;
        Ok(Response::new(v1::RenewResponse { certificate: Some(certificate) }))
    }

    async fn check(&self, request: Request<v1::CheckRequest>) -> Result<Response<v1::CheckResponse>, Status> {
        let certificate = peer_certificate(&request)?;
        let v1::CheckRequest { node, enrolment } = request.into_inner();
        let (role, cluster) = (self.0.cluster.role(), &self.0.cluster);
        let id: NodeId = node.parse().map_err(|_| Status::invalid_argument("this is not the name of a node"))?;
        let leading = matches!(role, ServerRole::Leading { .. });
        let is_enrolled = cluster.read(|state| state.is_enrolled(&id, &enrolment));
        // A standby may not know the enrolment yet.
        if peer::check_name(&certificate, &node, &enrolment).is_err() || (leading && !is_enrolled) {
            return Err(Status::permission_denied(NOT_ENROLLED));
        }
        let state = cluster.read(|state| state.nodes.get(&id).map(|node| node.status_name().to_string()));
        let now = cluster.now();
        let last_report_at = self.0.receiver.readings().last_report_at(&id);
        Ok(Response::new(v1::CheckResponse {
            server_version: env!("CARGO_PKG_VERSION").to_string(),
            leading,
            leader: match role {
                ServerRole::Standby { leader } => leader,
                ServerRole::Unavailable { why } => why,
                ServerRole::Starting => "the journal is being replayed".to_string(),
                ServerRole::Leading { .. } => String::new(),
            },
            time_ms: now.0,
            node_state: state.unwrap_or_default(),
            silent_ms: last_report_at.map(|at| now.since(at)),
        }))
    }

    async fn connect(
        &self,
        request: Request<Streaming<v1::AgentFrame>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let certificate = peer_certificate(&request)?;
        let mut frames = request.into_inner();
        let hello = match timeout(HELLO_TIMEOUT, frames.message()).await {
            Ok(Ok(Some(v1::AgentFrame { body: Some(agent_frame::Body::Hello(hello)) }))) => hello,
            Ok(Ok(_)) => return Err(Status::invalid_argument("the first frame must be a hello")),
            Ok(Err(status)) => return Err(status),
            Err(_) => return Err(Status::deadline_exceeded("no hello")),
        };
        let (sender, outgoing) = mpsc::channel(OUTGOING_FRAMES_MAX);
        let verifier = self.0.certificates.verifier();
        let check = |node: &str, enrolment: &str| peer::check(&**verifier, &certificate, node, enrolment);
        match self.view(|view| view.admit(&hello, check)) {
            Admission::Accepted { node, greeting } => match self.0.connections.open(node, &hello, greeting) {
                Ok(line) => drop(tokio::spawn(self.clone().serve_line(line, frames, sender))),
                Err(goodbye) => drop(sender.try_send(Ok(goodbye_frame(goodbye)))),
            },
            Admission::CertificateExpired => {
                return Err(Status::unauthenticated("the certificate of this node has expired"));
            }
            // The channel has room for them.
            Admission::Refused(last_frames) => {
                last_frames.into_iter().for_each(|frame| drop(sender.try_send(Ok(frame))));
            }
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

impl LinkService {
    /// Judges with what this server knows now.
    fn view<T>(&self, judge: impl FnOnce(&LinkView<'_>) -> T) -> T {
        let leading = match self.0.cluster.role() {
            ServerRole::Leading { term } if self.0.cluster.is_lease_fresh() => Some(term),
            _ => None,
        };
        self.0.cluster.read(|state| judge(&LinkView { leading, state, servers: &self.0.servers }))
    }

    fn issue(&self, node: &NodeId, enrolment: &str, public_key: &[u8]) -> Result<v1::NodeCertificate, Status> {
        match self.0.certificates.issue(node.as_str(), enrolment, public_key) {
            None => Err(Status::invalid_argument("the public key is not an uncompressed point of P-256")),
            Some(Ok(certificate)) => Ok(certificate),
            Some(Err(error)) => Err(Status::internal(format!("cannot sign the certificate: {error}"))),
        }
    }

    /// Serves a connection until either side closes it.
    async fn serve_line(
        self,
        line: OpenLine,
        mut incoming: Streaming<v1::AgentFrame>,
        outgoing: mpsc::Sender<Result<v1::ServerFrame, Status>>,
    ) {
        let line = Arc::new(line);
        let mut writer = tokio::spawn(write_frames(line.clone(), outgoing));
        let reader = async {
            let mut rate = ReportRate::new(Instant::now());
            while let Ok(Some(frame)) = incoming.message().await {
                if matches!(frame.body, Some(agent_frame::Body::Report(_)) | None) {
                    let wait = rate.take(Instant::now());
                    if !wait.is_zero() {
                        tokio::time::sleep(wait).await;
                    }
                }
                self.take_frame(&line, frame)?;
            }
            Ok::<(), v1::Goodbye>(())
        };
        let broken = tokio::select! {
            _ = &mut writer => None,
            read = reader => read.err(),
        };
        if let Some(broken) = broken {
            warn!(node = line.node(), why = broken.message, "closed the connection of an agent");
            line.dismiss(broken);
            // The agent should read why; one that does not read is not waited for.
            let _ = timeout(GOODBYE_TIMEOUT, &mut writer).await;
        }
        writer.abort();
        line.note_end(self.0.cluster.now());
    }

    /// An error ends the connection.
    fn take_frame(&self, line: &OpenLine, frame: v1::AgentFrame) -> Result<(), v1::Goodbye> {
        let peer = LinePeer { node: line.node(), enrolment: line.enrolment(), is_open: line.is_open() };
        let frame = ParsedFrame::read(peer.node, frame);
        match self.view(|view| view.judge_frame(peer, frame))? {
            LineInput::Report { sequence, report } => {
                self.0.receiver.receive(*report);
                line.note_received(sequence);
            }
            LineInput::UnreadableReport { sequence } => line.note_received(sequence),
            LineInput::LogChunk(chunk) => line.answer_log(chunk),
            LineInput::Exec(frame) => line.take_exec(frame),
            LineInput::Unknown => {}
        }
        Ok(())
    }

    /// Closes the connections of agents when this server stops leading, and those of nodes that were removed or have
    /// enrolled again.
    pub async fn watch_connections(self, stopping: impl Future<Output = ()>) {
        let check = async {
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                self.view(|view| self.0.connections.close_refused(|agent| view.check_connected(agent)));
            }
        };
        tokio::select! {
            () = check => {}
            () = stopping => self.view(|view| {
                self.0.connections.close_refused(|_| Err(vec![goodbye_frame(view.not_leader())]));
            }),
        }
    }
}

async fn write_frames(line: Arc<OpenLine>, outgoing: mpsc::Sender<Result<v1::ServerFrame, Status>>) {
    loop {
        let (frames, is_last) = match line.next_frames().await {
            NextFrames::Frames(frames) => (frames, false),
            NextFrames::Last(frames) => (frames, true),
        };
        for frame in frames {
            match timeout(SEND_TIMEOUT, outgoing.send(Ok(frame))).await {
                Ok(Ok(())) => {}
                // The agent has closed the connection, or does not read.
                Ok(Err(_)) | Err(_) => return,
            }
        }
        if is_last {
            return;
        }
    }
}

fn peer_certificate<T>(request: &Request<T>) -> Result<CertificateDer<'static>, Status> {
    let certificate = request.extensions().get::<PeerCertificate>().map(|peer| peer.0.clone());
    certificate.ok_or_else(|| Status::permission_denied("this call needs the certificate of an enrolled node"))
}

fn enrolment_error(error: &CommandError) -> Status {
    match error {
        CommandError::Refused(refusal) => refused(refusal),
        CommandError::Unavailable { why } => Status::unavailable(why.clone()),
    }
}

fn status_of(refusal: &LinkRefusal) -> Status {
    match refusal {
        LinkRefusal::NotLeader => Status::unavailable("this server does not lead"),
        LinkRefusal::Invalid(problem) => Status::invalid_argument(problem.clone()),
        LinkRefusal::Refused(refusal) => refused(refusal),
        LinkRefusal::NotEnrolled => Status::permission_denied(NOT_ENROLLED),
    }
}

fn refused(refusal: &Refusal) -> Status {
    let hint = refusal.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    Status::permission_denied(format!("{refusal}{hint}"))
}
