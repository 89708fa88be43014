//! Port: the agents of the cluster, as the server sees them.
//!
//! Orders go in through [`Agent::deliver_orders`], reports come out through the [`ReportSink`]. Both are
//! level-triggered: the server repeats the full list of attempts of a node, and the agent repeats an exit report
//! until the orders no longer contain the attempt.

use std::sync::Arc;

use muster_protocol::agent::{HeartbeatEcho, Orders, Report};

/// Receives the reports of an agent. The server supplies it and turns each report into a command.
///
/// The agent's own thread calls it. It may block briefly, but must not wait for a thread that is inside
/// [`Agent::shutdown`]: that thread waits for the agent's thread.
pub type ReportSink = Arc<dyn Fn(Report) + Send + Sync>;

/// An agent of one node or of many.
pub trait Agent: Send {
    /// The nodes whose orders this agent takes.
    fn nodes(&self) -> &[String];

    /// Whether this agent takes the orders of a node.
    fn serves(&self, node: &str) -> bool {
        self.nodes().iter().any(|name| name == node)
    }

    /// Hands the orders of a node to the agent's thread. Never blocks. Orders older than the newest ones of that
    /// node are ignored.
    fn deliver_orders(&mut self, orders: Orders);

    /// Tells the agent's thread that a leader received this heartbeat. Never blocks.
    fn acknowledge_heartbeat(&mut self, echo: HeartbeatEcho);

    /// Stops the agent's thread and waits for it. Real processes keep running and are adopted at the next start.
    /// A second call does nothing.
    fn shutdown(&mut self);
}
