//! Fragmentation: how much of the free GPU is of no use to the pods that typically come.
//!
//! FGD cuts its scores to whole numbers, so the last bit of a sum can send a pod elsewhere. Sums are therefore taken as
//! in the published runs: by the reason why GPU is of no use, and then over the reasons.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::cluster::{Models, Node};
use super::trace::Pod;

/// The share of all pods that typical ones make up, in percent.
const COVERED: usize = 95;

/// What comes most often, and how often.
#[derive(Debug, Clone)]
pub struct Typical {
    kinds: Vec<Kind>,
}

/// Why GPU is of no use to a pod, in the order in which the published runs add them up.
#[derive(Debug, Clone, Copy)]
enum Reason {
    /// Neither cores nor devices suffice.
    LacksBoth,
    /// Devices do not suffice, or not all of them are free enough.
    LacksGpu,
    /// Cores do not suffice.
    LacksCpu,
    /// It needs no GPU, and fits.
    NeedsNone,
    /// It needs no GPU, and cores do not suffice.
    NeedsNoneLacksCpu,
    /// The model is not one that it takes.
    OtherModel,
}

#[derive(Debug, Clone)]
struct Kind {
    cpu: u64,
    gpus: u32,
    milli: u32,
    models: Models,
    share: f64,
}

impl Typical {
    /// The commonest groups of pods that together make up 95 in 100.
    pub fn of(pods: &[Pod]) -> Typical {
        let mut groups: BTreeMap<(u64, u32, u32, &str), (usize, Models)> = BTreeMap::new();
        for Pod { ask, spec, .. } in pods {
            groups.entry((ask.cpu, ask.milli, ask.gpus, spec)).or_insert((0, ask.models)).0 += 1;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(group, (count, _))| Reverse((*count, *group)));
        let mut covered = 0;
        let taken = groups.iter().take_while(|(_, (count, _))| {
            let wanted = covered * 100 < pods.len() * COVERED;
            covered += count;
            wanted
        });
        let taken: Vec<_> = taken.collect();
        let all: usize = taken.iter().map(|(_, (count, _))| count).sum();
        let part = |count: usize| count as f64 / pods.len() as f64;
        let kinds = taken.into_iter().map(|((cpu, milli, gpus, _), (count, models))| Kind {
            cpu: *cpu,
            gpus: *gpus,
            milli: *milli,
            models: *models,
            share: part(*count) / part(all),
        });
        Typical { kinds: kinds.collect() }
    }

    /// Thousandths of a GPU on this node that the next pod is not expected to be able to use.
    pub fn fragments(&self, node: &Node) -> f64 {
        self.fragments_of(node.model, node.cpu, &node.devices)
    }

    /// The same of a node that is described rather than given.
    pub fn fragments_of(&self, model: Models, cpu: u64, devices: &[u32]) -> f64 {
        let free: u32 = devices.iter().sum();
        let mut sums = [0.0; 6];
        for kind in &self.kinds {
            let (reason, useless) = kind.useless(model, cpu, devices, free);
            sums[reason as usize] += kind.share * f64::from(useless);
        }
        sums.iter().sum()
    }
}

impl Kind {
    /// Thousandths that are of no use to a pod of this kind: all, or those of devices that are too full for it.
    fn useless(&self, model: Models, cpu: u64, devices: &[u32], free: u32) -> (Reason, u32) {
        let enough_cpu = cpu >= self.cpu;
        if self.gpus == 0 {
            return (if enough_cpu { Reason::NeedsNone } else { Reason::NeedsNoneLacksCpu }, free);
        }
        if !model.meets(self.models) {
            return (Reason::OtherModel, free);
        }
        let (mut fitting, mut useless) = (0, 0);
        for device in devices {
            let fits = *device >= self.milli;
            fitting += u32::from(fits);
            useless += if fits { 0 } else { *device };
        }
        match (enough_cpu, fitting >= self.gpus) {
            (true, true) => (Reason::LacksGpu, useless),
            (true, false) => (Reason::LacksGpu, free),
            (false, true) => (Reason::LacksCpu, free),
            (false, false) => (Reason::LacksBoth, free),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cluster::Ask;
    use super::*;

    fn pod(cpu: u64, gpus: u32, milli: u32, models: Models) -> Pod {
        Pod { ask: Ask { cpu, memory_mib: 0, gpus, milli, models }, spec: format!("{}", models.0) }
    }

    /// Ten pods: four that share half a GPU, three of two GPUs, two without, one of a model.
    fn ten() -> Typical {
        let mut pods = vec![pod(4_000, 1, 500, Models::ANY); 4];
        pods.extend(vec![pod(8_000, 2, 1_000, Models::ANY); 3]);
        pods.extend(vec![pod(1_000, 0, 0, Models::ANY); 2]);
        pods.push(pod(2_000, 1, 1_000, Models(2)));
        Typical::of(&pods)
    }

    #[test]
    fn what_is_free_and_of_no_use_is_weighed_by_who_comes() {
        let typical = ten();
        let fragments = |model, cpu, devices: &[u32]| typical.fragments_of(Models(model), cpu, devices);
        // 1,700 are free. Shared: the 200 are too little. Two GPUs: all, since only one is whole. Without: all.
        // The model is another: all.
        let expected = 0.4 * 200.0 + 0.3 * 1_700.0 + 0.2 * 1_700.0 + 0.1 * 1_700.0;
        assert!((fragments(1, 9_000, &[1_000, 500, 200]) - expected).abs() < 1e-9);
        // The same on a node of the model: 700 are of no use to it.
        let expected = 0.4 * 200.0 + 0.3 * 1_700.0 + 0.2 * 1_700.0 + 0.1 * 700.0;
        assert!((fragments(2, 9_000, &[1_000, 500, 200]) - expected).abs() < 1e-9);
        // Two whole ones, but cores for a shared pod only.
        let expected = 0.4 * 0.0 + 0.3 * 2_000.0 + 0.2 * 2_000.0 + 0.1 * 2_000.0;
        assert!((fragments(1, 7_999, &[1_000, 1_000]) - expected).abs() < 1e-9);
        // No cores: all that is free.
        assert!((fragments(2, 0, &[1_000, 300]) - 1_300.0).abs() < 1e-9);
    }

    #[test]
    fn typical_are_the_commonest_until_95_in_100_are_covered() {
        let mut pods = vec![pod(1_000, 1, 1_000, Models::ANY); 94];
        pods.extend(vec![pod(2_000, 1, 1_000, Models::ANY); 3]);
        pods.extend(vec![pod(3_000, 1, 1_000, Models::ANY); 3]);
        let typical = Typical::of(&pods);
        // Of two that are as common, the larger one is taken.
        let shares: Vec<(u64, f64)> = typical.kinds.iter().map(|kind| (kind.cpu, kind.share)).collect();
        assert_eq!(shares, [(1_000, 0.94 / 0.97), (3_000, 0.03 / 0.97)]);
    }
}
