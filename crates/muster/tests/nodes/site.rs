//! The processes of a cluster: a server or two, and an agent for each node in the network of the node.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::namespaces::{NodeNetwork, SERVER_ADDRESS, run};

const MUSTER: &str = env!("CARGO_BIN_EXE_muster");
const HTTP_ADDRESSES: [&str; 2] = ["127.0.0.1:8080", "127.0.0.1:8081"];
const LINK_PORTS: [u16; 2] = [50_052, 50_053];
pub const HEARTBEAT_MS: u64 = 200;
/// The constants of `nodes` and `scheduler`, scaled down. All are settings.
const CONFIG: &str = "\
scheduler: {stop_grace: 500ms, launch_backoff: 100ms, scheduling_interval_ms: 100}
nodes: {suspect_after: 1s, suspect_margin: 600ms, unreachable_after: 2s, fence_margin: 500ms, self_fence: SELF_FENCE}
";
/// Long enough for a busy machine; a test that works waits a fraction of it.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Site {
    pub folder: PathBuf,
    /// `postgres://…` if two servers share it; else the only server has a database of its own.
    database: Option<String>,
    servers: Vec<Option<Child>>,
}

/// A node, with its network and its agent.
pub struct Node {
    pub name: String,
    pub network: NodeNetwork,
    data_dir: PathBuf,
    log: PathBuf,
    agent: Option<Child>,
}

impl Site {
    /// Starts one server.
    pub fn start(name: &str, self_fence_ms: u64) -> Site {
        let mut site = Site::prepare(name, self_fence_ms, None);
        site.start_server(0);
        site
    }

    /// Starts a leader and a standby, which have the same CA.
    pub fn start_pair(name: &str, self_fence_ms: u64, database: String) -> Site {
        let mut site = Site::prepare(name, self_fence_ms, Some(database));
        site.start_server(0);
        run(&format!("cd {} && mkdir -p data-1 && cp -a data-0/tls data-1/", site.folder.display()));
        site.start_server(1);
        site
    }

    fn prepare(name: &str, self_fence_ms: u64, database: Option<String>) -> Site {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nodes-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let config = CONFIG.replace("SELF_FENCE", &format!("{self_fence_ms}ms"));
        std::fs::write(folder.join("muster.yaml"), config).unwrap();
        let count = if database.is_some() { 2 } else { 1 };
        Site { folder, database, servers: (0..count).map(|_| None).collect() }
    }

    pub fn start_server(&mut self, number: usize) {
        let address = HTTP_ADDRESSES[number];
        let mut command = Command::new(MUSTER);
        command.args([
            "serve",
            "--config",
            "muster.yaml",
            "--listen",
            address,
            "--data-dir",
            &format!("data-{number}"),
        ]);
        command.args(self.database.iter().flat_map(|url| ["--database", url]));
        // The address of this server comes first.
        let mut ports = LINK_PORTS[..self.servers.len()].to_vec();
        ports.rotate_left(number);
        let advertised: Vec<String> = ports.iter().map(|port| format!("{SERVER_ADDRESS}:{port}")).collect();
        command.env("MUSTER_AGENT_LINK__LISTEN", format!("0.0.0.0:{}", LINK_PORTS[number]));
        command.env("MUSTER_AGENT_LINK__ADVERTISE", advertised.join(","));
        command.env("MUSTER_AGENT__HEARTBEAT_INTERVAL_MS", HEARTBEAT_MS.to_string()).current_dir(&self.folder);
        let log = append_to(&self.folder.join(format!("server-{number}.log")));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_listening = lines.any(|line| line.unwrap_or_default().contains(address));
        assert!(is_listening, "the server did not start:\n{}", self.tail_of_logs());
        // Keep reading, so that the server does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        self.servers[number] = Some(child);
    }

