//! GPU packing: GPUs in use first, then free GPUs of nodes in use, then idle nodes.

use crate::placement::cluster::{DeviceSet, PodRequest, TraceNode, WHOLE_GPU_MILLI};
use crate::placement::policy::NodeScore;

/// Three bands of scores: from 50 for GPUs in use, from 33 for free GPUs, below for idle nodes.
pub struct Packing;

impl NodeScore for Packing {
    fn score(&self, _: usize, state: &TraceNode, request: &PodRequest) -> i32 {
        if request.gpus == 0 {
            return 0;
        }
        let devices = state.device_milli_free.len() as i32;
        if state.device_milli_free.iter().all(|free| *free == WHOLE_GPU_MILLI) {
            return (33 - devices).max(devices);
        }
        let taken = state.default_devices(request);
        match whole_free_count(state, taken) {
            0 => (100 - (percent_free(state, taken) / 10) as i32).max(50),
            free => (50 - free).max(33),
        }
    }
}

fn free_of(state: &TraceNode, taken: DeviceSet) -> impl Iterator<Item = u32> {
    state.device_milli_free.iter().enumerate().filter(move |(at, _)| taken.contains(*at)).map(|(_, free)| *free)
}

fn whole_free_count(state: &TraceNode, taken: DeviceSet) -> i32 {
    free_of(state, taken).filter(|free| *free == WHOLE_GPU_MILLI).count() as i32
}

fn percent_free(state: &TraceNode, taken: DeviceSet) -> u32 {
    free_of(state, taken).map(|free| free * 100 / WHOLE_GPU_MILLI).sum()
}
