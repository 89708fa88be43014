//! Adapter (LogSource): passes each request to the source that serves its node.

use std::sync::Arc;

use muster_core::NodeId;

use super::{LogFuture, LogRequest, LogSource};

/// Sources in order of preference: the first that serves a node answers for it.
pub struct LogRouter {
    sources: Vec<Arc<dyn LogSource>>,
    /// Asked about the other nodes: output of earlier configurations may lie in this server's own folder.
    fallback: Arc<dyn LogSource>,
}

impl LogRouter {
    pub fn new(sources: Vec<Arc<dyn LogSource>>, fallback: Arc<dyn LogSource>) -> LogRouter {
        LogRouter { sources, fallback }
    }
}

impl LogSource for LogRouter {
    fn serves(&self, node: &NodeId) -> bool {
        self.sources.iter().chain([&self.fallback]).any(|source| source.serves(node))
    }

    fn read(&self, request: LogRequest) -> LogFuture<'_> {
        let served = self.sources.iter().find(|source| source.serves(&request.node));
        served.unwrap_or(&self.fallback).read(request)
    }
}
