//! The connections of agents as dispatch, readers of logs and the network see them: the switchboard with a lock, a way
//! to wake each connection, and the requests for logs that wait for an answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::{NodeId, Timestamp};
use muster_protocol::agent::{HeartbeatEcho, Orders};
use muster_protocol::exec::{DATA_OVERHEAD_BYTES, ExecMessage, ExecOrder, WINDOW_BYTES};
use muster_wire::v1;
use tokio::sync::{Notify, mpsc, oneshot};

use super::exec_streams::ExecStreams;
use super::switchboard::{ConnectedAgent, LOG_READS_MAX, LineError, NextFrames, Switchboard};
use crate::exec_source::ProgramInput;

/// Messages of a program that wait for its reader: the window holds no more with data, and there are few others.
const PROGRAM_MESSAGES_MAX: usize = (WINDOW_BYTES / DATA_OVERHEAD_BYTES) as usize * 2;
/// Frames with input of programs between two looks for other frames.
const PROGRAM_FRAMES_AT_A_TIME: usize = 4;

/// Shared by the network, dispatch and the readers of logs. Locks are held for moments only.
#[derive(Default)]
pub struct LinkConnections {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    switchboard: Switchboard,
    /// Wakes the task that writes to a connection.
    wakers: BTreeMap<u64, Arc<Notify>>,
    /// When the last connection of a node ended.
    disconnected_at: BTreeMap<NodeId, Timestamp>,
    log_requests: BTreeMap<u64, PendingLogRead>,
    log_requests_made: u64,
    exec_streams: ExecStreams,
    /// Where the messages of programs inside jobs go.
    exec_readers: BTreeMap<u64, mpsc::Sender<ExecMessage>>,
}

/// A request for a log that the agent has not answered.
struct PendingLogRead {
    line: u64,
    reply: oneshot::Sender<v1::LogChunk>,
}

/// A program inside a job of a connected node. Dropping it ends the program.
pub struct RemoteProgram {
    connections: Arc<LinkConnections>,
    stream: u64,
}

/// A connection whose agent was greeted. Dropping it closes the line.
pub struct OpenLine {
    connections: Arc<LinkConnections>,
    node: NodeId,
    enrolment: String,
    number: u64,
    notify: Arc<Notify>,
}

impl LinkConnections {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the line of a node whose agent was authenticated.
    pub fn open(
        self: &Arc<LinkConnections>,
        node: NodeId,
        hello: &v1::AgentHello,
        greeting: v1::ServerHello,
    ) -> Result<OpenLine, v1::Goodbye> {
        let mut inner = self.lock();
        let opened = inner.switchboard.open(hello, greeting)?;
        inner.wake(opened.replaced);
        let number = opened.number;
        let notify = inner.wakers.entry(number).or_default().clone();
        notify.notify_one(); // The greeting.
        Ok(OpenLine { connections: self.clone(), node, enrolment: hello.enrolment.clone(), number, notify })
    }

    /// Closes the lines that `check` refuses, with the last frames that it returns.
    pub fn close_refused(&self, check: impl Fn(ConnectedAgent<'_>) -> Result<(), Vec<v1::ServerFrame>>) {
        let mut inner = self.lock();
        let closed = inner.switchboard.close_refused(check);
        closed.into_iter().for_each(|line| inner.wake(Some(line)));
    }

    pub fn deliver_orders(&self, orders: Orders) {
        let mut inner = self.lock();
        let line = inner.switchboard.deliver_orders(orders);
        inner.wake(line);
    }

    pub fn acknowledge_heartbeat(&self, echo: &HeartbeatEcho) {
        let mut inner = self.lock();
        let line = inner.switchboard.acknowledge_heartbeat(&echo.node, echo.sent_at_boot_ms);
        inner.wake(line);
    }

    /// Asks an agent for a part of a log.
    pub fn request_log(&self, node: &str, mut read: v1::LogRead) -> Result<oneshot::Receiver<v1::LogChunk>, LineError> {
        let mut inner = self.lock();
        // Readers that gave up leave their requests behind.
        inner.log_requests.retain(|_, request| !request.reply.is_closed());
        let line = inner.switchboard.number_of(node).ok_or(LineError::NotConnected)?;
        if inner.log_requests.values().filter(|request| request.line == line).count() >= LOG_READS_MAX {
            return Err(LineError::Busy);
        }
        inner.log_requests_made += 1;
        read.request = inner.log_requests_made;
        inner.switchboard.request_log(node, read)?;
        let (reply, answer) = oneshot::channel();
        let request = inner.log_requests_made;
        inner.log_requests.insert(request, PendingLogRead { line, reply });
        inner.wake(Some(line));
        Ok(answer)
    }

    /// Starts a program inside a job of a node.
    pub fn open_program(
        self: &Arc<LinkConnections>,
        node: &str,
        order: &ExecOrder,
    ) -> Result<(RemoteProgram, mpsc::Receiver<ExecMessage>), LineError> {
        let mut inner = self.lock();
        let line = inner.switchboard.number_of(node).ok_or(LineError::NotConnected)?;
        let stream = inner.exec_streams.open(line, muster_json::to_string(order))?;
        let (sender, messages) = mpsc::channel(PROGRAM_MESSAGES_MAX);
        inner.exec_readers.insert(stream, sender);
        inner.wake(Some(line));
        Ok((RemoteProgram { connections: self.clone(), stream }, messages))
    }

    /// Number of connected agents.
    pub fn count(&self) -> usize {
        self.lock().switchboard.connected().count()
    }

    pub fn disconnected_at(&self, node: &NodeId) -> Option<Timestamp> {
        self.lock().disconnected_at.get(node).copied()
    }
}

impl ProgramInput for RemoteProgram {
    fn take(&self, message: ExecMessage) {
        let mut inner = self.connections.lock();
        match inner.exec_streams.send(self.stream, message) {
            Ok(line) => inner.wake(Some(line)),
            Err(_) => inner.close_stream(self.stream),
        }
    }
}

impl Drop for RemoteProgram {
    fn drop(&mut self) {
        self.connections.lock().close_stream(self.stream);
    }
}

impl Inner {
    /// Ends a program inside a job; the caller that reads its output receives the end.
    fn close_stream(&mut self, stream: u64) {
        self.exec_readers.remove(&stream);
        let line = self.exec_streams.close(stream);
        self.wake(line);
    }

