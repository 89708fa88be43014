//! The link of one agent: performs the decisions of its [`Session`] over the network, on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use muster_agent::exec::ExecHost;
use muster_agent::log_times;
use muster_agent::logs::{self, LogPart, Stream};
use muster_agent::{Agent, ReportSink};
use muster_protocol::agent::Report;
use muster_wire::v1;
use muster_wire::v1::agent_link_client::AgentLinkClient;
use rustls::ClientConfig;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Code;
use tracing::{error, info, warn};

use crate::error::LinkError;
use crate::identity::Identity;
use crate::programs::{OutgoingFrames, Programs};
use crate::renewal::RenewalTimer;
use crate::session::{Session, SessionConfig, SessionInput, SessionNotice, SessionOutput};
use crate::{channel, enrolment, tls};

/// Frames between the session and the network. The session sends at most this many before an acknowledgement.
pub const OUTGOING_FRAMES_MAX: usize = 128;
/// Frames of the server and other events that wait for the driver.
const DRIVER_EVENTS_MAX: usize = 16;
/// Orders with many scripts are the largest frames.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Largest piece of a log in one frame, whatever the server asks for.
const LOG_PIECE_BYTES_MAX: usize = 256 << 10;
/// Longest wait for output, whatever the server asks for.
const LOG_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pauses between two looks for new output: short after output, longer while there is none.
const LOG_LOOK_PAUSE_FIRST: Duration = Duration::from_millis(10);
const LOG_LOOK_PAUSE_MAX: Duration = Duration::from_millis(250);

/// The configuration of a link.
#[derive(Debug)]
pub struct LinkConfig {
    pub identity: Identity,
    /// Id of this start of the agent, as in its reports.
    pub incarnation: String,
    pub agent_version: String,
    pub heartbeat_interval: Duration,
    /// Contains the logs of attempts.
    pub data_dir: PathBuf,
}

/// Where the agent of this node sends its reports, before and while there is a link.
#[derive(Debug)]
pub struct ReportQueue {
    reports: mpsc::UnboundedReceiver<Report>,
}

/// A queue and the sink that fills it. The session keeps a bounded number of reports, so the queue stays short.
pub fn report_queue() -> (ReportSink, ReportQueue) {
    let (sender, reports) = mpsc::unbounded_channel();
    // A failed send means that the link has stopped: the agent ends.
    (Arc::new(move |report| drop(sender.send(report))), ReportQueue { reports })
}

