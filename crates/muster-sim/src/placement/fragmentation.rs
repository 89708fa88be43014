//! Fragmentation as FGD defines it (Weng et al., ATC'23): free GPU capacity that pods of the target workload cannot
//! use. The planner has a measure of its own, `muster_core::estimate::fragmentation`.
//!
//! FGD truncates its scores to integers, so the last bit of a sum can change a placement. Sums are therefore taken in
//! the order of the published runs: first by the reason why capacity is unusable, then over the reasons.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::cluster::{ModelSet, TraceNode};
use super::openb::TracePod;

/// The percentage of all pods that the target workload covers.
const COVERED_PERCENT: usize = 95;

/// The most frequent classes of pods and their shares.
#[derive(Debug, Clone)]
pub struct TargetWorkload {
    classes: Vec<PodClass>,
}

/// Why capacity is unusable for a pod, in the order in which the published runs add the reasons up.
#[derive(Debug, Clone, Copy)]
enum UnusableReason {
    /// Too few cores and too few GPUs.
    LacksBoth,
    /// Too few GPUs, or some GPUs that are too full.
    LacksGpu,
    /// Too few cores.
    LacksCpu,
    /// The pod needs no GPU, and fits.
    NeedsNone,
    /// The pod needs no GPU, and cores are too few.
    NeedsNoneLacksCpu,
    /// The pod does not accept the GPU model.
    OtherModel,
}

#[derive(Debug, Clone)]
struct PodClass {
    cpu: u64,
    gpus: u32,
    milli_per_gpu: u32,
    models: ModelSet,
    share: f64,
}

impl TargetWorkload {
    /// The most frequent classes, until they cover 95 % of the pods.
    pub fn of_pods(pods: &[TracePod]) -> TargetWorkload {
        let mut groups: BTreeMap<(u64, u32, u32, &str), (usize, ModelSet)> = BTreeMap::new();
        for TracePod { request, gpu_spec } in pods {
            let class = (request.cpu_milli, request.milli_per_gpu, request.gpus, gpu_spec.as_str());
            groups.entry(class).or_insert((0, request.models)).0 += 1;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(group, (count, _))| Reverse((*count, *group)));
        let mut covered = 0;
        let taken = groups.iter().take_while(|(_, (count, _))| {
            let wanted = covered * 100 < pods.len() * COVERED_PERCENT;
            covered += count;
            wanted
        });
        let taken: Vec<_> = taken.collect();
        let all: usize = taken.iter().map(|(_, (count, _))| count).sum();
        let part = |count: usize| count as f64 / pods.len() as f64;
        let classes = taken.into_iter().map(|((cpu, milli, gpus, _), (count, models))| PodClass {
            cpu: *cpu,
            gpus: *gpus,
            milli_per_gpu: *milli,
            models: *models,
            share: part(*count) / part(all),
        });
        TargetWorkload { classes: classes.collect() }
    }

    /// Thousandths of a GPU on this node that the next pod cannot use, as an expected value over the classes.
    pub fn fragmentation_milli(&self, node: &TraceNode) -> f64 {
        self.fragmentation_milli_of(node.model, node.cpu_milli_free, &node.device_milli_free)
    }

    /// The same for a node with this model, these free cores and these free thousandths of each GPU.
    pub fn fragmentation_milli_of(&self, model: ModelSet, cpu: u64, devices: &[u32]) -> f64 {
        let free: u32 = devices.iter().sum();
        let mut sums = [0.0; 6];
        for class in &self.classes {
            let (reason, unusable) = class.unusable_milli(model, cpu, devices, free);
            sums[reason as usize] += class.share * f64::from(unusable);
        }
        sums.iter().sum()
    }
}

