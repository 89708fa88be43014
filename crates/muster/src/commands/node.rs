//! Machines: a list, all about one, its labels, and taking one out of service.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::gpu::{Gpu, GpuList};
use muster_protocol::node::{Node, NodeChange, NodeList, NumaNode};
use muster_protocol::submit::{Done, Reasoned};

use super::{Code, Ending};
use crate::client::{Client, Target};
use crate::confirm::{self, Consent};
use crate::error::{CliError, Exit};
use crate::options::Options;
use crate::output::{self, Card, Cell, Column, ListArgs, ShowArgs, Tint};
use crate::{shares, units};

/// `muster node …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List nodes
    Ls(LsArgs),
    /// Show all about one
    Show(OneArgs),
    /// Set and remove its labels, which jobs choose nodes by
    Label(LabelArgs),
    /// Let it finish what it has, and give it nothing new
    Drain(ChangeArgs),
    /// Let it take work again
    Undrain(ChangeArgs),
    /// Take it out of service until a person clears it
    Hold(ChangeArgs),
    /// Declare it dead: its jobs are over there, and may start elsewhere
    Fence(FinalArgs),
    /// Forget it
    Rm(FinalArgs),
}

/// `muster node ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// `muster node show`.
#[derive(Debug, Args)]
pub struct OneArgs {
    /// Which
    node: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster node label`.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  muster node label gpu01 zone=b disk=nvme\n  muster node label gpu01 disk-\n  muster submit --node-label zone=b -- ./go.sh"
)]
pub struct LabelArgs {
    /// Which; also one that is declared and has not joined yet
    node: String,
    /// KEY=VALUE sets a label, KEY- removes it; the others stay
    #[arg(required_unless_present = "reset", value_name = "KEY=VALUE|KEY-")]
    labels: Vec<LabelChange>,
    /// Forget the labels set here: they are again those that its agent reports
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

/// A change of one or several nodes.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Which
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Why, for those who look at it later
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

/// A change that cannot be taken back.
#[derive(Debug, Args)]
pub struct FinalArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// A node with what its GPUs say.
struct Row {
    node: Node,
    models: String,
    health: String,
}

const COLUMNS: [Column<Row>; 15] = [
    Column::new("NODE", |row| row.node.name.as_str().into()),
    Column::new("STATE", |row| Cell::tinted(row.node.state.clone(), tint(&row.node))),
    Column::new("GPUS", |row| format!("{}/{}", row.node.available_gpus, row.node.total_gpus).into()),
    Column::new("MODEL", |row| row.models.as_str().into()),
    Column::new("CPU", |row| format!("{}/{}", row.node.available_cpu_cores, row.node.cpu_cores).into()),
    Column::new("MEM", |row| units::memory(row.node.available_memory_mb).into()),
    Column::new("HEALTH", |row| row.health.as_str().into()),
    Column::new("JOBS", |row| row.node.jobs.len().into()),
    Column::new("REASON", |row| row.node.state_why.as_str().into()),
    Column::new("SINCE", |row| units::moment(row.node.state_since_ms).into()),
    Column::wide("BY", |row| row.node.state_by.as_str().into()),
    Column::wide("RACK", |row| Cell::or_dash(row.node.rack.clone())),
    Column::wide("BLOCK", |row| Cell::or_dash(row.node.block.clone())),
    Column::wide("ADDRESS", |row| row.node.ip_address.as_str().into()),
    Column::wide("AGENT", |row| row.node.agent_version.as_str().into()),
];

/// Do one of them.
pub fn run(verb: Verb, options: &Options) -> Ending {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => list(&client, &args, options),
        Verb::Show(args) => show(&client, &args),
        Verb::Label(args) => label(&client, &args),
        Verb::Drain(args) => change(&client, &args, "drain"),
        Verb::Undrain(args) => change(&client, &args, "undrain"),
        Verb::Hold(args) => change(&client, &args, "hold"),
        Verb::Fence(args) => fence(&client, &args),
        Verb::Rm(args) => remove(&client, &args),
    }
}

fn list(client: &Client, args: &LsArgs, options: &Options) -> Ending {
    let nodes: NodeList = client.get("nodes")?;
    let gpus: GpuList = client.get("gpus")?;
    let mut by_node: BTreeMap<&str, Vec<&Gpu>> = BTreeMap::new();
    for gpu in &gpus.gpus {
        by_node.entry(&gpu.node_id).or_default().push(gpu);
    }
    let row = |node: &Node| {
        let own = by_node.get(node.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        Row { node: node.clone(), models: models(own), health: health(own) }
    };
    let rows = nodes.nodes.iter().map(row).collect();
    output::list(&args.list, options.color, &COLUMNS, rows, &nodes)?;
    Ok(Code::DONE)
}

fn show(client: &Client, args: &OneArgs) -> Ending {
    let node: Node = client.get(target(&args.node))?;
    output::show(&args.show, &card(&node), &node.name, &node)?;
    Ok(Code::DONE)
}

/// The API takes all labels at once: those that are not named are sent as they are.
fn label(client: &Client, args: &LabelArgs) -> Ending {
    let labels = match args.reset {
        true => None,
        false => Some(labelled(client.get(target(&args.node))?, &args.labels)?),
    };
    let change = NodeChange { labels: Some(labels), ..NodeChange::default() };
    let node: Node = client.send(Method::PATCH, target(&args.node), &change)?;
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    output::talk(&match labels.len() {
        0 => format!("node `{}` has no labels", node.name),
        1 => format!("node `{}` has the label {}", node.name, labels.join(" ")),
        _ => format!("node `{}` has the labels {}", node.name, labels.join(" ")),
    });
    Ok(Code::DONE)
}

/// The labels of a node after the changes.
fn labelled(node: Node, changes: &[LabelChange]) -> Result<BTreeMap<String, String>, CliError> {
    let mut labels = node.labels;
    for change in changes {
        match change {
            LabelChange::Set { key, value } => drop(labels.insert(key.clone(), value.clone())),
            LabelChange::Remove { key } if labels.remove(key).is_some() => {}
            LabelChange::Remove { key } => {
                let what = format!("node `{}` has no label `{key}`", node.name);
                return Err(CliError::new(Exit::NotFound, what)
                    .hint(format!("`muster node show {}` lists its labels", node.name)));
            }
        }
    }
    Ok(labels)
}

fn change(client: &Client, args: &ChangeArgs, verb: &str) -> Ending {
    let reasoned = Reasoned { why: args.why.clone() };
    for node in &args.nodes {
        let done: Done = client.send(Method::POST, target(node).at(verb), &reasoned)?;
        output::talk(&done.message);
    }
    Ok(Code::DONE)
}

fn fence(client: &Client, args: &FinalArgs) -> Ending {
    let names = args.change.nodes.join(", ");
    let deed = format!("declare {names} dead (if its jobs still run there, two copies may run)");
    confirm::ask(Consent::from(args.yes), &deed)?;
    change(client, &args.change, "fence")
}

fn remove(client: &Client, args: &FinalArgs) -> Ending {
    confirm::ask(Consent::from(args.yes), &format!("remove {}", args.change.nodes.join(", ")))?;
    for node in &args.change.nodes {
        let done: Done = client.act(Method::DELETE, target(node))?;
        output::talk(&done.message);
    }
    Ok(Code::DONE)
}

fn target(node: &str) -> Target {
    Target::new("nodes").at(node)
}

fn tint(node: &Node) -> Tint {
    match node.state.as_str() {
        "Ready" => Tint::Good,
        "Draining" | "Suspect" => Tint::Warn,
        _ => Tint::Bad,
    }
}

/// Each model once.
fn models(gpus: &[&Gpu]) -> String {
    let mut models: Vec<&str> = gpus.iter().map(|gpu| gpu.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    models.join(", ")
}

/// What is not healthy, counted; `ok` when all is well.
fn health(gpus: &[&Gpu]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus.iter().filter(|gpu| gpu.health != "healthy") {
        *counts.entry(&gpu.health).or_default() += 1;
    }
    let words: Vec<String> = counts.into_iter().map(|(word, count)| format!("{count} {word}")).collect();
    if words.is_empty() { "ok".to_string() } else { words.join(", ") }
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
        .field("since", units::moment(node.state_since_ms))
        .field("gpus", format!("{} free of {}", node.available_gpus, node.total_gpus))
        .field("", gpus.join("\n"))
        .field("cpus", format!("{} free of {}", node.available_cpu_cores, node.cpu_cores))
        .field(
            "memory",
            format!("{} free of {}", units::memory(node.available_memory_mb), units::memory(node.memory_mb)),
        )
        .field("jobs", node.jobs.join(" "))
        .maybe("rack", node.rack.clone())
        .maybe("block", node.block.clone())
        .field("numa nodes", numa.join("\n"))
        .maybe("power feed", node.power_feed.clone())
        .field("labels", labels.join("\n"))
        .field("taints", node.taints.join(" "))
        .field("address", node.ip_address.clone())
        .field("agent", node.agent_version.clone())
        .field("simulated", if node.simulated { "yes" } else { "" })
        .field("registered", units::localized(&node.registered_at))
        .maybe("last heard", node.last_heartbeat.as_deref().map(units::localized))
}

fn numa_line((number, numa): (usize, &NumaNode)) -> String {
    let (cores, memory) = (units::count(numa.cpu_cores, "core"), units::memory(numa.memory_mb));
    format!("{number}: {cores}, {memory}, socket {}", numa.socket)
}

fn gpu_line(gpu: &Gpu) -> String {
    let jobs = shares::names(gpu, |holder| &holder.job_id);
    let holder = if jobs.is_empty() { jobs } else { format!(" by {jobs}") };
    format!(
        "gpu-{} {} {} {}{holder}, {}{}",
        gpu.index,
        gpu.model,
        units::memory(gpu.memory_total_mb),
        gpu.state,
        gpu.health,
        wiring(gpu)
    )
}

/// Where it hangs, and whom it reaches from there, as far as that is known.
fn wiring(gpu: &Gpu) -> String {
    let peers: Vec<String> = gpu.nvlink.iter().map(u8::to_string).collect();
    let words = [
        gpu.numa_node.map(|number| format!(", numa {number}")),
        gpu.pcie_switch.map(|number| format!(", switch {number}")),
        (!peers.is_empty()).then(|| format!(", nvlink to {}", peers.join(" "))),
    ];
    words.into_iter().flatten().collect()
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
