//! Port: programs inside running attempts, on the machine of the attempt.
//!
//! [`ExecRouter`] chooses the source by node, as for the output of tasks (`log_source.rs`).

mod local;

use std::sync::Arc;

use muster_core::NodeId;
use muster_protocol::exec::{ExecMessage, ExecOrder};
use tokio::sync::mpsc;

pub use local::{LocalPrograms, SimulatedPrograms};

/// A place where programs run: this machine, or nodes that are connected.
pub trait ExecSource: Send + Sync {
    /// Whether this source answers for the node, connected or not.
    fn serves(&self, node: &NodeId) -> bool;

    /// Starts a program. Its first message says whether it has started.
    fn open(&self, node: &NodeId, order: ExecOrder) -> Result<ExecPipe, ExecError>;
}

/// Takes what a person sends to a program. Dropping it ends the program.
pub trait ProgramInput: Send + Sync {
    /// Never blocks.
    fn take(&self, message: ExecMessage);
}

/// Both ways between a person and a program. Whoever takes output grants new one by [`ExecMessage::Credit`].
pub struct ExecPipe {
    pub to_program: Box<dyn ProgramInput>,
    /// Ends without [`ExecMessage::Ended`] if the connection to the node is lost.
    pub from_program: mpsc::Receiver<ExecMessage>,
}

/// Why no program can run inside an attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    #[error("node `{node}` is not connected")]
    NotConnected { node: NodeId },
    #[error("too many programs run inside jobs of node `{node}`")]
    Busy { node: NodeId },
    /// There are no processes.
    #[error("node `{node}` is simulated: its jobs have no processes")]
    Simulated { node: NodeId },
}

/// Sources in order of preference: the first that serves a node answers for it.
pub struct ExecRouter(pub Vec<Arc<dyn ExecSource>>);

impl ExecSource for ExecRouter {
    fn serves(&self, node: &NodeId) -> bool {
        self.0.iter().any(|source| source.serves(node))
    }

    fn open(&self, node: &NodeId, order: ExecOrder) -> Result<ExecPipe, ExecError> {
        match self.0.iter().find(|source| source.serves(node)) {
            Some(source) => source.open(node, order),
            None => Err(ExecError::NotConnected { node: node.clone() }),
        }
    }
}
