//! Adapters (ExecSource): the attempts of the agent inside this process, real or simulated.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use muster_agent::exec::{ExecHost, ExecSession};
use muster_core::NodeId;
use muster_protocol::exec::{ExecMessage, ExecOrder};
use tokio::sync::mpsc;

use super::{ExecError, ExecPipe, ExecSource, ProgramInput};

/// Messages on their way to the person; the program waits while there are more.
const MESSAGES_MAX: usize = 8;

/// Real processes on this machine.
pub struct LocalPrograms {
    nodes: BTreeSet<NodeId>,
    host: ExecHost,
}

impl LocalPrograms {
    pub fn new(data_dir: impl Into<PathBuf>, nodes: impl IntoIterator<Item = NodeId>) -> LocalPrograms {
        LocalPrograms { nodes: nodes.into_iter().collect(), host: ExecHost::new(data_dir) }
    }
}

impl ExecSource for LocalPrograms {
    fn serves(&self, node: &NodeId) -> bool {
        self.nodes.contains(node)
    }

    fn open(&self, _node: &NodeId, order: ExecOrder) -> Result<ExecPipe, ExecError> {
        let (sender, from_program) = mpsc::channel(MESSAGES_MAX);
        // The session calls it on threads of its own, which may block.
        let session = self.host.start(order, Arc::new(move |message| sender.blocking_send(message).is_ok()));
        Ok(ExecPipe { to_program: Box::new(session), from_program })
    }
}

impl ProgramInput for ExecSession {
    fn take(&self, message: ExecMessage) {
        ExecSession::take(self, message);
    }
}

/// Simulated jobs.
pub struct SimulatedPrograms {
    nodes: BTreeSet<NodeId>,
}

impl SimulatedPrograms {
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> SimulatedPrograms {
        SimulatedPrograms { nodes: nodes.into_iter().collect() }
    }
}

impl ExecSource for SimulatedPrograms {
    fn serves(&self, node: &NodeId) -> bool {
        self.nodes.contains(node)
    }

    fn open(&self, node: &NodeId, _order: ExecOrder) -> Result<ExecPipe, ExecError> {
        Err(ExecError::Simulated { node: node.clone() })
    }
}
