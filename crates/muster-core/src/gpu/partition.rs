//! MIG partitions of a device: instances by profile name and start, as the journal and the agents store them. Legality
//! is decided by the tables in `mig.rs`.

use serde::{Deserialize, Serialize};

use crate::gpu::device::{GpuFacts, MigInstance};
use crate::gpu::gpu_share::PARTITIONED_GPUS_MAX;
use crate::gpu::mig::{Instance, MigLayout, MigTable};
use crate::gpu::model;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Sorted by start; empty if the device is whole again.
    pub instances: Vec<MigInstance>,
    pub since: Timestamp,
}

/// The MIG table of a device; `None` if it cannot be partitioned.
pub fn table_of(gpu: &GpuFacts) -> Option<&'static MigTable> {
    model::of_device(&gpu.model, gpu.memory_mib)?.mig
}

/// Instances of the profiles at the starts that leave most further placements possible, or why they do not fit.
pub fn laid_out(gpu: &GpuFacts, profiles: &[String]) -> Result<Vec<MigInstance>, String> {
    if profiles.is_empty() {
        return Ok(Vec::new());
    }
    let table = table_of(gpu).ok_or_else(|| format!("`{}` cannot be partitioned", gpu.model))?;
    let wanted: Vec<(u8, u32)> =
        profiles.iter().map(|name| Ok((profile_of(table, gpu, name)?, 1))).collect::<Result<_, String>>()?;
    let layout = table.layout_for(&MigLayout::default(), &wanted);
    let layout = layout.ok_or_else(|| format!("`{}` has no room for {} at once", gpu.model, profiles.join(", ")))?;
    Ok(named(table, &layout))
}

/// Checks that a device can be partitioned into these instances.
pub fn check(gpu: &GpuFacts, index: u8, instances: &[MigInstance]) -> Result<(), String> {
    if instances.is_empty() {
        return Ok(());
    }
    if u32::from(index) >= PARTITIONED_GPUS_MAX {
        return Err(format!("only the first {PARTITIONED_GPUS_MAX} GPUs of a node can be partitioned"));
    }
    let table = table_of(gpu).ok_or_else(|| format!("`{}` cannot be partitioned", gpu.model))?;
    let resolved = |named: &MigInstance| {
        let profile = profile_of(table, gpu, &named.profile)?;
        Ok(Instance { start: named.start, profile })
    };
    let layout: MigLayout = instances.iter().map(resolved).collect::<Result<Vec<_>, String>>()?.into();
    table.is_legal(&layout).map_err(|illegal| illegal.to_string())
}

/// The instances of a layout with their profile names.
pub fn named(table: &MigTable, layout: &MigLayout) -> Vec<MigInstance> {
    let name = |one: &Instance| {
        let profile = table.profiles.get(usize::from(one.profile))?.name.to_string();
        Some(MigInstance { profile, start: one.start })
    };
    layout.instances().iter().filter_map(name).collect()
}

fn profile_of(table: &MigTable, gpu: &GpuFacts, name: &str) -> Result<u8, String> {
    table.profile(name).ok_or_else(|| {
        let known: Vec<&str> = table.profiles.iter().map(|profile| profile.name).collect();
        format!("`{}` has no profile `{name}`; it has {}", gpu.model, known.join(", "))
    })
}
