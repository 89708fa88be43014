//! The programs inside jobs whose bytes travel over the connections of agents. Pure: no network, no clock.
//!
//! Both directions of each stream are bounded by a window (`muster_protocol::exec`), so a flood needs a bounded amount of
//! memory, and the frames of streams wait behind orders and echoes of heartbeats.

use std::collections::{BTreeMap, VecDeque};

use muster_protocol::exec::{ExecMessage, WINDOW_BYTES};
use muster_wire::exec_frames;
use muster_wire::v1::{self, exec_frame};

use super::switchboard::LineError;

/// Programs on one connection. The agent has a limit of its own for its node.
const STREAMS_PER_LINE_MAX: usize = 64;
/// Frames of one stream that wait for its agent. Their data is bounded by the window; a flood of frames without data ends
/// its own stream only.
const QUEUED_FRAMES_PER_STREAM_MAX: usize = 4_096;

/// The streams of all connections.
#[derive(Debug, Default)]
pub struct ExecStreams {
    streams: BTreeMap<u64, ExecWindows>,
    opened: u64,
    /// Frames for each connection.
    queues: BTreeMap<u64, VecDeque<v1::ExecFrame>>,
}

#[derive(Debug)]
struct ExecWindows {
    line: u64,
    /// What the person may still send.
    input: i64,
    /// What the agent may still send.
    output: i64,
    queued_frames: usize,
}

impl ExecStreams {
    /// Opens a stream on a connection; `order` is the order in JSON.
    pub fn open(&mut self, line: u64, order: String) -> Result<u64, LineError> {
        if self.streams.values().filter(|stream| stream.line == line).count() >= STREAMS_PER_LINE_MAX {
            return Err(LineError::Busy);
        }
        self.opened += 1;
        self.streams.insert(self.opened, ExecWindows { line, input: 0, output: WINDOW_BYTES.into(), queued_frames: 0 });
        self.queue(line, v1::ExecFrame { stream: self.opened, body: Some(exec_frame::Body::Open(order)) })?;
        Ok(self.opened)
    }

    /// Queues a message for the program and returns the connection to wake. An error if the stream is closed, or if the
    /// person has sent more than was granted.
    pub fn send(&mut self, stream: u64, message: ExecMessage) -> Result<u64, LineError> {
        let windows = self.streams.get_mut(&stream).ok_or(LineError::NotConnected)?;
        windows.input -= i64::from(message.cost());
        if windows.input < 0 {
            return Err(LineError::Busy);
        }
        if let ExecMessage::Credit(bytes) = message {
            windows.output = granted(windows.output, bytes);
        }
        let line = windows.line;
        self.queue(line, exec_frames::to_frame(stream, message))?;
        Ok(line)
    }

    /// Takes a message of the agent. `None` if it belongs to no stream of its connection, or exceeds the window.
    pub fn receive(&mut self, line: u64, frame: v1::ExecFrame) -> Option<(u64, ExecMessage)> {
        let stream = frame.stream;
        let windows = self.streams.get_mut(&stream).filter(|stream| stream.line == line)?;
        let message = exec_frames::to_message(frame)?;
        windows.output -= i64::from(message.cost());
        if windows.output < 0 {
            return None;
        }
        if let ExecMessage::Credit(bytes) = message {
            windows.input = granted(windows.input, bytes);
        }
        Some((stream, message))
    }

    /// Closes a stream, and tells the agent. Returns the connection to wake.
    pub fn close(&mut self, stream: u64) -> Option<u64> {
        let line = self.streams.remove(&stream)?.line;
        let queue = self.queues.entry(line).or_default();
        queue.retain(|frame| frame.stream != stream);
        queue.push_back(v1::ExecFrame { stream, body: Some(exec_frame::Body::Close(true)) });
        Some(line)
    }

    /// The connection ended. Returns its streams.
    pub fn close_line(&mut self, line: u64) -> Vec<u64> {
        self.queues.remove(&line);
        let closed: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| stream.line == line).map(|(id, _)| *id).collect();
        self.streams.retain(|_, stream| stream.line != line);
        closed
    }

    /// Takes up to this many frames that wait for a connection, in their order.
    pub fn take_frames(&mut self, line: u64, frames_max: usize) -> Vec<v1::ExecFrame> {
        let Some(queue) = self.queues.get_mut(&line) else { return Vec::new() };
        let frames: Vec<v1::ExecFrame> = queue.drain(..queue.len().min(frames_max)).collect();
        for frame in &frames {
            if let Some(stream) = self.streams.get_mut(&frame.stream) {
                stream.queued_frames -= 1;
            }
        }
        frames
    }

    pub fn has_frames(&self, line: u64) -> bool {
        self.queues.get(&line).is_some_and(|queue| !queue.is_empty())
    }

    fn queue(&mut self, line: u64, frame: v1::ExecFrame) -> Result<(), LineError> {
        let stream = self.streams.get_mut(&frame.stream).ok_or(LineError::NotConnected)?;
        if stream.queued_frames >= QUEUED_FRAMES_PER_STREAM_MAX {
            return Err(LineError::Busy);
        }
        stream.queued_frames += 1;
        self.queues.entry(line).or_default().push_back(frame);
        Ok(())
    }
}

