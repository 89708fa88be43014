//! A server under test, with its own data folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use muster_server::config::{Config, RawConfig};
use muster_server::policies::Interpreter;
use muster_server::server::{self, Adapters, InProcessNodes, RunningServer};
use serde_json::{Value, json};

use crate::client::{Client, HttpReply};
use crate::grpc_client::GrpcClient;

/// Far longer than anything takes, so that no test fails on a slow machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// `n01` and `n02`, four GPUs each.
pub const TWO_NODES: &str = "nodes:
  - { name: n, count: 2, cpus: 32, memory_gib: 256, gpus: { model: NVIDIA H100, count: 4, memory_mib: 81559 } }";

/// A server that stops when it is dropped.
pub struct TestServer {
    running: Option<RunningServer>,
    data_dir: PathBuf,
    client: Client,
}

impl TestServer {
    /// Two simulated nodes with four GPUs each.
    pub fn new() -> TestServer {
        TestServer::with_settings(&[], Some(TWO_NODES)).wait_for_gpus(8)
    }

    /// No node at all.
    pub fn without_nodes() -> TestServer {
        TestServer::with_settings(&[], None)
    }

    pub fn with_settings(settings: &[(&'static str, &str)], nodes: Option<&str>) -> TestServer {
        TestServer::start(settings, nodes, Adapters::default())
    }

    /// Two simulated nodes, and policies that this interpreter runs.
    pub fn with_policies(interpreter: Arc<dyn Interpreter>) -> TestServer {
        let adapters = Adapters { interpreter: Some(interpreter), ..Adapters::default() };
        TestServer::start(&[], Some(TWO_NODES), adapters).wait_for_gpus(8)
    }

    fn start(settings: &[(&'static str, &str)], nodes: Option<&str>, adapters: Adapters) -> TestServer {
        let data_dir = new_data_dir();
        let mut flags = RawConfig::default();
        flags.flag("listen", "--listen", "127.0.0.1:0");
        flags.flag("agent_link.listen", "--agent-link", "127.0.0.1:0");
        flags.flag("api.grpc_port", "test", 0);
        flags.flag("data_dir", "--data-dir", data_dir.display());
        flags.flag("scheduler.scheduling_interval_ms", "test", 50);
        for (key, value) in settings {
            flags.flag(key, "test", value);
        }
        let config = Config::load(flags, [], None).unwrap_or_else(|error| panic!("{error}"));
        let nodes = nodes.map(|text| muster_agent::Cluster::parse(text).unwrap());
        let mut running =
            server::start(&config, nodes.map_or(InProcessNodes::None, InProcessNodes::Simulated), adapters).unwrap();
        assert!(running.wait_until_ready(Some(WAIT_TIMEOUT)).unwrap(), "the server did not come up");
        let token = server::bootstrap_token(&running, &config).unwrap();
        let client = Client::new(&running.url(), token.map(|token| token.reveal().to_string()));
        TestServer { running: Some(running), data_dir, client }
    }

    /// Wait until this number of GPUs is available.
    pub fn wait_for_gpus(self, gpus: u64) -> TestServer {
        self.wait_until("GPUs", |server| server.get("/api/v1/cluster/status")["available_gpus"] == gpus);
        self
    }

    /// A client without token in local mode, with the token of the admin otherwise.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A second server on the same database.
    pub fn second_server(&self) -> TestServer {
        let database = format!("sqlite:{}", self.data_dir.join("muster.db").display());
        TestServer::with_settings(&[("database.url", &database)], None)
    }

    /// A client of the gRPC API: without token in local mode, with the token of the admin otherwise.
    pub fn grpc(&self) -> GrpcClient {
        GrpcClient::new(&self.grpc_url(), self.client.token())
    }

    pub fn grpc_url(&self) -> String {
        self.running.as_ref().unwrap().grpc_url().unwrap()
    }

    /// The engine and the state of the server.
    pub fn cluster(&self) -> &muster_server::cluster::Cluster {
        self.running.as_ref().unwrap().cluster()
    }

    /// Stop this server and start another one with nodes on the same database.
    pub fn restart_with_nodes(&mut self, nodes: &str, gpus: u64) -> TestServer {
        self.stop();
        let database = format!("sqlite:{}", self.data_dir.join("muster.db").display());
        TestServer::with_settings(&[("database.url", &database)], Some(nodes)).wait_for_gpus(gpus)
    }

    /// Stop the server; its files stay.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take()
            && let Err(error) = running.stop()
            && !std::thread::panicking()
        {
            panic!("the server did not stop cleanly: {error}");
        }
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// GET a path that must answer 200.
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

    /// Submit a job that runs for this time.
    pub fn submit_sleeper(&self, runtime: &str, gpus: u32) -> String {
        self.submit(json!({"name": "sleeper", "command": ["sleep"], "gpu_count": gpus,
            "annotations": {"muster.sim/runtime": runtime}}))
    }

    /// Wait until a job is in a state, and return the job.
    pub fn wait_for_state(&self, job: &str, state: &str) -> Value {
        let path = format!("/api/v1/jobs/{job}");
        self.wait_until(&format!("{job} to be {state}"), |server| server.get(&path)["state"] == state);
        self.get(&path)
    }

    /// Wait until a condition is true.
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut(&TestServer) -> bool) {
        let end = Instant::now() + WAIT_TIMEOUT;
        while !condition(self) {
            assert!(Instant::now() < end, "waited too long for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Expect a problem with this status and code, and its sentence also in `error`, where clients of the specification
    /// look for it. Returns the sentence.
    pub fn expect_problem(&self, reply: &HttpReply, status: u16, code: &str) -> String {
        let problem = reply.json();
        assert_eq!((reply.status, problem["code"].as_str()), (status, Some(code)), "{}", reply.text);
        assert_eq!(problem["error"], problem["detail"], "{}", reply.text);
        problem["detail"].as_str().unwrap().to_string()
    }
}

fn new_data_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("muster-http-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.data_dir);
    }
}
