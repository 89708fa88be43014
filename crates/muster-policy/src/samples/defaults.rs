//! The default of each sample view.

use std::collections::BTreeMap;

use muster_core::gpu::model;
use muster_core::ids::{JobId, TenantId};
use muster_core::objects::job::{Exit, Topology};
use muster_core::objects::policy::FailureView;
use muster_core::policy::{CandidateView, ClusterView, JobView, NodeView, TenantView};

fn tenant_id() -> TenantId {
    "research".parse().unwrap_or_else(|_| unreachable!("`research` is a name"))
}

/// One whole GPU, on a Wednesday at noon.
pub fn job() -> JobView {
    JobView {
        tenant: tenant_id(),
        user: "ann".to_string(),
        priority: 500,
        tasks: 1,
        gpus: 1,
        gpus_per_task: 1,
        gpu_milli: 1_000,
        gpu_models: Default::default(),
        gpu_memory_mib: 0,
        isolation: "none",
        cpus: 8,
        memory_mib: 65_536,
        time_limit_ms: None,
        topology: Topology::Any,
        pool: None,
        node_labels: BTreeMap::new(),
        labels: BTreeMap::new(),
        name: None,
        image: None,
        now: super::moment_from(&BTreeMap::new()),
    }
}

/// No usage and no guarantee.
pub fn tenant() -> TenantView {
    TenantView {
        id: tenant_id(),
        priority: 500,
        weight: 1,
        gpu_milli_held: 0,
        gpus_guaranteed: None,
        gpus_max: None,
        jobs: 0,
        labels: BTreeMap::new(),
    }
}

/// 64 idle GPUs in no pool, on a Wednesday at noon.
pub fn cluster() -> ClusterView {
    let (pools, now) = (BTreeMap::new(), super::moment_from(&BTreeMap::new()));
    ClusterView { gpus: 64, gpu_milli_held: 0, pools, now }
}

/// Eight H100.
pub fn node() -> NodeView {
    NodeView {
        node: "node-1".parse().unwrap_or_else(|_| unreachable!("`node-1` is a name")),
        models: [model::canonical("NVIDIA H100 80GB HBM3")].into(),
        gpus: 8,
        gpu_memory_mib: 81_559,
        partitioned: false,
        cpus: 128,
        memory_mib: 1_048_576,
        labels: BTreeMap::new(),
        pools: Default::default(),
    }
}

/// Has run for ten minutes and would lose all of them.
pub fn candidate() -> CandidateView {
    CandidateView {
        id: JobId::single(1),
        tenant: tenant_id(),
        user: "ann".to_string(),
        priority: 500,
        gpus: 1,
        ran_ms: 600_000,
        lost_gpu_ms: 600_000,
        preemptions: 0,
        saves: false,
        labels: BTreeMap::new(),
    }
}

/// Ended with exit code 1 after a minute.
pub fn failure() -> FailureView {
    let nodes = vec![node().node];
    FailureView { exit: Exit::Code { code: 1 }, attempt: 1, failures: 0, ran_ms: 60_000, nodes }
}
