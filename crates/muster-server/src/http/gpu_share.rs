//! GPU shares, MIG instances and their holders as the API shows them.

use muster_core::gpu::device::MigInstance;
use muster_core::gpu::gpu_share;
use muster_core::gpu::gpu_share::{ShareMode, WHOLE};
use muster_core::objects::job::{Job, PlacedTask};
use muster_core::objects::node::{Node, Slot};
use muster_core::{JobId, State};
use muster_protocol::gpu::GpuInstance;
use muster_protocol::gpu_amount::GpuAmount;
use muster_protocol::gpu_share::{Holder, Share};
use muster_store::rows::LeaseRow;

/// The amount of GPUs, if it is not a whole number.
pub fn fractional_gpus(milli: u64) -> Option<GpuAmount> {
    Some(GpuAmount::from_milli(milli)).filter(|amount| !amount.is_whole())
}

/// The GPUs of an attempt, each once even if several of its tasks share it.
pub fn leased_gpus(leases: &[LeaseRow]) -> Vec<String> {
    without_duplicates(leases.iter().map(|lease| format!("{}/gpu-{}", lease.node, lease.gpu)))
}

/// The GPUs of a gang, each once.
pub fn placed_gpus<'a>(tasks: impl Iterator<Item = &'a PlacedTask>) -> Vec<String> {
    without_duplicates(tasks.flat_map(|task| task.devices().map(|(node, gpu)| format!("{node}/gpu-{gpu}"))))
}

fn without_duplicates(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut known = std::collections::BTreeSet::new();
    names.filter(|name| known.insert(name.clone())).collect()
}

/// The shares of an attempt on GPUs that it does not hold whole.
pub fn leased_shares(leases: &[LeaseRow]) -> Vec<Share> {
    leases.iter().filter_map(share_of_lease).collect()
}

fn share_of_lease(lease: &LeaseRow) -> Option<Share> {
    let mode = match lease.slot.split_once(':') {
        None if lease.slot.is_empty() => return None,
        None if lease.slot == ShareMode::Mps.as_str() => ShareMode::Mps,
        None => ShareMode::TimeSlice,
        Some((_, instance)) => {
            let (profile, start) = instance.split_once('@').unwrap_or((instance, ""));
            ShareMode::Mig { profile: profile.to_string(), start: start.parse().unwrap_or_default() }
        }
    };
    Some(Share {
        gpu: format!("{}/gpu-{}", lease.node, lease.gpu),
        mode: mode.as_str().to_string(),
        why: mode.why().to_string(),
        compute_milli: lease.compute_milli,
        memory_mib: lease.memory_mib?,
        profile: mig_profile(&mode),
    })
}

/// The shares of a gang that is only planned.
pub fn placed_shares<'a>(tasks: impl Iterator<Item = &'a PlacedTask>) -> Vec<Share> {
    tasks.flat_map(share_of_task).collect()
}

fn share_of_task(task: &PlacedTask) -> Option<Share> {
    let share = task.share.as_ref()?;
    let (node, gpu) = task.devices().next()?;
    Some(Share {
        gpu: format!("{node}/gpu-{gpu}"),
        mode: share.mode.as_str().to_string(),
        why: share.mode.why().to_string(),
        compute_milli: share.compute_milli,
        memory_mib: share.memory_mib,
        profile: mig_profile(&share.mode),
    })
}

fn mig_profile(mode: &ShareMode) -> Option<String> {
    match mode {
        ShareMode::Mig { profile, .. } => Some(profile.clone()),
        ShareMode::Mps | ShareMode::TimeSlice => None,
    }
}

/// The holders of a GPU, one entry per task; the share is `None` for a holder of the whole GPU.
pub fn gpu_holders<'a>(state: &'a State, node: &'a Node, index: usize) -> Vec<(&'a Job, Option<&'a gpu_share::Share>)> {
    // A gang on whole GPUs may have thousands of tasks; a whole GPU has one holder, so they need no search.
    if let Some(job) = node.sole_holder(index) {
        return state.jobs.get(&job).map(|job| (job, None)).into_iter().collect();
    }
    let mut jobs: Vec<JobId> = node.holders[index].iter().map(|lease| lease.job).collect();
    jobs.dedup(); // Leases are kept in order of their jobs.
    let jobs = jobs.into_iter().filter_map(|id| state.jobs.get(&id));
    jobs.flat_map(|job| job_shares_on_gpu(job, node, index).map(move |share| (job, Some(share)))).collect()
}

/// The shares of a job's tasks on one GPU.
fn job_shares_on_gpu<'a>(job: &'a Job, node: &'a Node, index: usize) -> impl Iterator<Item = &'a gpu_share::Share> {
    let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
    let on_gpu = tasks.filter(move |task| task.node == node.id && task.gpus.contains(&(index as u8)));
    on_gpu.filter_map(|task| task.share.as_deref())
}

/// The MIG instances of a GPU.
pub fn mig_instances(node: &Node, index: u8) -> Vec<GpuInstance> {
    let leases = node.holders.get(usize::from(index)).map_or(&[][..], Vec::as_slice);
    let held = |start: u8| leases.iter().any(|lease| lease.slot == Slot::Instance { start });
    let api_instance = |instance: &MigInstance| GpuInstance {
        profile: instance.profile.clone(),
        start: instance.start,
        held: held(instance.start),
    };
    node.instances(index).iter().map(api_instance).collect()
}

/// Thousandths of a GPU that are held.
pub fn used_milli(state: &State, node: &Node, index: usize) -> u32 {
    gpu_holders(state, node, index).into_iter().map(|(_, share)| compute_milli(share)).sum()
}

fn compute_milli(share: Option<&gpu_share::Share>) -> u32 {
    share.map_or(WHOLE, |share| share.compute_milli)
}

/// A holder of a GPU and its share.
pub fn api_holder(job: &Job, share: Option<&gpu_share::Share>, device_mib: u64) -> Holder {
    Holder {
        job_id: job.id.to_string(),
        allocation_id: format!("{}:{}", job.id, job.attempts),
        tenant_id: job.spec.tenant.to_string(),
        mode: share.map_or("whole", |share| share.mode.as_str()).to_string(),
        compute_milli: compute_milli(share),
        memory_mib: share.map_or(device_mib, |share| share.memory_mib),
        profile: share.and_then(|share| mig_profile(&share.mode)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(slot: &str) -> LeaseRow {
        LeaseRow {
            node: "n1".to_string(),
            gpu: 3,
            rank: 0,
            slot: slot.to_string(),
            compute_milli: 142,
            memory_milli: 125,
            memory_mib: Some(18_000),
            from_ms: 0,
            to_ms: None,
        }
    }

    #[test]
    fn a_lease_is_shown_with_its_share_mode_and_mig_profile() {
        assert_eq!(leased_shares(&[LeaseRow { memory_mib: None, ..lease("") }]), Vec::new());
        let found = leased_shares(&[lease("mig:1g.18gb@2"), lease("time-slice")]);
        let modes: Vec<(&str, Option<&str>)> =
            found.iter().map(|share| (share.mode.as_str(), share.profile.as_deref())).collect();
        assert_eq!(modes, vec![("mig", Some("1g.18gb")), ("time-slice", None)]);
        assert_eq!((found[0].gpu.as_str(), found[0].memory_mib), ("n1/gpu-3", 18_000));
        assert_eq!(leased_gpus(&[lease("mps"), lease("mps")]), vec!["n1/gpu-3"]);
    }
}
