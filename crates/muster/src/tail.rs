//! The output of a job as it comes: every task, both streams, each to its place.
//!
//! A server that restarts ends the streams early. So where each one stands is kept, and following again goes on
//! from there.

use std::collections::BTreeMap;
use std::io::Write;

use muster_core::JobId;
use muster_protocol::job::LogPiece;
use muster_protocol::problem::Problem;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::client::{Client, Message, Stream, Target, stream_error};
use crate::error::CliError;
use crate::follow::{Came, Patience};
use crate::jobs;

/// Pieces that may wait to be printed.
const WAITING_MAX: usize = 16;
const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// Which output is wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Of which job.
    pub job: JobId,
    /// Of which attempt.
    pub attempt: u32,
    /// Of which tasks.
    pub ranks: Vec<u32>,
}

/// Where each stream of an attempt stands.
#[derive(Debug, Default)]
pub struct Tail {
    offsets: BTreeMap<(u32, u32, &'static str), u64>,
    /// Text that has not ended its line yet, by stream; only kept where lines get a prefix.
    begun: BTreeMap<(u32, String), String>,
}

impl Tail {
    /// Print what is there, without waiting for more.
    pub fn print_now(&mut self, client: &Client, wanted: &Wanted) -> Result<(), CliError> {
        for (rank, stream) in each(wanted) {
            loop {
                let piece: LogPiece = client.get(self.target(wanted, rank, stream))?;
                let finished = piece.complete || piece.next_offset == piece.offset;
                self.take(wanted, piece)?;
                if finished {
                    break;
                }
            }
        }
        self.flush()
    }

    /// Print what comes until the attempt ends, the server goes away, or the person has seen enough.
    pub fn follow(
        &mut self,
        client: &Client,
        wanted: &Wanted,
        patience: &mut Patience,
    ) -> Result<Came<()>, CliError> {
        if wanted.attempt == 0 {
            return Ok(Came::This(())); // It never ran.
        }
        let mut pieces = self.open(client, wanted)?;
        loop {
            match patience.wait_for(pieces.recv()) {
                Came::This(Some(piece)) => self.take(wanted, piece?)?,
                Came::This(None) => return self.flush().map(Came::This),
                Came::Interrupt => return Ok(Came::Interrupt),
                Came::Deadline => return Ok(Came::Deadline),
            }
        }
    }

    fn open(
        &self,
        client: &Client,
        wanted: &Wanted,
    ) -> Result<Receiver<Result<LogPiece, CliError>>, CliError> {
        let (sender, receiver) = channel(WAITING_MAX);
        for (rank, stream) in each(wanted) {
            let stream = client.follow(self.target(wanted, rank, stream).with("follow", true))?;
            client.spawn(pass_on(stream, sender.clone()));
        }
        Ok(receiver)
    }

    fn target(&self, wanted: &Wanted, rank: u32, stream: &'static str) -> Target {
        let offset = self.offsets.get(&(wanted.attempt, rank, stream)).copied().unwrap_or(0);
        jobs::target(wanted.job)
            .at("logs")
            .with("attempt", wanted.attempt)
            .with("rank", rank)
            .with("stream", stream)
            .with("offset", offset)
    }

    fn take(&mut self, wanted: &Wanted, piece: LogPiece) -> Result<(), CliError> {
        let stream = if piece.stream == STREAMS[1] { STREAMS[1] } else { STREAMS[0] };
        self.offsets.insert((piece.attempt, piece.rank, stream), piece.next_offset);
        if wanted.ranks.len() == 1 {
            return write(stream, &piece.text);
        }
        let begun = self.begun.entry((piece.rank, stream.to_string())).or_default();
        begun.push_str(&piece.text);
        let whole = begun.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = begun.drain(..whole).collect();
        write(stream, &with_rank(piece.rank, &lines))
    }

    /// Lines that were never ended.
    fn flush(&mut self) -> Result<(), CliError> {
        for ((rank, stream), text) in std::mem::take(&mut self.begun) {
            write(&stream, &with_rank(rank, &text))?;
        }
        Ok(())
    }
}

fn each(wanted: &Wanted) -> impl Iterator<Item = (u32, &'static str)> + '_ {
    wanted.ranks.iter().flat_map(|rank| STREAMS.map(|stream| (*rank, stream)))
}

/// A stream that breaks ends like one that is over: whoever follows looks at the job next, and knows.
async fn pass_on(mut stream: Stream, to: Sender<Result<LogPiece, CliError>>) {
    while let Ok(Some(message)) = stream.next().await {
        let last = message.event != "piece";
        if to.send(read(&message)).await.is_err() || last {
            return;
        }
    }
}

fn read(message: &Message) -> Result<LogPiece, CliError> {
    if message.event == "problem" {
        let problem: Problem = muster_json::from_str(&message.data).map_err(strange)?;
        return Err(stream_error(problem));
    }
    muster_json::from_str(&message.data).map_err(strange)
}

fn strange(error: muster_json::JsonError) -> CliError {
    CliError::failed(format!("the server sends something else than output: {error}"))
}

/// Each line says which task it is from.
fn with_rank(rank: u32, text: &str) -> String {
    text.lines().map(|line| format!("[{rank}] {line}\n")).collect()
}

fn write(stream: &str, text: &str) -> Result<(), CliError> {
    if stream == STREAMS[1] {
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    crate::output::print(text)
}
