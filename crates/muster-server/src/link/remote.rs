//! Adapter (Agent), Adapter (LogSource) and Adapter (ExecSource): agents that are connected over the link.

use std::sync::Arc;
use std::time::Duration;

use muster_agent::Agent;
use muster_agent::logs::Stream;
use muster_core::NodeId;
use muster_protocol::agent::{HeartbeatEcho, Orders};
use muster_protocol::exec::ExecOrder;
use muster_wire::v1;
use tokio::time::timeout;

use super::connections::LinkConnections;
use super::switchboard::LineError;
use crate::cluster::Cluster;
use crate::exec_source::{ExecError, ExecPipe, ExecSource};
use crate::log_source::{LogBytes, LogError, LogFuture, LogRequest, LogSource};

/// Time for the agent to answer, beyond the time that it may wait for output.
const LOG_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// All nodes that no agent within the server serves.
pub struct RemoteAgents {
    connections: Arc<LinkConnections>,
}

impl RemoteAgents {
    pub fn new(connections: Arc<LinkConnections>) -> RemoteAgents {
        RemoteAgents { connections }
    }
}

impl Agent for RemoteAgents {
    fn nodes(&self) -> &[String] {
        &[]
    }

    fn serves(&self, _node: &str) -> bool {
        true
    }

    /// Orders for a node without a connection are dropped: its next heartbeat tells that it lacks them.
    fn deliver_orders(&mut self, orders: Orders) {
        self.connections.deliver_orders(orders);
    }

    fn acknowledge_heartbeat(&mut self, echo: HeartbeatEcho) {
        self.connections.acknowledge_heartbeat(&echo);
    }

    fn shutdown(&mut self) {}
}

/// Logs on the disks of enrolled nodes.
pub struct RemoteLogs {
    connections: Arc<LinkConnections>,
    cluster: Cluster,
}

impl RemoteLogs {
    pub fn new(connections: Arc<LinkConnections>, cluster: Cluster) -> RemoteLogs {
        RemoteLogs { connections, cluster }
    }

    async fn read_from_agent(&self, request: LogRequest) -> Result<LogBytes, LogError> {
        let node = request.node.clone();
        let not_connected =
            || LogError::NotConnected { node: node.clone(), since: self.connections.disconnected_at(&node) };
        let unreadable = |problem: &str| LogError::Unreadable { node: node.clone(), problem: problem.to_string() };
        let answer = self.connections.request_log(node.as_str(), log_read(&request)).map_err(|error| match error {
            LineError::NotConnected => not_connected(),
            LineError::Busy => unreadable("too many readers; try again"),
        })?;
        let chunk = match timeout(LOG_ANSWER_TIMEOUT + request.wait, answer).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(_)) => return Err(not_connected()),
            Err(_) => return Err(unreadable("its agent does not answer")),
        };
        match chunk.error.as_str() {
            "" => Ok(LogBytes { bytes: chunk.bytes, offset: chunk.offset, size: chunk.size }),
            problem => Err(unreadable(problem)),
        }
    }
}

impl LogSource for RemoteLogs {
    fn serves(&self, node: &NodeId) -> bool {
        self.cluster.read(|state| state.enrolments.contains_key(node))
    }

    fn read(&self, request: LogRequest) -> LogFuture<'_> {
        Box::pin(self.read_from_agent(request))
    }
}

/// Programs inside the jobs of enrolled nodes.
pub struct RemotePrograms {
    connections: Arc<LinkConnections>,
    cluster: Cluster,
}

impl RemotePrograms {
    pub fn new(connections: Arc<LinkConnections>, cluster: Cluster) -> RemotePrograms {
        RemotePrograms { connections, cluster }
    }
}

impl ExecSource for RemotePrograms {
    fn serves(&self, node: &NodeId) -> bool {
        self.cluster.read(|state| state.enrolments.contains_key(node))
    }

    fn open(&self, node: &NodeId, order: ExecOrder) -> Result<ExecPipe, ExecError> {
        let opened = self.connections.open_program(node.as_str(), &order);
        let (program, from_program) = opened.map_err(|error| match error {
            LineError::NotConnected => ExecError::NotConnected { node: node.clone() },
            LineError::Busy => ExecError::Busy { node: node.clone() },
        })?;
        Ok(ExecPipe { to_program: Box::new(program), from_program })
    }
}

fn log_read(request: &LogRequest) -> v1::LogRead {
    let stream = match request.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    v1::LogRead {
        request: 0, // Numbered by the connection.
        job: request.job.to_string(),
        attempt: request.attempt,
        rank: request.rank,
        stream: stream.to_string(),
        offset: request.offset,
        bytes_max: u32::try_from(request.bytes_max).unwrap_or(u32::MAX),
        wait_ms: u32::try_from(request.wait.as_millis()).unwrap_or(u32::MAX),
        since_ms: request.since.map_or(0, |since| since.0),
    }
}
