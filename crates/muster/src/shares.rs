//! GPUs and parts of them, in words.

use std::collections::BTreeMap;

use muster_protocol::amount::Amount;
use muster_protocol::gpu::{Gpu, GpuInstance};
use muster_protocol::job::JobSummary;
use muster_protocol::share::{Holder, Share};
use serde::Serialize;

/// `1 GPU`, `2 GPUs`, `1.5 GPUs`.
pub fn gpus(amount: Amount) -> String {
    let word = if amount.milli == 1_000 { "GPU" } else { "GPUs" };
    format!("{amount} {word}")
}

/// How many GPUs a job has or asks for; half a GPU is 0.5.
pub fn of_job(job: &JobSummary) -> String {
    job.gpu_amount.map_or_else(|| job.gpu_count.to_string(), |amount| amount.to_string())
}

/// The GPUs of a job: whole ones in one line, then a line for each part.
pub fn placed(gpus: &[String], shares: &[Share]) -> String {
    let is_shared = |gpu: &&String| shares.iter().any(|share| share.gpu == **gpu);
    let whole: Vec<&str> = gpus.iter().filter(|gpu| !is_shared(gpu)).map(String::as_str).collect();
    let whole = Some(whole.join(" ")).filter(|line| !line.is_empty());
    whole.into_iter().chain(shares.iter().map(line)).collect::<Vec<String>>().join("\n")
}

fn line(share: &Share) -> String {
    let way = way(&share.mode, share.profile.as_deref());
    let part = format!("{}: {}/1000 {way}, {} MiB", share.gpu, share.compute_milli, share.memory_mib);
    format!("{part}; {}", share.why)
}

/// Names of those who hold something of a GPU, each once: their jobs, or their tenants.
pub fn names(gpu: &Gpu, name: fn(&Holder) -> &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in gpu.holders.iter().map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" ")
}

/// Who holds something of a GPU, and what.
pub fn holder(holder: &Holder) -> String {
    let way = way(&holder.mode, holder.profile.as_deref());
    format!("{}: {}/1000 {way}, {} MiB", holder.job_id, holder.compute_milli, holder.memory_mib)
}

/// Instances of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InstanceKind {
    profile: String,
    free: u32,
    total: u32,
}

/// Instances, counted by their kind.
pub fn by_kind<'a>(instances: impl IntoIterator<Item = &'a GpuInstance>) -> Vec<InstanceKind> {
    let mut kinds: BTreeMap<&str, InstanceKind> = BTreeMap::new();
    for instance in instances {
        let new = || InstanceKind { profile: instance.profile.clone(), ..InstanceKind::default() };
        let kind = kinds.entry(&instance.profile).or_insert_with(new);
        kind.free += u32::from(!instance.held);
        kind.total += 1;
    }
    kinds.into_values().collect()
}

/// `1g.18gb 3 free of 7`, for each kind.
pub fn instances(kinds: &[InstanceKind]) -> String {
    let words = kinds.iter().map(|kind| format!("{} {} free of {}", kind.profile, kind.free, kind.total));
    words.collect::<Vec<String>>().join(", ")
}

/// How a GPU is shared.
fn way(mode: &str, profile: Option<&str>) -> String {
    match (mode, profile) {
        ("whole", _) => "for itself".to_string(),
        ("mps", _) => "by MPS".to_string(),
        ("time-slice", _) => "in turns".to_string(),
        ("mig", Some(profile)) => format!("as MIG instance {profile}"),
        (other, _) => format!("by {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_counted_by_kind() {
        let one = |profile: &str, start: u8, held: bool| GpuInstance { profile: profile.into(), start, held };
        let parts = [one("3g.71gb", 4, true), one("1g.18gb", 0, false), one("1g.18gb", 1, true)];
        assert_eq!(instances(&by_kind(&parts)), "1g.18gb 1 free of 2, 3g.71gb 0 free of 1");
    }

    #[test]
    fn whole_gpus_and_parts_are_told_apart() {
        let share = |mode: &str, profile: Option<&str>| Share {
            gpu: "n1/gpu-3".to_string(),
            mode: mode.to_string(),
            compute_milli: 500,
            memory_mib: 40_779,
            profile: profile.map(str::to_string),
            why: "so it is".to_string(),
        };
        let gpus = ["n1/gpu-0", "n1/gpu-1", "n1/gpu-3"].map(str::to_string);
        assert_eq!(placed(&gpus[..2], &[]), "n1/gpu-0 n1/gpu-1");
        let parts = [share("mps", None), share("mig", Some("3g.71gb"))];
        let wanted = "n1/gpu-0 n1/gpu-1\nn1/gpu-3: 500/1000 by MPS, 40779 MiB; so it is\n\
                      n1/gpu-3: 500/1000 as MIG instance 3g.71gb, 40779 MiB; so it is";
        assert_eq!(placed(&gpus, &parts), wanted);
    }
}
