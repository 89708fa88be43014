//! The muster planner as a sharing policy: each job is submitted, planned and adopted as in a server. GPUs are shared
//! under MPS limits; for jobs that request full isolation the planner repartitions idle GPUs into MIG instances.

use std::collections::BTreeMap;

use muster_core::gpu::device::GpuFacts;
use muster_core::gpu::gpu_share::{Isolation, Share, ShareMode};
use muster_core::gpu::mig::tables::H200_141GB;
use muster_core::objects::job::{JobSpec, PlacedTask};
use muster_core::objects::node::NodeFacts;
use muster_core::objects::settings::Repartition;
use muster_core::{JobId, Settings};

use super::interference::{GpuPortion, Occupant, Occupants};
use super::job_classes::{IsolationMode, JOB_CLASSES, JobClassIndex};
use super::policies::GPU_MEMORY_MIB;
use crate::in_memory_scheduler::InMemoryScheduler;
use crate::synthetic;

const GPUS_PER_NODE: usize = 8;

/// The planner left a job waiting although the cluster had one GPU per job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the planner cannot place every job even with one GPU per job")]
pub struct JobsNotPlaced;

/// The jobs of each GPU in the smallest cluster on which the planner places all of them.
pub fn place_on_fewest_gpus(jobs: &[JobClassIndex], isolation: IsolationMode) -> Result<Vec<Occupants>, JobsNotPlaced> {
    let requested_milli: u32 = jobs.iter().map(|job| JOB_CLASSES[*job].compute_milli).sum();
    let least = requested_milli.div_ceil(1_000) as usize;
    let placed = (least..=jobs.len().max(least)).find_map(|gpus| place_on(jobs, isolation, gpus));
    placed.ok_or(JobsNotPlaced)
}

/// The jobs of each GPU in a cluster of this size; `None` if a job is not placed.
fn place_on(jobs: &[JobClassIndex], isolation: IsolationMode, gpus: usize) -> Option<Vec<Occupants>> {
    let mut scheduler = InMemoryScheduler::new(settings());
    for (rank, first) in (0..gpus).step_by(GPUS_PER_NODE).enumerate() {
        scheduler.register(rank, node_facts(GPUS_PER_NODE.min(gpus - first)));
    }
    let mut occupants: BTreeMap<(usize, u8), Occupants> = BTreeMap::new();
    for job in jobs {
        let id = scheduler.submit(job_spec(*job, isolation))?;
        let (node, task) = place_job(&mut scheduler, id)?;
        let [gpu] = task.gpus[..] else { return None };
        occupants.entry((node, gpu)).or_default().push(Occupant { job: *job, portion: gpu_portion(&task)? });
    }
    Some(occupants.into_values().collect())
}

/// Jobs never end, so preemption and reservations have no use. A GPU is repartitioned without delay for the first job
/// that needs an instance.
fn settings() -> Settings {
    Settings {
        preemption: false,
        reservations: 0,
        repartition: Repartition::Apply,
        repartition_after_ms: 0,
        ..Settings::default()
    }
}

/// The first round may only repartition a GPU for the job; the second then places it.
fn place_job(scheduler: &mut InMemoryScheduler, job: JobId) -> Option<(usize, PlacedTask)> {
    (0..2).find_map(|_| {
        scheduler.plan_and_adopt();
        scheduler.first_task(job).map(|(node, task)| (node, task.clone()))
    })
}

fn gpu_portion(task: &PlacedTask) -> Option<GpuPortion> {
    let Some(Share { compute_milli, mode, .. }) = task.share.as_deref() else {
        return Some(GpuPortion::Whole);
    };
    match mode {
        ShareMode::Mig { profile, .. } => {
            H200_141GB.profiles.iter().find(|one| one.name == profile).map(GpuPortion::Instance)
        }
        ShareMode::Mps => Some(GpuPortion::MpsLimited(*compute_milli)),
        ShareMode::TimeSlice => Some(GpuPortion::TimeSlice),
    }
}

fn node_facts(gpus: usize) -> NodeFacts {
    let template = synthetic::node_facts(0);
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: "NVIDIA H200".to_string(),
        memory_mib: GPU_MEMORY_MIB,
        ..template.gpus[0].clone()
    };
    NodeFacts { gpus: (0..gpus).map(gpu).collect(), ..template.clone() }
}

fn job_spec(job: JobClassIndex, isolation: IsolationMode) -> JobSpec {
    let mut spec = synthetic::job_spec(synthetic::SyntheticJob::default());
    let (each, class) = (&mut spec.tasks[0].each, &JOB_CLASSES[job]);
    each.gpu_compute_milli = class.compute_milli;
    each.gpu_memory_mib = class.memory_mib;
    each.isolation = match isolation {
        IsolationMode::Requested => class.isolation,
        IsolationMode::Ignored => class.isolation.min(Isolation::Memory),
    };
    spec
}
