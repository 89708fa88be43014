//! The output of one task of one attempt: the node that holds it, and parts of it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_agent::logs::Stream;
use muster_core::{Event, JobId, NodeId, Timestamp};
use muster_protocol::job::LogPiece;
use muster_store::Tables;
use muster_store::rows::JobRow;

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::job_lookup::parse_event;
use crate::log_source::{LogBytes, LogError, LogRequest, LogSource};

/// Largest piece.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Bytes read at a time, backwards, to find the start of the last lines.
const TAIL_STEP_BYTES: u64 = 64 << 10;
/// Bytes searched for the start of the last lines: lines without end must not make a small request read a whole log.
const TAIL_BYTES_MAX: u64 = 16 << 20;

/// One stream of one task of one attempt.
#[derive(Debug, Clone)]
pub struct TaskOutput {
    pub job: JobId,
    attempt: u32,
    rank: u32,
    stream: Stream,
    holder: Holder,
}

/// Where the output is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    /// The attempt has not been placed yet.
    NotPlaced,
    /// The gang has no task of this rank, so there is no output.
    NoTask,
    Node(NodeId),
}

/// The nodes of an attempt.
pub enum Placement {
    NotPlaced,
    OneNode(NodeId),
    /// By rank.
    Nodes(BTreeMap<u32, NodeId>),
}

impl Placement {
    fn holder(&self, rank: u32) -> Holder {
        match self {
            Placement::NotPlaced => Holder::NotPlaced,
            Placement::OneNode(node) => Holder::Node(node.clone()),
            Placement::Nodes(nodes) => nodes.get(&rank).map_or(Holder::NoTask, |node| Holder::Node(node.clone())),
        }
    }
}

/// Bytes of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPart {
    pub bytes: Vec<u8>,
    /// Where `bytes` starts.
    pub offset: u64,
    /// Requested bytes before `offset` that no longer exist.
    pub skipped_bytes: u64,
    pub size: u64,
    /// There will be no more output.
    pub complete: bool,
}

impl OutputPart {
    pub fn next_offset(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Whether the caller learns anything from it.
    pub fn has_news(&self) -> bool {
        !self.bytes.is_empty() || self.skipped_bytes > 0
    }
}

impl TaskOutput {
    pub fn new(job: JobId, attempt: u32, rank: u32, stream: Stream, placement: &Placement) -> TaskOutput {
        TaskOutput { job, attempt, rank, stream, holder: placement.holder(rank) }
    }

    /// Looks for the node that holds it, if the attempt had not been placed before.
    pub async fn locate(&mut self, app: &AppState) -> Result<(), ApiError> {
        if self.holder == Holder::NotPlaced {
            let (job, attempt) = (self.job, self.attempt);
            let placement = app.read_tables(move |tables| find_placement(tables, job, attempt)).await?;
            self.holder = placement.holder(self.rank);
        }
        Ok(())
    }

    /// Whether the attempt has ended, by the row of its job.
    pub fn has_ended_by(&self, row: &JobRow) -> bool {
        let active = matches!(row.phase.as_str(), "Starting" | "Running" | "Stopping");
        row.ended_at.is_some() || self.has_ended(row.attempt, active)
    }

    /// [`TaskOutput::has_ended_by`], by the state, or by the tables if this server is not the leader. A job that is in
    /// neither has ended.
    pub async fn has_ended_now(&self, app: &AppState) -> Result<bool, ApiError> {
        let by_state = app.read_state(|state| {
            let job = state.jobs.get(&self.job);
            job.is_none_or(|job| self.has_ended(job.attempts, job.attempt().is_some()))
        });
        if by_state.is_ok() {
            return by_state;
        }
        let job = self.job;
        let detail = app.read_tables(move |tables| Ok(tables.job(job)?)).await?;
        Ok(detail.is_none_or(|detail| self.has_ended_by(&detail.row)))
    }

    /// From the number of attempts, and whether the last of them is live.
    fn has_ended(&self, attempts: u32, active: bool) -> bool {
        self.attempt < attempts || (self.attempt == attempts && !active)
    }

    /// A part of up to 256 KiB. `ended` says that the attempt had ended before this call; otherwise the call waits up
    /// to `wait` for the first byte.
    pub async fn read(
        &self,
        logs: &dyn LogSource,
        offset: u64,
        ended: bool,
        wait: Duration,
    ) -> Result<OutputPart, LogError> {
        let wait = if ended { Duration::ZERO } else { wait };
        let LogBytes { bytes, offset: start, size } = self.read_bytes(logs, offset, PIECE_BYTES_MAX, wait).await?;
        let complete = ended && start + bytes.len() as u64 >= size;
        Ok(OutputPart { bytes, offset: start, skipped_bytes: start.saturating_sub(offset), size, complete })
    }