/// A running link.
#[derive(Debug)]
pub struct Link {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Starts the thread. It connects at once and keeps trying until [`Link::stop`]; `agent` receives the orders.
    pub fn start(config: LinkConfig, reports: ReportQueue, agent: Box<dyn Agent>) -> Result<Link, LinkError> {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LinkError::Thread)?;
        let (sender, events) = mpsc::channel(DRIVER_EVENTS_MAX);
        let driver = Driver::new(config, agent, sender);
        let run = move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = driver.run(reports, events) => {}
                    _ = stopped => {}
                }
            });
            // Readers of logs may wait for output for seconds; nobody waits for them.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("link".to_string()).spawn(run).map_err(LinkError::Thread)?;
        Ok(Link { stop: Some(stop), thread: Some(thread) })
    }

    /// Closes the connection and stops the agent. Running attempts continue.
    pub fn stop(&mut self) {
        self.stop = None;
        if matches!(self.thread.take().map(JoinHandle::join), Some(Err(_))) {
            error!("the thread of the link panicked");
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the tasks of the driver tell it.
enum DriverEvent {
    /// From the connection with this number.
    Network(u64, NetworkEvent),
    LogChunk(v1::LogChunk),
    /// The program of this number on the connection of that one has ended.
    ProgramEnded(u64, u64),
    Renewed(Result<v1::NodeCertificate, LinkError>),
}

enum NetworkEvent {
    Connected,
    Frame(Box<v1::ServerFrame>),
    /// `expired`: the server wants a newer certificate.
    Closed {
        why: String,
        expired: bool,
    },
}

struct OpenConnection {
    number: u64,
    outgoing: mpsc::Sender<v1::AgentFrame>,
    programs: Programs,
    task: tokio::task::JoinHandle<()>,
}

struct Driver {
    identity: Identity,
    session: Session,
    agent: Box<dyn Agent>,
    data_dir: PathBuf,
    exec_host: ExecHost,
    started_at: Instant,
    connection: Option<OpenConnection>,
    connections_opened: u64,
    events: mpsc::Sender<DriverEvent>,
    renewal: RenewalTimer,
}

impl Driver {
    fn new(config: LinkConfig, agent: Box<dyn Agent>, events: mpsc::Sender<DriverEvent>) -> Driver {
        let membership = &config.identity.membership;
        let session = SessionConfig {
            node: membership.node.clone(),
            enrolment: membership.enrolment.clone(),
            incarnation: config.incarnation,
            agent_version: config.agent_version,
            heartbeat_interval_ms: i64::try_from(config.heartbeat_interval.as_millis()).unwrap_or(i64::MAX / 8),
            // Without random numbers all agents return at once, which a server survives.
            jitter_seed: getrandom::u64().unwrap_or(1),
        };
        let session = Session::new(session, membership.servers.clone());
        Driver {
            identity: config.identity,
            session,
            agent,
            exec_host: ExecHost::new(&config.data_dir),
            data_dir: config.data_dir,
            started_at: Instant::now(),
            connection: None,
            connections_opened: 0,
            events,
            renewal: RenewalTimer::new(0),
        }
    }

    async fn run(mut self, mut reports: ReportQueue, mut events: mpsc::Receiver<DriverEvent>) {
        loop {
            let due = self.instant(self.session.next_due_ms());
            let renew_at =
                self.renewal.due_ms().map_or(due + Duration::from_secs(3_600), |due_ms| self.instant(due_ms));
            let input = tokio::select! {
                report = reports.reports.recv() => match report {
                    Some(report) => SessionInput::Report(Box::new(report)),
                    None => break, // The agent has ended.
                },
                event = events.recv() => match event.and_then(|event| self.input_of(event)) {
                    Some(input) => input,
                    None => continue,
                },
                () = sleep_until(renew_at) => {
                    self.renew();
                    continue;
                }
                () = sleep_until(due) => SessionInput::Tick,
            };
            self.handle(input);
        }
        self.agent.shutdown();
    }

    fn instant(&self, ms: i64) -> Instant {
        self.started_at + Duration::from_millis(ms.max(0).unsigned_abs())
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// What an event means for the session; `None` if nothing.
    fn input_of(&mut self, event: DriverEvent) -> Option<SessionInput> {
        match event {
            DriverEvent::Network(number, event) => {
                let is_current = self.connection.as_ref().is_some_and(|connection| connection.number == number);
                is_current.then(|| self.network_input(event))
            }
            DriverEvent::LogChunk(chunk) => Some(SessionInput::LogChunk(chunk)),
            DriverEvent::ProgramEnded(number, stream) => {
                let connection = self.connection.as_mut().filter(|connection| connection.number == number);
                connection.into_iter().for_each(|connection| connection.programs.remove(stream));
                None
            }
            DriverEvent::Renewed(renewed) => {
                self.take_renewal(renewed);
                None
            }
        }
    }

    fn network_input(&mut self, event: NetworkEvent) -> SessionInput {
        match event {
            NetworkEvent::Connected => SessionInput::Connected,
            NetworkEvent::Frame(frame) => SessionInput::Frame(frame),
            NetworkEvent::Closed { why, expired } => {
                if expired {
                    self.renewal.hurry(self.now_ms());
                }
                self.connection = None;
                SessionInput::Disconnected { why }
            }
        }
    }

    fn handle(&mut self, input: SessionInput) {
        let now_ms = self.now_ms();
        let mut outputs = self.session.handle(now_ms, input);
        while let Some(why) = self.perform_all(outputs) {
            outputs = self.session.break_connection(now_ms, why);
        }
    }

    /// Why the connection must end, if it must.
    fn perform_all(&mut self, outputs: Vec<SessionOutput>) -> Option<String> {
        let mut failure = None;
        for output in outputs {
            failure = failure.or(self.perform(output).err());
        }
        failure
    }

    /// An error ends the connection.
    fn perform(&mut self, output: SessionOutput) -> Result<(), String> {
        match output {
            SessionOutput::Connect { server } => self.connect(server)?,
            SessionOutput::Disconnect => self.disconnect(),
            SessionOutput::Send(frame) => {
                let sent = self.connection.as_ref().map(|connection| connection.outgoing.try_send(*frame));
                if matches!(sent, Some(Err(mpsc::error::TrySendError::Full(_)))) {
                    return Err("the server reads too slowly".to_string());
                }
            }
            SessionOutput::DeliverOrders(orders) => self.agent.deliver_orders(*orders),
            SessionOutput::AcknowledgeHeartbeat(echo) => self.agent.acknowledge_heartbeat(echo),
            SessionOutput::ReadLog(read) => self.read_log(read),
            SessionOutput::Exec(frame) => self.take_exec(frame),
            SessionOutput::RememberServers(servers) => {
                if let Err(error) = self.identity.remember_servers(servers) {
                    warn!("the servers of the cluster are not remembered: {error}");
                }
            }
            SessionOutput::Notify(SessionNotice::Connected { server }) => info!(server, "connected"),
            SessionOutput::Notify(SessionNotice::Lost { why }) => {
                warn!("no connection to a leader: {why}; running jobs continue, and the agent keeps trying");
            }
            SessionOutput::Notify(SessionNotice::Refused { why }) => error!("the server refuses this agent: {why}"),
        }
        Ok(())
    }

    fn connect(&mut self, server: String) -> Result<(), String> {
        self.disconnect();
        let tls = tls::config_of(&self.identity).map_err(|error| error.to_string())?;
        self.connections_opened += 1;
        let number = self.connections_opened;
        let (outgoing, session) = mpsc::channel(OUTGOING_FRAMES_MAX);
        let (programs, of_programs) = Programs::new(self.exec_host.clone());
        let frames = OutgoingFrames { session, programs: of_programs };
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let closed = exchange_frames(&server, tls, frames, |event| send_event(&events, number, event)).await;
            send_event(&events, number, closed).await;
        });
        self.connection = Some(OpenConnection { number, outgoing, programs, task });
        Ok(())
    }

    fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.task.abort();
        }
    }

    /// Reads a piece of a log on a blocking thread; the chunk comes back as an event.
    fn read_log(&self, read: v1::LogRead) {
        let (data_dir, events) = (self.data_dir.clone(), self.events.clone());
        tokio::task::spawn_blocking(move || {
            // A failed send means that the link has stopped.
            drop(events.blocking_send(DriverEvent::LogChunk(log_chunk(&data_dir, &read))));
        });
    }

    fn take_exec(&mut self, frame: v1::ExecFrame) {
        let Some(connection) = &mut self.connection else { return };
        let (events, number) = (self.events.clone(), connection.number);
        connection.programs.take(frame, move |stream| {
            // A failed send means that the link has stopped.
            drop(events.blocking_send(DriverEvent::ProgramEnded(number, stream)));
        });
    }

    fn renew(&mut self) {
        self.renewal.begin();
        let tls = match tls::config_of(&self.identity) {
            Ok(tls) => tls,
            Err(error) => return self.take_renewal(Err(error)),
        };
        let (membership, public_key) = (self.identity.membership.clone(), self.identity.public_key().to_vec());
        let events = self.events.clone();
        tokio::spawn(async move {
            let renewed = enrolment::renew(&membership, public_key, &tls).await;
            // A failed send means that the link has stopped.
            drop(events.send(DriverEvent::Renewed(renewed)).await);
        });
    }

    fn take_renewal(&mut self, renewed: Result<v1::NodeCertificate, LinkError>) {
        let stored = renewed.and_then(|renewed| {
            self.identity.replace_certificate(renewed.certificate)?;
            Ok(renewed.renew_after_ms)
        });
        if let Err(error) = &stored {
            warn!("the certificate of this node is not renewed: {error}; trying again in a minute");
        }
        self.renewal.end(self.now_ms(), stored.ok());
    }
}

