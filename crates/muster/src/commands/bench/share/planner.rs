//! Ours: the product's own planner. Each job is submitted, planned for and adopted as in a server. Devices are shared by
//! MPS within limits; for those who ask to be apart idle ones are partitioned as the planner proposes.

use std::collections::BTreeMap;

use muster_core::job::{Isolation, JobSpec, PlacedTask};
use muster_core::mig::tables::H200_141GB;
use muster_core::node::{GpuFacts, NodeFacts};
use muster_core::settings::Repartition;
use muster_core::share::{Share, ShareMode};
use muster_core::{JobId, Settings};

use super::demand::{Job, TYPES, Wall};
use super::harm::{Device, Guest, Part};
use super::policies::DEVICE_MIB;
use crate::commands::bench::product::Product;
use crate::commands::bench::synthetic;
use crate::error::CliError;

/// Devices of a node.
const NODE_GPUS: usize = 8;

/// Who sits where with the fewest devices on which all find a place.
pub fn fewest(jobs: &[Job], wall: Wall) -> Result<Vec<Device>, CliError> {
    let asked: u32 = jobs.iter().map(|job| TYPES[*job].compute_milli).sum();
    let least = asked.div_ceil(1_000) as usize;
    let seated = (least..=jobs.len().max(least)).find_map(|gpus| seated(jobs, wall, gpus));
    seated.ok_or_else(|| CliError::failed("the planner finds no place for some job even with a GPU for each"))
}

/// Who sits where with so many devices; nothing if someone finds no place.
fn seated(jobs: &[Job], wall: Wall, gpus: usize) -> Option<Vec<Device>> {
    let mut product = Product::new(settings());
    for (rank, first) in (0..gpus).step_by(NODE_GPUS).enumerate() {
        product.register(rank, facts(NODE_GPUS.min(gpus - first)));
    }
    let mut devices: BTreeMap<(usize, u8), Device> = BTreeMap::new();
    for job in jobs {
        let id = product.submit(spec(*job, wall))?;
        let (node, task) = placed(&mut product, id)?;
        let [gpu] = task.gpus[..] else { return None };
        devices.entry((node, gpu)).or_default().push(Guest { job: *job, part: part(&task)? });
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
fn placed(product: &mut Product, job: JobId) -> Option<(usize, PlacedTask)> {
    (0..2).find_map(|_| {
        product.round();
        product.task(job).map(|(node, task)| (node, task.clone()))
    })
}

fn part(task: &PlacedTask) -> Option<Part> {
    let Some(Share { compute_milli, mode, .. }) = task.share.as_deref() else { return Some(Part::Whole) };
    match mode {
        ShareMode::Mig { profile, .. } => {
            H200_141GB.profiles.iter().find(|one| one.name == profile).map(Part::Instance)
        }
        ShareMode::Mps => Some(Part::Limited(*compute_milli)),
        ShareMode::TimeSlice => Some(Part::Turns),
    }
}

fn facts(gpus: usize) -> NodeFacts {
    let plain = synthetic::facts(0);
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: "NVIDIA H200".to_string(),
        memory_mib: DEVICE_MIB,
        ..plain.gpus[0].clone()
    };
    NodeFacts { gpus: (0..gpus).map(gpu).collect(), ..plain.clone() }
}

fn spec(job: Job, wall: Wall) -> JobSpec {
    let mut spec = synthetic::spec(synthetic::Ask::default());
    let (each, kind) = (&mut spec.tasks[0].each, &TYPES[job]);
    each.gpu_compute_milli = kind.compute_milli;
    each.gpu_memory_mib = kind.memory_mib;
    each.isolation = match wall {
        Wall::AsAsked => kind.isolation,
        Wall::Nobody => kind.isolation.min(Isolation::Memory),
    };
    spec
}
