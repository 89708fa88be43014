//! Packing: GPUs in use before free ones, and those before nodes that are free altogether.

use super::super::cluster::{Ask, Devices, Node, WHOLE};
use super::super::policy::Score;

/// Three bands of scores: from 50 on devices in use, from 33 on free devices, below that on free nodes.
pub struct Packing;

impl Score for Packing {
    fn score(&self, _: usize, state: &Node, ask: &Ask) -> i32 {
        if ask.gpus == 0 {
            return 0;
        }
        let devices = state.devices.len() as i32;
        if state.devices.iter().all(|free| *free == WHOLE) {
            return (33 - devices).max(devices);
        }
        let taken = state.usual_devices(ask);
        match free_ones(state, taken) {
            0 => (100 - (percent_free(state, taken) / 10) as i32).max(50),
            free => (50 - free).max(33),
        }
    }
}

fn of(state: &Node, taken: Devices) -> impl Iterator<Item = u32> {
    state.devices.iter().enumerate().filter(move |(at, _)| taken.has(*at)).map(|(_, free)| *free)
}

fn free_ones(state: &Node, taken: Devices) -> i32 {
    of(state, taken).filter(|free| *free == WHOLE).count() as i32
}

fn percent_free(state: &Node, taken: Devices) -> u32 {
    of(state, taken).map(|free| free * 100 / WHOLE).sum()
}
