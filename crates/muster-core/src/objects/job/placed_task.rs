//! A placed task: a task of a gang with its node and devices.

use serde::{Deserialize, Serialize};

use crate::gpu::gpu_share::Share;
use crate::ids::NodeId;

/// A task with its node and GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedTask {
    /// Rank within the gang, from 0.
    pub rank: u32,
    /// Index of its task group in `JobSpec::tasks`.
    pub group: u32,
    pub node: NodeId,
    pub gpus: Vec<u8>,
    /// Its share of the device; `None` for whole devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Box<Share>>,
}

impl PlacedTask {
    /// Thousandths of each of its devices that it holds.
    pub fn milli_each(&self) -> u64 {
        self.share.as_ref().map_or(1_000, |share| u64::from(share.compute_milli))
    }

    /// GPUs it holds in thousandths, shares counted in part.
    pub fn gpu_milli(&self) -> u64 {
        self.milli_each() * self.gpus.len() as u64
    }

    /// Its devices, each with its node.
    pub fn devices(&self) -> impl Iterator<Item = (&NodeId, u8)> {
        self.gpus.iter().map(|gpu| (&self.node, *gpu))
    }
}
