//! First in, first out service of a job stream.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::job_stream::StreamJob;

/// Allocates GPUs of single nodes, and keeps what is free.
pub trait DeviceAllocator {
    /// Take GPUs of one node; `None` if no placement exists now.
    fn allocate(&mut self, gpus: u32) -> Option<NodeDevices>;
    fn release(&mut self, allocated: NodeDevices);
}

/// Allocated GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeDevices {
    pub node: usize,
    /// As bits.
    pub devices: u64,
}

/// The GPUs and the wait of a job.
#[derive(Debug, Clone, Copy)]
pub struct ServedJob {
    pub gpus: u32,
    pub devices: u64,
    pub wait_ms: u64,
}

/// Serve jobs strictly in order, without backfill. Stops at the first job that does not fit an empty cluster.
pub fn serve(jobs: &[StreamJob], allocator: &mut impl DeviceAllocator) -> Vec<ServedJob> {
    let mut running: BinaryHeap<Reverse<(u64, NodeDevices)>> = BinaryHeap::new();
    let mut now_ms = 0;
    let mut served = Vec::new();
    for job in jobs {
        now_ms = job.arrival_ms.max(now_ms);
        while let Some(Reverse((_, ended))) = running.pop_if_ended(now_ms) {
            allocator.release(ended);
        }
        let allocated = loop {
            if let Some(allocated) = allocator.allocate(job.gpus) {
                break allocated;
            }
            // No job runs, so nothing will be released.
            let Some(Reverse((end_ms, ended))) = running.pop() else { return served };
            now_ms = end_ms;
            allocator.release(ended);
        };
        running.push(Reverse((now_ms + job.runtime_ms, allocated)));
        served.push(ServedJob { gpus: job.gpus, devices: allocated.devices, wait_ms: now_ms - job.arrival_ms });
    }
    served
}

trait PopIfEnded {
    /// The next job to end, if it has ended by `now_ms`.
    fn pop_if_ended(&mut self, now_ms: u64) -> Option<Reverse<(u64, NodeDevices)>>;
}

impl PopIfEnded for BinaryHeap<Reverse<(u64, NodeDevices)>> {
    fn pop_if_ended(&mut self, now_ms: u64) -> Option<Reverse<(u64, NodeDevices)>> {
        let Reverse((end_ms, _)) = self.peek()?;
        if *end_ms <= now_ms { self.pop() } else { None }
    }
}