async fn send_event(events: &mpsc::Sender<DriverEvent>, number: u64, event: NetworkEvent) {
    // A failed send means that the link has stopped.
    drop(events.send(DriverEvent::Network(number, event)).await);
}

/// One connection from connecting to its end. Frames of the server wait here while the driver is busy, so that TCP slows
/// the server down.
async fn exchange_frames<F: Future<Output = ()>>(
    server: &str,
    tls: Arc<ClientConfig>,
    outgoing: OutgoingFrames,
    send: impl Fn(NetworkEvent) -> F,
) -> NetworkEvent {
    let closed = |why: String| NetworkEvent::Closed { why: format!("{server}: {why}"), expired: false };
    let channel = match channel::connect(server, tls).await {
        Ok(channel) => channel,
        Err(why) => return closed(why),
    };
    let mut client = AgentLinkClient::new(channel).max_decoding_message_size(FRAME_BYTES_MAX);
    send(NetworkEvent::Connected).await;
    let mut incoming = match client.connect(outgoing).await {
        Ok(response) => response.into_inner(),
        Err(status) => {
            let expired = status.code() == Code::Unauthenticated;
            return NetworkEvent::Closed { why: format!("{server}: {}", status.message()), expired };
        }
    };
    loop {
        match incoming.message().await {
            Ok(Some(frame)) => send(NetworkEvent::Frame(Box::new(frame))).await,
            Ok(None) => return closed("the server closed the connection".to_string()),
            Err(status) => return closed(status.message().to_string()),
        }
    }
}

