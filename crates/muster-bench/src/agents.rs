//! A server without nodes of its own, and agents that join it: real processes that talk over the agent link.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::http::Connection;
use crate::server::{Server, TempFolder, muster_binary, resident_mib};

/// The agents register and restart within a fraction of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server and its agents, in one folder. Killed on drop.
pub struct Cluster {
    agents: Vec<AgentProcess>,
    pub server: Server,
    pub folder: TempFolder,
}

pub struct AgentProcess {
    child: Child,
    /// With the outputs of jobs.
    pub data_dir: PathBuf,
}

#[derive(Deserialize)]
struct JoinToken {
    url: String,
}

#[derive(Deserialize)]
struct Page {
    total: u64,
}

impl Cluster {
    /// Starts a server and `agents` agents with `gpus` counted GPUs each, and waits until all nodes are ready.
    pub fn start(name: &str, agents: usize, gpus: u32) -> Result<Cluster> {
        let folder = TempFolder::new(name)?;
        let mut cluster = Cluster { agents: Vec::new(), server: Server::start_without_nodes(&folder.0)?, folder };
        for number in 0..agents {
            let url = cluster.join_url()?;
            let data_dir = cluster.folder.0.join(format!("n{number}"));
            let log = File::create(cluster.folder.0.join(format!("n{number}.log")))?;
            let mut command = Command::new(muster_binary()?);
            command.args(["agent", "--node", &format!("n{number}"), "--join", &url, "--gpus", &gpus.to_string()]);
            command.arg("--data-dir").arg(&data_dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            cluster.agents.push(AgentProcess { child: command.spawn()?, data_dir });
        }
        cluster.wait_until_ready(agents)?;
        Ok(cluster)
    }

    pub fn join_url(&self) -> Result<String> {
        let answer = self.request("POST", "/api/v1/nodes/join-tokens", r#"{"expires_in_seconds": 3600}"#)?;
        Ok(muster_json::from_slice::<JoinToken>(&answer)?.url)
    }

    /// Waits until this number of nodes is ready.
    pub fn wait_until_ready(&self, nodes: usize) -> Result<()> {
        self.wait_for_total("/api/v1/nodes?state=Ready&limit=1", nodes as u64)
    }

    /// Waits until this number of jobs is completed.
    pub fn wait_until_completed(&self, jobs: usize) -> Result<()> {
        self.wait_for_total("/api/v1/jobs?state=completed&limit=1", jobs as u64)
    }

    fn wait_for_total(&self, path: &str, expected: u64) -> Result<()> {
        let started = Instant::now();
        loop {
            let page: Page = muster_json::from_slice(&self.request("GET", path, "")?)?;
            if page.total >= expected {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("{path}: {} of {expected} after {PATIENCE:?}", page.total);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The body of a successful response.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let (status, answer) = Connection::open(self.server.address)?.request(method, path, body)?;
        if !(200..300).contains(&status) {
            bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&answer));
        }
        Ok(answer)
    }

    pub fn agents(&self) -> &[AgentProcess] {
        &self.agents
    }

    /// CPU milliseconds of all agents, of their shims and of the tasks.
    pub fn agents_cpu_ms(&self) -> Result<f64> {
        self.agents.iter().map(|agent| cpu_ms_with_children(agent.child.id())).sum()
    }
}

impl AgentProcess {
    pub fn resident_mib(&self) -> Result<f64> {
        resident_mib(self.child.id())
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // So that the agent removes its cgroups.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// CPU time of a process and of those of its descendants that have been waited for.
pub fn cpu_ms_with_children(pid: u32) -> Result<f64> {
    crate::launch_anchor::cpu_ms_of(Path::new(&format!("/proc/{pid}/stat")))
}
