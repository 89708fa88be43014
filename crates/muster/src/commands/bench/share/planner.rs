//! Ours: the product's own planner. Each job is submitted, planned for and adopted as in a server. Devices are shared by
//! MPS within limits; for those who ask to be apart idle ones are partitioned as the planner proposes.

use std::collections::BTreeMap;

use muster_core::gpu::device::GpuFacts;
use muster_core::gpu::gpu_share::Isolation;
use muster_core::gpu::gpu_share::{Share, ShareMode};
use muster_core::gpu::mig::tables::H200_141GB;
use muster_core::objects::job::{JobSpec, PlacedTask};
use muster_core::objects::node::NodeFacts;
use muster_core::objects::settings::Repartition;
use muster_core::{JobId, Settings};

use super::demand::{JobClassIndex, JOB_CLASSES, IsolationMode};
use super::interference::{Occupants, Occupant, GpuPortion};
use super::policies::GPU_MEMORY_MIB;
use crate::commands::bench::in_memory_scheduler::InMemoryScheduler;
use crate::commands::bench::synthetic;
use crate::error::CliError;

/// Devices of a node.
const GPUS_PER_NODE: usize = 8;

/// Who sits where with the fewest devices on which all find a place.
pub fn place_on_fewest_gpus(jobs: &[JobClassIndex], wall: IsolationMode) -> Result<Vec<Occupants>, CliError> {
    let asked: u32 = jobs.iter().map(|job| JOB_CLASSES[*job].compute_milli).sum();
    let least = asked.div_ceil(1_000) as usize;
    let seated = (least..=jobs.len().max(least)).find_map(|gpus| place_on(jobs, wall, gpus));
    seated.ok_or_else(|| CliError::failed("the planner finds no place for some job even with a GPU for each"))
}

/// Who sits where with so many devices; nothing if someone finds no place.
fn place_on(jobs: &[JobClassIndex], wall: IsolationMode, gpus: usize) -> Option<Vec<Occupants>> {
    let mut product = InMemoryScheduler::new(settings());
    for (rank, first) in (0..gpus).step_by(GPUS_PER_NODE).enumerate() {
        product.register(rank, node_facts(GPUS_PER_NODE.min(gpus - first)));
    }
    let mut devices: BTreeMap<(usize, u8), Occupants> = BTreeMap::new();
    for job in jobs {
        let id = product.submit(job_spec(*job, wall))?;
        let (node, task) = place_job(&mut product, id)?;
        let [gpu] = task.gpus[..] else { return None };
        devices.entry((node, gpu)).or_default().push(Occupant { job: *job, part: gpu_portion(&task)? });
    }
    Some(devices.into_values().collect())
}

/// Nobody leaves, so there is nobody to displace and no future to keep a place in. A device is cut for the first who
/// wants it, and once.
fn settings() -> Settings {
    Settings {
        preemption: false,
        reservations: 0,
        repartition: Repartition::Apply,
        repartition_after_ms: 0,
        ..Settings::default()
    }
}

/// In the first round a device may be partitioned for the job, in the second it has its place.
fn place_job(product: &mut InMemoryScheduler, job: JobId) -> Option<(usize, PlacedTask)> {
    (0..2).find_map(|_| {
        product.plan_and_adopt();
        product.first_task(job).map(|(node, task)| (node, task.clone()))
    })
}

fn gpu_portion(task: &PlacedTask) -> Option<GpuPortion> {
    let Some(Share { compute_milli, mode, .. }) = task.share.as_deref() else { return Some(GpuPortion::Whole) };
    match mode {
        ShareMode::Mig { profile, .. } => {
            H200_141GB.profiles.iter().find(|one| one.name == profile).map(GpuPortion::Instance)
        }
        ShareMode::Mps => Some(GpuPortion::MpsLimited(*compute_milli)),
        ShareMode::TimeSlice => Some(GpuPortion::TimeSlice),
    }
}

fn node_facts(gpus: usize) -> NodeFacts {
    let plain = synthetic::node_facts(0);
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: "NVIDIA H200".to_string(),
        memory_mib: GPU_MEMORY_MIB,
        ..plain.gpus[0].clone()
    };
    NodeFacts { gpus: (0..gpus).map(gpu).collect(), ..plain.clone() }
}

fn job_spec(job: JobClassIndex, wall: IsolationMode) -> JobSpec {
    let mut spec = synthetic::job_spec(synthetic::SyntheticJob::default());
    let (each, kind) = (&mut spec.tasks[0].each, &JOB_CLASSES[job]);
    each.gpu_compute_milli = kind.compute_milli;
    each.gpu_memory_mib = kind.memory_mib;
    each.isolation = match wall {
        IsolationMode::Requested => kind.isolation,
        IsolationMode::Ignored => kind.isolation.min(Isolation::Memory),
    };
    spec
}
