//! `muster node`: list, show, label, drain, hold, reboot, fence and remove nodes.

mod drain;
mod power;

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::gpu::{Gpu, GpuList};
use muster_protocol::node::{JoinTokenMade, JoinTokenSpec, Node, NodeAxis, NodeChange, NodeList, NumaNode};
use muster_protocol::submit::{Acknowledgement, ActionReason};

use super::{CommandResult, ExitStatus};
use crate::client::{Client, RequestTarget};
use crate::confirm::{self, Consent};
use crate::error::{CliError, Exit};
use crate::options::Options;
use crate::output::{self, Card, Cell, Column, ListArgs, ShowArgs, Tint};
use crate::{gpu_share_display, units};

/// `muster node …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List nodes
    Ls(NodeLsArgs),
    /// Show the details of a node
    Show(NodeShowArgs),
    /// Set and remove labels, by which jobs select nodes
    Label(NodeLabelArgs),
    /// Let running jobs finish and place no new ones; list what remains
    Drain(drain::DrainArgs),
    /// Return nodes to service: ends a drain, a hold or a fence
    #[command(visible_alias = "undrain")]
    Resume(NodeStateArgs),
    /// Take nodes out of service until an operator returns them
    #[command(after_help = HOLD_HELP)]
    Hold(NodeStateArgs),
    /// Reboot nodes once their jobs have ended, and return them to service
    Reboot(drain::RebootArgs),
    /// Control the power of a node by the program of the site
    Power(power::PowerArgs),
    /// Make sure that nothing runs on lost nodes any more; their jobs may start elsewhere
    Fence(power::FenceArgs),
    /// Remove nodes from the cluster; their agents are no longer accepted
    Rm(IrreversibleNodeArgs),
    /// Print the join URL for the agent of a new node, once
    Token(NodeTokenArgs),
}

const HOLD_HELP: &str = "Running jobs go on, and no new ones are placed. Use `hold` for a node that must not return by itself, for example \
                         until a repair is proven. `muster node drain` is the word for planned work: it lists what still runs and can \
                         end it at a deadline. A hold is kept when the node is lost, reboots or registers again; `muster node resume` \
                         ends it.";

/// `muster node token`.
#[derive(Debug, Args)]
#[command(before_help = "Example:\n  muster node token | ssh gpu01 muster agent --join -")]
pub struct NodeTokenArgs {
    /// Only this node may use the token; it may also replace the certificate of that node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Expire after this time, at most 24h [default: 15m]
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_duration_ms)]
    expires: Option<i64>,
}