/// A window after its reader has taken some bytes. Never more than the whole window, whatever the reader says: what waits
/// for a reader that does not read is bounded by it.
fn granted(window: i64, bytes: u32) -> i64 {
    (window + i64::from(bytes)).min(WINDOW_BYTES.into())
}

#[cfg(test)]
mod tests {
    use muster_protocol::exec::{DATA_OVERHEAD_BYTES, ExecStream};

    use super::*;

    const LINE: u64 = 7;

    fn input(bytes: usize) -> ExecMessage {
        ExecMessage::Data { stream: ExecStream::Input, bytes: vec![0; bytes] }
    }

    fn output(stream: u64, bytes: usize) -> v1::ExecFrame {
        exec_frames::to_frame(stream, ExecMessage::Data { stream: ExecStream::Output, bytes: vec![0; bytes] })
    }

    fn open() -> (ExecStreams, u64) {
        let mut streams = ExecStreams::default();
        let stream = streams.open(LINE, "{}".to_string()).unwrap();
        assert_eq!(streams.take_frames(LINE, 9).len(), 1);
        (streams, stream)
    }

    #[test]
    fn a_person_sends_only_what_the_program_takes() {
        let (mut streams, stream) = open();
        assert_eq!(streams.send(stream, input(1)), Err(LineError::Busy), "nothing is granted yet");
        let (mut streams, stream) = open();
        streams.receive(LINE, exec_frames::to_frame(stream, ExecMessage::Credit(1_000))).unwrap();
        assert_eq!(streams.send(stream, input(1_000 - DATA_OVERHEAD_BYTES as usize)), Ok(LINE));
        assert_eq!(streams.send(stream, input(0)), Err(LineError::Busy));
    }

    #[test]
    fn an_agent_sends_only_what_the_person_takes() {
        let (mut streams, stream) = open();
        let mut sent = 0_u32;
        while streams.receive(LINE, output(stream, 1)).is_some() {
            sent += 1;
        }
        assert_eq!(sent, WINDOW_BYTES / (1 + DATA_OVERHEAD_BYTES));
        let (mut streams, stream) = open();
        for _ in 0..1_000 {
            assert!(streams.receive(LINE, output(stream, 32 << 10)).is_some());
            streams.send(stream, ExecMessage::Credit((32 << 10) + DATA_OVERHEAD_BYTES)).unwrap();
        }
    }

    #[test]
    fn an_agent_cannot_grant_more_than_the_window() {
        let (mut streams, stream) = open();
        for _ in 0..3 {
            streams.receive(LINE, exec_frames::to_frame(stream, ExecMessage::Credit(u32::MAX))).unwrap();
        }
        assert_eq!(streams.send(stream, input(WINDOW_BYTES as usize)), Err(LineError::Busy));
        let (mut streams, stream) = open();
        streams.send(stream, ExecMessage::Credit(u32::MAX)).unwrap();
        assert_eq!(streams.receive(LINE, output(stream, WINDOW_BYTES as usize)), None);
    }

    #[test]
    fn a_flood_of_frames_without_data_ends_its_own_stream_only() {
        let (mut streams, stream) = open();
        let other = streams.open(LINE, "{}".to_string()).unwrap();
        let mut sent = 0;
        while streams.send(stream, ExecMessage::Resize { rows: 1, columns: 1 }).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, QUEUED_FRAMES_PER_STREAM_MAX);
        assert_eq!(streams.send(other, ExecMessage::EndOfInput), Ok(LINE));
        assert_eq!(streams.take_frames(LINE, 10).len(), 10);
        assert!(streams.send(stream, ExecMessage::EndOfInput).is_ok(), "some were read");
    }

    #[test]
    fn frames_of_other_connections_and_closed_streams_are_ignored() {
        let (mut streams, stream) = open();
        assert_eq!(streams.receive(LINE + 1, output(stream, 1)), None);
        assert_eq!(streams.close(stream), Some(LINE));
        assert_eq!(streams.receive(LINE, output(stream, 1)), None);
        assert_eq!(streams.send(stream, ExecMessage::EndOfInput), Err(LineError::NotConnected));
        let told = streams.take_frames(LINE, 9);
        assert!(matches!(told[..], [v1::ExecFrame { body: Some(exec_frame::Body::Close(_)), .. }]));
        assert!(!streams.has_frames(LINE));
    }

    #[test]
    fn the_end_of_a_connection_closes_its_streams_only() {
        let (mut streams, stream) = open();
        let other = streams.open(LINE + 1, String::new()).unwrap();
        assert_eq!(streams.close_line(LINE), [stream]);
        assert_eq!(streams.close(stream), None);
        assert!(streams.send(other, ExecMessage::EndOfInput).is_ok());
        let opened = (0..100).filter(|_| streams.open(LINE, String::new()).is_ok()).count();
        assert_eq!(opened, STREAMS_PER_LINE_MAX);
    }
}
