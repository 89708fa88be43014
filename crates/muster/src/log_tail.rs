//! The output of a job: what there is, or followed as it arrives.
//!
//! The offset of each stream is kept, so that following resumes without gaps or repeats after the server was gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_core::JobId;
use muster_protocol::job::LogPiece;
use muster_protocol::problem::Problem;
use regex::bytes::Regex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::client::{Client, EventStream, RequestTarget, SseEvent, stream_error};
use crate::error::CliError;
use crate::jobs;
use crate::log_lines::{LinePrinter, OutputStream};
use crate::output;
use crate::waiter::{WaitOutcome, Waiter};

/// Pauses between two attempts to reach a server that is gone.
const RECONNECT_PAUSE_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long the server may be gone: longer than a restart or a takeover with its lease.
const SERVER_GONE_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub struct LogSelection {
    pub job: JobId,
    pub attempt: u32,
    pub ranks: Vec<u32>,
    pub streams: Vec<OutputStream>,
}

impl LogSelection {
    fn keys(&self) -> impl Iterator<Item = StreamKey> + '_ {
        self.ranks.iter().flat_map(|rank| self.streams.iter().map(|stream| (*rank, *stream)))
    }
}

/// A rank and one of its streams.
type StreamKey = (u32, OutputStream);

/// What to print, and how.
#[derive(Debug, Clone, Default)]
pub struct TailOptions {
    /// Start this many lines before the end instead of at the start.
    pub tail: Option<u32>,
    /// Start with the output since this time, in Unix milliseconds.
    pub since_ms: Option<i64>,
    /// Only lines that match are printed.
    pub filter: Option<Regex>,
    /// Do not say on standard error when the server or a node is gone.
    pub quiet: bool,
}

/// The position in each stream.
#[derive(Debug)]
pub struct LogTail {
    tail: Option<u32>,
    since_ms: Option<i64>,
    quiet: bool,
    /// Bytes printed, by attempt and stream.
    offsets: BTreeMap<(u32, StreamKey), u64>,
    printer: LinePrinter,
}

impl LogTail {
    pub fn new(options: TailOptions) -> LogTail {
        let TailOptions { tail, since_ms, filter, quiet } = options;
        LogTail { tail, since_ms, quiet, offsets: BTreeMap::new(), printer: LinePrinter::new(filter) }
    }

    /// Prints the output so far, without waiting for more.
    pub fn print_available(&mut self, client: &Client, wanted: &LogSelection) -> Result<(), CliError> {
        self.printer.with_rank = wanted.ranks.len() > 1;
        for key in wanted.keys() {
            loop {
                let target = self.target(wanted, key).query("format", "raw");
                let piece = client.get_log_piece(target)?;
                self.note_skipped(key, piece.skipped_bytes);
                self.offsets.insert((wanted.attempt, key), piece.next_offset);
                self.printer.print(key.0, key.1, &piece.bytes)?;
                if piece.complete || piece.bytes.is_empty() {
                    break;
                }
            }
        }
        self.printer.finish()
    }

    /// Prints the output until the attempt ends, Ctrl-C or the deadline. While the server is gone, it waits and then
    /// reads on.
    pub fn follow(
        &mut self,
        client: &Client,
        wanted: &LogSelection,
        waiter: &mut Waiter,
    ) -> Result<WaitOutcome<()>, CliError> {
        if wanted.attempt == 0 {
            return Ok(WaitOutcome::Ready(())); // The job never ran.
        }
        self.printer.with_rank = wanted.ranks.len() > 1;
        let mut unfinished: BTreeSet<StreamKey> = wanted.keys().collect();
        let mut stream = None;
        let mut outage = Outage::new(self.quiet);
        while !unfinished.is_empty() {
            if stream.is_none() && outage.may_connect() {
                match client.open_event_stream(self.follow_target(wanted, &unfinished)) {
                    Ok(opened) => stream = Some(opened),
                    Err(error) => outage.note_failure(error)?,
                }
            }
            match waiter.wait_for(next_event(stream.as_mut(), outage.retry_at)) {
                WaitOutcome::Ready(Some(event)) => match self.handle_event(wanted, &mut unfinished, &event) {
                    Ok(()) => outage.end(),
                    Err(error) => {
                        stream = None;
                        outage.note_failure(error)?;
                    }
                },
                WaitOutcome::Ready(None) => {
                    if stream.take().is_some() {
                        outage.note_break();
                    }
                }
                WaitOutcome::Interrupted => return Ok(WaitOutcome::Interrupted),
                WaitOutcome::TimedOut => return Ok(WaitOutcome::TimedOut),
            }
        }
        self.printer.finish().map(WaitOutcome::Ready)
    }

    /// The output of a stream from where it was left.
    fn target(&self, wanted: &LogSelection, key: StreamKey) -> RequestTarget {
        let target = attempt_target(wanted).query("rank", key.0).query("stream", key.1.as_str());
        match self.offsets.get(&(wanted.attempt, key)) {
            None => self.with_start(target),
            Some(offset) => target.query("offset", offset),
        }
    }

