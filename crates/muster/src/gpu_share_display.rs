//! GPUs, GPU shares and MIG instances, for people.

use std::collections::BTreeMap;

use muster_protocol::gpu::{Gpu, GpuInstance};
use muster_protocol::gpu_amount::GpuAmount;
use muster_protocol::gpu_share::{Holder, Share};
use muster_protocol::job::JobSummary;
use serde::Serialize;

/// `1 GPU`, `2 GPUs`, `1.5 GPUs`.
pub fn gpu_amount_text(amount: GpuAmount) -> String {
    let word = if amount.milli == 1_000 { "GPU" } else { "GPUs" };
    format!("{amount} {word}")
}

/// The number of GPUs that a job holds or requests; half a GPU is 0.5.
pub fn job_gpus_text(job: &JobSummary) -> String {
    job.gpu_amount.map_or_else(|| job.gpu_count.to_string(), |amount| amount.to_string())
}

/// The GPUs of a job: whole GPUs in one line, then one line per share.
pub fn gpu_list_text(gpus: &[String], shares: &[Share]) -> String {
    let is_shared = |gpu: &&String| shares.iter().any(|share| share.gpu == **gpu);
    let whole: Vec<&str> = gpus.iter().filter(|gpu| !is_shared(gpu)).map(String::as_str).collect();
    let whole = Some(whole.join(" ")).filter(|line| !line.is_empty());
    whole.into_iter().chain(shares.iter().map(share_text)).collect::<Vec<String>>().join("\n")
}

fn share_text(share: &Share) -> String {
    let mode = sharing_mode_text(&share.mode, share.profile.as_deref());
    let amount = format!("{}: {}/1000 {mode}, {} MiB", share.gpu, share.compute_milli, share.memory_mib);
    format!("{amount}; {}", share.why)
}

/// Jobs or tenants that hold a part of the GPU, each once.
pub fn holder_names(gpu: &Gpu, name: fn(&Holder) -> &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in gpu.holders.iter().map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" ")
}

/// A job that holds a part of a GPU, and the part.
pub fn holder_text(holder: &Holder) -> String {
    let mode = sharing_mode_text(&holder.mode, holder.profile.as_deref());
    format!("{}: {}/1000 {mode}, {} MiB", holder.job_id, holder.compute_milli, holder.memory_mib)
}

/// MIG instances of one profile.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InstanceCount {
    profile: String,
    free: u32,
    total: u32,
}

/// MIG instances, counted by profile.
pub fn count_by_profile<'a>(instances: impl IntoIterator<Item = &'a GpuInstance>) -> Vec<InstanceCount> {
    let mut counts: BTreeMap<&str, InstanceCount> = BTreeMap::new();
    for instance in instances {
        let new = || InstanceCount { profile: instance.profile.clone(), ..InstanceCount::default() };
        let count = counts.entry(&instance.profile).or_insert_with(new);
        count.free += u32::from(!instance.held);
        count.total += 1;
    }
    counts.into_values().collect()
}

/// `1g.18gb 3 free of 7`, for each profile.
pub fn instance_counts_text(counts: &[InstanceCount]) -> String {
    let words = counts.iter().map(|count| format!("{} {} free of {}", count.profile, count.free, count.total));
    words.collect::<Vec<String>>().join(", ")
}

fn sharing_mode_text(mode: &str, profile: Option<&str>) -> String {
    match (mode, profile) {
        ("mps", _) => "MPS".to_string(),
        ("time-slice", _) => "time-sliced".to_string(),
        ("mig", Some(profile)) => format!("MIG {profile}"),
        (mode, _) => mode.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_counted_by_profile() {
        let one = |profile: &str, start: u8, held: bool| GpuInstance { profile: profile.into(), start, held };
        let parts = [one("3g.71gb", 4, true), one("1g.18gb", 0, false), one("1g.18gb", 1, true)];
        assert_eq!(instance_counts_text(&count_by_profile(&parts)), "1g.18gb 1 free of 2, 3g.71gb 0 free of 1");
    }

    #[test]
    fn whole_gpus_and_shares_are_listed_separately() {
        let share = |mode: &str, profile: Option<&str>| Share {
            gpu: "n1/gpu-3".to_string(),
            mode: mode.to_string(),
            compute_milli: 500,
            memory_mib: 40_779,
            profile: profile.map(str::to_string),
            why: "reason".to_string(),
        };
        let gpus = ["n1/gpu-0", "n1/gpu-1", "n1/gpu-3"].map(str::to_string);
        assert_eq!(gpu_list_text(&gpus[..2], &[]), "n1/gpu-0 n1/gpu-1");
        let parts = [share("mps", None), share("mig", Some("3g.71gb"))];
        let wanted = "n1/gpu-0 n1/gpu-1\nn1/gpu-3: 500/1000 MPS, 40779 MiB; reason\n\
                      n1/gpu-3: 500/1000 MIG 3g.71gb, 40779 MiB; reason";
        assert_eq!(gpu_list_text(&gpus, &parts), wanted);
    }
}
