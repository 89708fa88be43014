//! Packing: GPUs in use before free ones, and those before nodes that are free altogether.

use super::super::cluster::{PodRequest, DeviceSet, TraceNode, WHOLE_GPU_MILLI};
use super::super::policy::NodeScore;

/// Three bands of scores: from 50 on devices in use, from 33 on free devices, below that on free nodes.
pub struct Packing;

impl NodeScore for Packing {
    fn score(&self, _: usize, state: &TraceNode, ask: &PodRequest) -> i32 {
        if ask.gpus == 0 {
            return 0;
        }
        let devices = state.device_milli_free.len() as i32;
        if state.device_milli_free.iter().all(|free| *free == WHOLE_GPU_MILLI) {
            return (33 - devices).max(devices);
        }
        let taken = state.default_devices(ask);
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
