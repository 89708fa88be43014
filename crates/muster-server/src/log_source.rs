//! Port: the output of tasks, read on the machine that holds it.
//!
//! Tasks write their output to files of their node. A node inside this process has them in the server's own data
//! folder; any other node has them on its own disk and is asked. [`LogRouter`] chooses the source by node.

mod data_folder;
mod router;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use muster_agent::logs::Stream;
use muster_core::{JobId, NodeId, Timestamp};

pub use data_folder::DataFolderLogs;
pub use router::LogRouter;

/// A source of output: this server's folder, or nodes that are connected to it.
pub trait LogSource: Send + Sync {
    /// Whether this source answers for the node, connected or not.
    fn serves(&self, node: &NodeId) -> bool;

    /// Read a part of one stream of one task. Output that does not exist yet is empty. Dropping the future gives up.
    fn read(&self, request: LogRequest) -> LogFuture<'_>;
}

/// The answer of a [`LogSource`], later.
pub type LogFuture<'a> = Pin<Box<dyn Future<Output = Result<LogBytes, LogError>> + Send + 'a>>;

/// Which output, and which part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// The node on which the task runs or ran.
    pub node: NodeId,
    pub job: JobId,
    pub attempt: u32,
    pub rank: u32,
    pub stream: Stream,
    pub offset: u64,
    /// Instead of `offset`: where the output since this time of the node's clock begins.
    pub since: Option<Timestamp>,
    /// With 0 the answer contains only the size.
    pub bytes_max: usize,
    /// If there is no byte at `offset` yet, wait up to this long for one.
    pub wait: Duration,
}

/// A part of the output, unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogBytes {
    pub bytes: Vec<u8>,
    /// Where `bytes` starts. Above the requested offset if the bytes before it were discarded to limit disk use.
    pub offset: u64,
    /// Size of the whole output at that moment, with its removed part.
    pub size: u64,
}

/// Why output cannot be read now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// No source serves the node: its agent runs in another server's process, or the node was removed.
    #[error("the output is on node `{node}`, which is not connected to this server")]
    UnknownNode { node: NodeId },
    /// The node is known and there is no connection to its agent.
    #[error("the output is on node `{node}`, which is not connected")]
    NotConnected {
        node: NodeId,
        /// When the connection ended; `None` if there was none since the server started.
        since: Option<Timestamp>,
    },
    /// The file exists and cannot be read.
    #[error("the output on node `{node}` cannot be read: {problem}")]
    Unreadable { node: NodeId, problem: String },
}
