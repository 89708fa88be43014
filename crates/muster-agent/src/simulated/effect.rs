//! The outputs of simulated nodes: reports and log lines, and the intervals of the reports.

use muster_protocol::agent::Report;

use crate::logs::Stream;

/// An output of the simulated cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulatedEffect {
    SendReport(Report),
    WriteLog(LogLine),
}

/// A text for the log of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub job: String,
    pub attempt: u32,
    pub rank: u32,
    pub stream: Stream,
    /// With line ends.
    pub text: String,
}

/// The intervals of the reports of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportIntervals {
    /// Of heartbeats, and of repeating a report until the orders acknowledge it.
    pub heartbeat_ms: i64,
    /// Of readings of warm GPUs.
    pub readings_ms: i64,
    /// Of readings of every GPU.
    pub health_checks_ms: i64,
}
