//! A server to test against, in a folder of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use muster_server::config::{Config, RawConfig};
use muster_server::policies::Interpreter;
use muster_server::server::{self, Advisers, Nodes, Running};
use serde_json::{Value, json};

use crate::client::{Client, Reply};

/// Far longer than anything takes, so that a slow machine fails nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// `n01` and `n02`, four GPUs each.
pub const TWO_NODES: &str = "nodes:
  - { name: n, count: 2, cpus: 32, memory_gib: 256, gpus: { model: NVIDIA H100, count: 4, memory_mib: 81559 } }";

/// A server that stops when it is dropped.
pub struct House {
    running: Option<Running>,
    folder: PathBuf,
    client: Client,
}

impl House {
    /// Two simulated nodes with four GPUs each.
    pub fn new() -> House {
        House::with(&[], Some(TWO_NODES)).with_gpus(8)
    }

    /// No node at all.
    pub fn empty() -> House {
        House::with(&[], None)
    }

    /// With other settings.
    pub fn with(settings: &[(&'static str, &str)], nodes: Option<&str>) -> House {
        House::advised(settings, nodes, Advisers::default())
    }

    /// Two simulated nodes, and policies that this interpreter runs.
    pub fn with_policies(interpreter: Arc<dyn Interpreter>) -> House {
        let advisers = Advisers { interpreter: Some(interpreter), ..Advisers::default() };
        House::advised(&[], Some(TWO_NODES), advisers).with_gpus(8)
    }

    fn advised(settings: &[(&'static str, &str)], nodes: Option<&str>, advisers: Advisers) -> House {
        let folder = folder();
        let mut flags = RawConfig::default();
        flags.flag("listen", "--listen", "127.0.0.1:0");
        flags.flag("data_dir", "--data-dir", folder.display());
        flags.flag("scheduler.scheduling_interval_ms", "test", 50);
        for (key, value) in settings {
            flags.flag(key, "test", value);
        }
        let config = Config::load(flags, [], None).unwrap_or_else(|error| panic!("{error}"));
        let nodes = nodes.map(|text| muster_agent::Cluster::parse(text).unwrap());
        let mut running =
            server::start(&config, nodes.map_or(Nodes::None, Nodes::Simulated), advisers).unwrap();
        assert!(running.wait_until_ready(Some(PATIENCE)).unwrap(), "the server did not come up");
        let token = server::bootstrap_token(&running, &config).unwrap();
        let client = Client::new(&running.url(), token.map(|token| token.reveal().to_string()));
        House { running: Some(running), folder, client }
    }

    /// Wait until so many GPUs can be given out.
    pub fn with_gpus(self, gpus: u64) -> House {
        self.until("GPUs", |house| house.get("/api/v1/cluster/status")["available_gpus"] == gpus);
        self
    }

    /// A caller without a token in local mode, and with the administrator's otherwise.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A second server over the same database.
    pub fn beside(&self) -> House {
        let database = format!("sqlite:{}", self.folder.join("muster.db").display());
        House::with(&[("database.url", &database)], None)
    }

    /// What the server holds in memory.
    pub fn cluster(&self) -> &muster_server::cluster::Cluster {
        self.running.as_ref().unwrap().cluster()
    }

    /// Stop this server and start one over its database that has nodes of its own.
    pub fn followed_by(&mut self, nodes: &str, gpus: u64) -> House {
        self.stop();
        let database = format!("sqlite:{}", self.folder.join("muster.db").display());
        House::with(&[("database.url", &database)], Some(nodes)).with_gpus(gpus)
    }

    /// Stop the server and leave its files.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take()
            && let Err(error) = running.stop()
            && !std::thread::panicking()
        {
            panic!("the server did not stop in order: {error}");
        }
    }

    /// Where the server keeps its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Look at something that must be there.
    pub fn get(&self, path: &str) -> Value {
        let reply = self.client.get(path);
        assert_eq!(reply.status, 200, "GET {path}: {}", reply.text);
        reply.json()
    }

    /// Submit a job that must be accepted; returns its id.
    pub fn submit(&self, job: Value) -> String {
        let reply = self.client.post("/api/v1/jobs", &job);
        assert_eq!(reply.status, 201, "{job}: {}", reply.text);
        reply.json()["job_id"].as_str().unwrap().to_string()
    }

    /// A job that runs for so long.
    pub fn sleeper(&self, runtime: &str, gpus: u32) -> String {
        self.submit(json!({"name": "sleeper", "command": ["sleep"], "gpu_count": gpus,
            "annotations": {"muster.sim/runtime": runtime}}))
    }

    /// Wait until a job is in a state.
    pub fn until_state(&self, job: &str, state: &str) -> Value {
        let path = format!("/api/v1/jobs/{job}");
        self.until(&format!("{job} to be {state}"), |house| house.get(&path)["state"] == state);
        self.get(&path)
    }

    /// Wait until something is true.
    pub fn until(&self, what: &str, mut is: impl FnMut(&House) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is(self) {
            assert!(Instant::now() < end, "waited too long for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Expect a problem with this status and code, and the sentence also where the seed's clients look for it: in
    /// `error`. Returns the sentence.
    pub fn refused(&self, reply: &Reply, status: u16, code: &str) -> String {
        let problem = reply.json();
        assert_eq!((reply.status, problem["code"].as_str()), (status, Some(code)), "{}", reply.text);
        assert_eq!(problem["error"], problem["detail"], "{}", reply.text);
        problem["detail"].as_str().unwrap().to_string()
    }
}

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("muster-http-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