/// `muster node ls`.
#[derive(Debug, Args)]
pub struct NodeLsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// `muster node show`.
#[derive(Debug, Args)]
pub struct NodeShowArgs {
    /// Node name
    node: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster node label`.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  muster node label gpu01 zone=b disk=nvme\n  muster node label gpu01 disk-\n  muster submit --node-label zone=b -- ./go.sh"
)]
pub struct NodeLabelArgs {
    /// Node name; also of a declared node that has not joined yet
    node: String,
    /// KEY=VALUE sets a label, KEY- removes it; other labels stay
    #[arg(required_unless_present = "reset", value_name = "KEY=VALUE|KEY-")]
    labels: Vec<LabelChange>,
    /// Remove all labels set by operators; those that the agent reports apply again
    #[arg(long, conflicts_with = "labels")]
    reset: bool,
}

/// `KEY=VALUE` or `KEY-`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelChange {
    Set { key: String, value: String },
    Remove { key: String },
}

impl FromStr for LabelChange {
    type Err = String;

    fn from_str(text: &str) -> Result<LabelChange, String> {
        match (text.split_once('='), text.strip_suffix('-')) {
            (Some((key, value)), _) if !key.is_empty() => {
                Ok(LabelChange::Set { key: key.to_string(), value: value.to_string() })
            }
            (None, Some(key)) if !key.is_empty() => Ok(LabelChange::Remove { key: key.to_string() }),
            _ => Err(format!("`{text}` is neither KEY=VALUE, to set a label, nor KEY-, to remove one")),
        }
    }
}

/// A state change of one or several nodes.
#[derive(Debug, Args)]
pub struct NodeStateArgs {
    /// Node names
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Reason, shown by `muster node show`
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

/// A state change that cannot be undone.
#[derive(Debug, Args)]
pub struct IrreversibleNodeArgs {
    #[command(flatten)]
    change: NodeStateArgs,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// A node with a summary of its GPUs.
struct NodeRow {
    node: Node,
    models: String,
    health: String,
}

const COLUMNS: [Column<NodeRow>; 15] = [
    Column::new("NODE", |row| row.node.name.as_str().into()),
    Column::new("STATE", |row| Cell::tinted(row.node.state.clone(), tint(&row.node))),
    Column::new("GPUS", |row| format!("{}/{}", row.node.available_gpus, row.node.total_gpus).into()),
    Column::new("MODEL", |row| row.models.as_str().into()),
    Column::new("CPU", |row| format!("{}/{}", row.node.available_cpu_cores, row.node.cpu_cores).into()),
    Column::new("MEM", |row| units::memory_text(row.node.available_memory_mb).into()),
    Column::new("HEALTH", |row| row.health.as_str().into()),
    Column::new("JOBS", |row| row.node.jobs.len().into()),
    Column::new("REASON", |row| row.node.state_why.as_str().into()),
    Column::new("SINCE", |row| units::local_time_text(row.node.state_since_ms).into()),
    Column::wide("BY", |row| row.node.state_by.as_str().into()),
    Column::wide("RACK", |row| Cell::or_dash(row.node.rack.clone())),
    Column::wide("BLOCK", |row| Cell::or_dash(row.node.block.clone())),
    Column::wide("ADDRESS", |row| row.node.ip_address.as_str().into()),
    Column::wide("AGENT", |row| row.node.agent_version.as_str().into()),
];

pub fn run(verb: Verb, options: &Options) -> CommandResult {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => list(&client, &args, options),
        Verb::Show(args) => show(&client, &args),
        Verb::Label(args) => label(&client, &args),
        Verb::Drain(args) => drain::drain(&client, &args, options),
        Verb::Resume(args) => post_state_change(&client, &args, "resume"),
        Verb::Hold(args) => post_state_change(&client, &args, "hold"),
        Verb::Reboot(args) => drain::reboot(&client, &args, options),
        Verb::Power(args) => power::control(&client, &args),
        Verb::Fence(args) => power::fence(&client, &args),
        Verb::Rm(args) => remove(&client, &args),
        Verb::Token(args) => token(&client, args),
    }
}

fn list(client: &Client, args: &NodeLsArgs, options: &Options) -> CommandResult {
    let nodes: NodeList = client.get("nodes")?;
    let gpus: GpuList = client.get("gpus")?;
    let mut by_node: BTreeMap<&str, Vec<&Gpu>> = BTreeMap::new();
    for gpu in &gpus.gpus {
        by_node.entry(&gpu.node_id).or_default().push(gpu);
    }
    let row = |node: &Node| {
        let own = by_node.get(node.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        NodeRow { node: node.clone(), models: models_text(own), health: health_text(own) }
    };
    let rows = nodes.nodes.iter().map(row).collect();
    output::list(&args.list, options.color, &COLUMNS, rows, &nodes)?;
    Ok(ExitStatus::SUCCESS)
}

fn show(client: &Client, args: &NodeShowArgs) -> CommandResult {
    let node: Node = client.get(node_target(&args.node))?;
    output::show(&args.show, &card(&node), &node.name, &node)?;
    Ok(ExitStatus::SUCCESS)
}

/// The API replaces all labels at once, so labels that are not named are sent unchanged.
fn label(client: &Client, args: &NodeLabelArgs) -> CommandResult {
    let labels = match args.reset {
        true => None,
        false => Some(changed_labels(client.get(node_target(&args.node))?, &args.labels)?),
    };
    let change = NodeChange { labels: Some(labels), ..NodeChange::default() };
    let node: Node = client.send(Method::PATCH, node_target(&args.node), &change)?;
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    output::print_stderr(&match labels.len() {
        0 => format!("node `{}` has no labels", node.name),
        1 => format!("node `{}` has the label {}", node.name, labels.join(" ")),
        _ => format!("node `{}` has the labels {}", node.name, labels.join(" ")),
    });
    Ok(ExitStatus::SUCCESS)
}

fn changed_labels(node: Node, changes: &[LabelChange]) -> Result<BTreeMap<String, String>, CliError> {
    let mut labels = node.labels;
    for change in changes {
        match change {
            LabelChange::Set { key, value } => drop(labels.insert(key.clone(), value.clone())),
            LabelChange::Remove { key } if labels.remove(key).is_some() => {}
            LabelChange::Remove { key } => {
                let message = format!("node `{}` has no label `{key}`", node.name);
                return Err(CliError::new(Exit::NotFound, message)
                    .hint(format!("`muster node show {}` lists its labels", node.name)));
            }
        }
    }
    Ok(labels)
}

fn post_state_change(client: &Client, args: &NodeStateArgs, verb: &str) -> CommandResult {
    let reason = ActionReason { why: args.why.clone() };
    for node in &args.nodes {
        let done: Acknowledgement = client.send(Method::POST, node_target(node).segment(verb), &reason)?;
        output::print_stderr(&done.message);
    }
    Ok(ExitStatus::SUCCESS)
}

/// The URL goes to standard output, so that a script can hand it to `muster agent --join`.
fn token(client: &Client, args: NodeTokenArgs) -> CommandResult {
    let spec = JoinTokenSpec {
        node: args.node,
        expires_in_seconds: args.expires.map(|ms| (ms / 1_000).max(1).unsigned_abs()),
    };
    let made: JoinTokenMade = client.send(Method::POST, RequestTarget::new("nodes").segment("join-tokens"), &spec)?;
    output::print_stdout(&format!("{}\n", made.url))?;
    let who = made.node.map_or_else(|| "a new node".to_string(), |node| format!("node `{node}`"));
    let until = units::localize_timestamps(&made.expires_at);
    output::print_stderr(&format!("{who} can join with this URL once, until {until}: muster agent --join URL"));
    Ok(ExitStatus::SUCCESS)
}

fn remove(client: &Client, args: &IrreversibleNodeArgs) -> CommandResult {
    confirm::require_confirmation(Consent::from(args.yes), &format!("remove {}", args.change.nodes.join(", ")))?;
    for node in &args.change.nodes {
        let done: Acknowledgement = client.send_without_body(Method::DELETE, node_target(node))?;
        output::print_stderr(&done.message);
    }
    Ok(ExitStatus::SUCCESS)
}

fn node_target(node: &str) -> RequestTarget {
    RequestTarget::new("nodes").segment(node)
}

fn tint(node: &Node) -> Tint {
    match node.state.as_str() {
        "Ready" => Tint::Good,
        "Draining" | "Suspect" => Tint::Warn,
        _ => Tint::Bad,
    }
}

fn models_text(gpus: &[&Gpu]) -> String {
    let mut models: Vec<&str> = gpus.iter().map(|gpu| gpu.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    models.join(", ")
}

/// The number of GPUs in each state but `healthy`; `ok` if all are healthy.
fn health_text(gpus: &[&Gpu]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus.iter().filter(|gpu| gpu.health != "healthy") {
        *counts.entry(&gpu.health).or_default() += 1;
    }
    let parts: Vec<String> = counts.into_iter().map(|(health, count)| format!("{count} {health}")).collect();
    if parts.is_empty() { "ok".to_string() } else { parts.join(", ") }
}

fn card(node: &Node) -> Card {
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let gpus: Vec<String> = node.gpus.iter().map(gpu_line).collect();
    let numa: Vec<String> = node.numa_nodes.iter().enumerate().map(numa_line).collect();
    Card::default()
        .field("node", node.name.clone())
        .field("state", node.state.clone())
        .field("why", node.state_why.clone())
        .field("by", node.state_by.clone())
        .field("since", units::local_time_text(node.state_since_ms))
        .field("service", axis_text(&node.service))
        .field("sight", axis_text(&node.sight))
        .field_if_some("silent since", node.silent_since.as_deref().map(units::localize_timestamps))
        .field_if_some("drain deadline", node.drain_deadline_ms.map(units::local_time_text))
        .field("reboot", if node.reboots_when_idle { "when its jobs have ended" } else { "" })
        .field_if_some("power program", node.power_failure.as_deref().map(units::localize_timestamps))
        .field_if_some("health program", node.health_failure.as_ref().map(|why| format!("failed: {why}")))
        .field("gpus", format!("{} free of {}", node.available_gpus, node.total_gpus))
        .field("", gpus.join("\n"))
        .field("cpus", format!("{} free of {}", node.available_cpu_cores, node.cpu_cores))
        .field(
            "memory",
            format!("{} free of {}", units::memory_text(node.available_memory_mb), units::memory_text(node.memory_mb)),
        )
        .field("jobs", node.jobs.join(" "))
        .field_if_some("rack", node.rack.clone())
        .field_if_some("block", node.block.clone())
        .field("numa nodes", numa.join("\n"))
        .field_if_some("power feed", node.power_feed.clone())
        .field("labels", labels.join("\n"))
        .field("taints", node.taints.join(" "))
        .field("address", node.ip_address.clone())
        .field("agent", node.agent_version.clone())
        .field_if_some("heartbeats", node.heartbeat_interval_ms.map(|ms| format!("every {} s", ms as f64 / 1_000.0)))
        .field("simulated", if node.simulated { "yes" } else { "" })
        .field("registered", units::localize_timestamps(&node.registered_at))
        .field_if_some("last heartbeat", node.last_heartbeat.as_deref().map(units::localize_timestamps))
}

/// For example `Draining since 2026-03-01 09:14:07 by ada: new fan`.
fn axis_text(axis: &NodeAxis) -> String {
    let why = if axis.why.is_empty() { String::new() } else { format!(": {}", axis.why) };
    format!("{} since {} by {}{why}", axis.state, units::local_time_text(axis.since_ms), axis.by)
}

fn numa_line((number, numa): (usize, &NumaNode)) -> String {
    let (cores, memory) = (units::count_text(numa.cpu_cores, "core"), units::memory_text(numa.memory_mb));
    format!("{number}: {cores}, {memory}, socket {}", numa.socket)
}

fn gpu_line(gpu: &Gpu) -> String {
    let jobs = gpu_share_display::holder_names(gpu, |holder| &holder.job_id);
    let holder = if jobs.is_empty() { jobs } else { format!(" by {jobs}") };
    format!(
        "gpu-{} {} {} {}{holder}, {}{}",
        gpu.index,
        gpu.model,
        units::memory_text(gpu.memory_total_mb),
        gpu.state,
        gpu.health,
        topology_text(gpu)
    )
}

/// NUMA node, PCIe switch and NVLink peers, as far as the agent reports them.
fn topology_text(gpu: &Gpu) -> String {
    let peers: Vec<String> = gpu.nvlink.iter().map(u8::to_string).collect();
    let parts = [
        gpu.numa_node.map(|number| format!(", numa {number}")),
        gpu.pcie_switch.map(|number| format!(", switch {number}")),
        (!peers.is_empty()).then(|| format!(", nvlink to {}", peers.join(" "))),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_set_and_removed_as_kubectl_does() {
        let set = |key: &str, value: &str| LabelChange::Set { key: key.into(), value: value.into() };
        assert_eq!("zone=b".parse(), Ok(set("zone", "b")));
        assert_eq!("zone=".parse(), Ok(set("zone", "")));
        assert_eq!("zone=b-".parse(), Ok(set("zone", "b-")));
        assert_eq!("zone-".parse(), Ok(LabelChange::Remove { key: "zone".into() }));
        for text in ["zone", "=b", "-", ""] {
            assert!(text.parse::<LabelChange>().is_err(), "{text}");
        }
    }
}