    /// All these streams from where they were left.
    fn follow_target(&self, wanted: &LogSelection, keys: &BTreeSet<StreamKey>) -> RequestTarget {
        let names = keys.iter().map(|key| {
            let (rank, stream) = (key.0, key.1.as_str());
            match self.offsets.get(&(wanted.attempt, *key)) {
                Some(offset) => format!("{rank}.{stream}:{offset}"),
                None => format!("{rank}.{stream}"),
            }
        });
        let streams: Vec<String> = names.collect();
        self.with_start(attempt_target(wanted).query("follow", true).query("streams", streams.join(",")))
    }

    /// For streams that were not read yet.
    fn with_start(&self, target: RequestTarget) -> RequestTarget {
        target.query_if_some("tail", self.tail).query_if_some("since_ms", self.since_ms)
    }

    fn handle_event(
        &mut self,
        wanted: &LogSelection,
        unfinished: &mut BTreeSet<StreamKey>,
        event: &SseEvent,
    ) -> Result<(), CliError> {
        match event.event.as_str() {
            "problem" => Err(stream_error(parse_data(event)?)),
            "notice" => {
                let problem: Problem = parse_data(event)?;
                if !self.quiet {
                    output::print_stderr(&format!("muster: {}; the output continues when it is back", problem.detail));
                }
                Ok(())
            }
            name => {
                let piece: LogPiece = parse_data(event)?;
                let key = (piece.rank, OutputStream::parse(&piece.stream));
                if name == "end" {
                    unfinished.remove(&key);
                }
                self.print_piece(wanted, key, piece)
            }
        }
    }

    fn print_piece(&mut self, wanted: &LogSelection, key: StreamKey, piece: LogPiece) -> Result<(), CliError> {
        self.note_skipped(key, piece.skipped_bytes);
        self.offsets.insert((wanted.attempt, key), piece.next_offset);
        match &piece.base64 {
            None => self.printer.print(key.0, key.1, piece.text.as_bytes()),
            Some(encoded) => {
                let bytes = STANDARD.decode(encoded).map_err(|error| unreadable_piece(&error))?;
                self.printer.print(key.0, key.1, &bytes)
            }
        }
    }

    fn note_skipped(&self, (rank, stream): StreamKey, bytes: u64) {
        if bytes > 0 {
            let stream = stream.as_str();
            output::print_stderr(&format!(
                "muster: {bytes} bytes of the {stream} of rank {rank} discarded: only the end of a large output is kept"
            ));
        }
    }
}

fn attempt_target(wanted: &LogSelection) -> RequestTarget {
    jobs::job_target(wanted.job).segment("logs").query("attempt", wanted.attempt)
}

/// The next event; `None` if the stream is broken, or if there is none and it is time to open one.
async fn next_event(stream: Option<&mut EventStream>, retry_at: Option<Instant>) -> Option<SseEvent> {
    match (stream, retry_at) {
        (Some(stream), _) => stream.next().await.ok().flatten(),
        (None, Some(retry_at)) => {
            tokio::time::sleep_until(retry_at).await;
            None
        }
        (None, None) => None,
    }
}

fn parse_data<T: DeserializeOwned>(event: &SseEvent) -> Result<T, CliError> {
    muster_json::from_str(&event.data).map_err(|error| unreadable_piece(&error))
}

fn unreadable_piece(error: &dyn std::fmt::Display) -> CliError {
    CliError::failed(format!("the server sent an unreadable log piece: {error}"))
}

/// A time without server: said once, with growing pauses between the attempts to connect, and not endless.
struct Outage {
    quiet: bool,
    /// When an attempt to connect failed first.
    since: Option<Instant>,
    pause: Duration,
    /// No attempt before this time.
    retry_at: Option<Instant>,
}

impl Outage {
    fn new(quiet: bool) -> Outage {
        Outage { quiet, since: None, pause: RECONNECT_PAUSE_FIRST, retry_at: None }
    }

    fn may_connect(&self) -> bool {
        self.retry_at.is_none_or(|retry_at| retry_at <= Instant::now())
    }

    /// The stream broke: a server that accepts connections and drops them must not be asked without a pause.
    fn note_break(&mut self) {
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(RECONNECT_PAUSE_MAX);
    }

    /// An attempt to connect failed. Returns the error if another attempt is of no use.
    fn note_failure(&mut self, error: CliError) -> Result<(), CliError> {
        if !error.is_transient || self.since.is_some_and(|since| since.elapsed() > SERVER_GONE_MAX) {
            return Err(error);
        }
        let is_first = self.since.is_none();
        self.since.get_or_insert_with(Instant::now);
        if is_first && !self.quiet {
            output::print_stderr(&format!("muster: {}; the output continues when it answers again", error.message));
        }
        self.note_break();
        Ok(())
    }

    /// A message arrived.
    fn end(&mut self) {
        *self = Outage::new(self.quiet);
    }
}
