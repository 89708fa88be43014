//! Connected idle agents: what a thousand of them cost the server, and the memory of one real agent.
//!
//! The agents are links with TLS in another process, each of a node with eight GPUs, that register and send heartbeats. The
//! baseline is a server of the same size whose nodes are simulated inside it: its memory is that of the state, without links.
//! `IDLE_AGENTS` changes their number.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muster_agent::inventory::counted_gpus;
use muster_agent::{Agent, ReportSink};
use muster_link::link::report_queue;
use muster_link::{Link, LinkConfig, enrolment};
use muster_protocol::agent::{HeartbeatEcho, Orders, OrdersStamp, Registration, Report};
use muster_wire::join_url::JoinUrl;

use crate::agents::{Cluster, cpu_ms_with_children};
use crate::launch::from_environment;
use crate::server::{Server, TempFolder};
use crate::table::{Table, format_figure};

/// This program plays the agents if this is its first argument.
pub const PEERS_WORD: &str = "peers";

const AGENTS: usize = 1_000;
const GPUS_PER_NODE: u32 = 8;
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The CPU time is measured for this long, after the nodes have settled.
const MEASURED: Duration = Duration::from_secs(20);
const SETTLED_AFTER: Duration = Duration::from_secs(5);

pub fn print_idle_costs() -> Result<()> {
    let agents = from_environment("IDLE_AGENTS", AGENTS)?;
    let folder = TempFolder::new("idle-baseline")?;
    let baseline = Server::start(&folder.0, agents, None)?;
    std::thread::sleep(SETTLED_AFTER);
    let baseline_mib = baseline.resident_mib()?;
    baseline.stop()?;
    let one = Cluster::start("idle-agent", 1, GPUS_PER_NODE)?;
    std::thread::sleep(SETTLED_AFTER);
    let agent_mib = one.agents()[0].resident_mib()?;
    drop(one);

    let cluster = Cluster::start("idle", 0, 0)?;
    let _peers = Peers::start(&cluster, agents)?;
    cluster.wait_until_ready(agents)?;
    std::thread::sleep(SETTLED_AFTER);
    let (cpu_before, started) = (cpu_ms_with_children(cluster.server.pid())?, Instant::now());
    std::thread::sleep(MEASURED);
    let cores = (cpu_ms_with_children(cluster.server.pid())? - cpu_before) / started.elapsed().as_secs_f64() / 1_000.0;
    let linked_mib = cluster.server.resident_mib()?;
    let columns = ["", "total", "per agent", "goal per agent"];
    let mut table = Table::new(&format!("{agents} connected idle agents with {GPUS_PER_NODE} GPUs each"), &columns);
    let link_kib = (linked_mib - baseline_mib) * 1_024.0;
    table.add_row(&[
        "server memory, MiB (baseline with as many simulated nodes)".to_string(),
        format!("{} ({})", format_figure(linked_mib), format_figure(baseline_mib)),
        format!("{} KiB above the baseline", format_figure(link_kib / agents as f64)),
        "150 kB".to_string(),
    ]);
    table.add_row(&[
        "server CPU, share of a core".to_string(),
        format!("{:.1} %", cores * 100.0),
        format!("{:.4} %", cores * 100.0 / agents as f64),
        "0.01 %".to_string(),
    ]);
    table.add_row(&[
        "memory of one real agent, MiB".to_string(),
        format_figure(agent_mib),
        "-".to_string(),
        "20 MB".to_string(),
    ]);
    table.print();
    Ok(())
}

/// The process that plays the agents; killed on drop.
struct Peers(Child);

impl Peers {
    /// Starts the process and gives it a join URL for each agent.
    fn start(cluster: &Cluster, agents: usize) -> Result<Peers> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(PEERS_WORD).arg(cluster.folder.0.join("peers")).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().context("no input")?;
        let peers = Peers(child);
        for _ in 0..agents {
            writeln!(input, "{}", cluster.join_url()?)?;
        }
        Ok(peers)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads join URLs from standard input, and runs an agent for each until the process is killed.
pub fn run_peers(folder: &str) -> Result<()> {
    let urls = BufReader::new(std::io::stdin()).lines().collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut links = Vec::new();
    let mut heartbeats: Vec<(String, ReportSink, Following)> = Vec::new();
    for (number, url) in urls.iter().enumerate() {
        let url: JoinUrl = url.parse()?;
        let node = format!("peer{number}");
        let data_dir = std::path::Path::new(folder).join(&node);
        let identity = runtime.block_on(enrolment::join(&data_dir, &node, &url))?;
        let (sink, reports) = report_queue();
        let following = Following::default();
        sink(Report::Registered(Box::new(registration(&node))));
        let config = LinkConfig {
            identity,
            incarnation: incarnation(&node),
            agent_version: env!("CARGO_PKG_VERSION").to_string(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            data_dir,
        };
        let agent = Box::new(IdleAgent { nodes: vec![node.clone()], following: following.clone() });
        links.push(Link::start(config, reports, agent)?);
        heartbeats.push((node, sink, following));
    }
    // Spread over the interval, as the agents of a cluster are.
    let pause = HEARTBEAT_INTERVAL / u32::try_from(heartbeats.len().max(1))?;
    let begin = Instant::now();
    for round in 0.. {
        for (number, (node, sink, following)) in heartbeats.iter().enumerate() {
            let due = HEARTBEAT_INTERVAL * round + pause * u32::try_from(number)?;
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
            let following = *following.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let sent_at_boot_ms = i64::try_from(begin.elapsed().as_millis())?;
            sink(Report::Heartbeat { node: node.clone(), following, sent_at_boot_ms });
        }
    }
    bail!("the rounds are over")
}

type Following = Arc<Mutex<Option<OrdersStamp>>>;

/// An agent that has nothing to run and says which orders it follows.
struct IdleAgent {
    nodes: Vec<String>,
    following: Following,
}

impl Agent for IdleAgent {
    fn nodes(&self) -> &[String] {
        &self.nodes
    }

    fn deliver_orders(&mut self, orders: Orders) {
        *self.following.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(orders.stamp());
    }

    fn acknowledge_heartbeat(&mut self, _echo: HeartbeatEcho) {}

    fn shutdown(&mut self) {}
}

fn incarnation(node: &str) -> String {
    format!("{node}-{}", std::process::id())
}

fn registration(node: &str) -> Registration {
    Registration {
        node: node.to_string(),
        hostname: node.to_string(),
        address: String::new(),
        cpus: 128,
        memory_mib: 1 << 20,
        gpus: counted_gpus(&format!("{node}-"), GPUS_PER_NODE),
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: env!("CARGO_PKG_VERSION").to_string(),
        incarnation: incarnation(node),
        heartbeat_interval_ms: i64::try_from(HEARTBEAT_INTERVAL.as_millis()).ok(),
        boot_id: String::new(),
        simulated: false,
    }
}
