//! Step 11, report: the newest reading of each node and GPU, in memory only.
//!
//! Temperatures and heartbeats change all the time and decide nothing by themselves, so they are not recorded in the
//! journal. The core decides what follows from them: GPU health and node state. One reading is kept per GPU of a known
//! node.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::gpu::device::GPUS_PER_NODE_MAX;
use muster_core::time::MINUTE;
use muster_core::{NodeId, Timestamp};
use muster_protocol::agent::Report;

/// The newest readings of all nodes.
#[derive(Debug, Default)]
pub struct Readings(Mutex<BTreeMap<NodeId, NodeReadings>>);

#[derive(Debug, Default)]
struct NodeReadings {
    last_report_at: Timestamp,
    gpus: BTreeMap<u8, GpuReading>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuReading {
    /// Time of arrival.
    pub at: Timestamp,
    /// `None` if the device cannot be read.
    pub temperature_c: Option<i32>,
    /// Error count of the device.
    pub errors: u32,
    /// The newest error, of this or an earlier reading.
    pub last_error: Option<String>,
}

impl Readings {
    pub fn record(&self, report: &Report, at: Timestamp) {
        let Ok(node) = reporting_node(report).parse::<NodeId>() else { return };
        let mut nodes = self.lock();
        let node = nodes.entry(node).or_default();
        node.last_report_at = at;
        if let Report::GpuReading { gpu, temperature_c, errors, last_error, .. } = report
            && usize::from(*gpu) < GPUS_PER_NODE_MAX
        {
            let before = node.gpus.remove(gpu).and_then(|before| before.last_error);
            let last_error = Some(last_error.clone()).filter(|error| !error.is_empty()).or(before);
            let reading = GpuReading { at, temperature_c: *temperature_c, errors: *errors, last_error };
            node.gpus.insert(*gpu, reading);
        }
    }

    /// Drop the readings of unknown nodes. A node that reports before its registration is kept for a minute.
    pub fn forget_unknown_nodes(&self, now: Timestamp, is_known: impl Fn(&NodeId) -> bool) {
        self.lock().retain(|node, readings| is_known(node) || now.since(readings.last_report_at) < MINUTE);
    }

    pub fn last_report_at(&self, node: &NodeId) -> Option<Timestamp> {
        self.lock().get(node).map(|node| node.last_report_at)
    }

    pub fn latest_of_gpu(&self, node: &NodeId, gpu: u8) -> Option<GpuReading> {
        self.lock().get(node)?.gpus.get(&gpu).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, NodeReadings>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node whose agent sends a report.
pub(crate) fn reporting_node(report: &Report) -> &str {
    match report {
        Report::Registered(registration) => &registration.node,
        Report::Heartbeat { node, .. }
        | Report::Started { node, .. }
        | Report::Ended { node, .. }
        | Report::EpilogFailed { node, .. }
        | Report::Unkillable { node, .. }
        | Report::NodeHealth { node, .. }
        | Report::RebootFailed { node, .. }
        | Report::GpuReading { node, .. } => node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(gpu: u8, errors: u32, last_error: &str) -> Report {
        let (node, last_error) = ("n1".to_string(), last_error.to_string());
        Report::GpuReading { node, gpu, temperature_c: Some(61), errors, last_error }
    }

    #[test]
    fn a_newer_reading_replaces_the_older_and_keeps_the_last_error() {
        let (readings, n1) = (Readings::default(), "n1".parse::<NodeId>().unwrap());
        assert_eq!((readings.last_report_at(&n1), readings.latest_of_gpu(&n1, 3)), (None, None));
        readings.record(&reading(3, 2, "XID 63"), Timestamp(10));
        readings.record(&reading(3, 0, ""), Timestamp(20));
        readings
            .record(&Report::Heartbeat { node: "n1".to_string(), following: None, sent_at_boot_ms: 0 }, Timestamp(30));
        let newest = readings.latest_of_gpu(&n1, 3).unwrap();
        assert_eq!((newest.at, newest.errors, newest.last_error.as_deref()), (Timestamp(20), 0, Some("XID 63")));
        assert_eq!(readings.last_report_at(&n1), Some(Timestamp(30)));
    }

    #[test]
    fn readings_of_removed_nodes_and_of_impossible_gpu_indexes_are_dropped() {
        let (readings, n1) = (Readings::default(), "n1".parse::<NodeId>().unwrap());
        readings.record(&reading(200, 0, ""), Timestamp(10));
        assert_eq!(readings.latest_of_gpu(&n1, 200), None);
        readings.forget_unknown_nodes(Timestamp(10 + MINUTE - 1), |_| false);
        assert_eq!(readings.last_report_at(&n1), Some(Timestamp(10)), "it may be about to register");
        readings.forget_unknown_nodes(Timestamp(10 + MINUTE), |_| false);
        assert_eq!(readings.last_report_at(&n1), None);
    }
}