fn log_chunk(data_dir: &Path, read: &v1::LogRead) -> v1::LogChunk {
    let chunk = v1::LogChunk { request: read.request, offset: read.offset, ..v1::LogChunk::default() };
    let failed = |error: String| v1::LogChunk { error, ..chunk.clone() };
    let stream = match read.stream.as_str() {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        other => return failed(format!("`{other}` is neither stdout nor stderr")),
    };
    let path = match logs::log_path(data_dir, &read.job, read.attempt, read.rank, stream) {
        Ok(path) => path,
        Err(error) => return failed(error.to_string()),
    };
    match read_waiting(&path, read) {
        Ok(LogPart { bytes, offset, size }) => v1::LogChunk { bytes, offset, size, ..chunk },
        Err(error) => failed(error.to_string()),
    }
}

/// Reads until there is a byte or the wait is over. The thread is one of many that tokio keeps for blocking work, and
/// the server asks for few parts at a time.
fn read_waiting(path: &Path, read: &v1::LogRead) -> std::io::Result<LogPart> {
    let (bytes_max, wait) =
        (LOG_PIECE_BYTES_MAX.min(read.bytes_max as usize), Duration::from_millis(read.wait_ms.into()));
    let (begin, mut pause) = (std::time::Instant::now(), LOG_LOOK_PAUSE_FIRST);
    let offset = if read.since_ms > 0 { log_times::offset_since(path, read.since_ms)? } else { read.offset };
    loop {
        let part = logs::read_part(path, offset, bytes_max)?;
        let has_news = !part.bytes.is_empty() || part.offset > offset;
        if has_news || bytes_max == 0 || begin.elapsed() >= wait.min(LOG_WAIT_MAX) {
            return Ok(part);
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(LOG_LOOK_PAUSE_MAX);
    }
}