    fn wake(&self, line: Option<u64>) {
        let waker = line.and_then(|line| self.wakers.get(&line));
        waker.into_iter().for_each(|waker| waker.notify_one());
    }
}

impl OpenLine {
    pub fn node(&self) -> &str {
        self.node.as_str()
    }

    pub fn enrolment(&self) -> &str {
        &self.enrolment
    }

    /// False once the line was closed for another one, or because the node was removed.
    pub fn is_open(&self) -> bool {
        self.connections.lock().switchboard.is_open(self.node.as_str(), self.number)
    }

    /// Closes the line with a goodbye.
    pub fn dismiss(&self, goodbye: v1::Goodbye) {
        let mut inner = self.connections.lock();
        inner.switchboard.dismiss(self.node.as_str(), self.number, goodbye);
        inner.wake(Some(self.number));
    }

    /// Waits for the next frames. Cancel safe.
    pub async fn next_frames(&self) -> NextFrames {
        loop {
            self.notify.notified().await;
            let mut inner = self.connections.lock();
            match inner.switchboard.next_frames(self.node.as_str(), self.number) {
                NextFrames::Frames(mut frames) => {
                    // A few at a time: orders and echoes of heartbeats do not wait for the input of programs.
                    let of_programs = inner.exec_streams.take_frames(self.number, PROGRAM_FRAMES_AT_A_TIME);
                    frames.extend(of_programs.into_iter().map(exec_frame));
                    if inner.exec_streams.has_frames(self.number) {
                        self.notify.notify_one();
                    }
                    if !frames.is_empty() {
                        return NextFrames::Frames(frames);
                    }
                }
                last @ NextFrames::Last(_) => return last,
            }
        }
    }

    /// The reports up to this sequence number were received.
    pub fn note_received(&self, sequence: u64) {
        let mut inner = self.connections.lock();
        inner.switchboard.note_received(self.node.as_str(), self.number, sequence);
        inner.wake(Some(self.number));
    }

    /// The agent answered a request for a log. Answers to requests of other lines are ignored.
    pub fn answer_log(&self, chunk: v1::LogChunk) {
        let mut inner = self.connections.lock();
        let is_own = inner.log_requests.get(&chunk.request).is_some_and(|request| request.line == self.number);
        if let Some(request) = is_own.then(|| inner.log_requests.remove(&chunk.request)).flatten() {
            // A failed send means that the reader gave up.
            drop(request.reply.send(chunk));
        }
    }

    /// The agent sent a message of a program. What belongs to no program of this connection is ignored.
    pub fn take_exec(&self, frame: v1::ExecFrame) {
        let mut inner = self.connections.lock();
        let stream = frame.stream;
        let Some((_, message)) = inner.exec_streams.receive(self.number, frame) else { return };
        let has_ended = matches!(message, ExecMessage::Ended(_));
        let sent = inner.exec_readers.get(&stream).map(|reader| reader.try_send(message));
        // The window bounds what waits for a reader.
        if has_ended || !matches!(sent, Some(Ok(()))) {
            inner.close_stream(stream);
        }
    }

    /// Notes when the connection ended, for messages about the node.
    pub fn note_end(&self, at: Timestamp) {
        self.connections.lock().disconnected_at.insert(self.node.clone(), at);
    }
}

impl Drop for OpenLine {
    fn drop(&mut self) {
        let mut inner = self.connections.lock();
        inner.switchboard.close(self.node.as_str(), self.number);
        inner.wakers.remove(&self.number);
        // Dropping the senders tells the readers.
        inner.log_requests.retain(|_, request| request.line != self.number);
        for stream in inner.exec_streams.close_line(self.number) {
            inner.exec_readers.remove(&stream);
        }
    }
}

fn exec_frame(frame: v1::ExecFrame) -> v1::ServerFrame {
    v1::ServerFrame { body: Some(v1::server_frame::Body::Exec(frame)) }
}