impl PodClass {
    /// Thousandths that a pod of this class cannot use: all of `free`, or those of the GPUs that are too full.
    fn unusable_milli(&self, model: ModelSet, cpu: u64, devices: &[u32], free: u32) -> (UnusableReason, u32) {
        let enough_cpu = cpu >= self.cpu;
        if self.gpus == 0 {
            return (if enough_cpu { UnusableReason::NeedsNone } else { UnusableReason::NeedsNoneLacksCpu }, free);
        }
        if !model.intersects(self.models) {
            return (UnusableReason::OtherModel, free);
        }
        let (mut fitting, mut unusable) = (0, 0);
        for device in devices {
            let fits = *device >= self.milli_per_gpu;
            fitting += u32::from(fits);
            unusable += if fits { 0 } else { *device };
        }
        match (enough_cpu, fitting >= self.gpus) {
            (true, true) => (UnusableReason::LacksGpu, unusable),
            (true, false) => (UnusableReason::LacksGpu, free),
            (false, true) => (UnusableReason::LacksCpu, free),
            (false, false) => (UnusableReason::LacksBoth, free),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cluster::PodRequest;
    use super::*;

    fn pod(cpu: u64, gpus: u32, milli: u32, models: ModelSet) -> TracePod {
        TracePod {
            request: PodRequest { cpu_milli: cpu, memory_mib: 0, gpus, milli_per_gpu: milli, models },
            gpu_spec: format!("{}", models.0),
        }
    }

    /// Of ten pods four request half a GPU, three two GPUs, two no GPU, and one a GPU of model 2.
    fn target_workload() -> TargetWorkload {
        let mut pods = vec![pod(4_000, 1, 500, ModelSet::ANY); 4];
        pods.extend(vec![pod(8_000, 2, 1_000, ModelSet::ANY); 3]);
        pods.extend(vec![pod(1_000, 0, 0, ModelSet::ANY); 2]);
        pods.push(pod(2_000, 1, 1_000, ModelSet(2)));
        TargetWorkload::of_pods(&pods)
    }

    #[test]
    fn fragmentation_weights_unusable_gpus_by_pod_class() {
        let target = target_workload();
        let fragments = |model, cpu, devices: &[u32]| target.fragmentation_milli_of(ModelSet(model), cpu, devices);
        // 1,700 are free. Half a GPU cannot use the 200. Two GPUs: none of it, since only one GPU is whole. No GPU and
        // model 2: none of it.
        let expected = 0.4 * 200.0 + 0.3 * 1_700.0 + 0.2 * 1_700.0 + 0.1 * 1_700.0;
        assert!((fragments(1, 9_000, &[1_000, 500, 200]) - expected).abs() < 1e-9);
        // On a node of model 2 that class cannot use 700.
        let expected = 0.4 * 200.0 + 0.3 * 1_700.0 + 0.2 * 1_700.0 + 0.1 * 700.0;
        assert!((fragments(2, 9_000, &[1_000, 500, 200]) - expected).abs() < 1e-9);
        // Two whole GPUs, but cores for the pods with half a GPU only.
        let expected = 0.4 * 0.0 + 0.3 * 2_000.0 + 0.2 * 2_000.0 + 0.1 * 2_000.0;
        assert!((fragments(1, 7_999, &[1_000, 1_000]) - expected).abs() < 1e-9);
        // Without cores no class can use anything.
        assert!((fragments(2, 0, &[1_000, 300]) - 1_300.0).abs() < 1e-9);
    }

    #[test]
    fn the_target_workload_covers_95_percent_of_pods() {
        let mut pods = vec![pod(1_000, 1, 1_000, ModelSet::ANY); 94];
        pods.extend(vec![pod(2_000, 1, 1_000, ModelSet::ANY); 3]);
        pods.extend(vec![pod(3_000, 1, 1_000, ModelSet::ANY); 3]);
        let target = TargetWorkload::of_pods(&pods);
        // Of two equally frequent classes the larger one is taken.
        let shares: Vec<(u64, f64)> = target.classes.iter().map(|class| (class.cpu, class.share)).collect();
        assert_eq!(shares, [(1_000, 0.94 / 0.97), (3_000, 0.03 / 0.97)]);
    }
}
