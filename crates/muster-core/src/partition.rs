//! How devices are partitioned: instances by name and place, as journals and agents have them. What is legal is told by
//! the tables of `mig.rs`.

use serde::{Deserialize, Serialize};

use crate::mig::{Instance, Layout, MigTable};
use crate::model;
use crate::node::GpuFacts;
use crate::share::PARTITIONED_GPUS_MAX;
use crate::time::Timestamp;

/// An instance of a partitioned device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MigInstance {
    /// What it is called, for example `1g.18gb`.
    pub profile: String,
    /// Where on the device it begins.
    pub start: u8,
}

/// What a device is partitioned into, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its instances, by place; none if it is whole again.
    pub instances: Vec<MigInstance>,
    /// Since when.
    pub since: Timestamp,
}

/// What a device can be cut into.
pub fn table_of(gpu: &GpuFacts) -> Option<&'static MigTable> {
    model::of_device(&gpu.model, gpu.memory_mib)?.mig
}

/// Instances of some profiles, each where it spoils least; or why that cannot be.
pub fn laid_out(gpu: &GpuFacts, profiles: &[String]) -> Result<Vec<MigInstance>, String> {
    if profiles.is_empty() {
        return Ok(Vec::new());
    }
    let table = table_of(gpu).ok_or_else(|| format!("`{}` cannot be partitioned", gpu.model))?;
    let wanted: Vec<(u8, u32)> =
        profiles.iter().map(|name| Ok((profile_of(table, gpu, name)?, 1))).collect::<Result<_, String>>()?;
    let layout = table.layout_for(&Layout::default(), &wanted);
    let layout =
        layout.ok_or_else(|| format!("`{}` has no room for {} at once", gpu.model, profiles.join(", ")))?;
    Ok(named(table, &layout))
}

/// Whether a device can be cut into these instances; if not, why.
pub fn check(gpu: &GpuFacts, index: u8, instances: &[MigInstance]) -> Result<(), String> {
    if instances.is_empty() {
        return Ok(());
    }
    if u32::from(index) >= PARTITIONED_GPUS_MAX {
        return Err(format!("only the first {PARTITIONED_GPUS_MAX} GPUs of a node can be partitioned"));
    }
    let table = table_of(gpu).ok_or_else(|| format!("`{}` cannot be partitioned", gpu.model))?;
    let known = |one: &MigInstance| {
        let profile = profile_of(table, gpu, &one.profile)?;
        Ok(Instance { start: one.start, profile })
    };
    let layout: Layout = instances.iter().map(known).collect::<Result<Vec<_>, String>>()?.into();
    table.is_legal(&layout).map_err(|illegal| illegal.to_string())
}

/// The instances of a layout by name.
pub fn named(table: &MigTable, layout: &Layout) -> Vec<MigInstance> {
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
