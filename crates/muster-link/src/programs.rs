//! The programs inside attempts of this node that belong to one connection to the server.
//!
//! Their frames do not pass through the session: they wait in a queue of their own, behind reports and heartbeats, and a
//! program whose frames wait is blocked. When the connection ends, the programs end.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use muster_agent::exec::{ExecHost, ExecSession};
use muster_protocol::exec::{ExecEnd, ExecMessage, ExecOrder};
use muster_wire::exec_frames;
use muster_wire::v1::{self, agent_frame, exec_frame};
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Frames of programs between the programs and the network.
const FRAMES_MAX: usize = 8;

/// The programs of one connection. Dropping it ends them.
pub(crate) struct Programs {
    host: ExecHost,
    frames: mpsc::Sender<v1::AgentFrame>,
    sessions: BTreeMap<u64, ExecSession>,
}

impl Programs {
    /// With the queue of the frames that they send.
    pub fn new(host: ExecHost) -> (Programs, mpsc::Receiver<v1::AgentFrame>) {
        let (frames, queue) = mpsc::channel(FRAMES_MAX);
        (Programs { host, frames, sessions: BTreeMap::new() }, queue)
    }

    /// Takes a frame of the server. `ended` is called when the program is over, with its number.
    pub fn take(&mut self, frame: v1::ExecFrame, ended: impl Fn(u64) + Send + Sync + 'static) {
        let stream = frame.stream;
        match frame.body {
            Some(exec_frame::Body::Open(order)) => self.open(stream, &order, ended),
            Some(exec_frame::Body::Close(_)) => self.remove(stream),
            _ => {
                let session = self.sessions.get(&stream);
                session
                    .zip(exec_frames::to_message(frame))
                    .into_iter()
                    .for_each(|(session, message)| session.take(message));
            }
        }
    }

    /// The program is over, or the server wants it to be.
    pub fn remove(&mut self, stream: u64) {
        self.sessions.remove(&stream);
    }

    fn open(&mut self, stream: u64, order: &str, ended: impl Fn(u64) + Send + Sync + 'static) {
        let frames = self.frames.clone();
        let Ok(order) = muster_json::from_str::<ExecOrder>(order) else {
            let why = "the agent of the node cannot read the order; the server may be newer";
            // A full queue drops it, and the server gives up by itself.
            let _ = frames.try_send(agent_frame(stream, ExecMessage::Ended(ExecEnd::failed("exec-failed", why))));
            return;
        };
        // Called on threads of the session, which may block.
        let sink = move |message: ExecMessage| {
            let is_last = matches!(message, ExecMessage::Ended(_));
            let is_sent = frames.blocking_send(agent_frame(stream, message)).is_ok();
            if is_last {
                ended(stream);
            }
            is_sent
        };
        self.sessions.insert(stream, self.host.start(order, Arc::new(sink)));
    }
}

fn agent_frame(stream: u64, message: ExecMessage) -> v1::AgentFrame {
    v1::AgentFrame { body: Some(agent_frame::Body::Exec(exec_frames::to_frame(stream, message))) }
}

/// The frames that an agent sends: those of the session first.
pub(crate) struct OutgoingFrames {
    pub session: mpsc::Receiver<v1::AgentFrame>,
    pub programs: mpsc::Receiver<v1::AgentFrame>,
}

impl Stream for OutgoingFrames {
    type Item = v1::AgentFrame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<v1::AgentFrame>> {
        match self.session.poll_recv(context) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => match self.programs.poll_recv(context) {
                Poll::Ready(Some(frame)) => Poll::Ready(Some(frame)),
                // Without programs the connection goes on.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn heartbeats_overtake_the_output_of_programs() {
        let ((reports, session), (output, programs)) = (mpsc::channel(8), mpsc::channel(8));
        let data = || agent_frame(1, ExecMessage::EndOfInput);
        let report = v1::AgentFrame { body: Some(agent_frame::Body::Report(v1::Report::default())) };
        for _ in 0..5 {
            output.try_send(data()).unwrap();
        }
        reports.try_send(report.clone()).unwrap();
        let mut frames = OutgoingFrames { session, programs };
        assert_eq!(frames.next().await, Some(report.clone()));
        assert_eq!(frames.next().await, Some(data()));
        reports.try_send(report.clone()).unwrap();
        assert_eq!(frames.next().await, Some(report));
        drop(reports);
        assert_eq!(frames.next().await, None, "the session ends the connection");
    }
}