    pub fn kill_server(&mut self, number: usize) {
        let mut server = self.servers[number].take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    pub fn signal_server(&self, number: usize, name: &str) {
        signal(self.servers[number].as_ref().unwrap().id(), name);
    }

    /// The server that leads; waits for one.
    pub fn leader(&self) -> usize {
        let leads = |number: &usize| {
            request(HTTP_ADDRESSES[*number], "GET", "/readyz", "").is_ok_and(|(status, _)| status == 200)
        };
        self.wait("a server leads", || (0..self.servers.len()).any(|number| leads(&number)));
        (0..self.servers.len()).find(leads).unwrap()
    }

    /// Creates a node that joins with a new token, when the server lists it as ready.
    pub fn join(&self, name: &str, number: usize, gpus: u32) -> Node {
        let network = NodeNetwork::create(name, number);
        let (data_dir, log) = (self.folder.join(name), self.folder.join(format!("{name}.log")));
        let mut node = Node { name: name.to_string(), network, data_dir, log, agent: None };
        let mut token = Command::new(MUSTER);
        token.args(["node", "token"]).env("MUSTER_SERVER", format!("http://{}", HTTP_ADDRESSES[self.leader()]));
        let output = token.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let url = String::from_utf8(output.stdout).unwrap();
        node.start_agent_with(&["--gpus", &gpus.to_string(), "--join", url.trim()]);
        self.wait(&format!("{name} is ready"), || self.node_state(name) == "Ready");
        node
    }

    pub fn node_state(&self, name: &str) -> String {
        let node = self.get(&format!("/api/v1/nodes/{name}")).unwrap_or_default();
        node["state"].as_str().unwrap_or_default().to_string()
    }

    /// Submits an array of `size` jobs that run the script, at most `parallel` of them at once. Returns the id of the array, or
    /// `None` if no server takes it now.
    pub fn submit_array(
        &self,
        (size, parallel): (usize, usize),
        script: &Path,
        env: &BTreeMap<String, String>,
    ) -> Option<String> {
        let job = serde_json::json!({
            "name": "writer", "array": format!("0-{}%{parallel}", size - 1), "gpu_count": 1, "cpu_cores": 0, "memory_mb": 16,
            "command": [script], "environment": env, "directory": "/", "on_node_lost": "requeue",
            "max_restarts": 1_000, "max_requeues": 1_000,
        });
        let answer = self.request("POST", "/api/v1/jobs", &job.to_string())?;
        Some(answer["job_id"].as_str().unwrap().to_string())
    }

    /// The answer to a request; `None` if there is none, or an error.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.request("GET", path, "")
    }

    /// The answer of the first server that can answer.
    fn request(&self, method: &str, path: &str, body: &str) -> Option<Value> {
        let answer = |address: &&str| {
            let (status, answer) = request(address, method, path, body).ok()?;
            assert!(!matches!(status, 400 | 422), "{method} {path}: {status} {answer}");
            (200..300).contains(&status).then(|| muster_json::from_str(&answer).ok()).flatten()
        };
        HTTP_ADDRESSES[..self.servers.len()].iter().find_map(answer)
    }

    /// Jobs that have not ended; `None` without a leader.
    pub fn unfinished_jobs(&self) -> Option<u64> {
        let count = |state: &str| self.get(&format!("/api/v1/jobs?state={state}&limit=1"))?["total"].as_u64();
        Some(count("pending")? + count("running")? + count("preempted")?)
    }

    pub fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}\n{}", self.tail_of_logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The last lines of each log, for messages.
    pub fn tail_of_logs(&self) -> String {
        let logs = std::fs::read_dir(&self.folder).unwrap().flatten().map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let shown = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {}\n{}", path.display(), lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        logs.map(shown).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for mut server in self.servers.iter_mut().filter_map(Option::take) {
            let _ = server.kill();
            let _ = server.wait();
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Node {
    pub fn start_agent(&mut self) {
        self.start_agent_with(&["--gpus", "4"]);
    }

    fn start_agent_with(&mut self, words: &[&str]) {
        let mut command = self.network.command(MUSTER);
        command.args(["agent", "--node", &self.name, "--data-dir"]).arg(&self.data_dir).args(words);
        command.env("MUSTER_AGENT__HEARTBEAT_INTERVAL_MS", HEARTBEAT_MS.to_string());
        let log = append_to(&self.log);
        self.agent = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// SIGKILL.
    pub fn kill_agent(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    pub fn signal_agent(&self, name: &str) {
        signal(self.agent.as_ref().unwrap().id(), name);
    }

    /// Ends the agent as a service manager does, so that it removes its cgroups.
    pub fn stop_agent(&mut self) {
        self.signal_agent("TERM");
        self.agent.take().unwrap().wait().unwrap();
    }

    /// The attempts between launch intent and exit record: job, number and directory.
    pub fn open_attempts(&self) -> Vec<(String, u32, PathBuf)> {
        let dirs = |path: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let attempts = dirs(&self.data_dir.join("attempts")).into_iter().flat_map(|job| {
            dirs(&job).into_iter().filter_map(move |dir| Some((name(&job), name(&dir).parse().ok()?, dir)))
        });
        let is_open = |dir: &Path| dir.join("intent.json").exists() && !dir.join("exit.json").exists();
        attempts.filter(|(_, _, dir)| is_open(dir)).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// The process of the shim of an attempt, if it has taken the launch lock.
pub fn shim_pid(attempt_dir: &Path) -> Option<u32> {
    let lock: Value = muster_json::from_str(&std::fs::read_to_string(attempt_dir.join("pid.json")).ok()?).ok()?;
    u32::try_from(lock["shim"]["pid"].as_u64()?).ok()
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    sent.unwrap();
}

fn append_to(path: &Path) -> std::fs::File {
    std::fs::File::options().create(true).append(true).open(path).unwrap()
}

fn request(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let status = response.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("no status: {response:?}")))?;
    Ok((status, response.split_once("\r\n\r\n").map(|(_, body)| body.to_string()).unwrap_or_default()))
}
