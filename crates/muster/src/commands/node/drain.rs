//! `muster node drain` and `muster node reboot`: what still runs, and waiting until the nodes are empty.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use hyper::Method;
use muster_protocol::node::{DrainSpec, Node, NodeDrain, RemainingJob};

use super::node_target;
use crate::client::Client;
use crate::commands::{CommandResult, ExitStatus};
use crate::error::{CliError, Exit};
use crate::options::Options;
use crate::output::{self, Cell, Column, Format, ListArgs};
use crate::units;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// While a server is away, a wait goes on for this long.
const AWAY_MAX: Duration = Duration::from_secs(300);

/// `muster node drain`.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  muster node drain gpu01 gpu02 --why 'new fans' --wait\n  muster node drain gpu01 --why 'new fans' --deadline 2h\n  muster node resume gpu01",
    after_help = "A drained node finishes its jobs and gets no new ones. `drain` is for work that is planned: it lists what still runs, \
                  and can end it at a deadline. The node itself is drained by muster when its prolog, epilog or health program fails. \
                  `muster node hold` takes a node out of service in the same way, without a plan to end its jobs, and muster never returns \
                  it by itself. Both stay in force, whatever happens to the node, until `muster node resume`."
)]
pub struct DrainArgs {
    /// Node names
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Reason, shown by `muster node show` and to the jobs that are stopped
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// After this time, stop what still runs, with the grace of a preemption; the jobs queue again
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms, conflicts_with = "requeue")]
    deadline: Option<i64>,
    /// Stop what runs now; the jobs queue again
    #[arg(long)]
    requeue: bool,
    /// Wait until no job is left on the nodes
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// `muster node reboot`.
#[derive(Debug, Args)]
#[command(
    before_help = "Example:\n  muster node reboot gpu01 gpu02 --when-idle --why 'new kernel' --deadline 12h --wait",
    after_help = "The node is drained. When no job is left, its agent reboots it (`systemctl reboot`, or `agent.reboot_program`), or the \
                  power program of the site if the agent does not. It returns to the service that it had before when its agent registers \
                  after another boot. The servers remember the order: it survives their restarts. `muster node resume` cancels it."
)]
pub struct RebootArgs {
    /// Only once the jobs of the node have ended; the only way that `reboot` knows
    #[arg(long, required = true)]
    when_idle: bool,
    #[command(flatten)]
    drain: DrainArgs,
}

/// A job on a node that drains.
struct RemainingRow {
    node: String,
    job: RemainingJob,
}

const COLUMNS: [Column<RemainingRow>; 8] = [
    Column::new("NODE", |row| row.node.as_str().into()),
    Column::new("JOB", |row| row.job.job_id.as_str().into()),
    Column::new("NAME", |row| row.job.name.as_str().into()),
    Column::new("TENANT", |row| row.job.tenant_id.as_str().into()),
    Column::new("USER", |row| row.job.user.as_str().into()),
    Column::new("PHASE", |row| row.job.phase.as_str().into()),
    Column::new("GPUS", |row| row.job.gpus.into()),
    Column::new("ENDS", |row| end_cell(&row.job)),
];

fn end_cell(job: &RemainingJob) -> Cell {
    match (job.expected_end_ms, job.is_bound) {
        (None, _) => "unknown".into(),
        (Some(end_ms), true) => format!("by {}", units::local_time_text(end_ms)).into(),
        (Some(end_ms), false) => format!("about {}", units::local_time_text(end_ms)).into(),
    }
}

pub fn drain(client: &Client, args: &DrainArgs, options: &Options) -> CommandResult {
    start(client, args, "drain", options)?;
    if args.wait { wait_until_empty(client, &args.nodes) } else { Ok(ExitStatus::SUCCESS) }
}

pub fn reboot(client: &Client, args: &RebootArgs, options: &Options) -> CommandResult {
    // Boots are told apart by the time of the last return to service, which the wait needs.
    start(client, &args.drain, "reboot", options)?;
    if args.drain.wait { wait_until_rebooted(client, &args.drain.nodes) } else { Ok(ExitStatus::SUCCESS) }
}

