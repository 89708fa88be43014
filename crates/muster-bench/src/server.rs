//! The server under test: the release binary in its own process, on a new data folder.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::http::Connection;

/// A running server, killed on drop.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

/// A temporary folder, deleted on drop.
pub struct TempFolder(pub PathBuf);

impl TempFolder {
    pub fn new(name: &str) -> Result<TempFolder> {
        let path = std::env::temp_dir().join(format!("muster-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(TempFolder(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Server {
    /// Start the server on a data folder, with a simulated cluster of `nodes` nodes with eight GPUs each, and wait
    /// until it is ready.
    pub fn start(folder: &Path, nodes: usize, database: Option<&str>) -> Result<Server> {
        let cluster = folder.join("cluster.yaml");
        let text = format!(
            "nodes:\n  - name: gpu\n    count: {nodes}\n    cpus: 128\n    memory_gib: 1024\n    gpus: {{ model: \"NVIDIA H100 80GB HBM3\", count: 8, memory_mib: 81559 }}\n"
        );
        std::fs::write(&cluster, text)?;
        let mut command = Command::new(muster_binary()?);
        command.args(["dev", "--data-dir"]).arg(folder.join("data"));
        command.arg("--cluster").arg(&cluster);
        if let Some(url) = database {
            command.args(["--database", url]);
        }
        Server::launch(command)
    }

    /// Start a server without nodes, which agents can join on a free port.
    pub fn start_without_nodes(folder: &Path) -> Result<Server> {
        let mut command = Command::new(muster_binary()?);
        command.args(["serve", "--data-dir"]).arg(folder.join("data"));
        command.env("MUSTER_AGENT_LINK__LISTEN", free_address()?);
        Server::launch(command)
    }

    fn launch(mut command: Command) -> Result<Server> {
        command.args(["--listen", "127.0.0.1:0"]);
        // One tenant submits all jobs of a benchmark, more than a tenant may usually have.
        command.env("MUSTER_SCHEDULER__MAX_JOBS_PER_TENANT", "0");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let address = listening_address(BufReader::new(stdout))?;
        let server = Server { child, address };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(120) {
            if let Ok((200, _)) =
                Connection::open(self.address).and_then(|mut connection| connection.request("GET", "/readyz", ""))
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server did not become ready")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn resident_mib(&self) -> Result<f64> {
        resident_mib(self.pid())
    }

    /// Stop the server with SIGTERM and wait for its exit.
    pub fn stop(mut self) -> Result<()> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of this machine at which nobody listened a moment ago.
fn free_address() -> Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Resident memory of a process.
pub fn resident_mib(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no VmRSS value")?.parse()?;
    Ok(kib / 1024.0)
}

/// The `muster` binary in the folder of this one.
pub fn muster_binary() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("muster");
    if !path.exists() {
        bail!("{} is missing: `make bench` builds it first", path.display());
    }
    Ok(path)
}

/// Parse the URL that the server prints. A thread drains the rest of its output, so that the pipe does not fill up.
fn listening_address(mut output: impl BufRead + Send + 'static) -> Result<SocketAddr> {
    let mut line = String::new();
    loop {
        line.clear();
        if output.read_line(&mut line)? == 0 {
            bail!("the server exited before it printed its address");
        }
        if let Some((_, rest)) = line.split_once("http://") {
            let address = rest.split([' ', '/', '\n']).next().unwrap_or_default().parse()?;
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
            return Ok(address);
        }
    }
}
