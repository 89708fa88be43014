//! Adapter (LogSource): the server's own data folder, where the nodes inside this process write.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_agent::log_times;
use muster_agent::logs::{self, LogPart};
use muster_core::NodeId;
use tokio::time::Instant;

use super::{LogBytes, LogError, LogFuture, LogRequest, LogSource};

/// Pauses between two looks for new output: short after output, longer while there is none.
const LOOK_PAUSE_FIRST: Duration = Duration::from_millis(10);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(250);

/// Output files below the data folder.
#[derive(Clone)]
pub struct DataFolderLogs {
    data_dir: PathBuf,
    /// Nodes whose agents run inside this process.
    nodes: Arc<BTreeSet<NodeId>>,
}

impl DataFolderLogs {
    pub fn new(data_dir: impl Into<PathBuf>, nodes: impl IntoIterator<Item = NodeId>) -> DataFolderLogs {
        DataFolderLogs { data_dir: data_dir.into(), nodes: Arc::new(nodes.into_iter().collect()) }
    }

    /// Read repeatedly until there is a byte or the wait is over. A look costs three system calls; a change
    /// notification (inotify) would cost a watch and a descriptor for each reader, which the kernel limits per user.
    async fn read_waiting(&self, request: LogRequest) -> Result<LogBytes, LogError> {
        let give_up = Instant::now() + request.wait;
        let mut pause = LOOK_PAUSE_FIRST;
        loop {
            let seen = self.read_now(&request).await?;
            let rest = give_up.saturating_duration_since(Instant::now());
            let has_news = !seen.bytes.is_empty() || seen.offset > request.offset;
            if has_news || request.bytes_max == 0 || rest.is_zero() {
                return Ok(seen);
            }
            tokio::time::sleep(pause.min(rest)).await;
            pause = (pause * 3 / 2).min(LOOK_PAUSE_MAX);
        }
    }

    async fn read_now(&self, request: &LogRequest) -> Result<LogBytes, LogError> {
        let (source, request) = (self.clone(), request.clone());
        let node = request.node.clone();
        let reading = tokio::task::spawn_blocking(move || source.read_blocking(&request));
        let aborted = |_| LogError::Unreadable { node, problem: "the server is stopping".to_string() };
        reading.await.map_err(aborted)?
    }

    fn read_blocking(&self, request: &LogRequest) -> Result<LogBytes, LogError> {
        let unreadable = |problem: String| LogError::Unreadable { node: request.node.clone(), problem };
        let job = request.job.to_string();
        let dir =
            logs::attempt_dir(&self.data_dir, &job, request.attempt).map_err(|error| unreadable(error.to_string()))?;
        // A node that ran here under an earlier configuration has left its output in the folder.
        if !self.nodes.contains(&request.node) && !dir.is_dir() {
            return Err(LogError::UnknownNode { node: request.node.clone() });
        }
        let path = logs::log_path(&self.data_dir, &job, request.attempt, request.rank, request.stream)
            .map_err(|error| unreadable(error.to_string()))?;
        let offset = request.since.map_or(Ok(request.offset), |since| log_times::offset_since(&path, since.0));
        let part = offset.and_then(|offset| logs::read_part(&path, offset, request.bytes_max));
        let LogPart { bytes, offset, size } = part.map_err(|error| unreadable(error.to_string()))?;
        Ok(LogBytes { bytes, offset, size })
    }
}

impl LogSource for DataFolderLogs {
    fn serves(&self, node: &NodeId) -> bool {
        self.nodes.contains(node)
    }

    fn read(&self, request: LogRequest) -> LogFuture<'_> {
        Box::pin(self.read_waiting(request))
    }
}
