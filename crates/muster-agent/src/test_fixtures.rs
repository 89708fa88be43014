//! Fixtures of the unit tests: a sample order, and a temporary directory.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use muster_protocol::agent::{AttemptOrder, RunSpec, TaskOrder};

/// An empty directory that is removed at the end of the test.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("muster-agent-unit-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        TempDir(dir)
    }
}

impl Deref for TempDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An order placed at 1,000 ms on one GPU.
pub(crate) fn order(job: &str, annotations: &[(&str, &str)]) -> AttemptOrder {
    AttemptOrder {
        job: job.to_string(),
        attempt: 1,
        placed_at_ms: 1_000,
        started: false,
        adopt_only: false,
        tasks: vec![TaskOrder {
            rank: 0,
            group: "task".to_string(),
            group_rank: 0,
            gpus: vec![1],
            share: None,
            numa_nodes: Vec::new(),
            cpus: 1,
            memory_mib: 64,
        }],
        gang_size: 1,
        nodes: vec!["gpu01".to_string()],
        node_rank: 0,
        master_address: "gpu01.example.org".to_string(),
        master_port: None,
        hosts: Vec::new(),
        run: RunSpec { command: vec!["train".to_string()], ..RunSpec::default() },
        name: "demo".to_string(),
        tenant: "default".to_string(),
        user: "ann".to_string(),
        annotations: annotations.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        gpu_milliwatts_max: None,
        self_fence_ms: None,
        signal: None,
        stop: None,
    }
}
