//! Arbitrary plans of stories: starts and evictions that may be invalid in any way.

use muster_core::facts::plan::{Eviction, Plan};
use muster_core::gpu::gpu_share::ShareMode;
use muster_core::objects::job::PlacedTask;
use muster_core::{JobId, State};
use proptest::prelude::*;

use super::{active, any_job, node_name};
use crate::builders::start;

/// A start that may be invalid in any way.
#[derive(Debug, Clone)]
pub struct ArbitraryStart {
    job: usize,
    node: usize,
    gpus: u8,
    skewed: bool,
}

/// An eviction that may be invalid in any way.
#[derive(Debug, Clone)]
pub struct ArbitraryEviction {
    job: usize,
    node: usize,
    gpus: u8,
    victims: Vec<usize>,
}

pub(super) fn arbitrary_start() -> impl Strategy<Value = ArbitraryStart> {
    (0..12usize, 0..4usize, any::<u8>(), prop::bool::weighted(0.2))
        .prop_map(|(job, node, gpus, skewed)| ArbitraryStart { job, node, gpus: gpus & 31, skewed })
}

pub(super) fn arbitrary_eviction() -> impl Strategy<Value = ArbitraryEviction> {
    (0..12usize, 0..4usize, any::<u8>(), prop::collection::vec(0..12usize, 0..3))
        .prop_map(|(job, node, gpus, victims)| ArbitraryEviction { job, node, gpus: gpus & 31, victims })
}

pub(super) fn arbitrary_plan(state: &State, starts: &[ArbitraryStart], evictions: &[ArbitraryEviction]) -> Box<Plan> {
    let drawn_start = |drawn: &ArbitraryStart| {
        let job = any_job(state, drawn.job)?;
        Some(start(job, arbitrary_tasks(state, job, drawn)))
    };
    let drawn_eviction = |drawn: &ArbitraryEviction| {
        let job = any_job(state, drawn.job)?;
        let victims = drawn.victims.iter().filter_map(|index| active(state, *index)).collect();
        let start = ArbitraryStart { job: drawn.job, node: drawn.node, gpus: drawn.gpus, skewed: false };
        Some(Eviction { job, tasks: arbitrary_tasks(state, job, &start), victims })
    };
    Box::new(Plan {
        starts: starts.iter().filter_map(drawn_start).collect(),
        evictions: evictions.iter().filter_map(drawn_eviction).collect(),
        ..Plan::default()
    })
}

/// The drawn devices in order of the tasks, so that some placements are valid.
fn arbitrary_tasks(state: &State, job: JobId, drawn: &ArbitraryStart) -> Vec<PlacedTask> {
    let Some(job) = state.jobs.get(&job) else { return Vec::new() };
    let mut devices = bits(drawn.gpus).into_iter();
    let group = &job.spec.tasks[0];
    let task = |rank: u32| PlacedTask {
        rank: if drawn.skewed && drawn.job.is_multiple_of(2) { 0 } else { rank },
        group: 0,
        // Odd ranks of odd jobs are placed on the next node.
        node: node_name(drawn.node + (drawn.job % 2) * (rank as usize % 2)),
        gpus: devices.by_ref().take(group.each.gpus as usize).collect(),
        // Mostly the requested share, sometimes less memory, sometimes the whole device.
        share: (group.each.is_shared() && drawn.gpus % 8 != 7).then(|| {
            let share = group.each.share_of(81_920 + u64::from(drawn.gpus & 16) * 1_024, ShareMode::Mps);
            Box::new(share)
        }),
    };
    // A skewed gang has all tasks at rank 0, or one task too few.
    let missing = u32::from(drawn.skewed && !drawn.job.is_multiple_of(2));
    // On the last nodes the most tasks of an elastic gang, elsewhere the fewest.
    let count = if drawn.node > 1 { group.count_most() } else { group.count };
    (0..count.saturating_sub(missing)).map(task).collect()
}

fn bits(mask: u8) -> Vec<u8> {
    (0..8).filter(|bit| mask & (1 << bit) != 0).collect()
}