/// Drains all nodes before anything is printed or waited for.
fn start(client: &Client, args: &DrainArgs, verb: &str, options: &Options) -> Result<(), CliError> {
    let deadline_seconds = args.deadline.map(|ms| ms.max(0).unsigned_abs().div_ceil(1_000));
    let spec = DrainSpec { why: args.why.clone(), deadline_seconds, requeue: args.requeue };
    let mut drains: Vec<NodeDrain> = Vec::new();
    for node in &args.nodes {
        let drain: NodeDrain = client.send(Method::POST, node_target(node).segment(verb), &spec)?;
        let deadline =
            drain.deadline_ms.map(|at| format!("; what still runs at {} is requeued", units::local_time_text(at)));
        let left = units::count_text(drain.remaining.len() as u64, "job");
        output::print_stderr(&format!("{}: {left} left{}", drain.message, deadline.unwrap_or_default()));
        drains.push(drain);
    }
    let row = |node: &str, job: &RemainingJob| RemainingRow { node: node.to_string(), job: job.clone() };
    let rows: Vec<RemainingRow> =
        drains.iter().flat_map(|drain| drain.remaining.iter().map(|job| row(&drain.node, job))).collect();
    if rows.is_empty() && args.list.show.output == Format::Table {
        return Ok(());
    }
    output::list(&args.list, options.color, &COLUMNS, rows, &drains)
}

/// Follows until no job is left. An interruption leaves the drain in force.
fn wait_until_empty(client: &Client, nodes: &[String]) -> CommandResult {
    announce_wait("node drain", nodes);
    let mut shown: BTreeMap<String, usize> = BTreeMap::new();
    let done = |node: &str| {
        let drain: NodeDrain = client.get(node_target(node).segment("drain"))?;
        let left = drain.remaining.len();
        if shown.insert(node.to_string(), left) != Some(left) {
            output::print_stderr(&match left {
                0 => format!("node `{node}` is empty"),
                _ => format!("node `{node}`: {} left", units::count_text(left as u64, "job")),
            });
        }
        if left > 0 && !is_out_of_service(&drain.state) {
            let message = format!("node `{node}` is {} again: somebody has ended the drain", drain.state);
            return Err(CliError::failed(message));
        }
        Ok(left == 0)
    };
    repeat_until(nodes, done)
}

fn is_out_of_service(state: &str) -> bool {
    !matches!(state, "Ready" | "Suspect")
}

/// Follows until the nodes have registered after their reboot, or somebody has cancelled it.
fn wait_until_rebooted(client: &Client, nodes: &[String]) -> CommandResult {
    announce_wait("node reboot --when-idle", nodes);
    let done = |name: &str| {
        let node: Node = client.get(node_target(name))?;
        if node.reboots_when_idle {
            return Ok(false);
        }
        if node.service.why.starts_with("rebooted") {
            output::print_stderr(&format!("node `{name}` has rebooted and is {}", node.state));
            return Ok(true);
        }
        Err(CliError::failed(format!("the reboot of node `{name}` was cancelled by {}", node.service.by)))
    };
    repeat_until(nodes, done)
}

fn announce_wait(command: &str, nodes: &[String]) {
    output::print_stderr(&format!(
        "waiting; the order stays in force if this is interrupted, `muster {command} {} --wait` goes on, and `muster node \
         resume` ends it",
        nodes.join(" ")
    ));
}

/// Asks about each node until `is_done` says so. Servers may restart meanwhile.
fn repeat_until(nodes: &[String], mut is_done: impl FnMut(&str) -> Result<bool, CliError>) -> CommandResult {
    let mut open: Vec<&String> = nodes.iter().collect();
    let mut away_since: Option<Instant> = None;
    loop {
        let mut still_open = Vec::new();
        for node in open {
            match is_done(node) {
                Ok(true) => away_since = None,
                Ok(false) => {
                    away_since = None;
                    still_open.push(node);
                }
                Err(error) if error.exit == Exit::Unreachable => {
                    if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY_MAX {
                        return Err(error);
                    }
                    still_open.push(node);
                }
                Err(error) => return Err(error),
            }
        }
        if still_open.is_empty() {
            return Ok(ExitStatus::SUCCESS);
        }
        open = still_open;
        std::thread::sleep(LOOK_INTERVAL);
    }
}
