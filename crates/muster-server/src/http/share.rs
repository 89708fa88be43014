//! Parts of GPUs as the API shows them.

use muster_core::job::{Job, PlacedTask};
use muster_core::node::{Node, Slot};
use muster_core::partition::MigInstance;
use muster_core::share::{self, ShareMode, WHOLE};
use muster_core::{JobId, State};
use muster_protocol::amount::Amount;
use muster_protocol::gpu::GpuInstance;
use muster_protocol::share::{Holder, Share};
use muster_store::rows::LeaseRow;

/// How many GPUs that is, where parts are among them.
pub fn in_parts(milli: u64) -> Option<Amount> {
    Some(Amount::of_milli(milli)).filter(|amount| !amount.is_whole())
}

/// The GPUs of an attempt, each once, however many of its tasks are there.
pub fn gpus(leases: &[LeaseRow]) -> Vec<String> {
    each_once(leases.iter().map(|lease| format!("{}/gpu-{}", lease.node, lease.gpu)))
}

/// The GPUs of a gang, each once.
pub fn gpus_of<'a>(tasks: impl Iterator<Item = &'a PlacedTask>) -> Vec<String> {
    each_once(tasks.flat_map(|task| task.devices().map(|(node, gpu)| format!("{node}/gpu-{gpu}"))))
}

fn each_once(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut known = std::collections::BTreeSet::new();
    names.filter(|name| known.insert(name.clone())).collect()
}

/// What an attempt has of GPUs that it does not have for itself.
pub fn shares(leases: &[LeaseRow]) -> Vec<Share> {
    leases.iter().filter_map(of_lease).collect()
}

fn of_lease(lease: &LeaseRow) -> Option<Share> {
    let mode = match lease.slot.split_once(':') {
        None if lease.slot.is_empty() => return None,
        None if lease.slot == ShareMode::Mps.word() => ShareMode::Mps,
        None => ShareMode::TimeSlice,
        Some((_, instance)) => {
            let (profile, start) = instance.split_once('@').unwrap_or((instance, ""));
            ShareMode::Mig { profile: profile.to_string(), start: start.parse().unwrap_or_default() }
        }
    };
    Some(Share {
        gpu: format!("{}/gpu-{}", lease.node, lease.gpu),
        mode: mode.word().to_string(),
        why: mode.why().to_string(),
        compute_milli: lease.compute_milli,
        memory_mib: lease.memory_mib?,
        profile: profile(&mode),
    })
}

/// The same of a gang that is only foreseen.
pub fn shares_of<'a>(tasks: impl Iterator<Item = &'a PlacedTask>) -> Vec<Share> {
    tasks.flat_map(of_task).collect()
}

fn of_task(task: &PlacedTask) -> Option<Share> {
    let share = task.share.as_ref()?;
    let (node, gpu) = task.devices().next()?;
    Some(Share {
        gpu: format!("{node}/gpu-{gpu}"),
        mode: share.mode.word().to_string(),
        why: share.mode.why().to_string(),
        compute_milli: share.compute_milli,
        memory_mib: share.memory_mib,
        profile: profile(&share.mode),
    })
}

fn profile(mode: &ShareMode) -> Option<String> {
    match mode {
        ShareMode::Mig { profile, .. } => Some(profile.clone()),
        ShareMode::Mps | ShareMode::TimeSlice => None,
    }
}

/// Who holds a GPU or parts of it, task by task.
pub fn holders<'a>(
    state: &'a State,
    node: &'a Node,
    index: usize,
) -> Vec<(&'a Job, Option<&'a share::Share>)> {
    // A gang on whole GPUs may have thousands of tasks; nobody needs to look at them.
    if let Some(job) = node.sole_holder(index) {
        return state.jobs.get(&job).map(|job| (job, None)).into_iter().collect();
    }
    let mut jobs: Vec<JobId> = node.holders[index].iter().map(|lease| lease.job).collect();
    jobs.dedup(); // Leases are kept in order of their jobs.
    let jobs = jobs.into_iter().filter_map(|id| state.jobs.get(&id));
    jobs.flat_map(|job| shares_on(job, node, index).map(move |share| (job, Some(share)))).collect()
}

/// What the tasks of a job have of a GPU that they share.
fn shares_on<'a>(job: &'a Job, node: &'a Node, index: usize) -> impl Iterator<Item = &'a share::Share> {
    let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
    let here = tasks.filter(move |task| task.node == node.id && task.gpus.contains(&(index as u8)));
    here.filter_map(|task| task.share.as_deref())
}

/// What a GPU is partitioned into.
pub fn instances(node: &Node, index: u8) -> Vec<GpuInstance> {
    let leases = node.holders.get(usize::from(index)).map_or(&[][..], Vec::as_slice);
    let held = |start: u8| leases.iter().any(|lease| lease.slot == Slot::Instance { start });
    let shown = |instance: &MigInstance| GpuInstance {
        profile: instance.profile.clone(),
        start: instance.start,
        held: held(instance.start),
    };
    node.instances(index).iter().map(shown).collect()
}

/// Thousandths of a GPU that are held.
pub fn used_milli(state: &State, node: &Node, index: usize) -> u32 {
    holders(state, node, index).into_iter().map(|(_, share)| compute_milli(share)).sum()
}

fn compute_milli(share: Option<&share::Share>) -> u32 {
    share.map_or(WHOLE, |share| share.compute_milli)
}

/// Who holds a GPU, and what of it.
pub fn holder(job: &Job, share: Option<&share::Share>, device_mib: u64) -> Holder {
    Holder {
        job_id: job.id.to_string(),
        allocation_id: format!("{}:{}", job.id, job.attempts),
        tenant_id: job.spec.tenant.to_string(),
        mode: share.map_or("whole", |share| share.mode.word()).to_string(),
        compute_milli: compute_milli(share),
        memory_mib: share.map_or(device_mib, |share| share.memory_mib),
        profile: share.and_then(|share| profile(&share.mode)),
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
    fn a_lease_tells_its_share() {
        assert_eq!(shares(&[LeaseRow { memory_mib: None, ..lease("") }]), Vec::new());
        let found = shares(&[lease("mig:1g.18gb@2"), lease("time-slice")]);
        let words: Vec<(&str, Option<&str>)> =
            found.iter().map(|share| (share.mode.as_str(), share.profile.as_deref())).collect();
        assert_eq!(words, vec![("mig", Some("1g.18gb")), ("time-slice", None)]);
        assert_eq!((found[0].gpu.as_str(), found[0].memory_mib), ("n1/gpu-3", 18_000));
        assert_eq!(gpus(&[lease("mps"), lease("mps")]), vec!["n1/gpu-3"]);
    }
}
