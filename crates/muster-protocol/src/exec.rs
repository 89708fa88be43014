//! Programs that people run inside a running attempt, and the messages of their input and output.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Cost of a message with data besides its bytes: many small messages must not need more memory than a few large ones.
pub const DATA_OVERHEAD_BYTES: u32 = 128;
/// What either side may send before the other one has granted more.
pub const WINDOW_BYTES: u32 = 256 << 10;
/// Most bytes of one message.
pub const DATA_BYTES_MAX: usize = 32 << 10;

/// What to run inside a running job. The fields `command` and `copy` exclude each other; without both it is the login shell
/// of the job's user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecRequest {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Copy files instead of running a program.
    pub copy: Option<ExecCopy>,
    /// Inside the task of this rank; 0, or the first rank on `node`, when not given.
    pub rank: Option<u32>,
    /// Inside the task on this node.
    pub node: Option<String>,
    /// Give the program a terminal.
    pub terminal: Option<ExecTerminal>,
}

/// A copy out of a job or into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecCopy {
    /// Which way.
    pub direction: CopyDirection,
    /// In the file system of the job; relative to its working directory.
    pub path: String,
}

/// Which way files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CopyDirection {
    /// From the job to the caller.
    Out,
    /// From the caller into the job.
    In,
}

/// A terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecTerminal {
    /// Height in characters.
    pub rows: u16,
    /// Width in characters.
    pub columns: u16,
    /// The variable `TERM`.
    #[serde(default)]
    pub kind: String,
}

/// What a server tells the agent of a node to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOrder {
    /// The job.
    pub job: String,
    /// Its attempt.
    pub attempt: u32,
    /// The task.
    pub rank: u32,
    /// Empty for the login shell.
    #[serde(default)]
    pub command: Vec<String>,
    /// Instead of a command.
    #[serde(default)]
    pub copy: Option<ExecCopy>,
    /// `None` for separate streams of bytes.
    #[serde(default)]
    pub terminal: Option<ExecTerminal>,
}

/// One of the three streams of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecStream {
    /// Standard input.
    Input,
    /// Standard output; with a terminal also standard error.
    Output,
    /// Standard error.
    Error,
}

/// A message between a person and a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecMessage {
    /// The program runs.
    Started,
    /// Bytes of a stream.
    Data {
        /// Which stream.
        stream: ExecStream,
        /// Unchanged.
        bytes: Vec<u8>,
    },
    /// Standard input has ended.
    EndOfInput,
    /// The receiver may send this much more.
    Credit(u32),
    /// The terminal has another size.
    Resize {
        /// Height in characters.
        rows: u16,
        /// Width in characters.
        columns: u16,
    },
    /// Send a signal to the program.
    Signal(i32),
    /// The last message: no process of the program is left.
    Ended(ExecEnd),
}

impl ExecMessage {
    /// How much of the window the message takes.
    pub fn cost(&self) -> u32 {
        match self {
            ExecMessage::Data { bytes, .. } => data_cost(bytes.len()),
            _ => 0,
        }
    }
}

/// How much of the window a message with this many bytes takes.
pub fn data_cost(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(DATA_OVERHEAD_BYTES)
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEnd {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
    /// It did not start, or was cut off.
    Failed {
        /// Stable across releases.
        code: String,
        /// For people.
        why: String,
    },
}

impl ExecEnd {
    /// A failure with its code.
    pub fn failed(code: &str, why: impl Into<String>) -> ExecEnd {
        ExecEnd::Failed { code: code.to_string(), why: why.into() }
    }
}
