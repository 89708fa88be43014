//! Log following: prints the stdout and stderr of the selected tasks of a job as they arrive.
//!
//! The offset of each stream is kept, so that following resumes after a restart of the server without gaps or repeats.

use std::collections::BTreeMap;
use std::io::Write;

use muster_core::JobId;
use muster_protocol::job::LogPiece;
use muster_protocol::problem::Problem;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::client::{Client, EventStream, RequestTarget, SseEvent, stream_error};
use crate::error::CliError;
use crate::jobs;
use crate::waiter::{WaitOutcome, Waiter};

/// Capacity of the channel from the streams to the printer.
const BUFFERED_PIECES_MAX: usize = 16;
const STREAMS: [&str; 2] = ["stdout", "stderr"];

#[derive(Debug, Clone)]
pub struct LogSelection {
    pub job: JobId,
    pub attempt: u32,
    pub ranks: Vec<u32>,
}

/// The position in each stream.
#[derive(Debug, Default)]
pub struct LogTail {
    /// Bytes printed, by attempt, rank and stream.
    offsets: BTreeMap<(u32, u32, &'static str), u64>,
    /// Text after the last newline, by rank and stream; kept only if lines get a prefix.
    partial_lines: BTreeMap<(u32, String), String>,
}

impl LogTail {
    /// Prints the output so far, without waiting for more.
    pub fn print_available(&mut self, client: &Client, wanted: &LogSelection) -> Result<(), CliError> {
        for (rank, stream) in selected_streams(wanted) {
            loop {
                let piece: LogPiece = client.get(self.target(wanted, rank, stream))?;
                let finished = piece.complete || piece.next_offset == piece.offset;
                self.print_piece(wanted, piece)?;
                if finished {
                    break;
                }
            }
        }
        self.print_partial_lines()
    }

    /// Prints the output until the attempt ends, the server closes the streams, Ctrl-C or the deadline.
    pub fn follow(
        &mut self,
        client: &Client,
        wanted: &LogSelection,
        waiter: &mut Waiter,
    ) -> Result<WaitOutcome<()>, CliError> {
        if wanted.attempt == 0 {
            return Ok(WaitOutcome::Ready(())); // The job never ran.
        }
        let mut pieces = self.open_streams(client, wanted)?;
        loop {
            match waiter.wait_for(pieces.recv()) {
                WaitOutcome::Ready(Some(piece)) => self.print_piece(wanted, piece?)?,
                WaitOutcome::Ready(None) => return self.print_partial_lines().map(WaitOutcome::Ready),
                WaitOutcome::Interrupted => return Ok(WaitOutcome::Interrupted),
                WaitOutcome::TimedOut => return Ok(WaitOutcome::TimedOut),
            }
        }
    }

    fn open_streams(
        &self,
        client: &Client,
        wanted: &LogSelection,
    ) -> Result<Receiver<Result<LogPiece, CliError>>, CliError> {
        let (sender, receiver) = channel(BUFFERED_PIECES_MAX);
        for (rank, stream) in selected_streams(wanted) {
            let stream = client.open_event_stream(self.target(wanted, rank, stream).query("follow", true))?;
            client.spawn(forward_pieces(stream, sender.clone()));
        }
        Ok(receiver)
    }

    fn target(&self, wanted: &LogSelection, rank: u32, stream: &'static str) -> RequestTarget {
        let offset = self.offsets.get(&(wanted.attempt, rank, stream)).copied().unwrap_or(0);
        jobs::job_target(wanted.job)
            .segment("logs")
            .query("attempt", wanted.attempt)
            .query("rank", rank)
            .query("stream", stream)
            .query("offset", offset)
    }

    fn print_piece(&mut self, wanted: &LogSelection, piece: LogPiece) -> Result<(), CliError> {
        let stream = if piece.stream == STREAMS[1] { STREAMS[1] } else { STREAMS[0] };
        self.offsets.insert((piece.attempt, piece.rank, stream), piece.next_offset);
        if wanted.ranks.len() == 1 {
            return write_stream(stream, &piece.text);
        }
        let pending = self.partial_lines.entry((piece.rank, stream.to_string())).or_default();
        pending.push_str(&piece.text);
        let complete = pending.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = pending.drain(..complete).collect();
        write_stream(stream, &with_rank(piece.rank, &lines))
    }

    /// Prints last lines that have no newline.
    fn print_partial_lines(&mut self) -> Result<(), CliError> {
        for ((rank, stream), text) in std::mem::take(&mut self.partial_lines) {
            write_stream(&stream, &with_rank(rank, &text))?;
        }
        Ok(())
    }
}

fn selected_streams(wanted: &LogSelection) -> impl Iterator<Item = (u32, &'static str)> + '_ {
    wanted.ranks.iter().flat_map(|rank| STREAMS.map(|stream| (*rank, stream)))
}

/// A broken stream ends like a complete one: the caller fetches the job next and follows again if it still runs.
async fn forward_pieces(mut stream: EventStream, to: Sender<Result<LogPiece, CliError>>) {
    while let Ok(Some(message)) = stream.next().await {
        let last = message.event != "piece";
        if to.send(parse_piece(&message)).await.is_err() || last {
            return;
        }
    }
}

fn parse_piece(message: &SseEvent) -> Result<LogPiece, CliError> {
    if message.event == "problem" {
        let problem: Problem = muster_json::from_str(&message.data).map_err(unexpected_message)?;
        return Err(stream_error(problem));
    }
    muster_json::from_str(&message.data).map_err(unexpected_message)
}

fn unexpected_message(error: muster_json::JsonError) -> CliError {
    CliError::failed(format!("the server sent an unreadable log piece: {error}"))
}

/// Prefixes each line with its rank.
fn with_rank(rank: u32, text: &str) -> String {
    text.lines().map(|line| format!("[{rank}] {line}\n")).collect()
}

fn write_stream(stream: &str, text: &str) -> Result<(), CliError> {
    if stream == STREAMS[1] {
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    crate::output::print_stdout(text)
}