    async fn read_bytes(
        &self,
        logs: &dyn LogSource,
        offset: u64,
        bytes_max: usize,
        wait: Duration,
    ) -> Result<LogBytes, LogError> {
        match self.request(offset, bytes_max, wait) {
            Some(request) => logs.read(request).await,
            None => {
                tokio::time::sleep(wait).await;
                Ok(LogBytes { offset, ..LogBytes::default() })
            }
        }
    }

    /// `None` if no node has the output.
    fn request(&self, offset: u64, bytes_max: usize, wait: Duration) -> Option<LogRequest> {
        let Holder::Node(node) = self.holder.clone() else { return None };
        let TaskOutput { job, attempt, rank, stream, .. } = *self;
        Some(LogRequest { node, job, attempt, rank, stream, offset, since: None, bytes_max, wait })
    }

    /// The offset from which on all output since a time follows, with at most a few seconds of output before it.
    pub async fn since_offset(&self, logs: &dyn LogSource, since: Timestamp) -> Result<u64, LogError> {
        match self.request(0, 0, Duration::ZERO) {
            Some(request) => Ok(logs.read(LogRequest { since: Some(since), ..request }).await?.offset),
            None => Ok(0),
        }
    }

    /// The offset of the last `lines` lines. A last line without newline counts.
    pub async fn tail_offset(&self, logs: &dyn LogSource, lines: u32) -> Result<u64, LogError> {
        let size = self.read_bytes(logs, 0, 0, Duration::ZERO).await?.size;
        let floor = size.saturating_sub(TAIL_BYTES_MAX);
        let mut wanted = lines;
        let mut end = size;
        while wanted > 0 && end > floor {
            let start = end.saturating_sub(TAIL_STEP_BYTES).max(floor);
            let seen = self.read_bytes(logs, start, (end - start) as usize, Duration::ZERO).await?;
            match nth_last_line(&seen.bytes, end == size, &mut wanted) {
                Some(line) => return Ok(seen.offset + line as u64),
                None if seen.offset > start => return Ok(seen.offset), // The head of the log was removed up to here.
                None => end = start,
            }
        }
        Ok(end)
    }

    /// The part as people read it. While the attempt runs, an incomplete character at the end is left for the next
    /// part.
    pub fn log_piece(&self, mut part: OutputPart) -> LogPiece {
        if !part.complete {
            part.bytes.truncate(complete_utf8_len(&part.bytes));
        }
        let is_utf8 = std::str::from_utf8(&part.bytes).is_ok();
        LogPiece {
            job_id: self.job.to_string(),
            attempt: self.attempt,
            rank: self.rank,
            stream: match self.stream {
                Stream::Stdout => "stdout".to_string(),
                Stream::Stderr => "stderr".to_string(),
            },
            node: match &self.holder {
                Holder::Node(node) => Some(node.to_string()),
                Holder::NotPlaced | Holder::NoTask => None,
            },
            offset: part.offset,
            next_offset: part.next_offset(),
            size: part.size,
            skipped_bytes: part.skipped_bytes,
            complete: part.complete,
            text: String::from_utf8_lossy(&part.bytes).into_owned(),
            base64: (!is_utf8).then(|| STANDARD.encode(&part.bytes)),
        }
    }
}

/// The nodes of an attempt, from the tables, which have both live and ended attempts.
pub fn find_placement(tables: &dyn Tables, job: JobId, attempt: u32) -> Result<Placement, ApiError> {
    let Some(row) = tables.attempts(job)?.into_iter().find(|row| row.attempt == attempt) else {
        return Ok(Placement::NotPlaced);
    };
    if let [node] = row.nodes.as_slice() {
        let wrong = |_| ApiError::internal(format!("`{node}` is not the name of a node"));
        return node.parse().map(Placement::OneNode).map_err(wrong);
    }
    // Leases name the ranks of tasks with GPUs only; the journal entry that placed the attempt names all.
    let entries = tables.events(row.seq.saturating_sub(1), 1, None)?;
    let placed = entries.first().filter(|entry| entry.seq == row.seq).and_then(parse_event);
    let Some(Event::JobPlaced { tasks, .. }) = placed else {
        return Err(ApiError::internal(format!("journal entry {} does not place `{job}`", row.seq)));
    };
    Ok(Placement::Nodes(tasks.into_iter().map(|task| (task.rank, task.node)).collect()))
}

/// Where the wanted last line starts, if it starts in these bytes; else `wanted` is lowered by the lines that do. A
/// newline that is the last byte of the log ends its last line and starts none.
fn nth_last_line(bytes: &[u8], at_end: bool, wanted: &mut u32) -> Option<usize> {
    let searched = if at_end { bytes.len().saturating_sub(1) } else { bytes.len() };
    for (index, _) in bytes[..searched].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
        *wanted -= 1;
        if *wanted == 0 {
            return Some(index + 1);
        }
    }
    None
}

/// The length of the bytes without an incomplete UTF-8 character at the end, which the job may still be writing.
fn complete_utf8_len(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests;
