//! Step 11, report: the newest readings of nodes and GPUs, in memory only.
//!
//! Temperatures and heartbeats change all the time and decide nothing by themselves, so they never enter the journal. What
//! follows from them (health, silence) is decided by the core. At most one reading for each GPU of each known node is kept.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::node::GPUS_PER_NODE_MAX;
use muster_core::time::MINUTE;
use muster_core::{NodeId, Timestamp};
use muster_protocol::agent::Report;

/// The newest readings of all nodes.
#[derive(Debug, Default)]
pub struct Readings(Mutex<BTreeMap<NodeId, NodeReadings>>);

#[derive(Debug, Default)]
struct NodeReadings {
    heard_at: Timestamp,
    gpus: BTreeMap<u8, GpuReading>,
}

/// The newest reading of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuReading {
    /// When it arrived.
    pub at: Timestamp,
    /// Temperature in °C, where it can be read.
    pub temperature_c: Option<i32>,
    /// Errors counted by the device.
    pub errors: u32,
    /// The newest error that was reported, also by an earlier reading.
    pub last_error: Option<String>,
}

impl Readings {
    /// Keep what a report tells.
    pub fn note(&self, report: &Report, at: Timestamp) {
        let Ok(node) = reporting_node(report).parse::<NodeId>() else { return };
        let mut nodes = self.lock();
        let node = nodes.entry(node).or_default();
        node.heard_at = at;
        if let Report::GpuReading { gpu, temperature_c, errors, last_error, .. } = report
            && usize::from(*gpu) < GPUS_PER_NODE_MAX
        {
            let before = node.gpus.remove(gpu).and_then(|before| before.last_error);
            let last_error = Some(last_error.clone()).filter(|error| !error.is_empty()).or(before);
            let reading = GpuReading { at, temperature_c: *temperature_c, errors: *errors, last_error };
            node.gpus.insert(*gpu, reading);
        }
    }

    /// Forget nodes that are gone. One that reports and is not registered yet has a minute.
    pub fn keep(&self, now: Timestamp, is_known: impl Fn(&NodeId) -> bool) {
        self.lock().retain(|node, told| is_known(node) || now.since(told.heard_at) < MINUTE);
    }

    /// When a node was last heard from.
    pub fn heard_at(&self, node: &NodeId) -> Option<Timestamp> {
        self.lock().get(node).map(|node| node.heard_at)
    }

    /// The newest reading of a GPU.
    pub fn of_gpu(&self, node: &NodeId, gpu: u8) -> Option<GpuReading> {
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
        Report::Heartbeat { node }
        | Report::Started { node, .. }
        | Report::Ended { node, .. }
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
    fn the_newest_reading_counts_and_the_last_error_stays() {
        let (readings, n1) = (Readings::default(), "n1".parse::<NodeId>().unwrap());
        assert_eq!((readings.heard_at(&n1), readings.of_gpu(&n1, 3)), (None, None));
        readings.note(&reading(3, 2, "XID 63"), Timestamp(10));
        readings.note(&reading(3, 0, ""), Timestamp(20));
        readings.note(&Report::Heartbeat { node: "n1".to_string() }, Timestamp(30));
        let newest = readings.of_gpu(&n1, 3).unwrap();
        assert_eq!(
            (newest.at, newest.errors, newest.last_error.as_deref()),
            (Timestamp(20), 0, Some("XID 63"))
        );
        assert_eq!(readings.heard_at(&n1), Some(Timestamp(30)));
    }

    #[test]
    fn nothing_is_kept_of_nodes_that_are_gone_or_of_devices_that_cannot_be() {
        let (readings, n1) = (Readings::default(), "n1".parse::<NodeId>().unwrap());
        readings.note(&reading(200, 0, ""), Timestamp(10));
        assert_eq!(readings.of_gpu(&n1, 200), None);
        readings.keep(Timestamp(10 + MINUTE - 1), |_| false);
        assert_eq!(readings.heard_at(&n1), Some(Timestamp(10)), "it may be about to register");
        readings.keep(Timestamp(10 + MINUTE), |_| false);
        assert_eq!(readings.heard_at(&n1), None);
    }
}
