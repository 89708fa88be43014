//! Port: the agents of the cluster, as the server meets them.
//!
//! Orders go in through [`Agent::obey`], reports come out through the [`Mouth`]. Both are level-triggered: the
//! server repeats the full list a node owes, the agent repeats an end until the orders no longer name it.

use std::sync::Arc;

use muster_protocol::agent::{Orders, Report};

/// Where an agent says its reports. The server supplies it and turns each report into a command.
///
/// It is called from the agent's own thread. It may block for a moment; it must not wait for a thread that is
/// inside [`Agent::shutdown`], which waits for the agent's thread in turn.
pub type Mouth = Arc<dyn Fn(Report) + Send + Sync>;

/// One adapter, serving one node or many.
pub trait Agent: Send {
    /// The nodes whose orders belong to this agent.
    fn nodes(&self) -> &[String];

    /// Take over what a node owes. Never blocks: the agent's thread does the work. Orders older than the newest
    /// seen for that node are ignored.
    fn obey(&mut self, orders: Orders);

    /// Stop the agent's thread and wait for it. Real processes run on and are adopted at the next start.
    /// A second call does nothing.
    fn shutdown(&mut self);
}
